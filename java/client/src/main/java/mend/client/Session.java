package mend.client;

import static mend.client.Json.object;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The control connection to the coordinator (docs/reference/protocol.md, control plane), and the requests in
 * flight on it.
 *
 * <p>A coordinator pings every second. After {@link #SILENCE_LIMIT_MS} of silence the session fails, together
 * with all open requests. An idle session is closed after a while, so that programs that rarely need Mend do
 * not stay connected.
 */
final class Session implements Closeable, Part.Surroundings {
  private static final int VERSION = 12;
  private static final int CONNECT_LIMIT_MS = 4_000;
  private static final int SILENCE_LIMIT_MS = 6_000;
  private static final long TICK_MS = 200;
  private static final long IDLE_LIMIT_NS = TimeUnit.SECONDS.toNanos(60);
  private static final int MAX_MESSAGE_BYTES = 64 << 20;
  private static final String COORDINATOR = "coordinator.mend";
  private static final byte[] END = new byte[0];
  private static final AtomicInteger THREADS = new AtomicInteger();

  private final Settings settings;
  private final Connection connection;
  private final DataInputStream input;
  private final Edges edges;
  private final BlockingQueue<byte[]> outgoing = new LinkedBlockingQueue<>();
  private final ExecutorService threads = Executors.newCachedThreadPool(daemons());
  private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(daemons());
  private final Map<Long, Delivery> requests = new HashMap<>();
  private final Map<Long, Part> parts = new HashMap<>();
  private ScheduledFuture<?> ticking;
  private long nextTag;
  private long idleSinceNs = System.nanoTime();
  private MendException ended;

  private Session(Settings settings, Connection connection) {
    this.settings = settings;
    this.connection = connection;
    this.input = new DataInputStream(connection.input());
    this.edges = new Edges(settings.credentials());
  }

  private static ThreadFactory daemons() {
    return task -> {
      Thread thread = new Thread(task, "mend-" + THREADS.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }

  /**
   * Connects and registers as a client.
   *
   * @throws MendException if the coordinator is unreachable or rejects this client
   */
  static Session open(Settings settings) throws MendException {
    Connection connection = null;
    try {
      connection = Connection.dial(settings.control(), settings.credentials(), COORDINATOR, CONNECT_LIMIT_MS);
      connection.limitSilence(SILENCE_LIMIT_MS);
      Session session = new Session(settings, connection);
      session.register();
      session.threads.execute(session::listen);
      session.threads.execute(session::speak);
      return session;
    } catch (IOException | RuntimeException problem) {
      if (connection != null) {
        connection.close();
      }
      throw Failures.ofConnection(settings.control(), problem);
    }
  }

  private void register() throws IOException {
    Map<String, Object> about = object("version", (long) VERSION);
    if (!settings.rack().isEmpty()) {
      about.put("rack", settings.rack());
    }
    connection.write(framed(object("register-client", about)));
    while (true) {
      Json.Node message = receive();
      String name = message.onlyKey();
      switch (name) {
        case "registered":
          return;
        case "ping":
          connection.write(framed(pong()));
          break;
        case "refused":
          throw new MendException(MendException.Kind.REFUSED,
              "the coordinator refuses the registration: " + message.get("refused").get("reason").text());
        default:
          throw new MendException(MendException.Kind.PROTOCOL,
              "`" + name + "` arrived instead of an answer to the registration");
      }
    }
  }

  private static Map<String, Object> pong() {
    return object("pong", object("free_bytes", 0L, "tasks", 0L));
  }

  private static byte[] framed(Map<String, Object> message) {
    byte[] text = Json.write(message);
    return ByteBuffer.allocate(Integer.BYTES + text.length).putInt(text.length).put(text).array();
  }

  private Json.Node receive() throws IOException {
    int bytes = input.readInt();
    if (bytes < 0 || bytes > MAX_MESSAGE_BYTES) {
      throw new MendException(MendException.Kind.PROTOCOL, "a message of " + (bytes & 0xffff_ffffL) + " bytes");
    }
    return Json.parseObject(input.readNBytes(bytes));
  }

  // ---- requests ----

  /**
   * Requests a window of one block. {@code delivery} receives the bytes, or the failure.
   *
   * @return the request's number, for {@link #close(long)}
   * @throws MendException if the session has ended
   */
  synchronized long read(String stripe, int block, Delivery delivery) throws MendException {
    if (ended != null) {
      throw ended.again();
    }
    long tag = nextTag++;
    requests.put(tag, delivery);
    Map<String, Object> request = object(
        "want", "read",
        "stripe", stripe,
        "blocks", List.of((long) block),
        "sub_blocks", null,
        "window", Arrays.asList(delivery.from(), delivery.from() + delivery.size()),
        "scheme", settings.scheme(),
        "slice_bytes", settings.sliceBytes());
    send(object("open", object("tag", tag, "request", request)));
    return tag;
  }

  /** Cancels a request, unless it has ended. */
  synchronized void close(long tag) {
    Delivery delivery = requests.remove(tag);
    if (delivery != null) {
      delivery.fail(new MendException(MendException.Kind.CLOSED, "the read was cancelled"));
      parts.values().stream().filter(part -> part.delivery() == delivery).forEach(Part::end);
      send(object("close", object("tag", tag)));
    }
  }

  synchronized boolean hasEnded() {
    return ended != null;
  }

  // ---- the coordinator's messages ----

  private void listen() {
    MendException why;
    try {
      while (true) {
        Json.Node message = receive();
        handle(message, message.onlyKey());
      }
    } catch (MendException problem) {
      why = problem;
    } catch (SocketTimeoutException problem) {
      why = lost("the coordinator sent no message for " + SILENCE_LIMIT_MS / 1000 + " s");
    } catch (IOException | RuntimeException problem) {
      why = lost(problem.toString());
    }
    end(why);
  }

  private MendException lost(String detail) {
    return new MendException(MendException.Kind.LOST, "the connection to the coordinator at " + settings.control()
        + " ended: " + detail);
  }

  private void handle(Json.Node message, String name) throws MendException {
    switch (name) {
      case "ping":
        send(pong());
        endIfIdle();
        break;
      case "assign":
        assign(message.get(name));
        break;
      case "closed":
        closed(message.get(name));
        break;
      case "limits":
        break; // Caps are for senders; our incoming rate is limited by their caps.
      default:
        handleOfJob(message.get(name), name);
    }
  }

  private void handleOfJob(Json.Node message, String name) throws MendException {
    long job = message.get("job").number();
    if (name.equals("forget")) {
      forget(job);
      return;
    }
    long epoch = message.get("epoch").number();
    Part part = part(job);
    switch (name) {
      case "stop":
        if (part == null) {
          report(job, epoch, object("what", "stopped", "delivered", List.of()));
        } else {
          part.stop(epoch);
        }
        break;
      case "explain":
        if (part == null) {
          report(job, epoch, object("what", "at-rest"));
        } else {
          part.explain(epoch);
        }
        break;
      default: // Sealing, committing and fingerprints do not apply to a requestor that requests no check.
        report(job, epoch, Part.refusal("assignment", "detail", "this client does not support `" + name + "`"));
    }
  }

  private void assign(Json.Node message) throws MendException {
    Assignment plan;
    long job = message.get("job").number();
    try {
      plan = new Assignment(message);
    } catch (MendException problem) {
      refuse(message, job, problem);
      return;
    }
    Part part;
    synchronized (this) {
      Delivery delivery = requests.get(plan.tag);
      if (delivery == null) {
        report(plan.job, plan.epoch, Part.refusal("not-brought", "what", "sinks"));
        return;
      }
      part = parts.computeIfAbsent(job, number -> new Part(number, delivery, this));
      if (ticking == null) {
        ticking = clock.scheduleAtFixedRate(this::tick, TICK_MS, TICK_MS, TimeUnit.MILLISECONDS);
      }
    }
    part.assign(plan);
  }

  /**
   * Refuses an assignment, and also reports the reason to the caller, because the coordinator would only
   * report that a node refused.
   */
  private void refuse(Json.Node message, long job, MendException problem) throws MendException {
    report(job, message.get("epoch").number(), Part.refusal("assignment", "detail", problem.getMessage()));
    synchronized (this) {
      Delivery delivery = requests.get(message.get("tag").number());
      if (delivery != null) {
        delivery.fail(problem);
      }
    }
  }

  private synchronized void closed(Json.Node message) throws MendException {
    Delivery delivery = requests.remove(message.get("tag").number());
    idleSinceNs = System.nanoTime();
    Json.Node failure = message.get("result").get("Err");
    if (delivery == null) {
      return;
    }
    if (!failure.isNull()) {
      delivery.fail(Failures.ofRequest(failure));
    } else if (!delivery.isComplete()) {
      delivery.fail(new MendException(MendException.Kind.PROTOCOL,
          "the coordinator reports a complete delivery, but bytes are missing"));
    }
  }

  private synchronized Part part(long job) {
    return parts.get(job);
  }

  private synchronized void forget(long job) {
    Part part = parts.remove(job);
    if (part != null) {
      part.end();
    }
    if (parts.isEmpty() && ticking != null) {
      ticking.cancel(false);
      ticking = null;
    }
  }

  private void tick() {
    Part[] now;
    synchronized (this) {
      now = parts.values().toArray(new Part[0]);
    }
    for (Part part : now) {
      part.tick();
    }
  }

  // ---- messages to the coordinator ----

  @Override
  public void report(long job, long epoch, Map<String, Object> report) {
    send(object("report", object("job", job, "epoch", epoch, "report", report)));
  }

  private void send(Map<String, Object> message) {
    outgoing.add(framed(message));
  }

  private void speak() {
    try {
      for (byte[] message = outgoing.take(); message != END; message = outgoing.take()) {
        connection.write(message);
      }
    } catch (IOException problem) {
      end(lost(problem.toString()));
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void execute(Runnable inflow) {
    threads.execute(inflow);
  }

  @Override
  public Edges edges() {
    return edges;
  }

  @Override
  public boolean allowsPlainEdges() {
    return settings.allowsPlainEdges();
  }

  // ---- the end ----

  private void endIfIdle() {
    boolean hasEnded;
    synchronized (this) {
      boolean isIdle = requests.isEmpty() && System.nanoTime() - idleSinceNs > IDLE_LIMIT_NS;
      hasEnded = isIdle && failAll(lost("the connection was idle"));
    }
    if (hasEnded) {
      disconnect();
    }
  }

  private void end(MendException why) {
    if (failAll(why)) {
      disconnect();
    }
  }

  /** Fails all requests, and those that come later. Returns false if the session has ended before. */
  private synchronized boolean failAll(MendException why) {
    if (ended != null) {
      return false;
    }
    ended = why;
    requests.values().forEach(delivery -> delivery.fail(why));
    requests.clear();
    parts.values().forEach(Part::end);
    parts.clear();
    edges.close();
    outgoing.add(END);
    clock.shutdownNow();
    return true;
  }

  /** Callers hold no monitor: a caller of {@link #hasEnded} must not wait for the connection. */
  private void disconnect() {
    connection.close();
    threads.shutdown();
  }

  @Override
  public void close() {
    end(new MendException(MendException.Kind.CLOSED, "the client was closed"));
  }
}
