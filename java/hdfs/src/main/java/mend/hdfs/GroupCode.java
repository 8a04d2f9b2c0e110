package mend.hdfs;

import java.io.IOException;
import mend.client.Gf;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;

/**
 * Mend's name for the code of a block group. A small group has empty data blocks, which are not stored. The
 * code of such a group is the policy's code without the columns of the empty blocks (the crate {@code hdfs}
 * and docs/reference/hdfs.md use the same rule).
 */
final class GroupCode {
  private GroupCode() {}

  /**
   * Returns the name of a policy's code for a group whose first {@code present} data blocks are non-empty.
   *
   * @throws IOException if Mend does not support the code
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
    throw new IOException("Mend cannot repair a block group of " + policy.getName() + " with " + present
        + " data blocks");
  }

  /**
   * Returns the name of a shortened Reed-Solomon code. The name lists the parity rows: element (i, j) is 1 /
   * ((k + i) xor j), as in ISA-L's gf_gen_cauchy1_matrix.
   */
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
