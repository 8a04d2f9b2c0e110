package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/** The NameNode's command for one block group, extracted from the task that HDFS has created for it. */
public final class ReconstructionCommand {
  private final ExtendedBlock group;
  private final ErasureCodingPolicy policy;
  private final byte[] liveIndices;
  private final DatanodeInfo[] sources;
  private final List<Integer> lost = new ArrayList<>();
  private final DatanodeInfo[] targets;

  /** The blocks to read have the indices {@code liveIndices}, those to rebuild {@code targetIndices}. */
  ReconstructionCommand(ExtendedBlock group, ErasureCodingPolicy policy, byte[] liveIndices, DatanodeInfo[] sources,
      short[] targetIndices, DatanodeInfo[] targets) {
    this.group = group;
    this.policy = policy;
    this.liveIndices = liveIndices;
    this.sources = sources;
    this.targets = targets;
    name(targetIndices);
  }

  static ReconstructionCommand of(StripedBlockReconstructor task) throws ReflectiveOperationException {
    StripedReader reader = task.getStripedReader();
    Object writer = read(task, StripedBlockReconstructor.class, "stripedWriter");
    return new ReconstructionCommand(task.getBlockGroup(),
        (ErasureCodingPolicy) read(task, StripedReconstructor.class, "ecPolicy"),
        (byte[]) read(reader, StripedReader.class, "liveIndices"),
        (DatanodeInfo[]) read(reader, StripedReader.class, "sources"),
        (short[]) read(writer, StripedWriter.class, "targetIndices"),
        (DatanodeInfo[]) read(writer, StripedWriter.class, "targets"));
  }

  /**
   * Determines the blocks to rebuild. HDFS lists their indices in ascending order, padded with 0 if there are
   * more targets than blocks.
   */
  private void name(short[] indices) {
    BitSet live = new BitSet();
    for (byte index : liveIndices) {
      live.set(index);
    }
    for (short index : indices) {
      if (!lost.isEmpty() && index <= lost.get(lost.size() - 1)) {
        break;
      }
      if (live.get(index)) {
        throw new IllegalStateException("block " + index + " of " + group + " should be rebuilt, but is live");
      }
      lost.add((int) index);
    }
  }

  static Object read(Object owner, Class<?> type, String field) throws ReflectiveOperationException {
    Field found = type.getDeclaredField(field);
    found.setAccessible(true);
    return found.get(owner);
  }

  /** Returns the group. */
  public ExtendedBlock group() {
    return group;
  }

  /** Returns the group's policy. */
  public ErasureCodingPolicy policy() {
    return policy;
  }

  /** Returns the indices of the blocks to rebuild, in ascending order. */
  public List<Integer> lost() {
    return lost;
  }

  /** Returns the DataNode that receives a rebuilt block. */
  public DatanodeInfo target(int index) {
    return targets[lost.indexOf(index)];
  }

  /** Returns the number of source blocks required. */
  private int sourcesNeeded() {
    long cells = (group.getNumBytes() - 1) / policy.getCellSize() + 1;
    return (int) Math.min(cells, policy.getNumDataUnits());
  }

  /**
   * Returns the number of bytes that a reconstruction reads, as HDFS counts them: from each source block, the
   * length of the longest lost block, or the whole source block if that is shorter.
   */
  long bytesToRead() {
    long longest = lost.stream().mapToLong(this::blockBytes).max().orElse(0);
    long bytes = 0;
    for (int at = 0; at < sourcesNeeded() && at < liveIndices.length; at++) {
      bytes += Math.min(longest, blockBytes(liveIndices[at]));
    }
    return bytes;
  }

  /** Returns the total size of the lost blocks in bytes. */
  long bytesToWrite() {
    return lost.stream().mapToLong(this::blockBytes).sum();
  }

  /** Returns the length of an internal block in bytes. */
  long blockBytes(int index) {
    return StripedBlockUtil.getInternalBlockLength(group.getNumBytes(), policy, index);
  }

  /** Passes every live block's index and a DataNode that holds it to {@code consumer}. */
  public void forEachSource(SourceConsumer consumer) {
    for (int i = 0; i < liveIndices.length; i++) {
      consumer.accept(liveIndices[i], sources[i]);
    }
  }

  /** Receives an index and the DataNode that holds the block. */
  public interface SourceConsumer {
    void accept(int index, DatanodeInfo node);
  }
}
