package mend.client;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A connection to a cluster member: TCP, optionally with TLS 1.3. */
final class Connection implements Closeable {
  private static final int BUFFER_BYTES = 64 << 10;

  /** The TCP connection. */
  private final Socket tcp;
  /** The TLS session over it; the TCP connection itself if there is none. */
  private final Socket socket;
  private final InputStream input;

  private Connection(Socket tcp, Socket socket) throws IOException {
    this.tcp = tcp;
    this.socket = socket;
    this.input = new BufferedInputStream(socket.getInputStream(), BUFFER_BYTES);
  }

  /** Connects. {@code name} is the name in the peer's certificate; null for a plain connection. */
  static Connection dial(Address address, Credentials credentials, String name, int limitMs) throws IOException {
    Socket socket = new Socket();
    try {
      socket.setTcpNoDelay(true);
      socket.connect(address.resolve(), limitMs);
      return new Connection(
          socket, name == null ? socket : encrypted(socket, credentials.towards(name), name, limitMs));
    } catch (IOException | RuntimeException problem) {
      socket.close();
      throw problem;
    }
  }

  private static SSLSocket encrypted(Socket socket, SSLContext context, String name, int limitMs) throws IOException {
    SSLSocket secure = (SSLSocket) context.getSocketFactory().createSocket(socket, name, socket.getPort(), true);
    SSLParameters parameters = secure.getSSLParameters();
    parameters.setProtocols(new String[] {"TLSv1.3"});
    secure.setSSLParameters(parameters);
    secure.setSoTimeout(limitMs);
    secure.startHandshake();
    secure.setSoTimeout(0);
    return secure;
  }

  /** Sets the read timeout in milliseconds; 0 means none. */
  void limitSilence(int ms) throws IOException {
    socket.setSoTimeout(ms);
  }

  InputStream input() {
    return input;
  }

  void write(byte[] bytes) throws IOException {
    socket.getOutputStream().write(bytes);
    socket.getOutputStream().flush();
  }

  /**
   * Closes the connection at once; concurrent reads and writes fail. Closes only the TCP connection, because the close
   * of a TLS session waits for a write in progress, which never ends if the peer has stopped reading.
   */
  @Override
  public void close() {
    try {
      tcp.close();
    } catch (IOException ignored) {
      // The socket is closed in any case.
    }
  }
}
