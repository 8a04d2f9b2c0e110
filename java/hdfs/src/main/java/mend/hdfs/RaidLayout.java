package mend.hdfs;

/**
 * The stripes of a file, or of the files of a folder, whose parity is in another file, as HDFS-RAID divides them. A stripe
 * is k consecutive blocks, the last stripe may have fewer. Shorter blocks count as if zeros followed. Each stripe has m
 * parity blocks, which are full and follow each other in the parity file.
 */
final class RaidLayout {
  private final StripeCode code;
  private final int blocks;
  private final long blockBytes;

  /** Creates the layout of this many data blocks, which have at most {@code blockBytes} bytes. */
  RaidLayout(StripeCode code, int blocks, long blockBytes) {
    if (blocks <= 0 || blockBytes <= 0) {
      throw new IllegalArgumentException(blocks + " blocks of " + blockBytes + " bytes form no stripe");
    }
    this.code = code;
    this.blocks = blocks;
    this.blockBytes = blockBytes;
  }

  StripeCode code() {
    return code;
  }

  /** Returns the block size for the code, which is also the length of each parity block. */
  long blockBytes() {
    return blockBytes;
  }

  /** Returns the number of data blocks. */
  int blocks() {
    return blocks;
  }

  /** Returns the number of stripes. */
  int stripes() {
    return (blocks + code.data() - 1) / code.data();
  }

  /** Returns the stripe of a data block. */
  int stripe(int block) {
    return block / code.data();
  }

  /** Returns the index in its stripe of a data block. */
  int index(int block) {
    return block % code.data();
  }

  /** Returns the first data block of a stripe. */
  int firstBlock(int stripe) {
    return stripe * code.data();
  }

  /** Returns the number of data blocks in a stripe. */
  int present(int stripe) {
    return Math.min(code.data(), blocks - firstBlock(stripe));
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
