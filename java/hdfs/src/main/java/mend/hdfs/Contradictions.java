package mend.hdfs;

import java.io.IOException;
import java.util.HashSet;
import java.util.Set;

/**
 * The groups whose blocks contradict each other, as reported by the coordinator: some block is wrong although
 * its checksums match. HDFS does not check this and would rebuild lost blocks from that block.
 *
 * <p>While the coordinator is unreachable, the last answer stays valid, together with contradictions that
 * this DataNode's own repairs have found since.
 */
final class Contradictions {
  private final CurrentClient mend;
  private Set<String> groups = new HashSet<>();

  Contradictions(CurrentClient mend) {
    this.mend = mend;
  }

  /** Adds a group found by a repair of this DataNode. */
  synchronized void add(String group) {
    if (groups.add(group)) {
      warn(group);
    }
  }

  synchronized boolean has(String group) {
    return groups.contains(group);
  }

  /**
   * Fetches all contradictions from the coordinator.
   *
   * @throws IOException if the coordinator does not answer; the known contradictions stay valid
   */
  void refresh() throws IOException {
    Set<String> before = known();
    Set<String> told = new HashSet<>(mend.contradictions());
    synchronized (this) {
      told.stream().filter(group -> !groups.contains(group)).forEach(Contradictions::warn);
      groups.removeAll(before); // Keeps groups that a repair has found since the request.
      groups.addAll(told);
    }
  }

  private synchronized Set<String> known() {
    return new HashSet<>(groups);
  }

  /**
   * Logs a contradiction. Callers do so once for each group, whether a repair here found it or the
   * coordinator reported it.
   */
  private static void warn(String group) {
    MendPlugin.LOG.warn(
        "the blocks of {} contradict each other, so HDFS does not rebuild blocks from them; see mend status", group);
  }
}
