package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import mend.hdfs.DegradedReads;
import org.apache.hadoop.conf.Configuration;

/**
 * HDFS with small positional reads of lost blocks through Mend: {@code
 * fs.hdfs.impl=org.apache.hadoop.hdfs.MendDistributedFileSystem}.
 *
 * <p>All else is HDFS's own, and so is everything where no coordinator is configured or Mend fails in any way. It is in HDFS's
 * package since the client that a file system uses can only be set from there.
 */
public class MendDistributedFileSystem extends DistributedFileSystem {
  @Override
  void initDFSClient(URI uri, Configuration conf) throws IOException {
    this.dfs = MendDFSClient.of(uri, conf, statistics);
  }

  /** What was read through Mend; null if no coordinator is configured. */
  public DegradedReads degradedReads() {
    return dfs instanceof MendDFSClient ? ((MendDFSClient) dfs).degradedReads() : null;
  }
}
