package mend.client;

import java.util.Arrays;

/** The assignment of slices to the lanes of a plan, by weight (docs/reference/protocol.md, `dealing`). */
final class Dealing {
  private static final int MAX_ROUND = 1 << 16;

  private final int[] round;

  /**
   * Distributes slices over the lanes in proportion to the weights; there is one weight per lane.
   *
   * @throws MendException if there is no weight, a weight is not positive, or a round is too long
   */
  Dealing(long[] weights) throws MendException {
    long factor = 0;
    for (long weight : weights) {
      if (weight <= 0) {
        throw new MendException(MendException.Kind.PROTOCOL, "a lane has no weight");
      }
      factor = gcd(weight, factor);
    }
    long sum = 0;
    for (long weight : weights) {
      sum += weight / Math.max(factor, 1);
    }
    if (sum == 0 || sum > MAX_ROUND) {
      throw new MendException(MendException.Kind.PROTOCOL, "a round has " + sum + " slices, which is out of range");
    }
    // Pack the due position and the lane into one number: lanes are below 2^16, due positions below 2^33.
    long[] due = new long[(int) sum];
    int place = 0;
    for (int lane = 0; lane < weights.length; lane++) {
      long weight = weights[lane] / factor;
      for (long j = 0; j < weight; j++) {
        due[place++] = ((2 * j + 1) << 32) / weight << 16 | lane;
      }
    }
    Arrays.sort(due);
    round = Arrays.stream(due).mapToInt(entry -> (int) (entry & 0xffff)).toArray();
  }

  private static long gcd(long a, long b) {
    return b == 0 ? a : gcd(b, a % b);
  }

  /** Returns the lane of a slice. */
  int laneOf(int slice) {
    return round[slice % round.length];
  }
}
