package mend.hdfs;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntToLongFunction;
import java.util.function.Predicate;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** A replicated file, or the files of a folder, with valid parity in another file, as the NameNode listed them. */
public final class RaidedFile {
  private final long inode;
  private final RaidLayout layout;
  /** The data blocks in the order of the stripes; null for one that does not exist any more. */
  private final List<LocatedBlock> data;
  private final List<LocatedBlock> parity;
  /** The positions of the data blocks by their numbers. */
  private final Map<Long, Integer> positions = new HashMap<>();

  private RaidedFile(long inode, RaidLayout layout, List<LocatedBlock> data, List<LocatedBlock> parity) {
    this.inode = inode;
    this.layout = layout;
    this.data = data;
    this.parity = parity;
    for (int at = 0; at < data.size(); at++) {
      if (data.get(at) != null) {
        positions.put(data.get(at).getBlock().getBlockId(), at);
      }
    }
  }

  /**
   * Pairs a file with its parity file. Returns null if the parity does not belong to the present contents of
   * the file.
   *
   * @param note the note on the parity file, which names the blocks of both files and the code. Without a note (null), the
   *     test is HDFS-RAID's: the modification times are equal, and the parity has the length that follows
   *     from the file's. Besides, all of the parity must be newer than the file.
   */
  static RaidedFile of(HdfsLocatedFileStatus source, HdfsLocatedFileStatus parity, String note, StripeCode code) {
    if (!isUsable(source) || !isUsable(parity)) {
      return null;
    }
    long bytes = source.getLen();
    long blockBytes = source.getBlockSize();
    RaidLayout layout = new RaidLayout(code, Math.toIntExact((bytes + blockBytes - 1) / blockBytes), blockBytes);
    List<LocatedBlock> data = source.getLocatedBlocks().getLocatedBlocks();
    List<LocatedBlock> parities = parity.getLocatedBlocks().getLocatedBlocks();
    RaidedFile file = new RaidedFile(source.getFileId(), layout, data, parities);
    boolean isCurrent = note == null
        ? source.getModificationTime() == parity.getModificationTime() && newest(data) <= oldest(parities)
        : file.isNoted(ParityNote.parse(note), code);
    boolean fits = hasBlocks(data, layout.blocks(), block -> Math.min(blockBytes, bytes - block * blockBytes))
        && hasBlocks(parities, layout.parityBlocks(), block -> blockBytes);
    return isCurrent && fits ? file : null;
  }

  /**
   * Pairs blocks of a folder's files with the parity of the folder. Blocks that do not exist any more, or have changed,
   * cannot be read, but the others are still protected. Returns null if the parity is not the one of the record.
   *
   * @param inode the inode number of the folder
   * @param blocks the present blocks that are in stripes with the blocks to read
   */
  static RaidedFile ofFolder(long inode, List<LocatedBlock> blocks, HdfsLocatedFileStatus parity, ParityNote note,
      ParityRecord record, StripeCode code) {
    if (!isUsable(parity) || !note.isOf(inode) || !note.isBy(code)) {
      return null;
    }
    List<LocatedBlock> parities = parity.getLocatedBlocks().getLocatedBlocks();
    RaidLayout layout = new RaidLayout(code, record.size(), record.blockBytes());
    boolean fits = hasBlocks(parities, layout.parityBlocks(), block -> layout.blockBytes());
    return fits && note.isOf(record, parities) ? new RaidedFile(inode, layout, record.find(blocks), parities) : null;
  }

  /** HDFS gives a block a higher stamp than all others have whenever it is created or changed. */
  private static long newest(List<LocatedBlock> blocks) {
    return blocks.stream().mapToLong(block -> block.getBlock().getGenerationStamp()).max().orElse(0);
  }

  private static long oldest(List<LocatedBlock> blocks) {
    return blocks.stream().mapToLong(block -> block.getBlock().getGenerationStamp()).min().orElse(Long.MAX_VALUE);
  }

