package org.apache.hadoop.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import mend.hdfs.LostBlock;
import org.junit.jupiter.api.Test;

class LostBlockReaderTest {
  private static final int BYTES = 100;

  /** A block whose byte at each offset is the offset; records what is asked of it. */
  private static final class Fake implements LostBlock {
    private final List<String> asked = new ArrayList<>();
    private Result result = Result.READ;
    private int streamed = BYTES;

    @Override
    public Result read(long from, ByteBuffer target) {
      asked.add("read " + from + "+" + target.remaining());
      if (result == Result.READ) {
        fill(from, target);
      } else {
        target.position(target.limit()); // The content is undefined.
      }
      return result;
    }

    @Override
    public InputStream open(long from, long to) {
      asked.add("stream " + from + "-" + to);
      ByteBuffer rest = ByteBuffer.allocate((int) (Math.min(to, streamed) - from));
      fill(from, rest);
      return new ByteArrayInputStream(rest.array()) {
        @Override
        public synchronized int read(byte[] target, int offset, int length) {
          return super.read(target, offset, Math.min(length, 8));
        }

        @Override
        public void close() {
          asked.add("close");
        }
      };
    }

    void decode(long from, ByteBuffer target) {
      asked.add("decode " + from + "+" + target.remaining());
      fill(from, target);
    }

    LostBlockReader reader(long from) {
      return new LostBlockReader(this, from, BYTES, this::decode);
    }
  }

  private static void fill(long from, ByteBuffer target) {
    for (long at = from; target.hasRemaining(); at++) {
      target.put((byte) at);
    }
  }

  /** Reads bytes and compares them with those expected at {@code from}; returns how many arrived. */
  private static int read(LostBlockReader reader, int from, int bytes) throws IOException {
    ByteBuffer target = ByteBuffer.allocate(bytes + 2);
    target.position(1).limit(bytes + 1);
    int came = reader.read(target);
    assertEquals(1 + Math.max(came, 0), target.position());
    for (int at = 0; at < came; at++) {
      assertEquals(from + at, target.get(1 + at));
    }
    return came;
  }

  @Test
  void theFirstReadIsExactAndFurtherOnesStream() throws IOException {
    Fake block = new Fake();
    try (LostBlockReader reader = block.reader(5)) {
      assertEquals(10, read(reader, 5, 10));
      assertEquals(8, read(reader, 15, 20));
      assertEquals(4, read(reader, 23, 4));
    }
    assertEquals(List.of("read 5+10", "stream 15-100", "close"), block.asked);
  }

  @Test
  void aReadEndsWithTheBlock() throws IOException {
    LostBlockReader reader = new Fake().reader(95);
    assertEquals(5, read(reader, 95, 20));
    assertEquals(-1, read(reader, 100, 20));
    byte[] all = new byte[40];
    assertEquals(20, new Fake().reader(80).readAll(all, 3, 30));
    assertEquals(99, all[22]);
  }

  @Test
  void aStreamThatEndsEarlyIsReplaced() throws IOException {
    Fake block = new Fake();
    LostBlockReader reader = block.reader(0);
    block.streamed = 20;
    assertEquals(18, read(reader, 0, 18));
    assertEquals(2, read(reader, 18, 9));
    block.streamed = BYTES;
    assertEquals(9, read(reader, 20, 9));
    assertEquals(8, read(reader, 29, 9));
    assertEquals(List.of("read 0+18", "stream 18-100", "close", "read 20+9", "stream 29-100"), block.asked);
  }

  @Test
  void bytesAreDecodedIfMendIsUnavailable() throws IOException {
    Fake block = new Fake();
    block.result = LostBlock.Result.UNAVAILABLE;
    LostBlockReader reader = block.reader(0);
    assertEquals(10, read(reader, 0, 10));
    assertEquals(10, read(reader, 10, 10));
    assertEquals(10, read(reader, 20, 10));
    assertEquals(List.of("read 0+10", "decode 0+10", "decode 10+90"), block.asked);
  }

  @Test
  void bytesThatCannotBeTrustedAreNotDecoded() {
    Fake block = new Fake();
    block.result = LostBlock.Result.FAILED;
    assertThrows(IOException.class, () -> read(block.reader(0), 0, 10));
    assertEquals(List.of("read 0+10"), block.asked);
  }

  /** HDFS opens readers of striped blocks for longer ranges than it reads. */
  @Test
  void withoutADecoderEveryReadIsExact() throws IOException {
    Fake block = new Fake();
    LostBlockReader reader = new LostBlockReader(block, 0, BYTES, null);
    assertEquals(10, read(reader, 0, 10));
    assertEquals(10, read(reader, 10, 10));
    assertEquals(List.of("read 0+10", "read 10+10"), block.asked);
    block.result = LostBlock.Result.UNAVAILABLE;
    assertThrows(IOException.class, () -> read(reader, 20, 10));
  }
}
