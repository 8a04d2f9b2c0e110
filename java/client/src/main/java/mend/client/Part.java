package mend.client;

import static mend.client.Json.object;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;

/**
 * This client's part in one job: under each plan of the job, it receives, sums and delivers the missing
 * slices.
 *
 * <p>Invariants: at most one plan is active. The delivery is not modified after it was reported as stopped.
 * Each plan sums a slice from scratch. A failed part keeps its other edges open until the coordinator stops
 * the plan, so that its neighbours only wait. If the neighbours failed as well, the coordinator could not
 * find the culprit.
 */
final class Part {
  /** If more time than this passes between two ticks, this process itself was stopped or starved. */
  private static final long ASLEEP_NS = 1_000_000_000L;

  /** The session's functions that a part uses. */
  interface Surroundings {
    void report(long job, long epoch, Map<String, Object> report);

    void execute(Runnable inflow);

    Edges edges();

    boolean allowsPlainEdges();
  }

  private final long job;
  private final Delivery delivery;
  private final Surroundings session;
  private Moving moving;

  /** An active plan. */
  private static final class Moving {
    final Assignment plan;
    final List<Inflow> inflows = new ArrayList<>();
    /**
     * The number of missing frames of each slice; received frames are already added to the delivery's bytes.
     */
    final int[] missing;
    final BitSet touched = new BitSet();
    final BitSet open;
    boolean failed;
    int reported;
    int done;
    long complainedNs = System.nanoTime();
    long seenNs = System.nanoTime();

    Moving(Assignment plan) {
      this.plan = plan;
      this.missing = new int[plan.count()];
      this.open = (BitSet) plan.slices.clone();
    }
  }

  Part(long job, Delivery delivery, Surroundings session) {
    this.job = job;
    this.delivery = delivery;
    this.session = session;
  }

  Delivery delivery() {
    return delivery;
  }

  /** Starts a plan. */
  synchronized void assign(Assignment plan) {
    end();
    try {
      delivery.begin(plan);
    } catch (MendException problem) {
      report(plan, refusal("assignment", "detail", problem.getMessage()));
      return;
    }
    for (Assignment.Inlet inlet : plan.inlets) {
      if (inlet.tlsName == null && !session.allowsPlainEdges() && !inlet.dial.isLoopback()) {
        report(plan, refusal("plain-edge", "peer", inlet.node));
        return;
      }
    }
    moving = new Moving(plan);
    for (int slice = plan.slices.nextSetBit(0); slice >= 0; slice = plan.slices.nextSetBit(slice + 1)) {
      Assignment.Task task = plan.taskOf(slice);
      moving.missing[slice] = task == null ? 0 : task.streams();
      if (moving.missing[slice] == 0) {
        deliver(slice);
      }
    }
    for (Assignment.Inlet inlet : plan.inlets) {
      moving.inflows.add(new Inflow(this, plan, inlet, session.edges()));
    }
    moving.inflows.forEach(session::execute);
    reportIfDone();
  }

  static Map<String, Object> refusal(String refusal, String field, Object value) {
    return object("what", "refused", "why", object("refusal", refusal, field, value));
  }

  /** Stops the active plan and reports the delivered slices. */
  synchronized void stop(long epoch) {
    end();
    List<Object> ranges = new ArrayList<>();
    BitSet delivered = delivery.delivered();
    for (int from = delivered.nextSetBit(0); from >= 0; ) {
      int to = delivered.nextClearBit(from);
      ranges.add(Arrays.asList((long) from, (long) to));
      from = delivered.nextSetBit(to);
    }
    session.report(job, epoch, object("what", "stopped", "delivered", ranges));
  }

  /** Reports immediately what the part is waiting for. */
  synchronized void explain(long epoch) {
    boolean moves = moving != null && moving.plan.epoch == epoch && !moving.failed;
    session.report(job, epoch, moves ? waiting(System.nanoTime()) : object("what", "at-rest"));
  }

  /** Closes the edges of the active plan. */
  synchronized void end() {
    if (moving != null) {
      moving.inflows.forEach(Inflow::close);
      moving = null;
    }
  }

  /** Adds a frame with a valid checksum to its slice. */
  synchronized void handleFrame(Assignment plan, long node, int stream, int slice, byte[] payload) {
    if (moving == null || moving.plan != plan || delivery.has(slice)) {
      return;
    }
    byte[] bytes = delivery.bytes();
    int start = plan.start(slice);
    if (!moving.touched.get(slice)) {
      moving.touched.set(slice);
      // An earlier plan may have left a partial sum.
      Arrays.fill(bytes, start, start + plan.bytes(slice), (byte) 0);
    }
    int coefficient = plan.taskOf(slice).coefficient(node, stream);
    if (coefficient != 0) {
      Gf.mulAdd(coefficient, payload, bytes, start, plan.bytes(slice));
    }
    if (--moving.missing[slice] == 0) {
      deliver(slice);
      reportIfDone();
    }
  }

  private void deliver(int slice) {
    moving.open.clear(slice);
    moving.done++;
    delivery.deliver(slice);
  }

  private void reportIfDone() {
    if (moving.open.isEmpty()) {
      report(moving.plan, object("what", "delivered"));
      moving = null; // The plan's connections are idle now, so none has to be closed.
    }
  }

  synchronized void handleBadFrame(Assignment plan, long node, String detail) {
    fail(plan, object("what", "bad-frame", "from", node, "detail", detail));
  }

  synchronized void handleClosed(Assignment plan, long node, String detail) {
    fail(plan, object("what", "closed", "peer", node, "detail", detail));
  }

  private void fail(Assignment plan, Map<String, Object> report) {
    if (moving != null && moving.plan == plan && !moving.failed) {
      moving.failed = true;
      report(plan, report);
    }
  }

  private void report(Assignment plan, Map<String, Object> report) {
    session.report(job, plan.epoch, report);
  }

  /** Handles the passing of time: reports progress, and edges that have been idle for too long. */
  synchronized void tick() {
    if (moving == null || moving.failed) {
      return;
    }
    long now = System.nanoTime();
    if (moving.done != moving.reported) {
      moving.reported = moving.done;
      report(moving.plan, object("what", "progress", "slices", (long) moving.done));
    }
    if (now - moving.seenNs > ASLEEP_NS) {
      moving.inflows.forEach(Inflow::excuse);
    }
    moving.seenNs = now;
    boolean stalls =
        moving.inflows.stream().anyMatch(flow -> flow.due() >= 0 && flow.restedMs(now) >= moving.plan.stallMs);
    if (stalls && (now - moving.complainedNs) / 1_000_000 >= moving.plan.stallMs) {
      moving.complainedNs = now;
      report(moving.plan, waiting(now));
    }
  }

  private Map<String, Object> waiting(long nowNs) {
    List<Object> receive = new ArrayList<>();
    for (Inflow flow : moving.inflows) {
      int due = flow.due();
      if (due >= 0) {
        receive.add(object("node", flow.node(), "slice", (long) due, "rested_ms", flow.restedMs(nowNs)));
      }
    }
    return object("what", "waiting", "receive", receive, "send", new ArrayList<>());
  }
}
