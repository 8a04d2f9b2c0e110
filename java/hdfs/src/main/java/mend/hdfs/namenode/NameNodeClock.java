package mend.hdfs.namenode;

import java.util.concurrent.TimeUnit;

/** The time by the NameNode's clock, as files have it: when it last heard from a DataNode, and the time since. */
final class NameNodeClock {
  private final long startNs = System.nanoTime();
  private long heardMs;

  /** The NameNode heard from a DataNode at this time. */
  void heard(long atMs) {
    heardMs = Math.max(heardMs, atMs);
  }

  /** Whether a time is no longer ago. Before anything was heard nothing is known to be. */
  boolean isWithin(long limitMs, long atMs) {
    long sinceMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNs);
    return heardMs + sinceMs - atMs < limitMs;
  }
}
