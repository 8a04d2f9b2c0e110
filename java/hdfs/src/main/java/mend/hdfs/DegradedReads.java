package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import mend.client.MendException;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads ranges of lost internal blocks through Mend, for all streams of a file system. A group is described
 * to the coordinator once, and again after its blocks have moved or the coordinator may have forgotten it.
 */
public final class DegradedReads implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(DegradedReads.class);
  private static final long DEFAULT_MOST_BYTES = 1 << 20;
  private static final int MAX_DESCRIBED = 1024;
  /**
   * How long the coordinator is assumed to know a described stripe. It forgets a stripe ten minutes after the
   * stripe's last use.
   */
  private static final long REMEMBERED_NS = TimeUnit.MINUTES.toNanos(8);

  private final CurrentClient mend;
  private final long mostBytes;
  private final Breaker breaker = new Breaker();
  private final AtomicLong served = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();
  private final AtomicLong failures = new AtomicLong();
  private final Map<String, Described> described =
      new LinkedHashMap<String, Described>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Described> eldest) {
          return size() > MAX_DESCRIBED;
        }
      };

  /** A group as described to the coordinator. */
  private static final class Described {
    final String whereabouts;
    volatile long askedNs = System.nanoTime();

    Described(String whereabouts) {
      this.whereabouts = whereabouts;
    }

    boolean isOf(Group group) {
      return whereabouts.equals(group.whereabouts()) && System.nanoTime() - askedNs < REMEMBERED_NS;
    }
  }

  private DegradedReads(CurrentClient mend, long mostBytes) {
    this.mend = mend;
    this.mostBytes = mostBytes;
  }

  /**
   * Creates the configured instance; returns null if no coordinator is configured, or if the configuration is
   * unusable, which is logged.
   */
  public static DegradedReads of(Configuration conf) {
    if (!MendSettings.isConfigured(conf)) {
      return null;
    }
    try {
      long most = conf.getLongBytes(MendSettings.READ_MOST_KEY, DEFAULT_MOST_BYTES);
      CurrentClient mend = new CurrentClient(conf);
      mend.get(); // Report an unusable configuration now.
      return new DegradedReads(mend, most);
    } catch (IOException | RuntimeException problem) {
      LOG.warn("cannot use Mend; HDFS decodes lost blocks itself", problem);
      return null;
    }
  }

  /**
   * Whether a read of this length should go through Mend. To decode a lost byte, HDFS moves k bytes to the
   * reader. A long read, of complete rows of cells, needs nearly all of those bytes anyway, so Mend would
   * save little.
   */
  public boolean wants(long length) {
    return length <= mostBytes && breaker.allows();
  }

  /**
   * Fills {@code target} with bytes of a lost block, starting at offset {@code from}.
   *
   * @return whether the read succeeded; if not, the content of {@code target} is undefined, and HDFS must
   *     read the bytes itself
   */
  public boolean read(Group group, int index, long from, ByteBuffer target) {
    int length = target.remaining();
    try {
      readDescribed(group, index, from, target);
      breaker.succeeded();
      served.incrementAndGet();
      bytes.addAndGet(length);
      return true;
    } catch (IOException | RuntimeException problem) {
      failures.incrementAndGet();
      if (problem instanceof IOException) {
        breaker.failed((IOException) problem);
      }
      forget(group);
      LOG.warn("Mend cannot read bytes {} to {} of block {} of {}; HDFS decodes them itself: {}", from,
          from + length, index, group.name(), problem.toString());
      LOG.debug("why", problem);
      return false;
    }
  }

  private void readDescribed(Group group, int index, long from, ByteBuffer target) throws IOException {
    int place = group.indexInStripe(index);
    Described known = known(group);
    if (known != null) {
      ByteBuffer again = target.duplicate();
      try {
        mend.get().read(group.name(), place, from, target);
        known.askedNs = System.nanoTime();
        return;
      } catch (MendException problem) {
        if (problem.kind() != MendException.Kind.REFUSED) {
          throw problem;
        }
        target.position(again.position()); // A new coordinator does not know the description.
      }
    }
    describe(group);
    mend.get().read(group.name(), place, from, target);
  }

  private Described known(Group group) {
    synchronized (described) {
      Described known = described.get(group.name());
      return known != null && known.isOf(group) ? known : null;
    }
  }

  private void describe(Group group) throws IOException {
    try {
      mend.describe(group.stripe());
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.BUSY) {
        throw problem;
      }
      LOG.debug("{} is being repaired; using the description of that repair", group.name());
    }
    LOG.info("reading lost blocks of {} through Mend", group.name());
    synchronized (described) {
      described.put(group.name(), new Described(group.whereabouts()));
    }
  }

  private void forget(Group group) {
    synchronized (described) {
      described.remove(group.name());
    }
  }

  /** Returns the number of reads served by Mend. */
  public long served() {
    return served.get();
  }

  /** Returns the number of bytes that this process has read through Mend. */
  public long bytes() {
    return bytes.get();
  }

  /** Returns the number of reads that Mend failed to serve. */
  public long failures() {
    return failures.get();
  }

  @Override
  public void close() {
    LOG.debug("{} reads, {} bytes in total, {} failures", served, bytes, failures);
    mend.close();
  }
}
