package mend.client;

import static mend.client.Json.object;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A client of one Mend cluster for programs on the JVM: reads lost blocks as if they were intact, and
 * requests repairs. Thread-safe.
 *
 * <p>The client implements the requestor of Mend's protocol (docs/reference/protocol.md): the coordinator
 * plans, and the helpers send their partial sums directly to this process, which verifies every slice.
 * Connections are opened on first use.
 *
 * <pre>{@code
 * Credentials credentials = Credentials.load(Paths.get("/etc/mend"), "plugins/hdfs");
 * try (MendClient mend = new MendClient(Settings.of("c1:7400", "c1:7401", credentials))) {
 *   mend.describe(new Stripe("group-7", "rs-3-2", 1 << 20)
 *       .block("b0", 1 << 20, null).block("b1", 1 << 20, "h1").block("b2", 1 << 20, "h2"));
 *   mend.read("group-7", 0, 4096, ByteBuffer.allocate(512));
 * }
 * }</pre>
 */
public final class MendClient implements Closeable {
  /** The time limit for API requests. */
  private static final Duration ANSWER_LIMIT = Duration.ofSeconds(10);
  /**
   * How long the coordinator waits for the end of a repair before it responds. Must be less than {@link
   * #ANSWER_LIMIT}.
   */
  private static final long WAIT_MS = 2000;

  private final Settings settings;
  private final Api api;
  private Session session;
  private boolean closed;

  /** Creates a client without connecting yet. */
  public MendClient(Settings settings) {
    this.settings = settings;
    this.api = new Api(settings);
  }

  // ---- reading ----

  /**
   * Fills {@code target} with bytes of a block, starting at offset {@code from}.
   *
   * @param stripe a described stripe, or one of the cluster's own if the certificate is a client's
   * @param block the block's index in the stripe
   * @throws MendException if the bytes are unavailable
   */
  public void read(String stripe, int block, long from, ByteBuffer target) throws IOException {
    try (InputStream stream = open(stripe, block, from, from + target.remaining())) {
      byte[] some = new byte[Math.min(target.remaining(), 64 << 10)];
      while (target.hasRemaining()) {
        int came = target.hasArray()
            ? stream.read(target.array(), target.arrayOffset() + target.position(), target.remaining())
            : stream.read(some, 0, Math.min(some.length, target.remaining()));
        if (came < 0) {
          throw new EOFException("the block ended early"); // The stream should have all requested bytes.
        } else if (target.hasArray()) {
          target.position(target.position() + came);
        } else {
          target.put(some, 0, came);
        }
      }
    }
  }

  /**
   * Opens a stream of the bytes {@code from} to {@code to} of a block. The bytes arrive while the stream is
   * read. Closing the stream cancels the transfer of the remaining bytes.
   */
  public InputStream open(String stripe, int block, long from, long to) {
    if (from < 0 || to < from) {
      throw new IllegalArgumentException("bytes " + from + " to " + to + " are not a valid range");
    }
    return new BlockStream(this, stripe, block, from, to, settings.patience().toMillis());
  }

  // ---- stripes and repairs ----

  /**
   * Describes a stripe, replacing an earlier description. The stripe can then be read and repaired by its
   * name.
   *
   * @throws MendException if the coordinator rejects the request
   */
  public void describe(Stripe stripe) throws IOException {
    api.tell("/v1/stripes", stripe.json(), ANSWER_LIMIT);
  }

  /**
   * Requests a repair of blocks of a described stripe.
   *
   * @param homes the index of each lost block to rebuild, with the helper that receives it
   * @throws MendException if the coordinator rejects the request
   */
  public Repair repair(String stripe, Map<Integer, String> homes) throws IOException {
    List<Object> wanted = new ArrayList<>();
    homes.forEach((index, node) -> wanted.add(object("index", (long) index, "node", node)));
    return new Repair(api.post("/v1/repairs", object("stripe", stripe, "homes", wanted), ANSWER_LIMIT));
  }

  /**
   * Returns the current state of a repair.
   *
   * @throws MendException if the coordinator does not answer
   */
  public Repair repair(long number) throws IOException {
    return new Repair(api.get("/v1/repairs/" + number, ANSWER_LIMIT));
  }

  /**
   * Waits until a repair ends or {@code limit} passes.
   *
   * @return the state of the repair after the wait
   * @throws MendException if the coordinator does not answer
   */
  public Repair await(Repair repair, Duration limit) throws IOException {
    long until = System.nanoTime() + limit.toNanos();
    Repair now = repair;
    while (!now.hasEnded() && System.nanoTime() < until) {
      long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()) + 1;
      String path = "/v1/repairs/" + repair.number() + "?wait_ms=" + Math.min(leftMs, WAIT_MS);
      now = new Repair(api.get(path, ANSWER_LIMIT));
    }
    return now;
  }

  /**
   * Cancels a repair.
   *
   * @throws MendException if the repair has ended, or the coordinator does not answer
   */
  public void cancel(Repair repair) throws IOException {
    api.delete("/v1/repairs/" + repair.number(), ANSWER_LIMIT);
  }

  /**
   * Returns the stripes whose blocks contradict each other: some blocks are wrong although their checksums
   * match.
   *
   * @throws MendException if the coordinator does not answer
   */
  public List<String> contradictions() throws IOException {
    List<String> stripes = new ArrayList<>();
    for (Json.Node stripe : api.get("/v1/contradictions", ANSWER_LIMIT).get("stripes").list()) {
      stripes.add(stripe.text());
    }
    return stripes;
  }

  /**
   * Checks that the coordinator answers. Also opens the connection for the next request.
   *
   * @throws MendException if the coordinator does not answer
   */
  public void check() throws IOException {
    api.get("/v1/openapi.json", ANSWER_LIMIT);
  }

  // ---- the session ----

  /** Returns the session, opening one if needed. */
  Session session() throws MendException {
    settings.credentials().refresh(); // Outside the monitor, because the folder of the certificate may not answer.
    return current();
  }

  private synchronized Session current() throws MendException {
    if (closed) {
      throw new MendException(MendException.Kind.CLOSED, "the client is closed");
    }
    if (session == null || session.hasEnded()) {
      session = Session.open(settings);
    }
    return session;
  }

  /** Closes the session and all open streams. */
  @Override
  public synchronized void close() {
    closed = true;
    if (session != null) {
      session.close();
    }
  }
}
