package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import mend.client.MendClient;
import mend.client.MendException;
import mend.client.Stripe;
import org.apache.hadoop.conf.Configuration;

/**
 * The client of the cluster that is configured. A daemon lives longer than certificates do: where they are not trusted any
 * more, they are read again.
 */
final class CurrentClient implements Closeable {
  private final Configuration conf;
  private MendClient client;

  /** Made when it is first needed: a certificate may come later than the daemon. */
  CurrentClient(Configuration conf) {
    this.conf = conf;
  }

  synchronized MendClient get() throws IOException {
    if (client == null) {
      client = MendSettings.client(conf);
    }
    return client;
  }

  /** Describes a stripe, the first thing that is asked about any: whose certificates are old notices here. */
  void describe(Stripe stripe) throws IOException {
    MendClient asked = get();
    try {
      asked.describe(stripe);
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.UNTRUSTED) {
        throw problem;
      }
      renewed(asked).describe(stripe);
    }
  }

  /** A client with the certificates as they are now, unless another thread has made one meanwhile. */
  private synchronized MendClient renewed(MendClient old) throws IOException {
    if (client == old) {
      client = MendSettings.client(conf);
      old.close();
    }
    return client;
  }

  @Override
  public synchronized void close() {
    if (client != null) {
      client.close();
    }
  }
}
