package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.PrintStream;
import java.net.ConnectException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffReportEntry;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport.DiffType;
import org.apache.hadoop.hdfs.protocol.SnapshotException;
import org.apache.hadoop.hdfs.protocol.SnapshotStatus;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.ipc.StandbyException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class SnapshotsTest {
  private final List<String> visited = new ArrayList<>();

  /** A folder {@code /a} with snapshots; its file {@code f} was deleted after the last one. */
  private class Hdfs extends DistributedFileSystem {
    List<String> snapshots = new ArrayList<>(List.of("s1", "s2"));

    @Override
    public SnapshottableDirectoryStatus[] getSnapshottableDirListing() {
      return new SnapshottableDirectoryStatus[] {
          new SnapshottableDirectoryStatus(folder("a"), snapshots.size(), 9, new byte[] {'/'})};
    }

    @Override
    public SnapshotStatus[] getSnapshotListing(Path root) throws IOException {
      return snapshots.stream()
          .map(name -> new SnapshotStatus(folder(name), name.charAt(1), false, new byte[0]))
          .toArray(SnapshotStatus[]::new);
    }

    @Override
    public SnapshotDiffReport getSnapshotDiffReport(Path root, String from, String to) throws IOException {
      DiffReportEntry gone = new DiffReportEntry(DiffType.DELETE, "f".getBytes(StandardCharsets.UTF_8));
      return new SnapshotDiffReport("/a", from, to, to.isEmpty() ? List.of(gone) : List.of());
    }
  }

  private static HdfsFileStatus folder(String name) {
    return new HdfsFileStatus.Builder().isdir(true).path(name.getBytes(StandardCharsets.UTF_8)).build();
  }

  private String answer(DistributedFileSystem files) throws IOException {
    return answer(files, () -> { });
  }

  private String answer(DistributedFileSystem files, Runnable answered) throws IOException {
    return answer(files, answered, "/");
  }

  private String answer(DistributedFileSystem files, Runnable answered, String folder) throws IOException {
    visited.clear();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    Answers.Lines lines = new Answers.Lines(new Answers(new PrintStream(bytes), null, null), "1");
    new Snapshots(files, lines, answered).eachDeleted(new String[] {folder}, path -> {
      visited.add(path);
      return 1;
    });
    lines.flush();
    return bytes.toString(StandardCharsets.UTF_8);
  }

  /** Returns an exception as Hadoop's client creates it from an answer. */
  private static IOException answered(Class<? extends IOException> type) {
    return new RemoteException(type.getName(), "no").unwrapRemoteException();
  }

  @Test
  void deletedFilesAreFoundInTheNewestSnapshot() throws IOException {
    assertEquals("1 s 1 2 1\n", answer(new Hdfs()));
    assertEquals(List.of("/a/.snapshot/s2/f"), visited);
  }

  /** Differences between large snapshots take minutes, and the coordinator reads no other changes meanwhile. */
  @Test
  void snapshotsOfOtherFoldersAreNotExamined() throws IOException {
    DistributedFileSystem files = new Hdfs() {
      @Override
      public SnapshotStatus[] getSnapshotListing(Path root) {
        throw new AssertionError("snapshots of " + root);
      }
    };
    assertEquals("1 s 0 0 0\n", answer(files, () -> { }, "/ab"));
    assertEquals("1 s 1 2 1\n", answer(new Hdfs(), () -> { }, "/a/f"));
    assertEquals(List.of("/a/.snapshot/s2/f"), visited);
  }

  /** Hadoop's client queries all pages of a difference in one call, and the coordinator takes silence for a failure. */
  @Test
  void progressIsToldWhileADifferenceIsQueried() throws IOException {
    CountDownLatch told = new CountDownLatch(1);
    String answer = answer(new Hdfs() {
      @Override
      public SnapshotDiffReport getSnapshotDiffReport(Path root, String from, String to) throws IOException {
        try {
          assertTrue(told.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException interrupted) {
          throw new InterruptedIOException();
        }
        return super.getSnapshotDiffReport(root, from, to);
      }
    }, told::countDown);
    assertEquals("1 s 1 2 1\n", answer);
  }

  /** If the answer succeeded, the groups of all files in these snapshots would be dropped. */
  @Test
  void withoutAnAnswerOfTheNameNodeTheQueryFails() {
    for (IOException problem : List.of(new ConnectException("refused"), answered(StandbyException.class))) {
      assertThrows(problem.getClass(), () -> answer(new Hdfs() {
        @Override
        public SnapshotDiffReport getSnapshotDiffReport(Path root, String from, String to) throws IOException {
          throw problem;
        }
      }));
    }
  }

  @Test
  void aFolderThatTheUserMayNotListIsNamed() throws IOException {
    String told = answer(new Hdfs() {
      @Override
      public SnapshotStatus[] getSnapshotListing(Path root) throws IOException {
        throw answered(AccessControlException.class);
      }
    });
    assertEquals("1 x %2Fa no\n1 s 1 0 0\n", told);
  }

  @Test
  void aFolderIsListedAgainIfASnapshotIsDeletedMeanwhile() throws IOException {
    String told = answer(new Hdfs() {
      @Override
      public SnapshotDiffReport getSnapshotDiffReport(Path root, String from, String to) throws IOException {
        if (snapshots.remove("s1")) {
          throw answered(SnapshotException.class);
        }
        return super.getSnapshotDiffReport(root, from, to);
      }
    });
    assertEquals("1 s 1 1 1\n", told);
    // The file is in an older snapshot too.
    told = answer(new Hdfs() {
      @Override
      public SnapshotDiffReport getSnapshotDiffReport(Path root, String from, String to) throws IOException {
        SnapshotDiffReport report = super.getSnapshotDiffReport(root, from, to);
        snapshots.remove("s2");
        return report;
      }
    });
    assertEquals("1 s 1 1 1\n", told);
    assertEquals(List.of("/a/.snapshot/s2/f", "/a/.snapshot/s1/f"), visited);
  }
}
