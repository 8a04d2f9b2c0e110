package org.apache.hadoop.hdfs;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.shortcircuit.ClientMmap;
import org.apache.hadoop.util.DataChecksum;

/** Bytes of a block that are here, as HDFS reads from a DataNode. */
final class BytesReader implements BlockReader {
  /** From here to helpers: as far as nodes of different racks are apart. */
  static final int DISTANCE = 4;

  private final ByteBuffer bytes;

  BytesReader(ByteBuffer bytes) {
    this.bytes = bytes;
  }

  @Override
  public int read(byte[] target, int offset, int length) {
    if (!bytes.hasRemaining()) {
      return -1;
    }
    int taken = Math.min(length, bytes.remaining());
    bytes.get(target, offset, taken);
    return taken;
  }

  @Override
  public int read(ByteBuffer target) {
    if (!bytes.hasRemaining()) {
      return -1;
    }
    int taken = Math.min(target.remaining(), bytes.remaining());
    ByteBuffer part = bytes.duplicate();
    part.limit(part.position() + taken);
    target.put(part);
    bytes.position(bytes.position() + taken);
    return taken;
  }

  @Override
  public long skip(long count) {
    int skipped = (int) Math.min(count, bytes.remaining());
    bytes.position(bytes.position() + skipped);
    return skipped;
  }

  @Override
  public int available() {
    return bytes.remaining();
  }

  @Override
  public void close() {
    // Nothing is open.
  }

  @Override
  public void readFully(byte[] target, int offset, int length) throws IOException {
    if (readAll(target, offset, length) < length) {
      throw new EOFException("the block ends before " + length + " bytes");
    }
  }

  @Override
  public int readAll(byte[] target, int offset, int length) {
    return Math.max(read(target, offset, length), 0);
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
