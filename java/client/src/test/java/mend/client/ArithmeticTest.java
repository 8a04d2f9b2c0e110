package mend.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Random;
import org.junit.jupiter.api.Test;

class ArithmeticTest {
  /**
   * A reference implementation of the product that does not use the tables: carry-less multiplication
   * followed by long division.
   */
  private static int product(int a, int b) {
    int product = 0;
    for (int bit = 0; bit < 8; bit++) {
      if ((b >> bit & 1) != 0) {
        product ^= a << bit;
      }
    }
    for (int bit = 14; bit >= 8; bit--) {
      if ((product >> bit & 1) != 0) {
        product ^= 0x11d << (bit - 8);
      }
    }
    return product;
  }

  @Test
  void everyProductOnEveryAlignment() {
    Random random = new Random(1);
    for (int coefficient = 0; coefficient < 256; coefficient++) {
      int at = random.nextInt(17);
      int bytes = 256 + random.nextInt(9);
      byte[] source = new byte[bytes + 3];
      byte[] target = new byte[bytes + 32];
      random.nextBytes(source);
      random.nextBytes(target);
      for (int i = 0; i < 256; i++) {
        source[i] = (byte) i;
      }
      byte[] expected = target.clone();
      for (int i = 0; i < bytes; i++) {
        expected[at + i] ^= (byte) product(coefficient, source[i] & 0xff);
      }
      Gf.mulAdd(coefficient, source, target, at, bytes);
      assertArrayEquals(expected, target, "by " + coefficient);
    }
  }

  private static String dealt(int slices, long... weights) throws MendException {
    Dealing dealing = new Dealing(weights);
    StringBuilder lanes = new StringBuilder();
    for (int slice = 0; slice < slices; slice++) {
      lanes.append(dealing.laneOf(slice));
    }
    return lanes.toString();
  }

  /** The Rust implementation's tests contain the first case too. */
  @Test
  void slicesAreDealtAsTheProtocolSays() throws MendException {
    assertEquals("00120", dealt(5, 6, 2, 2));
    assertEquals("0101", dealt(4, 7, 7));
    assertEquals("000000", dealt(6, 9));
    assertEquals(dealt(40, 5, 3, 1), dealt(40, 500, 300, 100));
  }

  @Test
  void weightsThatDealNothingAreRefused() {
    for (long[] weights : new long[][] {{}, {1, 0}, {-1}, {65_536, 1}, {Integer.MAX_VALUE, Integer.MAX_VALUE - 1}}) {
      assertThrows(MendException.class, () -> new Dealing(weights));
    }
  }
}
