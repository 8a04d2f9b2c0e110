package mend.hdfs;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/** A folder of parity files, and their code. The parity of a file has the file's path below this folder. */
public final class ParityRoot {
  private static final String[] HDFS_RAID = {"/raidrs=rs-14-10-hdfs-raid", "/raid=xor-11-10"};

  private final String folder;
  private final StripeCode code;

  private ParityRoot(String folder, StripeCode code) {
    this.folder = folder;
    this.code = code;
  }

  /**
   * Returns the configured folders, in the order in which parity is looked for.
   *
   * @throws IllegalArgumentException if a setting is invalid
   */
  static List<ParityRoot> of(Configuration conf) {
    List<ParityRoot> roots = new ArrayList<>();
    for (String setting : conf.getTrimmedStrings(MendSettings.PARITY_KEY, HDFS_RAID)) {
      roots.add(parse(setting));
    }
    return roots;
  }

  /** Parses a setting such as {@code /raidrs=rs-14-10-hdfs-raid}. */
  static ParityRoot parse(String setting) {
    int equals = setting.lastIndexOf('=');
    String folder = setting.substring(0, Math.max(equals, 0)).replaceAll("/+$", "");
    if (!folder.startsWith("/")) {
      throw new IllegalArgumentException(MendSettings.PARITY_KEY + ": `" + setting
          + "` is not a folder and its code, such as /raidrs=rs-14-10-hdfs-raid");
    }
    return new ParityRoot(folder, StripeCode.parse(setting.substring(equals + 1)));
  }

  /** Returns the folder of all parity files. */
  String folder() {
    return folder;
  }

  StripeCode code() {
    return code;
  }

  /** Returns the path of the parity of a file, or of all files below a folder. */
  String parity(String path) {
    return folder + path;
  }

  /** Whether a path is this folder or below it. */
  boolean contains(String path) {
    return path.equals(folder) || path.startsWith(folder + "/");
  }
}
