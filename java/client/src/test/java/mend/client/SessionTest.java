package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests a session whose coordinator stops, as a frozen process or a partitioned machine does. */
class SessionTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);
  /** Together, the requests do not fit into the buffers of a connection. */
  private static final int REQUESTS = 64;
  private static final int REQUEST_BYTES = 1 << 20;

  @TempDir
  Path folder;

  /** A write to such a coordinator never ends, and Java closes a TLS session only after the write. */
  @Test
  void aSessionEndsAlthoughItsCoordinatorHasStoppedReading() throws Exception {
    Path certificate = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    KeyStore keys = Certificates.issue(certificate, key);
    Credentials credentials = Credentials.load(certificate, certificate, key);
    try (SSLServerSocket listener = listen(keys)) {
      Thread coordinator = new Thread(() -> registerAndStop(listener));
      coordinator.setDaemon(true);
      coordinator.start();
      Session session = Session.open(Settings.of("127.0.0.1:1", "127.0.0.1:" + listener.getLocalPort(), credentials));
      Delivery delivery = new Delivery(0, 1);
      for (int request = 0; request < REQUESTS; request++) {
        session.read("s".repeat(REQUEST_BYTES), 0, delivery);
      }
      assertTimeoutPreemptively(LIMIT, () -> {
        MendException problem = assertThrows(MendException.class, () -> delivery.await(0, LIMIT.toMillis()));
        assertEquals(MendException.Kind.LOST, problem.kind(), problem.getMessage());
        assertTrue(session.hasEnded());
        session.close();
      });
    }
  }

  private static SSLServerSocket listen(KeyStore keys) throws IOException, GeneralSecurityException {
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(keys, Certificates.PASSWORD);
    SSLContext context = SSLContext.getInstance("TLSv1.3");
    context.init(factory.getKeyManagers(), null, null);
    return (SSLServerSocket) context.getServerSocketFactory()
        .createServerSocket(0, 1, InetAddress.getLoopbackAddress());
  }

  /** Registers one client, and then neither reads nor writes. The connection stays open until the test ends. */
  private static void registerAndStop(SSLServerSocket listener) {
    try (SSLSocket client = (SSLSocket) listener.accept()) {
      DataInputStream input = new DataInputStream(client.getInputStream());
      input.readNBytes(input.readInt());
      byte[] answer = "{\"registered\":{}}".getBytes(StandardCharsets.UTF_8);
      DataOutputStream output = new DataOutputStream(client.getOutputStream());
      output.writeInt(answer.length);
      output.write(answer);
      output.flush();
      Thread.sleep(2 * LIMIT.toMillis());
    } catch (IOException | InterruptedException problem) {
      throw new IllegalStateException(problem);
    }
  }
}
