package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import mend.hdfs.DegradedReads;
import org.apache.hadoop.conf.Configuration;

/**
 * HDFS's file system, except that reads of lost blocks go through Mend: small positional reads of striped
 * files, and all reads of raided files. The parity of raided files is renamed and deleted along with them.
 * {@code fs.hdfs.impl=org.apache.hadoop.hdfs.MendDistributedFileSystem}
 *
 * <p>All other operations are HDFS's own. If no coordinator is configured, HDFS carries out all of them. The
 * class is in HDFS's package because the client of a file system can only be set there.
 */
public class MendDistributedFileSystem extends DistributedFileSystem {
  @Override
  void initDFSClient(URI uri, Configuration conf) throws IOException {
    this.dfs = MendDFSClient.of(uri, conf, statistics);
  }

  /** Returns the degraded reads of this file system; null if no coordinator is configured. */
  public DegradedReads degradedReads() {
    return dfs instanceof MendDFSClient ? ((MendDFSClient) dfs).degradedReads() : null;
  }
}
