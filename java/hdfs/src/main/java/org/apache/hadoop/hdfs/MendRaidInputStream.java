package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import mend.hdfs.DegradedReads;
import mend.hdfs.LostBlock;
import mend.hdfs.ParityFiles;
import mend.hdfs.RaidDecoder;
import mend.hdfs.RaidedFile;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.net.NetUtils;

/**
 * A stream of a replicated file that reads lost blocks with the file's parity, if it has any: through Mend,
 * or, if the coordinator does not answer, by decoding k other blocks here.
 *
 * <p>HDFS chooses a DataNode before it reads. If it finds none, this stream offers {@link #MEND}, and HDFS
 * opens a {@link LostBlockReader} instead of a connection. So positional, sequential and hedged reads need no
 * code of their own. If that reader fails, HDFS asks the NameNode again and retries, as it does after
 * failures of DataNodes.
 */
final class MendRaidInputStream extends DFSInputStream {
  /** Stands for Mend wherever HDFS expects the DataNode of a block. */
  static final DatanodeInfo MEND = new DatanodeInfo.DatanodeInfoBuilder()
      .setNodeID(new DatanodeID("0.0.0.0", "mend", "mend", 0, 0, 0, 0)).build();
  private static final InetSocketAddress NOWHERE = InetSocketAddress.createUnresolved("mend", 0);
  /** How long the NameNode's answer about the file and its parity is used. */
  private static final long LOOK_AGAIN_NS = TimeUnit.SECONDS.toNanos(10);

  private final DegradedReads reads;
  private final ParityFiles parity;
  private final Object looking = new Object();
  // Protected by the lock on `looking`.
  private RaidedFile found;
  private boolean hasLooked;
  private long lookedNs;

  MendRaidInputStream(
      DFSClient client, String src, boolean verifyChecksum, LocatedBlocks blocks, DegradedReads reads,
      ParityFiles parity) throws IOException {
    super(client, src, verifyChecksum, blocks);
    this.reads = reads;
    this.parity = parity;
  }

  /** Returns a DataNode that has the block; or else Mend, if the block can be rebuilt; or else null. */
  @Override
  protected DNAddrPair getBestNodeDNAddrPair(LocatedBlock block, Collection<DatanodeInfo> ignored) {
    DNAddrPair best = super.getBestNodeDNAddrPair(block, ignored);
    if (best != null || isDead(MEND) || ignored != null && ignored.contains(MEND)) {
      return best;
    }
    RaidedFile file = raided();
    LocatedBlock listed = file == null ? null : file.listed(block);
    if (listed == null) {
      return null;
    }
    DNAddrPair repaired = RaidedFile.holder(listed, this::isDead) == null ? null : located(listed, ignored);
    return repaired != null ? repaired : new DNAddrPair(MEND, NOWHERE, null, block);
  }

  /**
   * Returns a DataNode to which the block was moved or on which it was rebuilt since the stream located it.
   */
  private DNAddrPair located(LocatedBlock block, Collection<DatanodeInfo> ignored) {
    try {
      return super.getBestNodeDNAddrPair(fetchBlockAt(block.getStartOffset()), ignored);
    } catch (IOException problem) {
      DFSClient.LOG.debug("cannot locate {} again", block, problem);
      return null;
    }
  }

  /** Returns the file with its parity; null if there is none, or the NameNode does not answer. */
  private RaidedFile raided() {
    synchronized (looking) {
      if (!hasLooked || System.nanoTime() - lookedNs > LOOK_AGAIN_NS) {
        found = look();
        hasLooked = true;
        lookedNs = System.nanoTime();
      }
      return found;
    }
  }

  private RaidedFile look() {
    try {
      return parity.find(getSrc());
    } catch (IOException problem) {
      DFSClient.LOG.warn("cannot look for the parity of {}: {}", getSrc(), problem.toString());
      return null;
    }
  }

  /** Returns the file with its parity, if they protect this block. */
  private RaidedFile protecting(LocatedBlock block) throws IOException {
    RaidedFile file = raided();
    if (file == null || file.listed(block) == null) {
      throw new IOException(getSrc() + " has no valid parity for " + block.getBlock());
    }
    return file;
  }

  private boolean isDead(DatanodeInfo node) {
    return dfsClient.getDeadNodes(this).containsKey(node);
  }

  @Override
  protected BlockReader getBlockReader(
      LocatedBlock block, long offset, long length, InetSocketAddress address, StorageType storage, DatanodeInfo node)
      throws IOException {
    if (node != MEND) {
      return super.getBlockReader(block, offset, length, address, storage, node);
    }
    RaidedFile file = protecting(block);
    LostBlock lost = reads.block(file.stripeWithout(block, this::isDead), file.index(block));
    return new LostBlockReader(lost, offset, offset + length, (from, target) -> decode(block, from, target));
  }

  @Override
  protected void addToLocalDeadNodes(DatanodeInfo node) {
    super.addToLocalDeadNodes(node);
    if (node == MEND) {
      synchronized (looking) {
        hasLooked = false;
      }
    }
  }

  @Override
  protected void reportLostBlock(LocatedBlock block, Collection<DatanodeInfo> ignored) {
    DFSClient.LOG.debug("no live node contains {}", block.getBlock());
  }

  // ---- without Mend ----

  /** Rebuilds bytes of a lost block from the same bytes of k other blocks of its stripe. */
  private void decode(LocatedBlock lost, long from, ByteBuffer target) throws IOException {
    if (!verifyChecksum) {
      throw new IOException("without checksums, decoding " + lost.getBlock() + " could return wrong bytes unnoticed");
    }
    target.put(RaidDecoder.decode(protecting(lost), lost, from, target.remaining(), new Access()));
  }

  private final class Access implements RaidDecoder.Access {
    @Override
    public RaidedFile lookAgain() {
      synchronized (looking) {
        hasLooked = false;
      }
      return raided();
    }

    @Override
    public boolean isDead(DatanodeInfo node) {
      return MendRaidInputStream.this.isDead(node);
    }

    @Override
    public byte[] read(LocatedBlock block, DatanodeInfo holder, long from, int bytes) {
      try {
        return readSource(block, holder, from, bytes);
      } catch (IOException problem) {
        DFSClient.LOG.warn("cannot read {} from {} to decode a lost block of {}", block.getBlock(), holder, getSrc(),
            problem);
        addToLocalDeadNodes(holder);
        return null;
      }
    }
  }

  /** Returns a range of a block, with zeros where the block has ended. */
  private byte[] readSource(LocatedBlock block, DatanodeInfo node, long from, int bytes) throws IOException {
    byte[] data = new byte[bytes];
    int present = (int) Math.min(bytes, block.getBlockSize() - from);
    if (present > 0) {
      String address = node.getXferAddr(dfsClient.getConf().isConnectToDnViaHostname());
      BlockReader reader =
          super.getBlockReader(block, from, present, NetUtils.createSocketAddr(address), null, node);
      try {
        reader.readFully(data, 0, present);
      } finally {
        reader.close();
      }
    }
    return data;
  }
}
