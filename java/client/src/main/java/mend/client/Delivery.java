package mend.client;

import java.io.InterruptedIOException;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;

/**
 * A window of a block as it comes: slices in any order, handed out in order as soon as none is missing before them.
 *
 * <p>Always true: a slice that was handed out is never written again, and its bytes agreed with the checksum of every frame
 * that they were made from.
 */
final class Delivery {
  private final long from;
  private final byte[] bytes;
  /** By slices of {@link #sliceBytes}; what was delivered stays from plan to plan. */
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

  /** Where slices are to be summed; whoever writes into it owns the slice until it is delivered. */
  byte[] bytes() {
    return bytes;
  }

  /**
   * A plan is to fill it.
   *
   * @throws MendException if the plan is of another window, or cuts it in another way than the plan before
   */
  synchronized void begin(Assignment plan) throws MendException {
    boolean isIt = plan.from == from && plan.to == from + bytes.length;
    if (!isIt || begun && plan.sliceBytes != sliceBytes) {
      throw new MendException(MendException.Kind.PROTOCOL,
          "a plan for bytes " + plan.from + " to " + plan.to + " in slices of " + plan.sliceBytes + " where " + from + " to "
              + (from + bytes.length) + " were asked for");
    }
    begun = true;
    sliceBytes = plan.sliceBytes;
  }

  /** Whether a plan began. */
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

  /** Copied, for a report. */
  synchronized BitSet delivered() {
    return (BitSet) delivered.clone();
  }

  synchronized boolean isComplete() {
    return available() == bytes.length;
  }

  /** Nothing more will come. */
  synchronized void fail(MendException why) {
    if (failure == null) {
      failure = why;
      notifyAll();
    }
  }

  /**
   * Waits until there are bytes beyond the first {@code had}, and says how many there are from the start on.
   *
   * @throws MendException why they will not come, or that they did not come within {@code patienceMs}
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
        throw new MendException(MendException.Kind.TIMED_OUT, "byte " + (from + had) + " did not come for " + patienceMs
            + " ms; `mend status` says what the cluster is doing");
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
