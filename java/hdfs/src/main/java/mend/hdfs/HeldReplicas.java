package mend.hdfs;

import java.io.IOException;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsDatasetSpi;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsVolumeSpi;

/** Replicas that a DataNode has, although its NameNode may not list them. */
public final class HeldReplicas {
  private HeldReplicas() {}

  /**
   * Tells the NameNode of one replica, as the DataNode's next report of all blocks would. The NameNode then lists the
   * replica or has it deleted.
   *
   * @throws IOException if the DataNode has no complete replica of the block
   */
  public static void tell(DataNode dataNode, String pool, long block) throws IOException {
    FsDatasetSpi<?> dataset = dataNode.getFSDataset();
    Block stored = dataset == null ? null : dataset.getStoredBlock(pool, block);
    if (stored == null) {
      throw new IOException("the DataNode has no blk_" + block);
    }
    ExtendedBlock held = new ExtendedBlock(pool, stored);
    FsVolumeSpi volume = dataset.getVolume(held);
    if (volume == null || !dataset.isValidBlock(held)) {
      throw new IOException("the DataNode has no complete replica of " + held);
    }
    dataNode.notifyNamenodeReceivedBlock(held, null, volume.getStorageID(), volume.isTransientStorage());
  }
}
