package mend.client;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * A pool of data connections: after an edge is complete, its connection is kept for a while for the next edge
 * to the same member.
 */
final class Edges {
  private static final int DIAL_LIMIT_MS = 10_000;
  /**
   * How long an idle connection is kept: half of the time that the peer waits for the next greeting, so that
   * our side closes first.
   */
  private static final long REST_LIMIT_NS = TimeUnit.SECONDS.toNanos(30);
  private static final int MAX_RESTING = 64;

  private final Credentials credentials;
  private final Map<String, Deque<Resting>> resting = new HashMap<>();
  private int count;
  private boolean closed;

  private static final class Resting {
    final Connection connection;
    final long sinceNs = System.nanoTime();

    Resting(Connection connection) {
      this.connection = connection;
    }

    boolean isFresh() {
      return System.nanoTime() - sinceNs < REST_LIMIT_NS;
    }
  }

  Edges(Credentials credentials) {
    this.credentials = credentials;
  }

  /**
   * Removes the most recently used idle connection to the sender of an edge from the pool and returns it;
   * null if there is none.
   */
  synchronized Connection takeResting(Assignment.Inlet inlet) {
    Deque<Resting> there = resting.get(farEnd(inlet));
    while (there != null && !there.isEmpty()) {
      Resting newest = there.pop();
      count--;
      if (newest.isFresh()) {
        return newest.connection;
      }
      newest.connection.close();
    }
    return null;
  }

  Connection dial(Assignment.Inlet inlet) throws IOException {
    return Connection.dial(inlet.dial, credentials, inlet.tlsName, DIAL_LIMIT_MS);
  }

  /** Keeps a connection on which an edge has completed. */
  synchronized void rest(Assignment.Inlet inlet, Connection connection) {
    dropOld();
    if (closed || count >= MAX_RESTING) {
      connection.close();
      return;
    }
    resting.computeIfAbsent(farEnd(inlet), end -> new ArrayDeque<>()).push(new Resting(connection));
    count++;
  }

  private void dropOld() {
    for (Deque<Resting> there : resting.values()) {
      while (!there.isEmpty() && !there.peekLast().isFresh()) {
        there.removeLast().connection.close();
        count--;
      }
    }
    resting.values().removeIf(Deque::isEmpty);
  }

  synchronized void close() {
    closed = true;
    resting.values().forEach(there -> there.forEach(one -> one.connection.close()));
    resting.clear();
    count = 0;
  }

  private static String farEnd(Assignment.Inlet inlet) {
    return inlet.dial + " " + Objects.toString(inlet.tlsName, "");
  }
}
