package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import mend.client.Gf;
import org.junit.jupiter.api.Test;

class ParityRowsTest {
  /** Returns parity blocks of a stripe. Data blocks that are shorter, or missing, count as zeros. */
  private static byte[][] encode(String text, int blockBytes, int[] wanted, byte[]... blocks) throws IOException {
    ParityRows rows = ParityRows.parse(text);
    ByteArrayOutputStream[] parity = new ByteArrayOutputStream[rows.parityBlocks()];
    Arrays.setAll(parity, at -> new ByteArrayOutputStream());
    ParityRows.Data data = (block, from, into, bytes) -> {
      byte[] source = block < blocks.length ? blocks[block] : new byte[0];
      for (int at = 0; at < bytes; at++) {
        into[at] = from + at < source.length ? source[(int) from + at] : 0;
      }
    };
    rows.encode(blockBytes, wanted, data, (at, computed, bytes) -> parity[at].write(computed, 0, bytes));
    return Arrays.stream(parity).map(ByteArrayOutputStream::toByteArray).toArray(byte[][]::new);
  }

  /** The same stripe as in {@code codec.rs}: block i of HDFS-RAID's code has the byte 17 i + 3. */
  @Test
  void aKnownStripeOfHdfsRaidIsEncoded() throws IOException {
    String rows = "1/0:64,1:231,2:229,3:158,4:164,5:178,6:132,7:140,8:113,9:34;"
        + "0:120,1:210,2:191,3:71,4:219,5:188,6:203,7:242,8:179,9:135;"
        + "0:54,1:87,2:7,3:140,4:217,5:213,6:57,7:129,8:33,9:82;"
        + "0:15,1:99,2:92,3:84,4:167,5:218,6:119,7:254,8:226,9:246";
    byte[][] data = new byte[10][];
    Arrays.setAll(data, block -> new byte[] {(byte) (17 * block + 3)});
    byte[][] parity = encode(rows, 1, new int[] {0, 1, 2, 3}, data);
    byte[][] expected = {{109}, {(byte) 186}, {(byte) 156}, {84}};
    assertArrayEquals(expected, parity);
    assertArrayEquals(new byte[][] {{}, {}, {(byte) 156}, {}}, encode(rows, 1, new int[] {2}, data));
  }

  @Test
  void longBlocksAreEncodedInPieces() throws IOException {
    int bytes = ParityRows.PIECE + 1000;
    byte[][] data = new byte[2][bytes];
    Random random = new Random(7);
    random.nextBytes(data[0]);
    data[1] = Arrays.copyOf(data[0], 500); // The last block of a file may be short.
    byte[] sum = data[0].clone();
    for (int at = 0; at < 500; at++) {
      sum[at] = 0;
    }
    assertArrayEquals(sum, encode("1/0:1,1:1", bytes, new int[] {0}, data)[0]);
  }

  /** The second half of the parity depends on the first half of the data. */
  @Test
  void subBlocksAreContiguousPartsOfBlocks() throws IOException {
    byte[][] parity = encode("2/0:1,2:1;0:2,3:1", 4, new int[] {0}, new byte[] {1, 2, 3, 4}, new byte[] {5, 6, 7, 8});
    byte first = (byte) (Gf.product(1, 2) ^ 7);
    byte second = (byte) (Gf.product(2, 2) ^ 8);
    assertArrayEquals(new byte[] {1 ^ 5, 2 ^ 6, first, second}, parity[0]);
  }

  @Test
  void otherTextsAreRefused() {
    assertEquals(2, ParityRows.parse("1/0:1;0:2").parityBlocks());
    for (String text : List.of("", "1", "1/", "0/0:1", "2/0:1", "1/0", "1/0:0", "1/0:256", "1/-1:1", "1/0:1;")) {
      assertThrows(IllegalArgumentException.class, () -> ParityRows.parse(text), text);
    }
  }
}
