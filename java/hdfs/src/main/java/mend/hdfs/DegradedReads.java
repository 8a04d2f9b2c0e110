package mend.hdfs;

import java.io.Closeable;
import java.io.FilterInputStream;
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
   * stripe's last use; one that it has listed itself, 20 s after the description. A refused read describes the
   * stripe again.
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
   * unusable, which is logged. If the certificates cannot be read in time, later reads try again.
   */
  public static DegradedReads of(Configuration conf) {
    if (!MendSettings.isConfigured(conf)) {
      return null;
    }
    try {
      long most = conf.getLongBytes(MendSettings.READ_MOST_KEY, DEFAULT_MOST_BYTES);
      DegradedReads reads = new DegradedReads(new CurrentClient(conf), most);
      reads.check();
      return reads;
    } catch (IOException | RuntimeException problem) {
      LOG.warn("cannot use Mend; only HDFS decodes lost blocks", problem);
      return null;
    }
  }

  /** Reports an unusable configuration before the first read. */
  private void check() throws IOException {
    try {
      mend.get();
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.TIMED_OUT) {
        throw problem;
      }
      breaker.failed(problem);
      LOG.warn("for now, only HDFS decodes lost blocks: {}", problem.getMessage());
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
   * Returns a lost block of a stripe.
   *
   * @param index the block's index as HDFS counts, see {@link HdfsStripe#indexInStripe}
   */
  public LostBlock block(HdfsStripe stripe, int index) {
    return new LostBlock() {
      @Override
      public Result read(long from, ByteBuffer target) {
        return isReachable() ? DegradedReads.this.read(stripe, index, from, target) : Result.UNAVAILABLE;
      }

      @Override
      public InputStream open(long from, long to) throws IOException {
        return counted(mend.get().open(stripe.name(), stripe.indexInStripe(index), from, to));
      }

      @Override
      public String toString() {
        return "block " + index + " of " + stripe.name();
      }
    };
  }

  private LostBlock.Result read(HdfsStripe stripe, int index, long from, ByteBuffer target) {
    int length = target.remaining();
    try {
      readDescribed(stripe, index, from, target);
      breaker.succeeded();
      served.incrementAndGet();
      bytes.addAndGet(length);
      return LostBlock.Result.READ;
    } catch (IOException | RuntimeException problem) {
      failures.incrementAndGet();
      if (problem instanceof IOException) {
        breaker.failed((IOException) problem);
      }
      forget(stripe);
      LOG.warn("Mend cannot read bytes {} to {} of block {} of {}: {}", from, from + length, index, stripe.name(),
          problem.toString());
      LOG.debug("why", problem);
      boolean mayBeDecoded = isUnavailable(problem) && !isContradictory(stripe);
      return mayBeDecoded ? LostBlock.Result.UNAVAILABLE : LostBlock.Result.FAILED;
    }
  }

  /** Counts the bytes that are read from a stream. */
  private InputStream counted(InputStream stream) {
    return new FilterInputStream(stream) {
      @Override
      public int read() throws IOException {
        int next = super.read();
        bytes.addAndGet(next < 0 ? 0 : 1);
        return next;
      }

      @Override
      public int read(byte[] target, int offset, int length) throws IOException {
        int came = super.read(target, offset, length);
        bytes.addAndGet(Math.max(came, 0));
        return came;
      }
    };
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
