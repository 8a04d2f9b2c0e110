package mend.hdfs;

import java.io.IOException;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import mend.client.Credentials;
import mend.client.MendClient;
import mend.client.Settings;
import org.apache.hadoop.conf.Configuration;

/** Mend's settings in Hadoop's configuration. Without {@link #API_KEY}, Mend is not used. */
public final class MendSettings {
  /** The address of the coordinator's API, {@code HOST:PORT}. */
  public static final String API_KEY = "mend.coordinator.api";
  /** The address of the coordinator's control port, {@code HOST:PORT}. */
  public static final String CONTROL_KEY = "mend.coordinator.control";
  /** The folder that contains {@code ca/ca.pem} and the folder with the certificate. */
  public static final String FOLDER_KEY = "mend.cluster.folder";
  /** The folder with the certificate, relative to {@link #FOLDER_KEY}. */
  public static final String MEMBER_KEY = "mend.certificate";
  static final String DEFAULT_MEMBER = "plugins/hdfs";
  /** The scheme for rebuilding lost blocks. */
  public static final String SCHEME_KEY = "mend.scheme";
  /** The size of slices of degraded reads, such as {@code 32k}; 0 lets the planner choose. */
  public static final String SLICE_KEY = "mend.slice-bytes";
  /**
   * Whether to allow unencrypted data connections to other machines, if the cluster's mend.toml asks for
   * them.
   */
  public static final String PLAIN_KEY = "mend.allow-plain-edges";
  /** This machine's rack, by the name that the NameNode and Mend use. */
  public static final String RACK_KEY = "mend.rack";
  /** The folders of parity files of raided files, each with its code. */
  public static final String PARITY_KEY = "mend.raid.parity";
  /** How long a read of a lost range waits for its next bytes before it fails, or HDFS decodes it. */
  public static final String READ_PATIENCE_KEY = "mend.read.patience";
  /** The largest read of a striped file, in bytes, that goes through Mend; longer reads are left to HDFS. */
  public static final String READ_MOST_KEY = "mend.read.most-bytes";
  /**
   * How long a DataNode waits for a repair before it does the work itself. Must be below five minutes, after
   * which the NameNode considers a command lost and issues another one ({@code
   * dfs.namenode.reconstruction.pending.timeout-sec}).
   */
  public static final String REPAIR_LIMIT_KEY = "mend.repair.limit";

  private MendSettings() {}

  /** Whether a cluster is configured. */
  public static boolean isConfigured(Configuration conf) {
    return !conf.getTrimmed(API_KEY, "").isEmpty();
  }

  /**
   * Creates a client of the configured cluster.
   *
   * @throws IOException if the configuration is unusable
   */
  public static MendClient client(Configuration conf) throws IOException {
    String api = required(conf, API_KEY);
    String folder = required(conf, FOLDER_KEY);
    Credentials credentials =
        Credentials.load(Paths.get(folder), conf.getTrimmed(MEMBER_KEY, DEFAULT_MEMBER));
    try {
      return new MendClient(Settings.of(api, required(conf, CONTROL_KEY), credentials)
          .withScheme(conf.getTrimmed(SCHEME_KEY, "auto"))
          .withSliceBytes(Math.toIntExact(conf.getLongBytes(SLICE_KEY, 0)))
          .withRack(conf.getTrimmed(RACK_KEY, ""))
          .withPlainEdges(conf.getBoolean(PLAIN_KEY, false))
          .withPatience(duration(conf, READ_PATIENCE_KEY, 5)));
    } catch (IllegalArgumentException problem) {
      throw new IOException(API_KEY + " or " + CONTROL_KEY + ": " + problem.getMessage(), problem);
    }
  }

  private static String required(Configuration conf, String key) throws IOException {
    String value = conf.getTrimmed(key, "");
    if (value.isEmpty()) {
      throw new IOException(key + " is not set; docs/reference/hdfs.md lists the settings that are needed together");
    }
    return value;
  }

  static Duration repairLimit(Configuration conf) {
    return duration(conf, REPAIR_LIMIT_KEY, 240);
  }

  private static Duration duration(Configuration conf, String key, long seconds) {
    return Duration.ofMillis(conf.getTimeDuration(key, TimeUnit.SECONDS.toMillis(seconds), TimeUnit.MILLISECONDS));
  }
}
