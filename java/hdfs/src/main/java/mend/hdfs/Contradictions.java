package mend.hdfs;

import java.io.IOException;
import java.util.HashSet;
import java.util.Set;

/**
 * Groups whose blocks contradict each other, as the coordinator knows them: some block is wrong although its checksums hold,
 * and HDFS, which asks for nothing else, would rebuild lost blocks from it.
 *
 * <p>The last answer counts while the coordinator cannot be asked, and so do contradictions that this DataNode's own repairs
 * have met since.
 */
final class Contradictions {
  private final CurrentClient mend;
  private Set<String> groups = new HashSet<>();

  Contradictions(CurrentClient mend) {
    this.mend = mend;
  }

  /** Adds a group that a repair of this DataNode has met. */
  synchronized void add(String group) {
    if (groups.add(group)) {
      warn(group);
    }
  }

  synchronized boolean has(String group) {
    return groups.contains(group);
  }

  /**
   * Asks the coordinator for all of them.
   *
   * @throws IOException if the coordinator does not answer; the known ones keep counting
   */
  void refresh() throws IOException {
    Set<String> before = known();
    Set<String> told = new HashSet<>(mend.contradictions());
    synchronized (this) {
      told.stream().filter(group -> !groups.contains(group)).forEach(Contradictions::warn);
      groups.removeAll(before); // Leaves those that a repair has met since the question was asked.
      groups.addAll(told);
    }
  }

  private synchronized Set<String> known() {
    return new HashSet<>(groups);
  }

  /** Logs each group once, whether a repair has met its contradiction here or the coordinator has told of it. */
  private static void warn(String group) {
    MendPlugin.LOG.warn("the blocks of {} contradict each other, and HDFS rebuilds nothing from them", group);
  }
}
