package mend.hdfs;

/**
 * The stripes of a file whose parity is in another file, as HDFS-RAID divides it. A stripe is k consecutive
 * blocks of the file, the last stripe may have fewer. All blocks except the file's last one are full. Each
 * stripe has m parity blocks, which are full and follow each other in the parity file.
 */
final class RaidLayout {
  private final StripeCode code;
  private final long bytes;
  private final long blockBytes;

  /** Creates the layout of a file of {@code bytes} bytes, with blocks of {@code blockBytes} bytes. */
  RaidLayout(StripeCode code, long bytes, long blockBytes) {
    if (bytes <= 0 || blockBytes <= 0) {
      throw new IllegalArgumentException(bytes + " bytes in blocks of " + blockBytes + " form no stripe");
    }
    this.code = code;
    this.bytes = bytes;
    this.blockBytes = blockBytes;
  }

  StripeCode code() {
    return code;
  }

  /** Returns the block size for the code, which is also the length of each parity block. */
  long blockBytes() {
    return blockBytes;
  }

  /** Returns the number of the file's blocks. */
  int blocks() {
    return Math.toIntExact((bytes + blockBytes - 1) / blockBytes);
  }

  /** Returns the length of a block of the file. */
  long bytes(int block) {
    return Math.min(blockBytes, bytes - block * blockBytes);
  }

  /** Returns the number of stripes. */
  int stripes() {
    return (blocks() + code.data() - 1) / code.data();
  }

  /** Returns the stripe of a block of the file. */
  int stripe(int block) {
    return block / code.data();
  }

  /** Returns the index in its stripe of a block of the file. */
  int index(int block) {
    return block % code.data();
  }

  /** Returns the first of the file's blocks that belong to a stripe. */
  int firstBlock(int stripe) {
    return stripe * code.data();
  }

  /** Returns the number of data blocks in a stripe. */
  int present(int stripe) {
    return Math.min(code.data(), blocks() - firstBlock(stripe));
  }

  /** Returns the first of the parity file's blocks that belong to a stripe. */
  int firstParity(int stripe) {
    return stripe * code.parity();
  }

  /** Returns the number of the parity file's blocks. */
  int parityBlocks() {
    return stripes() * code.parity();
  }
}
