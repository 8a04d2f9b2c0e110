package mend.hdfs;

import java.io.IOException;
import java.util.Arrays;
import mend.client.Stripe;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/**
 * A block group as a stripe that Mend is told of. Who holds which block is said, never inferred: an index without a holder is
 * lost.
 *
 * <p>A DataNode is named by its address, {@code IP:PORT}, as the NameNode knows it; the coordinator knows which helper is
 * beside it ({@code datanode} in mend.toml).
 */
public final class Group {
  private final ExtendedBlock group;
  private final ErasureCodingPolicy policy;
  private final String[] holders;

  /** A group of which nobody holds anything so far. */
  public Group(ExtendedBlock group, ErasureCodingPolicy policy) {
    this.group = group;
    this.policy = policy;
    this.holders = new String[policy.getNumDataUnits() + policy.getNumParityUnits()];
  }

  /** A DataNode holds a block. Of several that hold the same one the first counts. */
  public void hold(int index, DatanodeInfo node) {
    if (holders[index] == null) {
      holders[index] = node.getXferAddr();
    }
  }

  /** A block cannot be had from where it should be. */
  public void lose(int index) {
    holders[index] = null;
  }

  /** Bytes of an internal block. */
  public long bytes(int index) {
    return StripedBlockUtil.getInternalBlockLength(group.getNumBytes(), policy, index);
  }

  /** Data blocks that have bytes; those that have none come last. */
  private int present() {
    int present = 0;
    while (present < policy.getNumDataUnits() && bytes(present) > 0) {
      present++;
    }
    return present;
  }

  /**
   * A block's index in the stripe, where absent blocks are not counted.
   *
   * @throws IOException if the group has no such block
   */
  public int indexInStripe(int index) throws IOException {
    int absent = policy.getNumDataUnits() - present();
    if (index < 0 || index >= holders.length || bytes(index) == 0) {
      throw new IOException("group " + group + " has no block " + index);
    }
    return index < policy.getNumDataUnits() ? index : index - absent;
  }

  /** Its name, by which the coordinator knows it as well if it has been told of it by the NameNode. */
  public String name() {
    return name(group);
  }

  static String name(ExtendedBlock group) {
    return "group_" + group.getBlockId() + "_" + group.getGenerationStamp();
  }

  private String blockName(long block) {
    return Block.BLOCK_FILE_PREFIX + block + "_" + group.getGenerationStamp();
  }

  /** Where its blocks are, to be compared. */
  public String whereabouts() {
    return group.getNumBytes() + Arrays.toString(holders);
  }

  /**
   * The group as a stripe.
   *
   * @throws IOException if Mend has no such code
   */
  public Stripe stripe() throws IOException {
    Stripe stripe = new Stripe(name(), GroupCode.name(policy, present()), bytes(0));
    for (int index = 0; index < holders.length; index++) {
      if (bytes(index) > 0) {
        stripe.block(blockName(group.getBlockId() | index), bytes(index), holders[index]);
      }
    }
    return stripe;
  }
}
