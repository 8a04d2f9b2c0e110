package mend.hdfs;

import java.io.IOException;
import mend.client.Gf;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;

/**
 * The code of a block group as Mend names it. A group of few bytes has data blocks of none, which nobody holds: its code is
 * the policy's without the columns of those ({@code stores::hdfs} and docs/reference/hdfs.md have the same
 * rule).
 */
final class GroupCode {
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
        name.append(String.format("%02x", Gf.inverse((data + row) ^ column)));
      }
    }
    return name.toString();
  }
}
