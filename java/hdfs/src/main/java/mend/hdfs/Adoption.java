package mend.hdfs;

import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.DatanodeUtil;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsDatasetSpi;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsVolumeSpi;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.FsVolumeImpl;

/**
 * Makes a running DataNode adopt a finalized replica that was placed in its folders, and report it to the
 * NameNode.
 *
 * <p>Uses the same call as the DataNode's DirectoryScanner, without waiting up to six hours for the next
 * scan. The DataNode copies no bytes, and it accepts the replicas that its scanner would accept.
 */
class Adoption {
  private final DataNode dataNode;
  private final VolumeSearch search = new VolumeSearch();

  Adoption(DataNode dataNode) {
    this.dataNode = dataNode;
  }

  /**
   * Checks that replicas of a block pool would be accepted now.
   *
   * @throws IOException if the DataNode does not serve the block pool
   */
  void ready(String pool) throws IOException {
    dataset();
    if (!dataNode.isBPServiceAlive(pool)) {
      throw new IOException("the DataNode does not serve block pool " + pool);
    }
  }

  /**
   * Tells the NameNode of a block that the DataNode has, see {@link HeldReplicas#tell}.
   *
   * @throws IOException if the DataNode has no such block
   */
  void tell(String pool, long block) throws IOException {
    HeldReplicas.tell(dataNode, pool, block);
  }

  private FsDatasetSpi<?> dataset() throws IOException {
    FsDatasetSpi<?> dataset = dataNode.getFSDataset();
    if (dataset == null) {
      throw new IOException("the DataNode has not registered with a NameNode yet");
    }
    return dataset;
  }

  /**
   * Adopts the replica of a block of {@code bytes} bytes with this generation stamp.
   *
   * @throws IOException if the replica is missing, or the DataNode has a newer one or rejects it
   */
  void adopt(String pool, long block, long stamp, long bytes) throws IOException {
    FsDatasetSpi<?> dataset = dataset();
    Block before = dataset.getStoredBlock(pool, block);
    if (before != null && before.getGenerationStamp() > stamp) {
      throw new IOException("the DataNode has " + before + ", which is newer than generation stamp " + stamp);
    }
    FsVolumeSpi volume = look(dataset, pool, block, stamp);
    ExtendedBlock wanted = new ExtendedBlock(pool, block, bytes, stamp);
    Block stored = dataset.getStoredBlock(pool, block);
    boolean known = stored != null && stored.getGenerationStamp() == stamp && stored.getNumBytes() == bytes;
    if (!known || !dataset.isValidBlock(wanted)) {
      throw new IOException("the DataNode did not accept " + wanted + "; it has " + stored);
    }
    // The check in look() makes the DataNode report a replica that it did not know before. A replica that
    // replaces a known one is reported to the NameNode only here.
    dataNode.notifyNamenodeReceivedBlock(wanted, null, volume.getStorageID(), volume.isTransientStorage());
  }

  /** Makes the DataNode check the replica. Returns the volume that holds the replica. */
  private FsVolumeSpi look(FsDatasetSpi<?> dataset, String pool, long block, long stamp) throws IOException {
    String bytes = Block.BLOCK_FILE_PREFIX + block;
    String meta = DatanodeUtil.getMetaName(bytes, stamp);
    try (FsDatasetSpi.FsVolumeReferences volumes = dataset.getFsVolumeReferences()) {
      Place place = search.find(places(volumes, pool, block),
          it -> new File(it.folder, bytes).exists() && new File(it.folder, meta).exists());
      if (place == null) {
        throw new IOException("the folders of the DataNode do not contain blk_" + block + "_" + stamp);
      }
      dataset.checkAndUpdate(pool, new FsVolumeSpi.ScanInfo(block, place.folder, bytes, meta, place.volume));
      return place.volume;
    }
  }

  /** Returns where the volumes would hold a block, by their names. */
  private static Map<String, Place> places(Iterable<FsVolumeSpi> volumes, String pool, long block) throws IOException {
    Map<String, Place> places = new HashMap<>();
    for (FsVolumeSpi volume : volumes) {
      if (volume instanceof FsVolumeImpl && Arrays.asList(volume.getBlockPoolList()).contains(pool)) {
        File folder = DatanodeUtil.idToBlockDir(((FsVolumeImpl) volume).getFinalizedDir(pool), block);
        places.put(volume.toString(), new Place(volume, folder));
      }
    }
    return places;
  }

  /** The folder of a volume in which a block belongs. */
  private static final class Place {
    final FsVolumeSpi volume;
    final File folder;

    Place(FsVolumeSpi volume, File folder) {
      this.volume = volume;
      this.folder = folder;
    }
  }
}
