package mend.hdfs;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * Mend's record of the blocks from which the parity of a folder was made (docs/reference/hdfs.md): numbers, generation
 * stamps and lengths in the order of the stripes. The note on the parity decides whether the record counts.
 */
final class ParityRecord {
  /** The name of the attribute. */
  static final String ATTRIBUTE = "user.mend.members";
  private static final String START = "1 ";
  /** HDFS checksums blocks in pieces of this many bytes. The parity's blocks consist of whole pieces. */
  private static final long PIECE = 512;
  private static final int PARTS = 3;

  /** For each block its number, its generation stamp and its length. */
  private final List<long[]> blocks;

  private ParityRecord(List<long[]> blocks) {
    this.blocks = blocks;
  }

  /** Parses the attribute's value; returns null if this version of Mend did not write it. */
  static ParityRecord parse(String text) {
    if (!text.startsWith(START)) {
      return null;
    }
    List<long[]> blocks = new ArrayList<>();
    Set<Long> numbers = new HashSet<>();
    long[] last = new long[PARTS];
    for (String word : text.substring(START.length()).split(",", -1)) {
      String[] parts = word.split("\\.", -1);
      if (parts.length != PARTS) {
        return null;
      }
      try {
        long number = last[0] + difference(parts[0]);
        long stamp = last[1] + difference(parts[1]);
        last = new long[] {number, stamp, parts[2].isEmpty() ? last[2] : Long.parseLong(parts[2])};
      } catch (NumberFormatException other) {
        return null;
      }
      if (!numbers.add(last[0])) {
        return null;
      }
      blocks.add(last);
    }
    return new ParityRecord(blocks);
  }

  private static long difference(String text) {
    return text.isEmpty() ? 1 : Long.parseLong(text);
  }

  /** Returns the number of blocks. */
  int size() {
    return blocks.size();
  }

  /** Returns the length of the parity's blocks: that of the largest block, rounded up to whole pieces with checksums. */
  long blockBytes() {
    long largest = blocks.stream().mapToLong(block -> block[2]).max().orElse(0);
    return (largest + PIECE - 1) / PIECE * PIECE;
  }

  /** Returns the fingerprint of the blocks, see {@link ParityNote#fingerprint}. */
  long fingerprint() {
    ByteBuffer bytes = ByteBuffer.allocate(blocks.size() * PARTS * Long.BYTES);
    for (long[] block : blocks) {
      bytes.putLong(block[0]).putLong(block[1]).putLong(block[2]);
    }
    return ParityNote.checksum(bytes.array());
  }

  /** Returns the numbers of all blocks in the stripes of these blocks; a stripe has {@code data} data blocks. */
  Set<Long> beside(Set<Long> numbers, int data) {
    Set<Long> beside = new HashSet<>();
    for (int at = 0; at < blocks.size(); at++) {
      if (numbers.contains(blocks.get(at)[0])) {
        int first = at / data * data;
        blocks.subList(first, Math.min(first + data, blocks.size())).forEach(block -> beside.add(block[0]));
      }
    }
    return beside;
  }

  /** Returns these blocks in the order of the record, and null in the place of a block that does not exist as it was. */
  List<LocatedBlock> find(List<LocatedBlock> present) {
    Map<Long, LocatedBlock> byNumber = new HashMap<>();
    present.forEach(block -> byNumber.put(block.getBlock().getBlockId(), block));
    List<LocatedBlock> found = new ArrayList<>();
    for (long[] block : blocks) {
      LocatedBlock located = byNumber.get(block[0]);
      found.add(located != null && isSame(located.getBlock(), block) ? located : null);
    }
    return found;
  }

  private static boolean isSame(ExtendedBlock block, long[] recorded) {
    return block.getGenerationStamp() == recorded[1] && block.getNumBytes() == recorded[2];
  }
}
