package mend.hdfs.namenode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DFSUtil;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HAUtil;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.ECBlockGroupStats;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.protocol.ReplicatedBlockStats;
import org.apache.hadoop.hdfs.web.URLConnectionFactory;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.authentication.client.AuthenticationException;

/**
 * Reads the NameNode's own lists of the groups that lack blocks, and of the blocks of replicated files that lack
 * replicas: those waiting for reconstruction, those being reconstructed, and those with too few left.
 *
 * <p>No call of the client protocol returns these lists. {@code metaSave} makes the NameNode write them to a file
 * among its logs, and its web server serves the file. The NameNode holds its read lock meanwhile, so the caller
 * first asks how long these lists are, and the others that {@code metaSave} writes as well: blocks whose surplus
 * replicas are not removed yet, blocks that are being reconstructed, and replicas that wait to be deleted.
 *
 * <pre>
 *   l GROUPS UNREADABLE CORRUPT BLOCKS
 *                 how many groups lack blocks, how many have too few left, how many have corrupt replicas, and how
 *                 many blocks of replicated files are on the lists or have corrupt replicas
 *   o POSTPONED RECONSTRUCTED DELETED
 *                 the lengths of the other lists
 *   q GROUP|BLOCK LIVE|- [ADDRESS,…]
 *                 a group or replicated block on the lists, the number of its live replicas, and the DataNodes whose
 *                 replicas the NameNode knows to be corrupt; -: the lists only tell that HDFS is reconstructing it
 *   lost PATH     a file with blocks that have no intact replica; of a group, too few
 * </pre>
 */
final class Losses {
  private static final String FILE = "mend-low-redundancy";
  /** The start of the last section. Without it, the file is incomplete. */
  private static final String LAST_SECTION = "Metasave: Number of datanodes: ";
  private static final String DETAILS = " (replicas:";
  private static final Pattern BLOCK = Pattern.compile("blk_(-?\\d+)_\\d+");
  /** A block that HDFS is reconstructing: its line names no replicas. Lines of blocks to delete begin with a block as well. */
  private static final Pattern RECONSTRUCTED = Pattern.compile("blk_(-?\\d+)_\\d+ StartTime: ");
  /** The number of live replicas. The second name is that of Hadoop 2. */
  private static final Pattern LIVE = Pattern.compile(" (?:live|l): (\\d{1,9}) ");
  /** A replica, such as {@code 10.0.0.1:9866(corrupt)}. */
  private static final Pattern CORRUPT = Pattern.compile(" (\\S+)\\(corrupt\\)");
  /** The NameNode's metrics of blocks. They are at most ten seconds old. */
  private static final String METRICS = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystem";
  private static final int MAX_METRICS_BYTES = 1 << 20;
  /** Changes of the namespace are not read while a connection to the web server is awaited. */
  private static final int CONNECT_LIMIT_MS = 5_000;
  /** A file that was modified this long before it was requested to be written is an old one. */
  private static final long OLD_MS = 30_000;
  /** The greatest number of files with lost blocks that are listed. */
  private static final int MOST_FILES = 10_000;

  private final DistributedFileSystem files;
  private final Configuration conf;
  private final Answers.Lines lines;

  Losses(DistributedFileSystem files, Configuration conf, Answers.Lines lines) {
    this.files = files;
    this.conf = conf;
    this.lines = lines;
  }

  /** Reports the lengths of the lists. */
  void counts() throws IOException {
    tellSafeMode();
    ClientProtocol namenode = files.getClient().getNamenode();
    ECBlockGroupStats groups = namenode.getECBlockGroupStats();
    ReplicatedBlockStats blocks = namenode.getReplicatedBlockStats();
    lines.add("l " + groups.getLowRedundancyBlockGroups() + " " + groups.getMissingBlockGroups() + " "
        + groups.getCorruptBlockGroups() + " "
        + (blocks.getLowRedundancyBlocks() + blocks.getMissingReplicaBlocks() + blocks.getCorruptBlocks()));
  }

  /** Reports the lengths of the other lists. No call of the client protocol returns the first two. */
  void others() throws IOException {
    HttpURLConnection connection = open(METRICS);
    String metrics;
    try (InputStream input = connection.getInputStream()) {
      metrics = new String(input.readNBytes(MAX_METRICS_BYTES), StandardCharsets.UTF_8);
    } finally {
      connection.disconnect();
    }
    ClientProtocol namenode = files.getClient().getNamenode();
    long deleted = namenode.getECBlockGroupStats().getPendingDeletionBlocks()
        + namenode.getReplicatedBlockStats().getPendingDeletionBlocks();
    lines.add("o " + metric(metrics, List.of("PostponedMisreplicatedBlocks")) + " "
        // The second name is that of Hadoop 2.
        + metric(metrics, List.of("PendingReconstructionBlocks", "PendingReplicationBlocks")) + " " + deleted);
  }

  /** Returns the first of these metrics that the NameNode has. */
  static long metric(String metrics, List<String> names) throws IOException {
    for (String name : names) {
      Matcher found = Pattern.compile("\"" + name + "\"\\s*:\\s*(\\d{1,18})\\b").matcher(metrics);
      if (found.find()) {
        return Long.parseLong(found.group(1));
      }
    }
    throw new IOException("the NameNode's metrics do not contain " + names.get(0));
  }

