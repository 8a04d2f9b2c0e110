package mend.client;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * This client's share of a plan, as sent by the coordinator. The constructor checks everything that a
 * requestor relies on.
 */
final class Assignment {
  /** The maximum size of a slice. */
  private static final int MAX_SLICE_BYTES = 4 << 20;
  private static final int MAX_SLICES = 1 << 24;
  private static final int MAX_LANES = 1 << 16;

  final long job;
  final long epoch;
  final long tag;
  final long from;
  final long to;
  final int sliceBytes;
  final BitSet slices = new BitSet();
  final Dealing dealing;
  /**
   * This client's task in each lane (a route of the plan for some of the slices); null if the client takes no
   * part in the lane.
   */
  final List<Task> lanes = new ArrayList<>();
  final List<Inlet> inlets = new ArrayList<>();
  final long stallMs;
  /** Whether senders wait for credits (docs/reference/protocol.md). */
  final boolean isSerial;

  /** An incoming edge: the connection to a node that sends streams to this client. */
  static final class Inlet {
    final long node;
    final Address dial;
    final byte[] key;
    /** The name in the peer's certificate; null for a plain edge. */
    final String tlsName;

    Inlet(Json.Node inlet) throws MendException {
      node = inlet.get("from").number();
      dial = address(inlet.get("dial").text());
      key = key(inlet.get("key").text());
      tlsName = inlet.get("tls_name").textOrNull();
    }

    private static Address address(String text) throws MendException {
      try {
        return Address.parse(text);
      } catch (IllegalArgumentException problem) {
        throw new MendException(MendException.Kind.PROTOCOL, problem.getMessage());
      }
    }

    private static byte[] key(String digits) throws MendException {
      byte[] key = new byte[16];
      for (int i = 0; i < key.length; i++) {
        try {
          key[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        } catch (IndexOutOfBoundsException | NumberFormatException problem) {
          throw new MendException(MendException.Kind.PROTOCOL, "the key of an edge must be 32 hexadecimal digits");
        }
      }
      return key;
    }
  }

  /** This client's task in one lane: receive streams and deliver a linear combination of them. */
  static final class Task {
    private final List<long[]> receives = new ArrayList<>();
    private final List<long[]> terms = new ArrayList<>();

    private Task(Json.Node task) throws MendException {
      for (Json.Node edge : task.get("receives").list()) {
        receives.add(new long[] {edge.get("from").number(), edge.get("streams").count(MAX_LANES)});
      }
      List<Json.Node> delivers = task.get("delivers").list();
      if (delivers.size() > 1 || !task.get("sends").list().isEmpty() || !task.get("reads").list().isEmpty()) {
        throw unsupported("the plan requires more than receiving one block");
      }
      for (Json.Node delivery : delivers) {
        for (Json.Node term : delivery.get("combination").list()) {
          List<Json.Node> received = term.get("r").list();
          if (received.size() != 3) {
            throw new MendException(MendException.Kind.PROTOCOL,
                "a term has " + received.size() + " numbers instead of 3");
          }
          long node = received.get(0).number();
          terms.add(new long[] {node, received.get(1).count(MAX_LANES), received.get(2).count(255)});
        }
      }
    }

    /** Returns the number of streams that a node sends. */
    int streamsFrom(long node) {
      return (int) receives.stream().filter(edge -> edge[0] == node).mapToLong(edge -> edge[1]).sum();
    }

    /** Returns the total number of incoming streams. */
    int streams() {
      return (int) receives.stream().mapToLong(edge -> edge[1]).sum();
    }

    /** Returns the coefficient of a node's stream in the combination; 0 if the stream is unused. */
    int coefficient(long node, int stream) {
      for (long[] term : terms) {
        if (term[0] == node && term[1] == stream) {
          return (int) term[2];
        }
      }
      return 0;
    }
  }

  /**
   * Parses an assignment.
   *
   * @throws MendException if the assignment is inconsistent, or not for a requestor of a single block
   */
  Assignment(Json.Node message) throws MendException {
    job = message.get("job").number();
    epoch = message.get("epoch").number();
    tag = message.get("tag").number();
    Json.Node geometry = message.get("geometry");
    from = geometry.get("window").get("start").number();
    to = geometry.get("window").get("end").number();
    sliceBytes = geometry.get("slice_bytes").count(MAX_SLICE_BYTES);
    stallMs = message.get("stall_ms").number();
    isSerial = "serial".equals(message.get("pacing").text());
    for (Json.Node sink : message.get("sinks").list()) {
      if (sink.get("end").get("checked").isTrue()) {
        throw unsupported("the stripe's blocks contradict each other, so the bytes must be checked against its parity");
      }
    }
    if (message.get("chunking").get("sub_blocks").number() != 1) {
      throw unsupported("the code has sub-blocks");
    }
    if (sliceBytes == 0 || from < 0 || to < from || count() > MAX_SLICES) {
      throw new MendException(MendException.Kind.PROTOCOL, "the window is invalid: " + geometry);
    }
    for (Json.Node range : message.get("slices").list()) {
      List<Json.Node> ends = range.list();
      slices.set(ends.get(0).count(count()), ends.get(1).count(count()));
    }
    List<Json.Node> weights = message.get("dealing").list();
    long[] dealt = new long[weights.size()];
    for (int lane = 0; lane < dealt.length; lane++) {
      dealt[lane] = weights.get(lane).count(Integer.MAX_VALUE);
    }
    dealing = new Dealing(dealt);
    for (Json.Node task : message.get("lanes").list()) {
      lanes.add(task.isNull() ? null : new Task(task));
    }
    for (Json.Node inlet : message.get("inlets").list()) {
      inlets.add(new Inlet(inlet));
    }
    if (lanes.size() != dealt.length || !message.get("outlets").list().isEmpty()) {
      throw new MendException(MendException.Kind.PROTOCOL,
          "there are " + lanes.size() + " lanes, but slices are dealt to " + dealt.length);
    }
  }

  private static MendException unsupported(String what) {
    return new MendException(MendException.Kind.UNSUPPORTED, what + ", which this library does not support; use "
        + "`mend get` instead");
  }

  /** Returns the number of slices in the window. */
  int count() {
    return (int) Math.min((to - from + sliceBytes - 1) / sliceBytes, Integer.MAX_VALUE);
  }

  /** Returns the offset of a slice in the window, in bytes. */
  int start(int slice) {
    return slice * sliceBytes;
  }

  /** Returns the size of a slice in bytes; the last slice may be short. */
  int bytes(int slice) {
    return (int) Math.min(sliceBytes, to - from - start(slice));
  }

  /** Returns this client's task in the lane of a slice; null if there is none. */
  Task taskOf(int slice) {
    return lanes.get(dealing.laneOf(slice));
  }
}
