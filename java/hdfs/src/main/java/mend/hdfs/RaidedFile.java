package mend.hdfs;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntToLongFunction;
import java.util.function.Predicate;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** A replicated file with valid parity in another file, as the NameNode listed both. */
public final class RaidedFile {
  private final long inode;
  private final RaidLayout layout;
  private final List<LocatedBlock> data;
  private final List<LocatedBlock> parity;

  private RaidedFile(long inode, RaidLayout layout, List<LocatedBlock> data, List<LocatedBlock> parity) {
    this.inode = inode;
    this.layout = layout;
    this.data = data;
    this.parity = parity;
  }

  /**
   * Pairs a file with its parity file. Returns null if the parity does not belong to the present contents of
   * the file.
   *
   * @param note the note on the parity file, which names the blocks of both files. Without a note (null), the
   *     test is HDFS-RAID's: the modification times are equal, and the parity has the length that follows
   *     from the file's. Besides, all of the parity must be newer than the file.
   */
  static RaidedFile of(HdfsLocatedFileStatus source, HdfsLocatedFileStatus parity, String note, StripeCode code) {
    if (!isUsable(source) || !isUsable(parity)) {
      return null;
    }
    RaidLayout layout = new RaidLayout(code, source.getLen(), source.getBlockSize());
    List<LocatedBlock> data = source.getLocatedBlocks().getLocatedBlocks();
    List<LocatedBlock> parities = parity.getLocatedBlocks().getLocatedBlocks();
    RaidedFile file = new RaidedFile(source.getFileId(), layout, data, parities);
    boolean isCurrent = note == null
        ? source.getModificationTime() == parity.getModificationTime() && newest(data) <= oldest(parities)
        : file.isNoted(ParityNote.parse(note));
    boolean fits = hasBlocks(data, layout.blocks(), layout::bytes)
        && hasBlocks(parities, layout.parityBlocks(), block -> layout.blockBytes());
    return isCurrent && fits ? file : null;
  }

  /** HDFS gives a block a higher stamp than all others have whenever it is created or changed. */
  private static long newest(List<LocatedBlock> blocks) {
    return blocks.stream().mapToLong(block -> block.getBlock().getGenerationStamp()).max().orElse(0);
  }

  private static long oldest(List<LocatedBlock> blocks) {
    return blocks.stream().mapToLong(block -> block.getBlock().getGenerationStamp()).min().orElse(Long.MAX_VALUE);
  }

  private boolean isNoted(ParityNote note) {
    return note != null && note.isOf(inode) && note.isOf(data, parity);
  }

  /** Whether a file is closed, not empty, and neither encrypted nor striped. */
  private static boolean isUsable(HdfsLocatedFileStatus file) {
    return file.isFile() && file.getLen() > 0 && !file.isEncrypted()
        && file.getErasureCodingPolicy() == null && !file.getLocatedBlocks().isUnderConstruction();
  }

  private static boolean hasBlocks(List<LocatedBlock> blocks, int number, IntToLongFunction bytes) {
    if (blocks.size() != number) {
      return false;
    }
    for (int at = 0; at < number; at++) {
      if (blocks.get(at).getBlockSize() != bytes.applyAsLong(at)) {
        return false;
      }
    }
    return true;
  }

  private int position(LocatedBlock block) {
    return Math.toIntExact(block.getStartOffset() / layout.blockBytes());
  }

  /**
   * Returns a block of the file as it was listed; null if the file had another block, or other bytes, there.
   */
  public LocatedBlock listed(LocatedBlock block) {
    int position = position(block);
    if (position >= data.size()) {
      return null;
    }
    LocatedBlock listed = data.get(position);
    ExtendedBlock now = listed.getBlock();
    ExtendedBlock before = block.getBlock();
    boolean isSame = now.getBlockId() == before.getBlockId()
        && now.getGenerationStamp() == before.getGenerationStamp();
    return isSame ? listed : null;
  }

  /** Whether file and parity have the same blocks, with the same bytes, as at another look-up. */
  boolean hasBlocksOf(RaidedFile other) {
    return inode == other.inode && isSame(data, other.data) && isSame(parity, other.parity);
  }

  private static boolean isSame(List<LocatedBlock> blocks, List<LocatedBlock> others) {
    if (blocks.size() != others.size()) {
      return false;
    }
    for (int at = 0; at < blocks.size(); at++) {
      ExtendedBlock block = blocks.get(at).getBlock();
      ExtendedBlock other = others.get(at).getBlock();
      if (block.getBlockId() != other.getBlockId() || block.getGenerationStamp() != other.getGenerationStamp()
          || block.getNumBytes() != other.getNumBytes()) {
        return false;
      }
    }
    return true;
  }

  /** Returns the index in its stripe of a block of the file. */
  public int index(LocatedBlock block) {
    return layout.index(position(block));
  }

  /** Returns a DataNode that has an intact replica; null if there is none. */
  public static DatanodeInfo holder(LocatedBlock block, Predicate<DatanodeInfo> isDead) {
    if (block.isCorrupt()) {
      return null; // If no intact replica is left, the NameNode lists the corrupt ones.
    }
    for (DatanodeInfo node : block.getLocations()) {
      if (!isDead.test(node)) {
        return node;
      }
    }
    return null;
  }

  /**
   * Returns the stripe of a block of the file, with this block marked as lost.
   *
   * @param isDead whether a DataNode is known not to answer
   */
  public RaidStripe stripeWithout(LocatedBlock lost, Predicate<DatanodeInfo> isDead) {
    int number = layout.stripe(position(lost));
    String code = layout.code().name(layout.present(number));
    RaidStripe stripe = RaidStripe.of(code, layout.blockBytes(), blocks(number), isDead);
    stripe.lose(index(lost));
    return stripe;
  }

  /** Returns the blocks of a stripe, data first. */
  private List<LocatedBlock> blocks(int stripe) {
    int first = layout.firstBlock(stripe);
    int firstParity = layout.firstParity(stripe);
    List<LocatedBlock> blocks = new ArrayList<>(data.subList(first, first + layout.present(stripe)));
    blocks.addAll(parity.subList(firstParity, firstParity + layout.code().parity()));
    return blocks;
  }

  /**
   * Returns how to decode a lost block from other blocks of its stripe.
   *
   * @param isDead whether a DataNode is known not to answer
   * @throws IOException if too many blocks are lost
   */
  Decoding decoding(LocatedBlock lost, Predicate<DatanodeInfo> isDead) throws IOException {
    int number = layout.stripe(position(lost));
    int present = layout.present(number);
    List<LocatedBlock> blocks = blocks(number);
    List<LocatedBlock> sources = new ArrayList<>();
    List<DatanodeInfo> holders = new ArrayList<>();
    List<Integer> indices = new ArrayList<>();
    for (int index = 0; index < blocks.size() && indices.size() < present; index++) {
      DatanodeInfo holder = index == index(lost) ? null : holder(blocks.get(index), isDead);
      if (holder != null) {
        sources.add(blocks.get(index));
        holders.add(holder);
        indices.add(index);
      }
    }
    if (indices.size() < present) {
      throw new IOException("only " + indices.size() + " blocks of stripe " + number + " can be read, and " + present
          + " are needed to decode block " + index(lost));
    }
    return new Decoding(sources, holders, layout.code().coefficients(present, index(lost), indices));
  }
}
