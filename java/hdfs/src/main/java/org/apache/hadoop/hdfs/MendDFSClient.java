package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import mend.hdfs.DegradedReads;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsPathHandle;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.tracing.TraceScope;

/** HDFS's client, except that streams of striped files read lost blocks through Mend. */
public final class MendDFSClient extends DFSClient {
  private final DegradedReads reads;

  private MendDFSClient(URI uri, Configuration conf, FileSystem.Statistics statistics, DegradedReads reads)
      throws IOException {
    super(uri, conf, statistics);
    this.reads = reads;
  }

  /** Creates a client, or HDFS's own if no coordinator is configured. */
  public static DFSClient of(URI uri, Configuration conf, FileSystem.Statistics statistics) throws IOException {
    DegradedReads reads = DegradedReads.of(conf);
    if (reads == null) {
      return new DFSClient(uri, conf, statistics);
    }
    try {
      return new MendDFSClient(uri, conf, statistics, reads);
    } catch (IOException | RuntimeException problem) {
      reads.close();
      throw problem;
    }
  }

  DegradedReads degradedReads() {
    return reads;
  }

  @Override
  public DFSInputStream open(String src, int bufferSize, boolean verifyChecksum) throws IOException {
    checkOpen();
    LocatedBlocks blocks;
    try (TraceScope ignored = newPathTraceScope("newDFSInputStream", src)) {
      blocks = getLocatedBlocks(src, 0);
      return opened(blocks, src, verifyChecksum);
    }
  }

  @Override
  public DFSInputStream open(HdfsPathHandle handle, int bufferSize, boolean verifyChecksum) throws IOException {
    checkOpen();
    String src = handle.getPath();
    try (TraceScope ignored = newPathTraceScope("newDFSInputStream", src)) {
      HdfsLocatedFileStatus status = getLocatedFileInfo(src, true);
      handle.verify(status);
      return opened(status.getLocatedBlocks(), src, verifyChecksum);
    }
  }

  private DFSInputStream opened(LocatedBlocks blocks, String src, boolean verifyChecksum) throws IOException {
    if (blocks == null) {
      throw new IOException("Cannot open filename " + src);
    }
    return blocks.getErasureCodingPolicy() == null
        ? new DFSInputStream(this, src, verifyChecksum, blocks)
        : new MendStripedInputStream(this, src, verifyChecksum, blocks, reads);
  }

  @Override
  public synchronized void close() throws IOException {
    try {
      super.close();
    } finally {
      reads.close();
    }
  }
}
