package mend.hdfs;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/**
 * A folder of parity files, and their code. The parity of a file, or of the files of a folder together, has the path of the
 * file or folder below this folder.
 */
public final class ParityRoot {
  private static final String[] HDFS_RAID = {
      "/raidrs=rs-14-10-hdfs-raid", "/raid=xor-11-10", "/dir-raidrs=folder:rs-14-10-hdfs-raid",
      "/dir-raid=folder:xor-11-10"};
  /** Precedes the code of parity over the files of folders. */
  private static final String OVER_FOLDERS = "folder:";

  private final String folder;
  private final StripeCode code;
  private final boolean isOverFolders;

  private ParityRoot(String folder, StripeCode code, boolean isOverFolders) {
    this.folder = folder;
    this.code = code;
    this.isOverFolders = isOverFolders;
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

  /** Parses a setting such as {@code /raidrs=rs-14-10-hdfs-raid} or {@code /dir-raid=folder:xor-11-10}. */
  static ParityRoot parse(String setting) {
    int equals = setting.lastIndexOf('=');
    String folder = setting.substring(0, Math.max(equals, 0)).replaceAll("/+$", "");
    if (!folder.startsWith("/")) {
      throw new IllegalArgumentException(MendSettings.PARITY_KEY + ": `" + setting
          + "` is not a folder and its code, such as /raidrs=rs-14-10-hdfs-raid");
    }
    String code = setting.substring(equals + 1);
    boolean isOverFolders = code.startsWith(OVER_FOLDERS);
    String name = isOverFolders ? code.substring(OVER_FOLDERS.length()) : code;
    return new ParityRoot(folder, StripeCode.parse(name), isOverFolders);
  }

  /** Returns the folder of all parity files. */
  String folder() {
    return folder;
  }

  StripeCode code() {
    return code;
  }

  /** Whether the stripes run over the files of folders. */
  boolean isOverFolders() {
    return isOverFolders;
  }

  /** Returns the path of the parity of a file or folder, or of all files below a folder. */
  String parity(String path) {
    return folder + path;
  }

  /** Whether a path is this folder or below it. */
  boolean contains(String path) {
    return path.equals(folder) || path.startsWith(folder + "/");
  }
}
