package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
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
 * Reads ranges of lost blocks through Mend, for all streams of a file system. A stripe is described to the
 * coordinator once, and again after its blocks have moved or the coordinator may have forgotten it.
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

  /** The result of a read. */
  public enum Result {
    /** The bytes were read. */
    READ,
    /** The coordinator did not answer, or cannot serve the stripe now. */
    UNAVAILABLE,
    /** The bytes cannot be decoded, or cannot be trusted. */
    FAILED
  }

  /** A stripe as described to the coordinator. */
  private static final class Described {
    final String whereabouts;
    volatile long askedNs = System.nanoTime();

    Described(String whereabouts) {
      this.whereabouts = whereabouts;
    }

    boolean isOf(HdfsStripe stripe) {
      return whereabouts.equals(stripe.whereabouts()) && System.nanoTime() - askedNs < REMEMBERED_NS;
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
      LOG.warn("cannot use Mend; only HDFS decodes lost blocks", problem);
      return null;
    }
  }

  /** Whether the coordinator can be asked: the last requests did not fail because it was absent. */
  public boolean isReachable() {
    return breaker.allows();
  }

  /**
   * Whether a read of a striped file of this length should go through Mend. To decode a lost byte, HDFS moves
   * k bytes to the reader. A long read, of complete rows of cells, needs nearly all of those bytes anyway, so
   * Mend would save little.
   */
  public boolean wants(long length) {
    return length <= mostBytes && isReachable();
  }

  /**
   * Fills {@code target} with bytes of a lost block, starting at offset {@code from}.
   *
   * @param index the block's index as HDFS counts, see {@link HdfsStripe#indexInStripe}
   * @return the result; unless it is {@code READ}, the content of {@code target} is undefined
   */
  public Result read(HdfsStripe stripe, int index, long from, ByteBuffer target) {
    int length = target.remaining();
    try {
      readDescribed(stripe, index, from, target);
      breaker.succeeded();
      served.incrementAndGet();
      bytes.addAndGet(length);
      return Result.READ;
    } catch (IOException | RuntimeException problem) {
      failures.incrementAndGet();
      if (problem instanceof IOException) {
        breaker.failed((IOException) problem);
      }
      forget(stripe);
      LOG.warn("Mend cannot read bytes {} to {} of block {} of {}: {}", from, from + length, index, stripe.name(),
          problem.toString());
      LOG.debug("why", problem);
      return isUnavailable(problem) && !isContradictory(stripe) ? Result.UNAVAILABLE : Result.FAILED;
    }
  }

  private static boolean isUnavailable(Exception problem) {
    if (!(problem instanceof MendException)) {
      return false;
    }
    MendException.Kind kind = ((MendException) problem).kind();
    return Breaker.isAbsence(kind) || kind == MendException.Kind.REFUSED || kind == MendException.Kind.BUSY;
  }

  /** Whether the coordinator, if it answers, knows that blocks of the stripe are wrong. */
  private boolean isContradictory(HdfsStripe stripe) {
    try {
      return isReachable() && mend.contradictions().contains(stripe.name());
    } catch (IOException unreachable) {
      return false;
    }
  }

  /**
   * Opens a stream of bytes of a lost block whose stripe was just read. The bytes are fetched ahead. The stream
   * fails if the coordinator no longer knows the stripe; the next read then describes it again.
   */
  public InputStream open(HdfsStripe stripe, int index, long from, long to) throws IOException {
    return mend.get().open(stripe.name(), stripe.indexInStripe(index), from, to);
  }

  /** Counts bytes that were read from a stream. */
  public void count(int streamed) {
    bytes.addAndGet(streamed);
  }

  private void readDescribed(HdfsStripe stripe, int index, long from, ByteBuffer target) throws IOException {
    int place = stripe.indexInStripe(index);
    Described known = known(stripe);
    if (known != null) {
      ByteBuffer again = target.duplicate();
      try {
        mend.get().read(stripe.name(), place, from, target);
        known.askedNs = System.nanoTime();
        return;
      } catch (MendException problem) {
        if (problem.kind() != MendException.Kind.REFUSED) {
          throw problem;
        }
        target.position(again.position()); // A new coordinator does not know the description.
      }
    }
    describe(stripe);
    mend.get().read(stripe.name(), place, from, target);
  }

  private Described known(HdfsStripe stripe) {
    synchronized (described) {
      Described known = described.get(stripe.name());
      return known != null && known.isOf(stripe) ? known : null;
    }
  }

  private void describe(HdfsStripe stripe) throws IOException {
    try {
      mend.describe(stripe.stripe());
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.BUSY) {
        throw problem;
      }
      LOG.debug("{} is being repaired; using the description of that repair", stripe.name());
    }
    LOG.info("reading lost blocks of {} through Mend", stripe.name());
    synchronized (described) {
      described.put(stripe.name(), new Described(stripe.whereabouts()));
    }
  }

  private void forget(HdfsStripe stripe) {
    synchronized (described) {
      described.remove(stripe.name());
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
