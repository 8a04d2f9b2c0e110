package org.apache.hadoop.hdfs;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import mend.hdfs.DegradedReads;
import mend.hdfs.Group;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.shortcircuit.ClientMmap;
import org.apache.hadoop.util.DataChecksum;

/**
 * Implements the interface by which HDFS reads from a DataNode, and reads a lost block through Mend. Each
 * read requests exactly its own bytes, because HDFS opens readers for longer ranges than it reads.
 */
final class LostBlockReader implements BlockReader {
  /** The network distance of these reads in HDFS's statistics: that of nodes in different racks. */
  static final int DISTANCE = 4;

  private final DegradedReads reads;
  private final Group group;
  private final int index;
  private final long end;
  private long at;

  LostBlockReader(DegradedReads reads, Group group, int index, long at, long end) {
    this.reads = reads;
    this.group = group;
    this.index = index;
    this.at = at;
    this.end = end;
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
    if (!reads.read(group, index, at, part)) {
      throw new IOException("Mend cannot read block " + index + " of " + group.name());
    }
    target.position(target.position() + bytes);
    at += bytes;
    return bytes;
  }

  @Override
  public long skip(long count) {
    long skipped = Math.min(count, end - at);
    at += skipped;
    return skipped;
  }

  @Override
  public int available() {
    return 0; // No bytes are buffered.
  }

  @Override
  public void close() {
    // There is nothing to close.
  }

  @Override
  public void readFully(byte[] target, int offset, int length) throws IOException {
    if (readAll(target, offset, length) < length) {
      throw new EOFException("the block ends before " + length + " bytes");
    }
  }

  @Override
  public int readAll(byte[] target, int offset, int length) throws IOException {
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