  private boolean isNoted(ParityNote note, StripeCode code) {
    return note != null && note.isOf(inode) && note.isBy(code) && note.isOf(data, parity);
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
    return positions.get(block.getBlock().getBlockId());
  }

  /** Returns a block as it was listed; null if it does not exist any more, or has other bytes. */
  public LocatedBlock listed(LocatedBlock block) {
    Integer position = positions.get(block.getBlock().getBlockId());
    if (position == null) {
      return null;
    }
    LocatedBlock listed = data.get(position);
    ExtendedBlock now = listed.getBlock();
    ExtendedBlock before = block.getBlock();
    return now.getGenerationStamp() == before.getGenerationStamp() ? listed : null;
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
      if (blocks.get(at) == null || others.get(at) == null) {
        if (blocks.get(at) != others.get(at)) {
          return false;
        }
        continue;
      }
      ExtendedBlock block = blocks.get(at).getBlock();
      ExtendedBlock other = others.get(at).getBlock();
      if (block.getBlockId() != other.getBlockId() || block.getGenerationStamp() != other.getGenerationStamp()
          || block.getNumBytes() != other.getNumBytes()) {
        return false;
      }
    }
    return true;
  }

  /** Returns the index of a data block among the blocks of its stripe that exist. */
  public int index(LocatedBlock block) {
    int position = position(block);
    List<Integer> gone = gone(layout.stripe(position));
    int index = layout.index(position);
    return index - (int) gone.stream().filter(other -> other < index).count();
  }

  /** Returns the indices of a stripe's data blocks that do not exist any more. */
  private List<Integer> gone(int stripe) {
    List<Integer> gone = new ArrayList<>();
    for (int index = 0; index < layout.present(stripe); index++) {
      if (data.get(layout.firstBlock(stripe) + index) == null) {
        gone.add(index);
      }
    }
    return gone;
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
   * Returns the stripe of a data block, with this block marked as lost.
   *
   * @param isDead whether a DataNode is known not to answer
   * @throws IOException if too many blocks do not exist any more
   */
  public RaidStripe stripeWithout(LocatedBlock lost, Predicate<DatanodeInfo> isDead) throws IOException {
    int number = layout.stripe(position(lost));
    List<Integer> gone = gone(number);
    if (gone.size() >= layout.code().parity()) {
      throw new IOException(gone.size() + " blocks of stripe " + number + " do not exist any more, so its parity protects no "
          + "other block");
    }
    String code = layout.code().name(layout.present(number), gone);
    List<LocatedBlock> blocks = new ArrayList<>(blocks(number));
    blocks.removeIf(block -> block == null);
    int remainingBlocks = blocks.size() - layout.code().parity();
    List<LocatedBlock> remaining = gone.isEmpty() ? List.of() : blocks.subList(0, remainingBlocks);
    RaidStripe stripe = RaidStripe.of(code, layout.blockBytes(), blocks, remaining, isDead);
    stripe.lose(index(lost));
    return stripe;
  }

  /** Returns the blocks of a stripe, data first; null for those that do not exist any more. */
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
    int wanted = layout.index(position(lost));
    int present = layout.present(number);
    List<LocatedBlock> blocks = blocks(number);
    List<LocatedBlock> sources = new ArrayList<>();
    List<DatanodeInfo> holders = new ArrayList<>();
    List<Integer> indices = new ArrayList<>();
    for (int index = 0; index < blocks.size() && indices.size() < present; index++) {
      boolean isSource = index != wanted && blocks.get(index) != null;
      DatanodeInfo holder = isSource ? holder(blocks.get(index), isDead) : null;
      if (holder != null) {
        sources.add(blocks.get(index));
        holders.add(holder);
        indices.add(index);
      }
    }
    if (indices.size() < present) {
      throw new IOException("only " + indices.size() + " blocks of stripe " + number + " can be read, and " + present
          + " are needed to decode block " + wanted);
    }
    return new Decoding(sources, holders, layout.code().coefficients(present, wanted, indices));
  }
}
