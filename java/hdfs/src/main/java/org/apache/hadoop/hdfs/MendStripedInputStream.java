package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.nio.ByteBuffer;
import mend.hdfs.DegradedReads;
import mend.hdfs.Group;
import mend.hdfs.LostBlock;
import org.apache.hadoop.hdfs.DFSUtilClient.CorruptedBlocks;
import org.apache.hadoop.hdfs.StripeReader.BlockReaderInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil.BlockReadStats;
import org.apache.hadoop.util.Time;

/**
 * A stream of a striped file whose positional reads get lost data through Mend. Mend fetches only the
 * requested bytes, while HDFS would fetch k times as many and decode.
 *
 * <p>A block is treated as lost if the NameNode knows no holder of it, or if this stream could reach none of
 * the known holders. Sequential reads fetch complete rows of cells anyway and are left to HDFS.
 */
final class MendStripedInputStream extends DFSStripedInputStream {
  private final ErasureCodingPolicy policy;
  private final int cellBytes;
  private final DegradedReads reads;

  MendStripedInputStream(
      DFSClient client, String src, boolean verifyChecksum, LocatedBlocks blocks, DegradedReads reads)
      throws IOException {
    super(client, src, verifyChecksum, blocks.getErasureCodingPolicy(), blocks);
    this.policy = blocks.getErasureCodingPolicy();
    this.cellBytes = policy.getCellSize();
    this.reads = reads;
  }

  /**
   * Reads the bytes from {@code start} to {@code end}, inclusive, of a group; cell by cell if some of them
   * are lost.
   */
  @Override
  protected void fetchBlockByteRange(
      LocatedBlock block, long start, long end, ByteBuffer buffer, CorruptedBlocks corrupted) throws IOException {
    if (!reads.wants(end - start + 1)) {
      super.fetchBlockByteRange(block, start, end, buffer, corrupted);
      return;
    }
    for (long at = start; at <= end; ) {
      LocatedStripedBlock located = (LocatedStripedBlock) getBlockAt(block.getStartOffset());
      boolean isLost = isLost(located, indexOf(at));
      long next = at;
      do {
        next = Math.min((next / cellBytes + 1) * cellBytes, end + 1);
      } while (!isLost && next <= end && !isLost(located, indexOf(next)));
      if (!isLost || !readLost(located, at, (int) (next - at), buffer)) {
        super.fetchBlockByteRange(block, at, next - 1, buffer, corrupted);
      }
      at = next;
    }
  }

  /** Returns the index of the data block that contains this byte of the group. */
  private int indexOf(long offset) {
    return (int) (offset / cellBytes % policy.getNumDataUnits());
  }

  /** Returns the offset of this byte of the group in its data block. */
  private long offsetInBlock(long offset) {
    return offset / cellBytes / policy.getNumDataUnits() * cellBytes + offset % cellBytes;
  }

  private boolean isLost(LocatedStripedBlock located, int index) {
    byte[] indices = located.getBlockIndices();
    for (int i = 0; i < indices.length; i++) {
      if (indices[i] == index && !dfsClient.isDeadNode(this, located.getLocations()[i])) {
        return false;
      }
    }
    return true;
  }

  /** Returns the group without the holders that this stream failed to reach. */
  private Group group(LocatedStripedBlock located) {
    Group group = new Group(located.getBlock(), policy);
    byte[] indices = located.getBlockIndices();
    for (int i = 0; i < indices.length; i++) {
      DatanodeInfo node = located.getLocations()[i];
      if (!dfsClient.isDeadNode(this, node)) {
        group.hold(indices[i], node);
      }
    }
    return group;
  }

  /** Reads bytes of one cell through Mend; returns whether that succeeded. */
  private boolean readLost(LocatedStripedBlock located, long at, int bytes, ByteBuffer buffer) {
    ByteBuffer target = buffer.duplicate();
    target.limit(target.position() + bytes);
    long startMs = Time.monotonicNow();
    LostBlock lost = reads.block(group(located), indexOf(at));
    if (lost.read(offsetInBlock(at), target) != LostBlock.Result.READ) {
      return false;
    }
    buffer.position(buffer.position() + bytes);
    updateReadStats(new BlockReadStats(bytes, false, LostBlockReader.DISTANCE),
        Time.monotonicNow() - startMs);
    return true;
  }

  /** Like HDFS's method, but reads a block through Mend if its known holder does not deliver it. */
  @Override
  boolean createBlockReader(
      LocatedBlock block, long offset, LocatedBlock[] blocks, BlockReaderInfo[] readers, int index, long readTo)
      throws IOException {
    if (super.createBlockReader(block, offset, blocks, readers, index, readTo)) {
      return true;
    }
    // Leave other reads to HDFS: sequential reads have no known end, and parity blocks are only requested if
    // HDFS is decoding already.
    if (readTo < 0 || index >= policy.getNumDataUnits() || !reads.wants(readTo - offset)) {
      return false;
    }
    LocatedStripedBlock located = (LocatedStripedBlock) getBlockAt(block.getStartOffset());
    Group group = group(located);
    group.lose(index);
    DatanodeInfo[] holders = block.getLocations();
    readers[index] = new BlockReaderInfo(
        new LostBlockReader(reads.block(group, index), offset, Math.min(readTo, group.bytes(index)), null),
        holders.length > 0 ? holders[0] : null, offset);
    return true;
  }
}
