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
 * A block group, described as a stripe. The holders of blocks are stated explicitly: a block without a holder
 * is lost.
 *
 * <p>A DataNode is identified by its address {@code IP:PORT}, as known to the NameNode. The coordinator maps
 * the address to the helper on the same machine ({@code datanode} in mend.toml).
 */
public final class Group implements HdfsStripe {
  private final ExtendedBlock group;
  private final ErasureCodingPolicy policy;
  private final String[] holders;

  /** Creates a group without holders. */
  public Group(ExtendedBlock group, ErasureCodingPolicy policy) {
    this.group = group;
    this.policy = policy;
    this.holders = new String[policy.getNumDataUnits() + policy.getNumParityUnits()];
  }

  /** Adds a holder of a block. If several nodes hold the same block, only the first is used. */
  public void hold(int index, DatanodeInfo node) {
    if (holders[index] == null) {
      holders[index] = node.getXferAddr();
    }
  }

  /** Marks a block as unavailable. */
  public void lose(int index) {
    holders[index] = null;
  }

  /** Returns the size of an internal block in bytes. */
  public long bytes(int index) {
    return StripedBlockUtil.getInternalBlockLength(group.getNumBytes(), policy, index);
  }

  /** Returns the number of non-empty data blocks; empty data blocks come last. */
  private int present() {
    int present = 0;
    while (present < policy.getNumDataUnits() && bytes(present) > 0) {
      present++;
    }
    return present;
  }

  /** Returns a block's index in the stripe, which omits empty data blocks. */
  @Override
  public int indexInStripe(int index) throws IOException {
    int absent = policy.getNumDataUnits() - present();
    if (index < 0 || index >= holders.length || bytes(index) == 0) {
      throw new IOException("group " + group + " has no block " + index);
    }
    return index < policy.getNumDataUnits() ? index : index - absent;
  }

  @Override
  public String name() {
    return name(group);
  }

  static String name(ExtendedBlock group) {
    return "group_" + group.getBlockId() + "_" + group.getGenerationStamp();
  }

  private String blockName(long block) {
    return Block.BLOCK_FILE_PREFIX + block + "_" + group.getGenerationStamp();
  }

  @Override
  public String whereabouts() {
    return group.getNumBytes() + Arrays.toString(holders);
  }

  @Override
  public Stripe stripe() throws IOException {
    Stripe stripe = new Stripe(name(), StripeCode.of(policy).name(present()), bytes(0));
    for (int index = 0; index < holders.length; index++) {
      if (bytes(index) > 0) {
        stripe.block(blockName(group.getBlockId() | index), bytes(index), holders[index]);
      }
    }
    return stripe;
  }
}
