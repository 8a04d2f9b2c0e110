package mend.client;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Objects;

/**
 * Streams the bytes of a block in order. The block is requested in windows, and the next window is fetched
 * while one is read, so memory use is independent of the block's size.
 *
 * <p>A stream belongs to one reader. {@link #close} may be called from another thread and ends a blocked
 * read.
 */
final class BlockStream extends InputStream {
  /**
   * The size of a window: large enough to make requests cheap, and small enough for many concurrent readers.
   */
  private static final int WINDOW_BYTES = 4 << 20;
  private static final int WINDOWS_AT_ONCE = 2;

  private final MendClient client;
  private final String stripe;
  private final int block;
  private final long patienceMs;
  private final long end;
  /** The end of the last requested window. */
  private long asked;
  private final Deque<Window> windows = new ArrayDeque<>();
  private boolean closed;

  /** A requested window. */
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

  /**
   * Returns the window that contains the next bytes, and requests the windows that follow. Returns null at
   * the end of the stream.
   */
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
      window.session = client.session(); // The session has ended in the meantime because it was idle.
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
      // The session ended before the request began, for example after a pause. Retry once on a new session.
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
