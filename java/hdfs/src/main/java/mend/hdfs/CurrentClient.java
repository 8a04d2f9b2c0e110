package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import java.util.Collection;
import mend.client.MendClient;
import mend.client.MendException;
import mend.client.Stripe;
import org.apache.hadoop.conf.Configuration;

/**
 * The client of the configured cluster. It takes up its renewed certificate by itself. A daemon also outlives
 * the authority, so all files are loaded again once a certificate is no longer trusted.
 */
final class CurrentClient implements Closeable {
  private final Configuration conf;
  private MendClient client;

  /** The client is created on first use, because the certificate may be installed after the daemon starts. */
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

  /** Returns the groups whose blocks contradict each other. */
  Collection<String> contradictions() throws IOException {
    return ask(MendClient::contradictions);
  }

  /** Sends a request. If our certificate is no longer trusted, reloads the files and repeats the request. */
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

  /** Returns a client with reloaded certificates, unless another thread has already created one. */
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
