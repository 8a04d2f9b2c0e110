package mend.client;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/**
 * Receives one edge of a plan on its own thread: dials, sends the greeting, reads frames in the order that
 * the protocol prescribes, and passes each frame with a valid checksum to the {@link Part}.
 */
final class Inflow implements Runnable {
  private static final byte[] MAGIC = {'M', 'E', 'N', 'D', 1};
  private static final byte RECEIVES = 1;
  private static final int GREETING_BYTES = 40;
  private static final int HEADER_BYTES = 24;
  private static final int COVERED_BYTES = 16;
  private static final byte SLICE_FRAME = 1;
  private static final byte READY = 2;
  private static final byte RECEIVED = 3;
  private static final int CREDIT_BYTES = 12;

  private final Part part;
  private final Assignment plan;
  private final Assignment.Inlet inlet;
  private final Edges edges;
  private final byte[] payload;
  private final byte[] header = new byte[HEADER_BYTES];
  private volatile Connection connection;
  private volatile boolean closed;
  private volatile long movedNs = System.nanoTime();
  /** The first incomplete slice; negative once all slices are complete. */
  private volatile int due;

  /** A frame with a wrong checksum, or one that violates the protocol. */
  private static final class BadFrame extends IOException {
    private static final long serialVersionUID = 1;

    BadFrame(String detail) {
      super(detail);
    }
  }

  Inflow(Part part, Assignment plan, Assignment.Inlet inlet, Edges edges) {
    this.part = part;
    this.plan = plan;
    this.inlet = inlet;
    this.edges = edges;
    this.payload = new byte[plan.sliceBytes];
    this.due = next(0);
  }

  /** Returns the first slice at or after {@code slice} with data on this edge; -1 if there is none. */
  private int next(int slice) {
    for (int at = plan.slices.nextSetBit(slice); at >= 0; at = plan.slices.nextSetBit(at + 1)) {
      Assignment.Task task = plan.taskOf(at);
      if (task != null && task.streamsFrom(inlet.node) > 0) {
        return at;
      }
    }
    return -1;
  }

  long node() {
    return inlet.node;
  }

  int due() {
    return due;
  }

  /** Returns the time since data was last received, in milliseconds. */
  long restedMs(long nowNs) {
    return Math.max(0, (nowNs - movedNs) / 1_000_000);
  }

  /**
   * Resets the idle time. Called after this process itself was stopped for a while, so the sender is not to
   * blame.
   */
  void excuse() {
    movedNs = System.nanoTime();
  }

  synchronized void close() {
    closed = true;
    if (connection != null) {
      connection.close();
    }
  }

  @Override
  public void run() {
    try {
      receive();
    } catch (BadFrame problem) {
      part.handleBadFrame(plan, inlet.node, problem.getMessage());
    } catch (IOException | RuntimeException problem) {
      part.handleClosed(plan, inlet.node, problem.toString());
    }
    if (closed || due >= 0) {
      close(); // An earlier close may have happened before the connection existed.
    }
  }

  private void receive() throws IOException {
    if (due < 0) {
      return;
    }
    boolean isOpen = greetResting();
    if (!isOpen) {
      use(edges.dial(inlet));
      connection.write(greeting());
      readFirstHeader(due);
    }
    while (due >= 0) {
      takeSlice();
    }
    if (plan.serial) {
      connection.close(); // Another greeting would follow the credits.
    } else {
      rest();
    }
  }

  /** Gives the connection to whoever needs it next, so that {@link #close} does not close it any more. */
  private synchronized void rest() {
    if (!closed) {
      Connection done = connection;
      connection = null;
      edges.rest(inlet, done);
    }
  }

  /**
   * Sends the greeting on an idle connection; returns whether the first header arrived. If the connection was
   * closed meanwhile, the edge's key is still unused, so a new connection may use it.
   */
  private boolean greetResting() throws IOException {
    Connection rested = edges.takeResting(inlet);
    if (rested == null) {
      return false;
    }
    try {
      use(rested);
      rested.write(greeting());
      readFirstHeader(due);
      return true;
    } catch (IOException problem) {
      rested.close();
      if (closed) {
        throw problem;
      }
      return false;
    }
  }

  private void use(Connection opened) throws IOException {
    connection = opened;
    if (closed) {
      opened.close();
      throw new IOException("the plan was stopped");
    }
  }

  private byte[] greeting() {
    ByteBuffer greeting = ByteBuffer.allocate(GREETING_BYTES);
    greeting.put(MAGIC).put(RECEIVES).putShort((short) 0).putLong(plan.job).putInt((int) plan.epoch).put(inlet.key);
    CRC32C checksum = new CRC32C();
    checksum.update(greeting.array(), 0, greeting.position());
    return greeting.putInt((int) checksum.getValue()).array();
  }

  /** Reads all frames of the current slice; the header of the first one has been read. */
  private void takeSlice() throws IOException {
    int slice = due;
    int streams = plan.taskOf(slice).streamsFrom(inlet.node);
    for (int stream = 0; stream < streams; stream++) {
      takeFrame(slice, stream);
      credit(RECEIVED, slice);
      part.handleFrame(plan, inlet.node, stream, slice, payload);
      if (stream + 1 < streams) {
        read(header, HEADER_BYTES);
      }
    }
    due = next(slice + 1);
    if (due >= 0) {
      readFirstHeader(due);
    }
  }

  /** Reads the header of a slice's first frame. In a serial plan, the sender first waits for the permission. */
  private void readFirstHeader(int slice) throws IOException {
    credit(READY, slice);
    read(header, HEADER_BYTES);
  }

  private void credit(byte kind, int slice) throws IOException {
    if (plan.serial) {
      ByteBuffer credit = ByteBuffer.allocate(CREDIT_BYTES);
      credit.put(kind).put(new byte[3]).putInt(slice);
      CRC32C checksum = new CRC32C();
      checksum.update(credit.array(), 0, credit.position());
      connection.write(credit.putInt((int) checksum.getValue()).array());
    }
  }

  private void takeFrame(int slice, int stream) throws IOException {
    ByteBuffer fields = ByteBuffer.wrap(header);
    int lane = fields.getShort(4) & 0xffff;
    int foundStream = fields.getShort(6) & 0xffff;
    int bytes = plan.bytes(slice);
    boolean isDue = fields.get(0) == SLICE_FRAME && lane == plan.dealing.laneOf(slice) && foundStream == stream
        && fields.getInt(8) == slice && fields.getInt(12) == bytes;
    if (!isDue) {
      throw new BadFrame("received a frame of lane " + lane + ", stream " + foundStream + ", slice " + fields.getInt(8)
          + ", " + fields.getInt(12) + " bytes, but slice " + slice + " of stream " + stream + " is due");
    }
    read(payload, bytes);
    CRC32C checksum = new CRC32C();
    checksum.update(header, 0, COVERED_BYTES);
    checksum.update(payload, 0, bytes);
    if ((int) checksum.getValue() != fields.getInt(16)) {
      throw new BadFrame("slice " + slice + " does not match its checksum");
    }
  }

  private void read(byte[] target, int bytes) throws IOException {
    for (int had = 0; had < bytes; ) {
      int came = connection.input().read(target, had, bytes - had);
      if (came < 0) {
        throw new EOFException("the sender closed the edge");
      }
      movedNs = System.nanoTime();
      had += came;
    }
  }
}
