package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import java.util.Collection;
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

  /** Describes a stripe. */
  void describe(Stripe stripe) throws IOException {
    ask(client -> {
      client.describe(stripe);
      return null;
    });
  }

  /** The groups whose blocks contradict each other. */
  Collection<String> contradictions() throws IOException {
    return ask(MendClient::contradictions);
  }

  /** A question that notices certificates which are not trusted any more: it is asked again with those of now. */
  private <T> T ask(Question<T> question) throws IOException {
    MendClient asked = get();
    try {
      return question.ask(asked);
    } catch (MendException problem) {
      if (problem.kind() != MendException.Kind.UNTRUSTED) {
        throw problem;
      }
      return question.ask(renewed(asked));
    }
  }

  private interface Question<T> {
    T ask(MendClient client) throws IOException;
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
