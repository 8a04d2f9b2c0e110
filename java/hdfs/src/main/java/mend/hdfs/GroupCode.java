package mend.hdfs;

import java.io.IOException;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;

/**
 * The code of a block group as Mend names it. A group of few bytes has data blocks of none, which nobody holds: its code is
 * the policy's without the columns of those ({@code stores::hdfs} and docs/hdfs.md have the same rule).
 */
final class GroupCode {
  private static final int POLYNOMIAL = 0x11d;

  private GroupCode() {}

  /**
   * The name of a policy's code for a group of which the first {@code present} data blocks have bytes.
   *
   * @throws IOException if Mend has no such code
   */
  static String name(ErasureCodingPolicy policy, int present) throws IOException {
    int data = policy.getNumDataUnits();
    int parity = policy.getNumParityUnits();
    switch (policy.getCodecName()) {
      case "rs":
        return present == data ? "rs-" + (data + parity) + "-" + data : shortenedRs(data, parity, present);
      case "rs-legacy":
        if (present == data) {
          return "rs-" + (data + parity) + "-" + data + "-hdfs-raid";
        }
        break;
      case "xor":
        if (parity == 1) {
          return "xor-" + (present + 1) + "-" + present;
        }
        break;
      default:
        break;
    }
    throw new IOException("Mend repairs no group of " + policy.getName() + " with " + present + " data blocks");
  }

  /** Parity row i has 1 / ((k + i) xor j) in column j, as ISA-L's gf_gen_cauchy1_matrix makes it. */
  private static String shortenedRs(int data, int parity, int present) {
    StringBuilder name = new StringBuilder("explicit-")
        .append(present + parity).append('-').append(present).append('-').append(parity).append("-x");
    for (int row = 0; row < parity; row++) {
      for (int column = 0; column < present; column++) {
        name.append(String.format("%02x", inverse((data + row) ^ column)));
      }
    }
    return name.toString();
  }

  private static int inverse(int element) {
    for (int candidate = 1; candidate < 256; candidate++) {
      if (product(element, candidate) == 1) {
        return candidate;
      }
    }
    throw new IllegalArgumentException("0 has no inverse");
  }

  private static int product(int a, int b) {
    int product = 0;
    for (int power = a, rest = b; rest != 0; rest >>= 1) {
      if ((rest & 1) != 0) {
        product ^= power;
      }
      power <<= 1;
      if ((power & 0x100) != 0) {
        power ^= POLYNOMIAL;
      }
    }
    return product;
  }
}
