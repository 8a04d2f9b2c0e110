package mend.hdfs.namenode;

import java.io.IOException;
import java.util.Arrays;
import java.util.TreeMap;
import mend.client.Gf;

/**
 * The equations of a code's parity blocks. A block consists of equal parts, its sub-blocks; each sub-block of parity
 * is a linear combination of sub-blocks of data.
 *
 * <p>As text: {@code SUB-BLOCKS/ROW;ROW;…} with the sub-blocks in a block, and a row for each sub-block of parity. A
 * row is {@code SOURCE:COEFFICIENT,…}; data sub-blocks are numbered in order, block by block.
 */
final class ParityRows {
  /** The bytes that are computed at once. */
  static final int PIECE = 1 << 18;

  /** The data blocks of a stripe. */
  interface Data {
    /** Reads bytes of a block, or zeros where it has ended. */
    void read(int block, long from, byte[] into, int bytes) throws IOException;
  }

  /** The parity blocks to write or to compare. */
  interface Parity {
    /** Takes the next bytes of a parity block. */
    void take(int parity, byte[] computed, int bytes) throws IOException;
  }

  private final int subBlocks;
  /** For each sub-block of parity, the numbers of the sources. */
  private final int[][] sources;
  private final int[][] coefficients;

  private ParityRows(int subBlocks, int rows) {
    this.subBlocks = subBlocks;
    this.sources = new int[rows][];
    this.coefficients = new int[rows][];
  }

  /**
   * Parses the text.
   *
   * @throws IllegalArgumentException if it is not in this format
   */
  static ParityRows parse(String text) {
    int slash = text.indexOf('/');
    if (slash < 0) {
      throw new IllegalArgumentException("`" + text + "` has no number of sub-blocks");
    }
    String[] rows = text.substring(slash + 1).split(";", -1);
    ParityRows parsed = new ParityRows(Integer.parseInt(text.substring(0, slash)), rows.length);
    if (parsed.subBlocks <= 0 || rows.length % parsed.subBlocks != 0) {
      throw new IllegalArgumentException(rows.length + " rows are not those of whole blocks");
    }
    for (int row = 0; row < rows.length; row++) {
      parsed.take(row, rows[row].split(","));
    }
    return parsed;
  }

  private void take(int row, String[] terms) {
    sources[row] = new int[terms.length];
    coefficients[row] = new int[terms.length];
    for (int at = 0; at < terms.length; at++) {
      int colon = terms[at].indexOf(':');
      if (colon < 0) {
        throw new IllegalArgumentException("`" + terms[at] + "` is not a term of a parity equation");
      }
      sources[row][at] = Integer.parseInt(terms[at].substring(0, colon));
      coefficients[row][at] = Integer.parseInt(terms[at].substring(colon + 1));
      if (sources[row][at] < 0 || coefficients[row][at] <= 0 || coefficients[row][at] > 255) {
        throw new IllegalArgumentException("`" + terms[at] + "` is not a term of a parity equation");
      }
    }
  }

  /** Returns the number of parity blocks in a stripe. */
  int parityBlocks() {
    return sources.length / subBlocks;
  }

  /**
   * Computes parity blocks of a stripe, whose pieces are delivered in order. Data is read once for each sub-block of
   * a parity block that depends on it, so once in codes without sub-blocks.
   *
   * @param wanted the positions of the parity blocks to compute
   */
  void encode(long blockBytes, int[] wanted, Data data, Parity parity) throws IOException {
    long subBytes = blockBytes / subBlocks;
    byte[] source = new byte[PIECE];
    byte[][] sums = new byte[wanted.length][PIECE];
    for (int sub = 0; sub < subBlocks; sub++) {
      for (long from = 0; from < subBytes; from += PIECE) {
        int bytes = (int) Math.min(PIECE, subBytes - from);
        sum(sub, wanted, new Range(from, bytes, subBytes), data, source, sums);
        for (int at = 0; at < wanted.length; at++) {
          parity.take(wanted[at], sums[at], bytes);
        }
      }
    }
  }

  /** A range of every sub-block. */
  private static final class Range {
    private final long from;
    private final int bytes;
    private final long subBytes;

    Range(long from, int bytes, long subBytes) {
      this.from = from;
      this.bytes = bytes;
      this.subBytes = subBytes;
    }
  }

  private void sum(int sub, int[] wanted, Range range, Data data, byte[] source, byte[][] sums) throws IOException {
    // For each source in order, its coefficients in the wanted rows.
    TreeMap<Integer, int[]> terms = new TreeMap<>();
    for (int at = 0; at < wanted.length; at++) {
      Arrays.fill(sums[at], 0, range.bytes, (byte) 0);
      int row = wanted[at] * subBlocks + sub;
      for (int term = 0; term < sources[row].length; term++) {
        terms.computeIfAbsent(sources[row][term], first -> new int[wanted.length])[at] = coefficients[row][term];
      }
    }
    for (var term : terms.entrySet()) {
      long start = term.getKey() % subBlocks * range.subBytes;
      data.read(term.getKey() / subBlocks, start + range.from, source, range.bytes);
      for (int at = 0; at < wanted.length; at++) {
        if (term.getValue()[at] != 0) {
          Gf.mulAdd(term.getValue()[at], source, sums[at], 0, range.bytes);
        }
      }
    }
  }
}
