package mend.client;

import java.io.InterruptedIOException;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;

/**
 * The window of a block that is being received: slices arrive in any order, and are handed out in order as
 * soon as all earlier slices are complete.
 *
 * <p>Invariant: a slice that was handed out is never modified again, and every frame that contributed to it
 * had a valid checksum.
 */
final class Delivery {
  private final long from;
  private final byte[] bytes;
  /** The delivered slices, in units of {@link #sliceBytes}. Delivered slices stay valid from plan to plan. */
  private final BitSet delivered = new BitSet();
  private int sliceBytes;
  private boolean begun;
  private MendException failure;

  Delivery(long from, int bytes) {
    this.from = from;
    this.bytes = new byte[bytes];
  }

  long from() {
    return from;
  }

  int size() {
    return bytes.length;
  }

  /**
   * Returns the buffer in which slices are summed. The writer of a slice owns the slice's bytes until the
   * slice is delivered.
   */
  byte[] bytes() {
    return bytes;
  }

  /**
   * Starts a plan that fills the window.
   *
   * @throws MendException if the plan covers another window, or its slice size differs from the previous
   * plan's
   */
  synchronized void begin(Assignment plan) throws MendException {
    boolean isIt = plan.from == from && plan.to == from + bytes.length;
    if (!isIt || begun && plan.sliceBytes != sliceBytes) {
      throw new MendException(MendException.Kind.PROTOCOL,
          "the plan is for bytes " + plan.from + " to " + plan.to + " in slices of " + plan.sliceBytes + ", but bytes "
              + from + " to " + (from + bytes.length) + " were requested");
    }
    begun = true;
    sliceBytes = plan.sliceBytes;
  }

  /** Whether a plan has started. */
  synchronized boolean hasBegun() {
    return begun;
  }

  synchronized boolean has(int slice) {
    return delivered.get(slice);
  }

  synchronized void deliver(int slice) {
    delivered.set(slice);
    notifyAll();
  }

  /** Returns a copy of the set of delivered slices, for a report. */
  synchronized BitSet delivered() {
    return (BitSet) delivered.clone();
  }

  synchronized boolean isComplete() {
    return available() == bytes.length;
  }

  /** Fails the delivery: no more slices will arrive. */
  synchronized void fail(MendException why) {
    if (failure == null) {
      failure = why;
      notifyAll();
    }
  }

  /**
   * Waits until more than {@code had} bytes are available, and returns the number of bytes available from the
   * start.
   *
   * @throws MendException if the bytes will not arrive (with the reason), or after a timeout of {@code
   * patienceMs}
   */
  synchronized int await(int had, long patienceMs) throws MendException, InterruptedIOException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
    int available = available();
    while (available <= had) {
      if (failure != null) {
        throw failure.again();
      }
      long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()) + 1;
      if (until - System.nanoTime() <= 0) {
        throw new MendException(MendException.Kind.TIMED_OUT, "byte " + (from + had) + " did not arrive within "
            + patienceMs + " ms; check the cluster with `mend status`");
      }
      try {
        wait(leftMs);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("the read was interrupted");
      }
      available = available();
    }
    return available;
  }

  private int available() {
    if (!begun) {
      return 0;
    }
    long bytesBefore = (long) delivered.nextClearBit(0) * sliceBytes;
    return (int) Math.min(bytesBefore, bytes.length);
  }
}
