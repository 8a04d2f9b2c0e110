package mend.hdfs;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import mend.client.Gf;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;

/**
 * A linear code of one symbol a block, with Mend's name for it. A short stripe lacks its last data blocks,
 * which are not stored and count as zeros. The code of such a stripe is the full code without the columns of
 * the missing blocks (the Rust crates and docs/reference/hdfs.md use the same rule).
 */
final class StripeCode {
  private static final Pattern REED_SOLOMON = Pattern.compile("rs-(\\d{1,3})-(\\d{1,3})(-hdfs-raid)?");
  private static final Pattern XOR = Pattern.compile("xor-(\\d{1,3})-(\\d{1,3})");
  private static final int FIELD = 256;

  private enum Family { CAUCHY, HDFS_RAID, XOR }

  private final Family family;
  private final int data;
  private final int parity;

  private StripeCode(Family family, int data, int parity) {
    this.family = family;
    this.data = data;
    this.parity = parity;
  }

  /**
   * Returns the code of a policy.
   *
   * @throws IOException if Mend does not support the code
   */
  static StripeCode of(ErasureCodingPolicy policy) throws IOException {
    int data = policy.getNumDataUnits();
    int parity = policy.getNumParityUnits();
    switch (policy.getCodecName()) {
      case "rs":
        return new StripeCode(Family.CAUCHY, data, parity);
      case "rs-legacy":
        return new StripeCode(Family.HDFS_RAID, data, parity);
      case "xor":
        if (parity == 1) {
          return new StripeCode(Family.XOR, data, parity);
        }
        break;
      default:
        break;
    }
    throw new IOException("Mend cannot repair block groups of " + policy.getName());
  }

  /**
   * Parses a name such as {@code rs-14-10-hdfs-raid}, {@code rs-9-6} or {@code xor-11-10}.
   *
   * @throws IllegalArgumentException if the name is not that of a supported code
   */
  static StripeCode parse(String name) {
    Matcher rs = REED_SOLOMON.matcher(name);
    if (rs.matches()) {
      Family family = rs.group(3) == null ? Family.CAUCHY : Family.HDFS_RAID;
      return checked(name, family, Integer.parseInt(rs.group(1)), Integer.parseInt(rs.group(2)));
    }
    Matcher xor = XOR.matcher(name);
    if (xor.matches()) {
      return checked(name, Family.XOR, Integer.parseInt(xor.group(1)), Integer.parseInt(xor.group(2)));
    }
    throw new IllegalArgumentException(
        "`" + name + "` is not a supported code; supported are rs-N-K, rs-N-K-hdfs-raid and xor-N-K");
  }

  private static StripeCode checked(String name, Family family, int blocks, int data) {
    boolean fits = data > 0 && blocks > data && blocks < FIELD;
    if (!fits || family == Family.XOR && blocks != data + 1) {
      throw new IllegalArgumentException("there is no code `" + name + "`");
    }
    return new StripeCode(family, data, blocks - data);
  }

  /** Returns the number of data blocks in a full stripe. */
  int data() {
    return data;
  }

  /** Returns the number of parity blocks in each stripe. */
  int parity() {
    return parity;
  }

  /** Returns the fingerprint of the code in notes on parity. */
  long fingerprint() {
    return ParityNote.checksum(name(data).getBytes(StandardCharsets.US_ASCII));
  }

  /** Returns the name of the code of a stripe that has only the first {@code present} data blocks. */
  String name(int present) {
    if (family == Family.XOR) {
      return "xor-" + (present + 1) + "-" + present;
    }
    if (present < data) {
      return explicit(present);
    }
    return "rs-" + (data + parity) + "-" + data + (family == Family.HDFS_RAID ? "-hdfs-raid" : "");
  }

  /**
   * Returns the name of the code of a stripe of which some data blocks do not exist any more. The first parity blocks take
   * their places: they follow the other data blocks (the crate hdfs-raid uses the same rule).
   *
   * @param present the number of data blocks that the stripe had
   * @param gone the indices of those that do not exist any more; fewer than there are parity blocks
   */
  String name(int present, List<Integer> gone) {
    if (gone.isEmpty()) {
      return name(present);
    }
    int first = present + gone.size();
    List<Integer> sources = new ArrayList<>();
    for (int index = 0; index < first; index++) {
      if (!gone.contains(index)) {
        sources.add(index);
      }
    }
    int left = parity - gone.size();
    StringBuilder name = new StringBuilder("explicit-")
        .append(present + left).append('-').append(present).append('-').append(left).append("-x");
    for (int wanted = first; wanted < present + parity; wanted++) {
      for (int coefficient : coefficients(present, wanted, sources)) {
        name.append(String.format("%02x", coefficient));
      }
    }
    return name.toString();
  }