  /** Reports safe mode; the lists are made when it ends. */
  private void tellSafeMode() throws IOException {
    if (files.getClient().setSafeMode(SafeModeAction.SAFEMODE_GET, true)) {
      lines.add("safe");
    }
  }

  /** Reports the groups and replicated blocks on the lists. */
  void list() throws IOException {
    long beganNs = System.nanoTime();
    files.getClient().metaSave(FILE);
    Map<String, Shortage> groups;
    HttpURLConnection connection = open("/logs/" + FILE);
    long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beganNs);
    checkAge(connection.getDate(), connection.getLastModified(), tookMs);
    try (BufferedReader saved =
        new BufferedReader(new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8))) {
      groups = groups(saved);
    } finally {
      connection.disconnect();
    }
    tellSafeMode(); // The NameNode may have been restarted before it saved the lists.
    groups.forEach((group, shortage) -> lines.add("q " + group + " " + shortage));
  }

  /**
   * Refuses a file that was there before. One NameNode may write the file, and another one become active and serve
   * the file that it wrote when it was active before.
   *
   * @param date the time by the web server's clock, in milliseconds; 0 if unknown
   * @param modified when the file was modified, by the same clock; 0 if unknown
   * @param tookMs the time since the NameNode was requested to write the file
   */
  static void checkAge(long date, long modified, long tookMs) throws IOException {
    if (date > 0 && modified > 0 && date - modified > tookMs + OLD_MS) {
      throw new IOException("the file " + FILE + " is " + TimeUnit.MILLISECONDS.toSeconds(date - modified)
          + " s old, so the active NameNode has not written it now");
    }
  }

  /** Reports files with lost blocks, without {@code metaSave}: the NameNode lists them page by page. */
  void files() throws IOException {
    tellSafeMode();
    RemoteIterator<Path> lost = files.listCorruptFileBlocks(new Path("/"));
    for (int count = 0; count < MOST_FILES && lost.hasNext(); count++) {
      lines.add("lost " + Survey.encoded(lost.next().toUri().getPath()));
    }
    tellSafeMode();
  }

  private HttpURLConnection open(String path) throws IOException {
    URI server = DFSUtil.getInfoServer(HAUtil.getAddressOfActive(files), conf, DFSUtil.getHttpClientScheme(conf));
    URL url = server.resolve(path).toURL();
    HttpURLConnection connection;
    try {
      connection = (HttpURLConnection) connections(conf)
          .openConnection(url, UserGroupInformation.isSecurityEnabled());
    } catch (AuthenticationException problem) {
      throw new IOException(url + ": " + Answers.text(problem), problem);
    }
    int code = connection.getResponseCode();
    if (code != HttpURLConnection.HTTP_OK) {
      connection.disconnect();
      throw new IOException(url + " has the status " + code
          + "; the NameNode must serve its logs (hadoop.http.logs.enabled) and its metrics to the coordinator's user");
    }
    return connection;
  }

  private static URLConnectionFactory connections(Configuration conf) {
    int readLimitMs = URLConnectionFactory.DEFAULT_SOCKET_TIMEOUT;
    return URLConnectionFactory.newDefaultURLConnectionFactory(CONNECT_LIMIT_MS, readLimitMs, conf);
  }

  /** What the lists tell of a group or block. */
  static final class Shortage {
    /** The number of live replicas, or - if unknown. */
    private String live = "-";
    /** The DataNodes with corrupt replicas. */
    private final Set<String> corrupt = new LinkedHashSet<>();

    /** Returns the last words of the line. */
    @Override
    public String toString() {
      return (live + " " + String.join(",", corrupt)).trim();
    }
  }

  /**
   * Reads the groups and replicated blocks on the lists from the file. Names of files may contain line breaks, but no
   * colon. So no line of a name is taken for one of these.
   *
   * @throws IOException if the file is incomplete
   */
  static Map<String, Shortage> groups(BufferedReader saved) throws IOException {
    Map<String, Shortage> groups = new LinkedHashMap<>();
    boolean isComplete = false;
    for (String line = saved.readLine(); line != null; line = saved.readLine()) {
      isComplete = isComplete || line.startsWith(LAST_SECTION);
      add(line, groups);
    }
    if (!isComplete) {
      throw new IOException("the NameNode's file " + FILE + " is incomplete");
    }
    return groups;
  }

  /** Adds the group or block of a line, which may begin with the path of the file. */
  private static void add(String line, Map<String, Shortage> groups) {
    int end = line.lastIndexOf(DETAILS);
    if (end < 0) {
      Matcher group = RECONSTRUCTED.matcher(line);
      if (group.lookingAt()) {
        groups.computeIfAbsent(group.group(1), number -> new Shortage());
      }
      return;
    }
    int start = line.lastIndexOf("blk_", end);
    if (start < 0) {
      return;
    }
    Matcher group = BLOCK.matcher(line).region(start, end);
    if (group.lookingAt()) {
      Shortage shortage = groups.computeIfAbsent(group.group(1), number -> new Shortage());
      Matcher live = LIVE.matcher(line).region(end + DETAILS.length(), line.length());
      if (live.lookingAt()) {
        shortage.live = live.group(1);
      }
      Matcher replica = CORRUPT.matcher(line).region(end, line.length());
      while (replica.find()) {
        shortage.corrupt.add(replica.group(1));
      }
    }
  }
}
