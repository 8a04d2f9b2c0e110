package mend.client;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Objects;

/**
 * Bytes of a block in order, handed out as they come. The block is asked for window by window, and the next window is on
 * its way while one is read, so memory is bounded whatever the block's size.
 *
 * <p>It belongs to one reader, as streams do; {@link #close} may come from another thread, and ends a read that waits.
 */
final class BlockStream extends InputStream {
  /** Bytes of a window: enough that asking for the next costs little, and little enough for many readers. */
  private static final int WINDOW_BYTES = 4 << 20;
  private static final int WINDOWS_AT_ONCE = 2;

  private final MendClient client;
  private final String stripe;
  private final int block;
  private final long patienceMs;
  private final long end;
  /** Up to here it was asked for. */
  private long asked;
  private final Deque<Window> windows = new ArrayDeque<>();
  private boolean closed;

  /** A window that was asked for. */
  private static final class Window {
    final Delivery delivery;
    private Session session;
    private long tag;
    private boolean again;
    private int taken;

    Window(Delivery delivery) {
      this.delivery = delivery;
    }

    boolean isTaken() {
      return taken == delivery.size();
    }
  }

  BlockStream(MendClient client, String stripe, int block, long from, long end, long patienceMs) {
    this.client = client;
    this.stripe = stripe;
    this.block = block;
    this.asked = from;
    this.end = end;
    this.patienceMs = patienceMs;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] target, int offset, int length) throws IOException {
    Objects.checkFromIndexSize(offset, length, target.length);
    if (length == 0) {
      return 0;
    }
    Window window = due();
    if (window == null) {
      return -1;
    }
    int bytes = Math.min(awaitBytes(window) - window.taken, length);
    System.arraycopy(window.delivery.bytes(), window.taken, target, offset, bytes);
    window.taken += bytes;
    return bytes;
  }

  /** The window whose bytes come next; null at the end. */
  private synchronized Window due() throws MendException {
    if (closed) {
      throw new MendException(MendException.Kind.CLOSED, "the stream is closed");
    }
    Window first = windows.peek();
    if (first != null && first.isTaken()) {
      windows.remove();
    }
    while (windows.size() < WINDOWS_AT_ONCE && asked < end) {
      int bytes = (int) Math.min(WINDOW_BYTES, end - asked);
      windows.add(ask(new Window(new Delivery(asked, bytes))));
      asked += bytes;
    }
    return windows.peek();
  }

  private Window ask(Window window) throws MendException {
    try {
      window.session = client.session();
      window.tag = window.session.read(stripe, block, window.delivery);
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.LOST) {
        throw problem;
      }
      window.session = client.session(); // It ended in between, for want of anything to do.
      window.tag = window.session.read(stripe, block, window.delivery);
    }
    return window;
  }

  private int awaitBytes(Window window) throws IOException {
    try {
      return window.delivery.await(window.taken, patienceMs);
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.LOST || window.delivery.hasBegun() || window.again) {
        giveUp();
        throw problem;
      }
      // The session had ended before anything was begun, as after a pause: another one, once.
      replaceDue(window);
      return awaitBytes(windows.peek());
    } catch (IOException interrupted) {
      giveUp();
      throw interrupted;
    }
  }

  private synchronized void replaceDue(Window window) throws MendException {
    Window next = new Window(new Delivery(window.delivery.from(), window.delivery.size()));
    next.again = true;
    windows.remove();
    windows.addFirst(ask(next));
  }

  private synchronized void giveUp() {
    for (Window window : windows) {
      if (!window.delivery.isComplete()) {
        window.session.close(window.tag);
      }
    }
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      giveUp();
      windows.clear();
    }
  }
}