  /** Returns the name that lists the elements of the parity rows. */
  private String explicit(int present) {
    StringBuilder name = new StringBuilder("explicit-")
        .append(present + parity).append('-').append(present).append('-').append(parity).append("-x");
    for (int[] row : parityRows()) {
      for (int column = 0; column < present; column++) {
        name.append(String.format("%02x", row[column]));
      }
    }
    return name.toString();
  }

  /**
   * Returns the coefficients of a linear combination of blocks that equals another block.
   *
   * @param present the number of data blocks in the stripe
   * @param wanted the block to compute
   * @param sources as many other blocks as there are data blocks
   */
  int[] coefficients(int present, int wanted, List<Integer> sources) {
    int[][] parityRows = parityRows();
    // Column i contains the row of source i; the last column contains the wanted row. Gauss-Jordan
    // elimination turns the last column into the solution.
    int[][] equations = new int[present][present + 1];
    for (int unknown = 0; unknown <= present; unknown++) {
      int block = unknown < present ? sources.get(unknown) : wanted;
      for (int data = 0; data < present; data++) {
        int unit = block == data ? 1 : 0;
        equations[data][unknown] = block < present ? unit : parityRows[block - present][data];
      }
    }
    eliminate(equations);
    int[] solution = new int[present];
    for (int unknown = 0; unknown < present; unknown++) {
      solution[unknown] = equations[unknown][present];
    }
    return solution;
  }

  /** Solves linear equations. They have one solution, since any k blocks of a stripe determine the others. */
  private static void eliminate(int[][] equations) {
    for (int pivot = 0; pivot < equations.length; pivot++) {
      int row = pivot;
      while (equations[row][pivot] == 0) {
        row++;
      }
      int[] swapped = equations[row];
      equations[row] = equations[pivot];
      equations[pivot] = swapped;
      scale(swapped, Gf.inverse(swapped[pivot]));
      for (int other = 0; other < equations.length; other++) {
        if (other != pivot) {
          subtract(equations[other], swapped, equations[other][pivot]);
        }
      }
    }
  }

  private static void scale(int[] row, int factor) {
    for (int at = 0; at < row.length; at++) {
      row[at] = Gf.product(row[at], factor);
    }
  }

  private static void subtract(int[] row, int[] from, int factor) {
    for (int at = 0; at < row.length; at++) {
      row[at] ^= Gf.product(from[at], factor);
    }
  }

  /** Returns the rows of the parity blocks in a full stripe. */
  private int[][] parityRows() {
    switch (family) {
      case CAUCHY:
        return cauchy();
      case HDFS_RAID:
        return polynomialRemainders();
      default:
        int[] ones = new int[data];
        Arrays.fill(ones, 1);
        return new int[][] {ones};
    }
  }

  /** Returns parity rows whose element (i, j) is 1 / ((k + i) xor j), as in ISA-L's gf_gen_cauchy1_matrix. */
  private int[][] cauchy() {
    int[][] rows = new int[parity][data];
    for (int row = 0; row < parity; row++) {
      for (int column = 0; column < data; column++) {
        rows[row][column] = Gf.inverse((data + row) ^ column);
      }
    }
    return rows;
  }

  /**
   * Returns HDFS-RAID's parity rows. Column j contains the coefficients of the remainder of x^(m+j) modulo
   * g(x) = Π (x − 2^i), i < m, lowest first.
   */
  private int[][] polynomialRemainders() {
    int[] divisor = divisor();
    int[][] rows = new int[parity][data];
    int[] remainder = new int[parity];
    remainder[parity - 1] = 1;
    for (int column = 0; column < data; column++) {
      int leading = remainder[parity - 1];
      System.arraycopy(remainder, 0, remainder, 1, parity - 1);
      remainder[0] = 0;
      for (int row = 0; row < parity; row++) {
        remainder[row] ^= Gf.product(leading, divisor[row]);
        rows[row][column] = remainder[row];
      }
    }
    return rows;
  }

  /** Returns the coefficients of g(x), lowest first. */
  private int[] divisor() {
    int[] product = {1};
    int root = 1;
    for (int degree = 1; degree <= parity; degree++) {
      int[] next = new int[degree + 1];
      System.arraycopy(product, 0, next, 1, degree);
      for (int at = 0; at < degree; at++) {
        next[at] ^= Gf.product(root, product[at]);
      }
      product = next;
      root = Gf.product(root, 2);
    }
    return product;
  }
}
