package org.apache.hadoop.fs;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.MendDFSClient;

/**
 * The counterpart of {@link org.apache.hadoop.hdfs.MendDistributedFileSystem} for programs that use {@code
 * FileContext}: {@code fs.AbstractFileSystem.hdfs.impl=org.apache.hadoop.fs.MendHdfs}.
 *
 * <p>It is in Hadoop's package because the constructor and the client of {@link Hdfs} are only accessible
 * there.
 */
public class MendHdfs extends Hdfs {
  /** Called by {@code AbstractFileSystem.createFileSystem}. */
  public MendHdfs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, conf);
    DFSClient stock = dfs;
    dfs = MendDFSClient.of(uri, conf, getStatistics());
    stock.close();
  }
}
