package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;

class DeskTest {
  private static final int LIMIT_MS = 60_000;
  /** More than the plug-in carries out at once. */
  private static final int ADOPTIONS = 40;

  /** A DataNode that adopts nothing before the test lets it. */
  private static final class Hanging extends Adoption {
    private final CountDownLatch allowed = new CountDownLatch(1);

    Hanging() {
      super(null);
    }

    @Override
    void ready(String pool) throws IOException {
      if (!pool.equals("p")) {
        throw new IOException("unknown pool");
      }
    }

    @Override
    void adopt(String pool, long block, long stamp, long bytes) throws IOException {
      try {
        allowed.await();
      } catch (InterruptedException stopped) {
        throw new IOException(stopped);
      }
    }
  }

  @Test
  void readyIsAnsweredWhileAdoptionsHang() throws IOException {
    Hanging adoption = new Hanging();
    try (ServerSocket listener = new ServerSocket(0, ADOPTIONS, InetAddress.getLoopbackAddress())) {
      Thread desk = new Thread(new Desk(listener, adoption));
      desk.setDaemon(true);
      desk.start();
      List<Socket> adoptions = new ArrayList<>();
      for (int number = 0; number < ADOPTIONS; number++) {
        adoptions.add(ask(listener, "adopt p " + number + " 1001 10"));
      }
      assertEquals("yes\n", answer(ask(listener, "ready p")));
      assertEquals("no unknown pool\n", answer(ask(listener, "ready q")));
      adoption.allowed.countDown();
      for (Socket socket : adoptions) {
        assertEquals("yes\n", answer(socket));
      }
      assertEquals("no this version of the plug-in does not support the request\n", answer(ask(listener, "adopt")));
    }
  }

  private static Socket ask(ServerSocket listener, String request) throws IOException {
    Socket socket = new Socket(listener.getInetAddress(), listener.getLocalPort());
    socket.setSoTimeout(LIMIT_MS);
    socket.getOutputStream().write((request + "\n").getBytes(StandardCharsets.UTF_8));
    return socket;
  }

  private static String answer(Socket asked) throws IOException {
    try (Socket socket = asked) {
      return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
