package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import java.util.List;
import mend.hdfs.DegradedReads;
import mend.hdfs.ParityFiles;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsPathHandle;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.tracing.TraceScope;

/**
 * HDFS's client, except that streams read lost blocks of striped and raided files through Mend, and that the
 * parity of raided files is renamed along with them, and deleted unless a snapshot contains the file.
 */
public final class MendDFSClient extends DFSClient {
  private final DegradedReads reads;
  private final ParityFiles parity;

  private MendDFSClient(URI uri, Configuration conf, FileSystem.Statistics statistics, DegradedReads reads)
      throws IOException {
    super(uri, conf, statistics);
    this.reads = reads;
    this.parity = new ParityFiles(this, conf);
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
        ? new MendRaidInputStream(this, src, verifyChecksum, blocks, reads, parity)
        : new MendStripedInputStream(this, src, verifyChecksum, blocks, reads);
  }

  /** Leaves Mend out: HDFS would dial its address to find out whether it is dead. */
  @Override
  public void addNodeToDeadNodeDetector(DFSInputStream stream, DatanodeInfo node) {
    if (node != MendRaidInputStream.MEND) {
      super.addNodeToDeadNodeDetector(stream, node);
    }
  }

  @Override
  @Deprecated
  public boolean rename(String src, String dst) throws IOException {
    ParityFiles.Renaming renaming = parity.beforeRename(src, dst);
    boolean isRenamed = super.rename(src, dst);
    if (isRenamed) {
      renaming.finish();
    }
    return isRenamed;
  }

  @Override
  public void rename(String src, String dst, Options.Rename... options) throws IOException {
    ParityFiles.Renaming renaming = parity.beforeRename(src, dst, options);
    super.rename(src, dst, options);
    renaming.finish();
  }

  @Override
  public boolean delete(String src, boolean recursive) throws IOException {
    List<ParityFiles.Owned> parities = parity.belonging(src);
    boolean isDeleted = super.delete(src, recursive);
    if (isDeleted) {
      parity.removeAll(parities);
    }
    return isDeleted;
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
