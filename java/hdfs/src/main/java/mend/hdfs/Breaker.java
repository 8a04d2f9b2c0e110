package mend.hdfs;

import java.util.concurrent.TimeUnit;
import mend.client.MendException;

/**
 * A circuit breaker: after a failure to reach the coordinator, no request is sent for a while. Otherwise
 * every caller would have to wait for the timeout.
 */
public final class Breaker {
  private static final long PAUSE_NS = TimeUnit.SECONDS.toNanos(10);

  private volatile boolean open;
  private volatile long openedNs;

  /** Whether requests are allowed now. */
  public boolean allows() {
    return !open || System.nanoTime() - openedNs > PAUSE_NS;
  }

  /** Records a successful request. */
  public void succeeded() {
    open = false;
  }

  /** Records a failed request. */
  public void failed(Exception problem) {
    if (problem instanceof MendException && isAbsence(((MendException) problem).kind())) {
      openedNs = System.nanoTime();
      open = true;
    }
  }

  static boolean isAbsence(MendException.Kind kind) {
    return kind == MendException.Kind.UNREACHABLE || kind == MendException.Kind.UNTRUSTED
        || kind == MendException.Kind.TIMED_OUT || kind == MendException.Kind.LOST;
  }
}
