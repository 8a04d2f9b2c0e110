package mend.hdfs.namenode;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * The blocks of one or several replicated files, in order. Each block has its own stream while it is read, so that
 * the blocks of a stripe can be read side by side.
 */
final class FileBlocks implements Closeable {
  private final DFSClient client;
  private final List<String> paths = new ArrayList<>();
  private final List<LocatedBlock> blocks = new ArrayList<>();
  private final Map<Integer, DFSInputStream> streams = new HashMap<>();

  /** Looks the blocks up. The client must not be one that decodes lost blocks. */
  FileBlocks(DFSClient client, List<String> files) throws IOException {
    this.client = client;
    for (String file : files) {
      for (LocatedBlock block : client.getLocatedBlocks(file, 0, Long.MAX_VALUE).getLocatedBlocks()) {
        paths.add(file);
        blocks.add(block);
      }
    }
  }

  List<LocatedBlock> all() {
    return blocks;
  }

  /** Reads bytes of a block, or zeros where it has ended, or where there is no such block. */
  void read(int block, long from, byte[] into, int bytes) throws IOException {
    long left = block < blocks.size() ? blocks.get(block).getBlockSize() - from : 0;
    int present = (int) Math.max(0, Math.min(left, bytes));
    if (present > 0) {
      DFSInputStream stream = stream(block);
      long at = blocks.get(block).getStartOffset() + from;
      if (stream.getPos() != at) {
        stream.seek(at);
      }
      readFully(stream, into, present);
    }
    Arrays.fill(into, present, bytes, (byte) 0);
  }

  private DFSInputStream stream(int block) throws IOException {
    DFSInputStream stream = streams.get(block);
    if (stream == null) {
      stream = client.open(paths.get(block));
      streams.put(block, stream);
    }
    return stream;
  }

  private static void readFully(DFSInputStream stream, byte[] into, int bytes) throws IOException {
    for (int done = 0; done < bytes;) {
      int read = stream.read(into, done, bytes - done);
      if (read < 0) {
        throw new Changes.ChangedException("the file became shorter while it was read");
      }
      done += read;
    }
  }

  /** Closes the streams; the blocks can be read again. */
  @Override
  public void close() throws IOException {
    for (DFSInputStream stream : streams.values()) {
      stream.close();
    }
    streams.clear();
  }
}
