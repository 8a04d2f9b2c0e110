package mend.hdfs;

import java.util.concurrent.TimeUnit;
import mend.client.MendException;

/** After a coordinator could not be reached it is left alone for a while, so that not everybody waits for it in turn. */
public final class Breaker {
  private static final long PAUSE_NS = TimeUnit.SECONDS.toNanos(10);

  private volatile boolean open;
  private volatile long openedNs;

  /** Whether it is worth asking. */
  public boolean allows() {
    return !open || System.nanoTime() - openedNs > PAUSE_NS;
  }

  /** Something was asked and answered. */
  public void succeeded() {
    open = false;
  }

  /** Something was asked and failed. */
  public void failed(Exception problem) {
    if (problem instanceof MendException && isAbsence(((MendException) problem).kind())) {
      openedNs = System.nanoTime();
      open = true;
    }
  }

  private static boolean isAbsence(MendException.Kind kind) {
    return kind == MendException.Kind.UNREACHABLE || kind == MendException.Kind.UNTRUSTED
        || kind == MendException.Kind.TIMED_OUT || kind == MendException.Kind.LOST;
  }
}
