package mend.hdfs.namenode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.GenericOptionsParser;

/**
 * The program with which Mend's coordinator queries a NameNode. It uses Hadoop's own client, which supports
 * failover, Kerberos and wire encryption, and reads the configuration on the class path.
 *
 * <p>A question is a line on standard input that starts with a number. An answer is a sequence of lines on
 * standard output, each with the number of the question; the last one is {@code done} or {@code failed WHY}.
 * Questions are answered concurrently, and short ones never wait for long ones.
 *
 * <pre>
 *   7 list PATH TAB PATH …      all groups of all files below these paths, and all DataNodes
 *   7 files PATH TAB PATH …     all files below these folders, with the replicas of their blocks
 *   7 raided ROOT TAB PATH …    the parity files at or below PATH, which is at or below the parity root ROOT, and their
 *                               sources, with the replicas of their blocks
 *   7 attributes PATH TAB PATH … Mend's extended attributes of these files
 *   7 missing PATH TAB PATH …   the folders among these that do not exist
 *   7 walk PATH TAB PATH …      all groups of these files, and of all files below these folders
 *   7 snapshots PATH TAB PATH … all groups of files that exist only in snapshots of these folders
 *   7 inodes INODE,INODE,…      the files and folders among these that exist
 *   7 position                  the transaction after the last one in the edit log
 *   7 edits TRANSACTION         what has happened in the namespace since, see {@link Edits}
 *   8 counts                    how many groups lack blocks
 *   8 others                    how long the other lists are that the NameNode writes with the groups
 *   8 losses                    the groups and replicated blocks that lack redundancy, see {@link Losses}
 *   8 lost                      files with blocks that have no intact replica
 *   8 nodes                     all DataNodes
 *   8 volumes                   all DataNodes, with the folders of live ones
 *   9 group FILE START          the group with byte START of FILE (an inode number or an encoded path)
 *   9 blocks FILE START BYTES FILE START BYTES …
 *                               these files, each with the replicas of its blocks in a range
 *   9 checksum FILE START       the format of the checksums of that group's blocks, or of that replicated block
 *   9 touch FILE START ADDRESS  requests each block of that group that the NameNode lists on this DataNode
 *   9 report ADDRESS            makes this DataNode report all its blocks to the NameNode
 *   9 tokens FILE START INDEX,… block tokens for these internal blocks of that group, if HDFS requires tokens; a
 *                               replicated block has the index 0
 *   9 encode SOURCE …           a change of HDFS, see {@link Changes}
 * </pre>
 *
 * <p>Each PATH, FOLDER and FILE is encoded: names may contain line breaks and tabs.
 *
 * <p>The program ends when its input ends. Its arguments are Hadoop's generic options: {@code -D KEY=VALUE},
 * {@code -fs URI}.
 */
public final class Reporter {
  /** The first line of the output, with the protocol version. */
  private static final String GREETING = "0 ready 9";
  /** The number of short questions that are answered at once. Repairs wait for these answers. */
  private static final int SHORT_AT_ONCE = 16;
  /** The number of other questions that are answered at once. */
  private static final int LONG_AT_ONCE = 16;
  /** The limit for connecting to a DataNode, and for each answer. */
  private static final int DATANODE_LIMIT_MS = 10_000;
  private static final String PRINCIPAL_KEY = "mend.principal";
  private static final String KEYTAB_KEY = "mend.keytab";

  private Reporter() {}

  /** Answers questions until the input ends. */
  public static void main(String[] arguments) throws IOException {
    PrintStream output = System.out;
    System.setOut(System.err); // Output of libraries must not mix with answers.
    Configuration conf = new HdfsConfiguration();
    new GenericOptionsParser(conf, arguments);
    // The coordinator has its own time limits and retries.
    conf.setIfUnset("ipc.client.connect.max.retries", "3");
    conf.setIfUnset("ipc.client.connect.timeout", "5000");
    conf.setInt("dfs.client.socket-timeout", DATANODE_LIMIT_MS);
    logIn(conf);
    ActiveNameNode active = ActiveNameNode.of(conf);
    DistributedFileSystem files = files(conf);
    Answers answers = new Answers(output, new BlockTokens(conf), active);
    answers.say(GREETING);
    ExecutorService forShort = threads(SHORT_AT_ONCE);
    ExecutorService forLong = threads(LONG_AT_ONCE);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Question question = Question.of(line);
      ExecutorService threads = question.isShort() ? forShort : forLong;
      threads.execute(() -> answers.answer(question, files, conf));
    }
    System.exit(0); // Some of Hadoop's threads are not daemons.
  }

  private static ExecutorService threads(int most) {
    return Executors.newFixedThreadPool(most, work -> {
      Thread thread = new Thread(work, "question");
      thread.setDaemon(true);
      return thread;
    });
  }

  private static void logIn(Configuration conf) throws IOException {
    UserGroupInformation.setConfiguration(conf);
    String keytab = conf.get(KEYTAB_KEY);
    if (keytab != null) {
      UserGroupInformation.loginUserFromKeytab(conf.get(PRINCIPAL_KEY), keytab);
    }
  }

  private static DistributedFileSystem files(Configuration conf) throws IOException {
    URI uri = FileSystem.getDefaultUri(conf);
    FileSystem files = FileSystem.get(uri, conf);
    if (!(files instanceof DistributedFileSystem)) {
      throw new IOException(uri + " is not HDFS; add the folder with the Hadoop configuration to the class path");
    }
    return (DistributedFileSystem) files;
  }
}
