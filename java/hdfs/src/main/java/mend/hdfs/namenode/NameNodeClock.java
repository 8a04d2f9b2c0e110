package mend.hdfs.namenode;

import java.util.concurrent.TimeUnit;

/**
 * Estimates the current time by the NameNode's clock, which also sets the timestamps of files. The estimate
 * is the time of the NameNode's last contact with a DataNode, plus the age of this object.
 */
final class NameNodeClock {
  private final long startNs = System.nanoTime();
  private long heardMs;

  /** Records that the NameNode heard from a DataNode at this time. */
  void heard(long atMs) {
    heardMs = Math.max(heardMs, atMs);
  }

  /**
   * Whether a time is less than {@code limitMs} ago. Before any contact is recorded, every time is treated as
   * recent.
   */
  boolean isWithin(long limitMs, long atMs) {
    long sinceMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNs);
    return heardMs + sinceMs - atMs < limitMs;
  }
}
