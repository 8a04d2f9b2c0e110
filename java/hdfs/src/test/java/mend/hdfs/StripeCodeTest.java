package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import mend.client.Gf;
import org.junit.jupiter.api.Test;

class StripeCodeTest {
  /** The parity rows of HDFS-RAID's code; the tests of the crate hdfs-raid have the same. */
  private static final int[][] ROWS = {
    {64, 231, 229, 158, 164, 178, 132, 140, 113, 34},
    {120, 210, 191, 71, 219, 188, 203, 242, 179, 135},
    {54, 87, 7, 140, 217, 213, 57, 129, 33, 82},
    {15, 99, 92, 84, 167, 218, 119, 254, 226, 246},
  };

  @Test
  void namesOfFullAndShortStripes() {
    StripeCode raid = StripeCode.parse("rs-14-10-hdfs-raid");
    assertEquals("rs-14-10-hdfs-raid", raid.name(10));
    assertEquals("explicit-6-2-4-x40e778d236570f63", raid.name(2));
    assertEquals("rs-9-6", StripeCode.parse("rs-9-6").name(6));
    // 1 / (6 xor 0), 1 / (7 xor 0) and 1 / (8 xor 0).
    String inverses = String.format("%02x%02x%02x", Gf.inverse(6), Gf.inverse(7), Gf.inverse(8));
    assertEquals("explicit-4-1-3-x" + inverses, StripeCode.parse("rs-9-6").name(1));
    assertEquals("xor-4-3", StripeCode.parse("xor-11-10").name(3));
    // The crate hdfs-raid gives the same name to a stripe whose second data block was deleted.
    assertEquals("explicit-4-3-1-xf5f77b", StripeCode.parse("rs-5-3-hdfs-raid").name(3, List.of(1)));
    assertEquals("explicit-11-10-1-x139c3aa394efe45398ee", raid.name(10, List.of(0, 4, 9)));
    assertEquals(4, raid.parity());
  }

  @Test
  void otherCodesAreRefused() {
    for (String name : List.of(
        "lrc-12-2-2", "clay-14-10-13", "xor-5-3", "rs-10-10", "rs-3-0", "rs-300-10", "rs-9-6-x", "")) {
      assertThrows(IllegalArgumentException.class, () -> StripeCode.parse(name), name);
    }
  }

  /** Parity blocks as combinations of data blocks have the parity rows as coefficients. */
  @Test
  void parityRowsAreThoseOfHdfsRaid() {
    List<Integer> data = List.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    for (int row = 0; row < ROWS.length; row++) {
      assertArrayEquals(ROWS[row], StripeCode.parse("rs-14-10-hdfs-raid").coefficients(10, 10 + row, data));
    }
  }

  @Test
  void everyBlockFollowsFromAnyOthers() {
    Random random = new Random(1);
    for (String name : List.of("rs-14-10-hdfs-raid", "rs-9-6", "xor-4-3")) {
      StripeCode code = StripeCode.parse(name);
      for (int present = 1; present <= code.data(); present++) {
        int[] stripe = stripe(code, present, random);
        for (int wanted = 0; wanted < stripe.length; wanted++) {
          List<Integer> sources = others(stripe.length, wanted, random).subList(0, present);
          int[] coefficients = code.coefficients(present, wanted, sources);
          int sum = 0;
          for (int at = 0; at < present; at++) {
            sum ^= Gf.product(coefficients[at], stripe[sources.get(at)]);
          }
          assertEquals(stripe[wanted], sum, name + " with " + present + ": " + wanted + " from " + sources);
        }
      }
    }
  }

  /** Returns a stripe of blocks of one byte. */
  private static int[] stripe(StripeCode code, int present, Random random) {
    int[] stripe = new int[present + code.parity()];
    List<Integer> data = new ArrayList<>();
    for (int block = 0; block < present; block++) {
      stripe[block] = random.nextInt(256);
      data.add(block);
    }
    for (int block = present; block < stripe.length; block++) {
      int[] row = code.coefficients(present, block, data);
      for (int at = 0; at < present; at++) {
        stripe[block] ^= Gf.product(row[at], stripe[at]);
      }
    }
    return stripe;
  }

  private static List<Integer> others(int blocks, int wanted, Random random) {
    List<Integer> others = new ArrayList<>();
    for (int block = 0; block < blocks; block++) {
      if (block != wanted) {
        others.add(block);
      }
    }
    Collections.shuffle(others, random);
    return others;
  }
}
