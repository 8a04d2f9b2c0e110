package mend.hdfs;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.LongStream;
import mend.client.Stripe;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** A stripe of whole blocks: blocks of a file and of its parity file. A block without a holder is lost. */
public final class RaidStripe implements HdfsStripe {
  private final String name;
  private final String code;
  private final long blockBytes;
  private final ExtendedBlock[] blocks;
  private final String[] holders;

  private RaidStripe(String name, String code, long blockBytes, List<LocatedBlock> blocks) {
    this.name = name;
    this.code = code;
    this.blockBytes = blockBytes;
    this.blocks = blocks.stream().map(LocatedBlock::getBlock).toArray(ExtendedBlock[]::new);
    this.holders = new String[blocks.size()];
  }

  /**
   * Creates a stripe.
   *
   * @param code the code of the stripe, which has as many blocks
   * @param blocks data blocks first
   * @param remaining the data blocks that exist, if others do not exist any more; otherwise empty
   * @param isDead whether a DataNode is known not to answer
   */
  static RaidStripe of(String code, long blockBytes, List<LocatedBlock> blocks, List<LocatedBlock> remaining,
      Predicate<DatanodeInfo> isDead) {
    RaidStripe stripe = new RaidStripe(name(blocks, remaining), code, blockBytes, blocks);
    for (int index = 0; index < stripe.holders.length; index++) {
      DatanodeInfo holder = RaidedFile.holder(blocks.get(index), isDead);
      stripe.holders[index] = holder == null ? null : holder.getXferAddr();
    }
    return stripe;
  }

  /**
   * Returns the name that Mend's store gives to a stripe of these blocks. It depends on the data blocks that remain, so the
   * coordinator never takes an index for that of another block.
   */
  private static String name(List<LocatedBlock> blocks, List<LocatedBlock> remaining) {
    LongStream stamps = blocks.stream().mapToLong(block -> block.getBlock().getGenerationStamp());
    String name = "raid_" + blocks.get(0).getBlock().getBlockId() + "_" + stamps.max().getAsLong();
    return remaining.isEmpty() ? name : name + "_" + Fingerprints.of(remaining);
  }

  /** Marks a block as unavailable. */
  void lose(int index) {
    holders[index] = null;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String whereabouts() {
    return Arrays.toString(blocks) + Arrays.toString(holders);
  }

  @Override
  public int indexInStripe(int index) throws IOException {
    if (index < 0 || index >= blocks.length) {
      throw new IOException("stripe " + name + " has no block " + index);
    }
    return index;
  }

  @Override
  public Stripe stripe() {
    Stripe stripe = new Stripe(name, code, blockBytes);
    for (int index = 0; index < blocks.length; index++) {
      ExtendedBlock block = blocks[index];
      String file = Block.BLOCK_FILE_PREFIX + block.getBlockId() + "_" + block.getGenerationStamp();
      stripe.block(file, block.getNumBytes(), holders[index]);
    }
    return stripe;
  }
}
