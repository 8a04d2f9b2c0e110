package mend.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Arithmetic in GF(2^8) with the polynomial x^8+x^4+x^3+x^2+1, as everywhere in Mend. */
public final class Gf {
  private static final int POLYNOMIAL = 0x11d;
  private static final byte[][] PRODUCTS = products();
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private Gf() {}

  private static byte[][] products() {
    byte[][] products = new byte[256][256];
    for (int a = 0; a < 256; a++) {
      for (int b = 0; b < 256; b++) {
        products[a][b] = (byte) product(a, b);
      }
    }
    return products;
  }

  /** Returns the product of two elements. */
  public static int product(int a, int b) {
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

  /**
   * Returns the inverse of an element.
   *
   * @throws ArithmeticException if the element is 0
   */
  public static int inverse(int element) {
    for (int candidate = 1; candidate < 256; candidate++) {
      if (PRODUCTS[element][candidate] == 1) {
        return candidate;
      }
    }
    throw new ArithmeticException(element + " has no inverse in GF(2^8)");
  }

  /**
   * Adds {@code coefficient} times {@code source} to {@code target} at offset {@code at}, for {@code bytes}
   * bytes.
   */
  public static void mulAdd(int coefficient, byte[] source, byte[] target, int at, int bytes) {
    if (coefficient == 1) {
      add(source, target, at, bytes);
      return;
    }
    byte[] row = PRODUCTS[coefficient];
    for (int i = 0; i < bytes; i++) {
      target[at + i] ^= row[source[i] & 0xff];
    }
  }

  private static void add(byte[] source, byte[] target, int at, int bytes) {
    int i = 0;
    for (; i + Long.BYTES <= bytes; i += Long.BYTES) {
      long sum = (long) LONGS.get(source, i) ^ (long) LONGS.get(target, at + i);
      LONGS.set(target, at + i, sum);
    }
    for (; i < bytes; i++) {
      target[at + i] ^= source[i];
    }
  }
}
