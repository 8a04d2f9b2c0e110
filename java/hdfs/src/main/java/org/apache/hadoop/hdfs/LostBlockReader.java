package org.apache.hadoop.hdfs;

import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import mend.hdfs.LostBlock;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.shortcircuit.ClientMmap;
import org.apache.hadoop.util.DataChecksum;

/**
 * Implements the interface by which HDFS reads from a DataNode, and reads a lost block through Mend. The
 * first read requests exactly its own bytes.
 *
 * <p>With a {@link Decoder}, HDFS may read on to the end: further reads take their bytes from a stream that
 * is fetched ahead. Without, every read requests its own bytes, because HDFS opens readers for longer ranges
 * than it reads.
 */
final class LostBlockReader implements BlockReader {
  /** The network distance of these reads in HDFS's statistics: that of nodes in different racks. */
  static final int DISTANCE = 4;
  private static final int STREAMED_BYTES = 64 << 10;
  /** How many bytes are decoded at once if reads are sequential. */
  private static final int DECODED_BYTES = 256 << 10;

  /** Rebuilds bytes of the lost block without Mend. */
  interface Decoder {
    /** Fills {@code target} with the bytes from {@code from} on. */
    void decode(long from, ByteBuffer target) throws IOException;
  }

  /** How the last read got its bytes. */
  private enum Source { NONE, MEND, DECODER }

  private final LostBlock block;
  private final long end;
  private final Decoder decoder;
  private long at;
  private Source source = Source.NONE;
  /** The bytes that follow, from {@link #source}. */
  private InputStream stream;

  /** Creates a reader of the bytes {@code at} to {@code end}; {@code decoder} may be null. */
  LostBlockReader(LostBlock block, long at, long end, Decoder decoder) {
    this.block = block;
    this.at = at;
    this.end = end;
    this.decoder = decoder;
  }

  @Override
  public int read(byte[] target, int offset, int length) throws IOException {
    return read(ByteBuffer.wrap(target, offset, length));
  }

  @Override
  public int read(ByteBuffer target) throws IOException {
    int bytes = (int) Math.min(target.remaining(), end - at);
    if (bytes <= 0) {
      return -1;
    }
    ByteBuffer part = target.duplicate();
    part.limit(part.position() + bytes);
    int came = readStream(part);
    if (came <= 0) {
      readExactly(part);
      came = bytes;
    }
    target.position(target.position() + came);
    at += came;
    return came;
  }

  private void readExactly(ByteBuffer target) throws IOException {
    ByteBuffer again = target.duplicate();
    LostBlock.Result result = block.read(at, target);
    if (result == LostBlock.Result.READ) {
      source = Source.MEND;
    } else if (decoder == null || result == LostBlock.Result.FAILED) {
      throw new IOException("Mend cannot read " + block);
    } else {
      decoder.decode(at, again);
      source = Source.DECODER;
    }
  }

  /** Reads some bytes from the stream; returns 0 if there is none. A stream that fails is closed. */
  private int readStream(ByteBuffer target) {
    if (decoder == null || source == Source.NONE) {
      return 0;
    }
    try {
      if (stream == null) {
        stream = opened();
      }
      byte[] some = new byte[Math.min(target.remaining(), STREAMED_BYTES)];
      int came = Math.max(stream.read(some), 0);
      target.put(some, 0, came);
      if (came == 0) {
        closeStream(); // It ended early.
      }
      return came;
    } catch (IOException problem) {
      DFSClient.LOG.debug("the stream of {} ended", block, problem);
      closeStream();
      source = Source.NONE;
      return 0;
    }
  }

  private InputStream opened() throws IOException {
    return source == Source.MEND
        ? block.open(at, end)
        : new BufferedInputStream(new Decoded(decoder, at, end), DECODED_BYTES);
  }

  /** The bytes of a lost block that are decoded here, in order. */
  private static final class Decoded extends InputStream {
    private final Decoder decoder;
    private final long end;
    private long at;

    Decoded(Decoder decoder, long at, long end) {
      this.decoder = decoder;
      this.at = at;
      this.end = end;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
      int bytes = (int) Math.min(length, end - at);
      if (bytes <= 0) {
        return length == 0 ? 0 : -1;
      }
      decoder.decode(at, ByteBuffer.wrap(target, offset, bytes));
      at += bytes;
      return bytes;
    }
  }

  private void closeStream() {
    if (stream != null) {
      try {
        stream.close();
      } catch (IOException problem) {
        DFSClient.LOG.debug("cannot close the stream of {}", block, problem);
      }
      stream = null;
    }
  }

  @Override
  public long skip(long count) {
    long skipped = Math.min(count, end - at);
    if (skipped > 0) {
      closeStream();
    }
    at += skipped;
    return skipped;
  }

  @Override
  public int available() {
    return 0; // A seek opens another reader.
  }

  @Override
  public void close() {
    closeStream();
  }

  @Override
  public void readFully(byte[] target, int offset, int length) throws IOException {
    if (readAll(target, offset, length) < length) {
      throw new EOFException("the block ends before " + length + " bytes");
    }
  }

  @Override
  public int readAll(byte[] target, int offset, int length) throws IOException {
    ByteBuffer buffer = ByteBuffer.wrap(target, offset, length);
    while (buffer.hasRemaining() && read(buffer) > 0) {
      continue;
    }
    return buffer.position() - offset;
  }

  @Override
  public boolean isShortCircuit() {
    return false;
  }

  @Override
  public ClientMmap getClientMmap(EnumSet<ReadOption> options) {
    return null;
  }

  @Override
  public DataChecksum getDataChecksum() {
    return null;
  }

  @Override
  public int getNetworkDistance() {
    return DISTANCE;
  }
}
