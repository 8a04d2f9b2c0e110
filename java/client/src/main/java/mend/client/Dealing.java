package mend.client;

import java.util.Arrays;

/** Which lane of a plan each slice travels: slices are dealt to lanes by weight (docs/reference/protocol.md, `dealing`). */
final class Dealing {
  private static final int MAX_ROUND = 1 << 16;

  private final int[] round;

  /**
   * Deals to as many lanes as there are weights.
   *
   * @throws MendException if there is no weight, one is zero, or a round is too long
   */
  Dealing(long[] weights) throws MendException {
    long factor = 0;
    for (long weight : weights) {
      if (weight <= 0) {
        throw new MendException(MendException.Kind.PROTOCOL, "a lane without weight");
      }
      factor = gcd(weight, factor);
    }
    long sum = 0;
    for (long weight : weights) {
      sum += weight / Math.max(factor, 1);
    }
    if (sum == 0 || sum > MAX_ROUND) {
      throw new MendException(MendException.Kind.PROTOCOL, "a round of " + sum + " slices");
    }
    // What is due and the lane, in one number: lanes are below 2^16, and what is due below 2^33.
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

  /** The lane that a slice travels. */
  int laneOf(int slice) {
    return round[slice % round.length];
  }
}
