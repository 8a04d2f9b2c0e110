package mend.hdfs.namenode;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffReportEntry;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffType;
import org.apache.hadoop.hdfs.protocol.SnapshotStatus;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;

/**
 * Lists files that exist only in snapshots: files deleted between two snapshots of a folder, or since the
 * last snapshot.
 *
 * <p>HDFS reports a deleted folder as a single difference; its files are found in the snapshot. A file that
 * was moved out of the folder is listed too; it has the same groups in both places.
 */
final class Snapshots {
  private final DistributedFileSystem files;
  private final Answers.Lines lines;
  private final Runnable answered;
  private long snapshots;
  private long deleted;

  /**
   * Visits the path of a deleted file or folder in a snapshot; returns the number of files with block groups
   * at or below this path.
   */
  interface Walk {
    long at(String path) throws IOException;
  }

  /** {@code answered} runs after every answer of the NameNode. */
  Snapshots(DistributedFileSystem files, Answers.Lines lines, Runnable answered) {
    this.files = files;
    this.lines = lines;
    this.answered = answered;
  }

  /** Visits everything deleted below these folders, and reports the totals. */
  void eachDeleted(String[] folders, Walk walk) throws IOException {
    SnapshottableDirectoryStatus[] roots;
    try {
      roots = files.getSnapshottableDirListing();
    } catch (IOException | RuntimeException problem) { // A router may not support this call.
      tellUncovered("/", problem);
      return;
    }
    if (roots == null) {
      return;
    }
    for (SnapshottableDirectoryStatus root : roots) {
      String path = root.getFullPath().toUri().getPath();
      try {
        eachDeleted(path, folders, walk);
      // The user may lack permissions, or the NameNode may be too old for this call.
      } catch (IOException | RuntimeException problem) {
        tellUncovered(path, problem);
      }
    }
    lines.add("s " + roots.length + " " + snapshots + " " + deleted);
  }

  private void tellUncovered(String root, Exception problem) {
    lines.add("x " + Survey.encoded(root) + " " + Answers.text(problem));
  }

  private void eachDeleted(String root, String[] folders, Walk walk) throws IOException {
    List<String> names = names(root);
    snapshots += names.size();
    for (int at = 0; at < names.size(); at++) {
      String next = at + 1 < names.size() ? names.get(at + 1) : ""; // The current state of the folder.
      List<DiffReportEntry> entries =
          files.getSnapshotDiffReport(new Path(root), names.get(at), next).getDiffList();
      answered.run();
      for (DiffReportEntry entry : entries) {
        if (entry.getType() == DiffType.DELETE) {
          String below = new String(entry.getSourcePath(), StandardCharsets.UTF_8);
          for (String part : wanted(joined(root, below), folders)) {
            deleted += walk.at(joined(joined(root, ".snapshot/" + names.get(at)), part.substring(root.length())));
          }
        }
      }
    }
  }

  /** Returns the names of a folder's snapshots, oldest first. */
  private List<String> names(String root) throws IOException {
    List<SnapshotStatus> all = new ArrayList<>(List.of(files.getSnapshotListing(new Path(root))));
    all.sort(Comparator.comparingInt(SnapshotStatus::getSnapshotID));
    List<String> names = new ArrayList<>();
    all.forEach(snapshot -> names.add(snapshot.getDirStatus().getLocalName()));
    return names;
  }

  /**
   * Returns the parts of a path that lie in one of these folders: the whole path, or the folders that are
   * below the path.
   */
  private static List<String> wanted(String path, String[] folders) {
    List<String> wanted = new ArrayList<>();
    for (String folder : folders) {
      if (isWithin(path, folder)) {
        return List.of(path);
      }
      if (isWithin(folder, path)) {
        wanted.add(folder);
      }
    }
    return wanted;
  }

  private static boolean isWithin(String path, String folder) {
    return path.equals(folder) || path.startsWith(folder.endsWith("/") ? folder : folder + "/");
  }

  private static String joined(String folder, String below) {
    String under = below.startsWith("/") ? below.substring(1) : below;
    return folder.endsWith("/") ? folder + under : folder + "/" + under;
  }
}
