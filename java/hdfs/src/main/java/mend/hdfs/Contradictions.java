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

  /** A repair has found one. */
  synchronized void add(String group) {
    groups.add(group);
  }

  synchronized boolean has(String group) {
    return groups.contains(group);
  }

  /**
   * Asks for all of them.
   *
   * @throws IOException if they are not told; those that are known still count then
   */
  void refresh() throws IOException {
    Set<String> told = new HashSet<>(mend.contradictions());
    synchronized (this) {
      if (!told.equals(groups)) {
        MendPlugin.LOG.warn("{} groups contradict themselves, and HDFS rebuilds nothing of them", told.size());
      }
      groups = told;
    }
  }
}
