package mend.client;

import static mend.client.Json.object;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;

/**
 * Our part in one job: plan after plan, the slices that still miss are received, summed and delivered.
 *
 * <p>Always true: at most one plan moves; nothing is written to the delivery after it was reported as stopped; a slice is
 * summed anew from nothing under each plan. A part that failed keeps its other edges open until it is told to stop, so
 * that its neighbours wait instead of failing too, and the culprit stands out.
 */
final class Part {
  /** If so much time passed between two looks, this process was stopped or starved itself. */
  private static final long ASLEEP_NS = 1_000_000_000L;

  /** What a part needs of the session that it is in. */
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

  /** A plan whose slices move. */
  private static final class Moving {
    final Assignment plan;
    final List<Inflow> inflows = new ArrayList<>();
    /** Frames that still miss of each slice; those that have come are in the delivery's bytes. */
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

  /** Begins a plan. */
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

  /** Stops what moves, and says what was delivered. */
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

  /** Says at once what it waits for. */
  synchronized void explain(long epoch) {
    boolean moves = moving != null && moving.plan.epoch == epoch && !moving.failed;
    session.report(job, epoch, moves ? waiting(System.nanoTime()) : object("what", "at-rest"));
  }

  /** Closes the edges. */
  synchronized void end() {
    if (moving != null) {
      moving.inflows.forEach(Inflow::close);
      moving = null;
    }
  }

  /** Adds a frame to its slice. Its checksum holds. */
  synchronized void handleFrame(Assignment plan, long node, int stream, int slice, byte[] payload) {
    if (moving == null || moving.plan != plan || delivery.has(slice)) {
      return;
    }
    byte[] bytes = delivery.bytes();
    int start = plan.start(slice);
    if (!moving.touched.get(slice)) {
      moving.touched.set(slice);
      Arrays.fill(bytes, start, start + plan.bytes(slice), (byte) 0); // An earlier plan may have left a part of a sum.
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
      moving = null; // Its connections rest; nothing is left to be closed.
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

  /** Time has passed: says how far it is, and which edges have rested for too long. */
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
