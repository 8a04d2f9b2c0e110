package mend.hdfs.namenode;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffReportEntry;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffType;
import org.apache.hadoop.hdfs.protocol.SnapshotException;
import org.apache.hadoop.hdfs.protocol.SnapshotStatus;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.hdfs.server.namenode.SafeModeException;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.ipc.RetriableException;
import org.apache.hadoop.ipc.StandbyException;

/**
 * Lists files that exist only in snapshots: files deleted between two snapshots of a folder, or since the
 * last snapshot.
 *
 * <p>HDFS reports a deleted folder as a single difference; its files are found in the snapshot. A file that
 * was moved out of the folder is listed too; it has the same groups in both places.
 *
 * <p>The caller drops groups that are not listed. So files may be omitted only if the NameNode refuses to list them.
 * If it does not answer, the whole answer fails. If snapshots are deleted meanwhile, their folder is listed again:
 * a file is listed in the newest snapshot that contains it, and older snapshots may contain it too.
 */
final class Snapshots {
  /** How many times a folder is listed of which snapshots are deleted meanwhile. */
  private static final int TRIES = 5;

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

  /** {@code answered} runs after every answer of the NameNode, and while answers of many pages are awaited. */
  Snapshots(DistributedFileSystem files, Answers.Lines lines, Runnable answered) {
    this.files = files;
    this.lines = lines;
    this.answered = answered;
  }

  /**
   * Visits everything deleted below these folders, and reports the totals. May visit a path several times. Snapshots of
   * other folders are not examined, because the NameNode compares them for minutes if they are large.
   *
   * @throws IOException if the NameNode does not answer
   */
  void eachDeleted(String[] folders, Walk walk) throws IOException {
    SnapshottableDirectoryStatus[] roots;
    try {
      roots = files.getSnapshottableDirListing();
    } catch (IOException | RuntimeException problem) { // A router may not support this call.
      tellRefused("/", problem);
      return;
    }
    if (roots == null) {
      return;
    }
    int examined = 0;
    for (SnapshottableDirectoryStatus root : roots) {
      String path = root.getFullPath().toUri().getPath();
      if (wanted(path, folders).isEmpty()) {
        continue;
      }
      examined++;
      try {
        eachDeleted(path, folders, walk);
      // The user may lack permissions, or the NameNode may be too old for this call.
      } catch (IOException | RuntimeException problem) {
        tellRefused(path, problem);
      }
    }
    lines.add("s " + examined + " " + snapshots + " " + deleted);
  }

  /** Reports that files are omitted because the NameNode refuses to list them; throws any other failure again. */
  private void tellRefused(String root, Exception problem) throws IOException {
    if (problem instanceof IOException && !isRefusal((IOException) problem)) {
      throw (IOException) problem;
    }
    lines.add("x " + Survey.encoded(root) + " " + Answers.text(problem));
  }

  /** Whether the NameNode has answered, and would answer the same again. */
  static boolean isRefusal(IOException problem) {
    IOException unwrapped =
        problem instanceof RemoteException ? ((RemoteException) problem).unwrapRemoteException() : problem;
    boolean isTemporary = unwrapped instanceof StandbyException || unwrapped instanceof RetriableException
        || unwrapped instanceof SafeModeException;
    // Hadoop's client creates the exceptions in answers from RemoteExceptions.
    boolean isAnswer = problem instanceof RemoteException || problem.getCause() instanceof RemoteException;
    return isAnswer && !isTemporary;
  }

  private void eachDeleted(String root, String[] folders, Walk walk) throws IOException {
    for (int tries = 0; tries < TRIES; tries++) {
      if (tryEachDeleted(root, folders, walk)) {
        return;
      }
    }
    throw new IOException("snapshots of " + root + " were deleted again and again while they were listed");
  }

  /** Returns false if snapshots were deleted meanwhile. */
  private boolean tryEachDeleted(String root, String[] folders, Walk walk) throws IOException {
    List<String> names = names(root);
    long found = 0;
    try {
      for (int at = 0; at < names.size(); at++) {
        String next = at + 1 < names.size() ? names.get(at + 1) : ""; // The current state of the folder.
        found += eachDeletedBetween(root, names.get(at), next, folders, walk);
      }
    } catch (SnapshotException problem) {
      if (names(root).containsAll(names)) {
        throw problem;
      }
      return false;
    }
    if (!names(root).containsAll(names)) {
      return false;
    }
    snapshots += names.size();
    deleted += found;
    return true;
  }

  /** Visits everything deleted between a snapshot and the next one; returns the number of files. */
  private long eachDeletedBetween(String root, String snapshot, String next, String[] folders, Walk walk)
      throws IOException {
    long found = 0;
    for (DiffReportEntry entry : differences(root, snapshot, next)) {
      if (entry.getType() == DiffType.DELETE) {
        String below = new String(entry.getSourcePath(), StandardCharsets.UTF_8);
        for (String part : wanted(joined(root, below), folders)) {
          found += walk.at(joined(joined(root, ".snapshot/" + snapshot), part.substring(root.length())));
        }
      }
    }
    return found;
  }

  /**
   * Returns the differences between two snapshots. Hadoop's client queries them page by page, which takes minutes for
   * large ones. Each of its calls has a time limit (ipc.client.rpc-timeout.ms).
   */
  private List<DiffReportEntry> differences(String root, String snapshot, String next) throws IOException {
    SnapshotDiffReport report;
    try (Ticker ticker = new Ticker(answered)) {
      report = files.getSnapshotDiffReport(new Path(root), snapshot, next);
    }
    answered.run();
    return report.getDiffList();
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
