package mend.hdfs;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * Mend's note on a parity file: an attribute that names the source by its inode number, and the blocks of
 * both files and the code by fingerprints (docs/reference/hdfs.md). So the note becomes void as soon as either file or the
 * code of the parity root changes.
 */
final class ParityNote {
  /** The name of the attribute. */
  static final String ATTRIBUTE = "user.mend.source";
  private static final String VERSION = "2";
  private static final int WORDS = 6;
  /** The version of notes that do not name the code, which is their last word otherwise. */
  private static final String WITHOUT_CODE = "1";
  /** The polynomial of CRC-64/NVME, lowest bit first. */
  private static final long POLYNOMIAL = 0x9a6c9329ac4bc9b5L;

  private final long inode;
  private final long source;
  private final long parity;
  /** The fingerprint of the code; null if the note does not name it. */
  private final Long code;

  private ParityNote(long inode, long source, long parity, Long code) {
    this.inode = inode;
    this.source = source;
    this.parity = parity;
    this.code = code;
  }

  /** Parses the attribute's value; returns null if this version of Mend did not write it. */
  static ParityNote parse(String text) {
    String[] words = text.split(" ", -1);
    boolean namesCode = words.length == WORDS && words[0].equals(VERSION);
    if (!namesCode && !(words.length == WORDS - 1 && words[0].equals(WITHOUT_CODE))) {
      return null;
    }
    try {
      // The third word is the source's replication before it was encoded.
      Long code = namesCode ? Long.valueOf(Long.parseUnsignedLong(words[5], 16)) : null;
      return new ParityNote(
          Long.parseLong(words[1]), Long.parseUnsignedLong(words[3], 16), Long.parseUnsignedLong(words[4], 16), code);
    } catch (NumberFormatException other) {
      return null;
    }
  }

  /** Whether the note is about the file with this inode number. */
  boolean isOf(long number) {
    return inode == number;
  }

  /** Whether the note is about parity by this code, or does not name the code. */
  boolean isBy(StripeCode other) {
    return code == null || code == other.fingerprint();
  }

  /** Whether the note is about these blocks. */
  boolean isOf(List<LocatedBlock> sourceBlocks, List<LocatedBlock> parityBlocks) {
    return source == fingerprint(sourceBlocks) && parity == fingerprint(parityBlocks);
  }

  /** Whether the note is about the blocks of this record and this parity. */
  boolean isOf(ParityRecord record, List<LocatedBlock> parityBlocks) {
    return source == record.fingerprint() && parity == fingerprint(parityBlocks);
  }

  /** Returns the fingerprint of blocks: a checksum of their numbers, generation stamps and lengths. */
  static long fingerprint(List<LocatedBlock> blocks) {
    ByteBuffer bytes = ByteBuffer.allocate(blocks.size() * 3 * Long.BYTES);
    for (LocatedBlock located : blocks) {
      ExtendedBlock block = located.getBlock();
      bytes.putLong(block.getBlockId()).putLong(block.getGenerationStamp()).putLong(block.getNumBytes());
    }
    return checksum(bytes.array());
  }

  /** Returns the CRC-64/NVME. */
  static long checksum(byte[] bytes) {
    long sum = -1;
    for (byte next : bytes) {
      sum ^= next & 0xff;
      for (int bit = 0; bit < Byte.SIZE; bit++) {
        sum = (sum & 1) == 0 ? sum >>> 1 : sum >>> 1 ^ POLYNOMIAL;
      }
    }
    return ~sum;
  }
}
