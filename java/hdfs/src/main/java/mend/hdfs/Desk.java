package mend.hdfs;

import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;

/**
 * Answers the helper, one question at a time: each connection brings one line, {@code ready POOL} or {@code adopt
 * POOL BLOCK STAMP BYTES}, and gets one, {@code yes} or {@code no WHY}.
 */
final class Desk implements Runnable {
  private static final int TIMEOUT_MS = 10_000;
  private static final int MAX_LINE_BYTES = 512;

  private final ServerSocket listener;
  private final Adoption adoption;

  Desk(ServerSocket listener, Adoption adoption) {
    this.listener = listener;
    this.adoption = adoption;
  }

  @Override
  public void run() {
    while (!listener.isClosed()) {
      try (Socket socket = listener.accept()) {
        socket.setSoTimeout(TIMEOUT_MS);
        byte[] answer = (answer(line(socket.getInputStream())) + "\n").getBytes(StandardCharsets.UTF_8);
        socket.getOutputStream().write(answer);
      } catch (SocketException problem) {
        if (!listener.isClosed()) {
          MendPlugin.LOG.warn("a question of Mend's helper", problem);
        }
      } catch (IOException problem) {
        MendPlugin.LOG.warn("a question of Mend's helper", problem);
      }
    }
  }

  private String answer(String line) {
    String[] words = line.split(" ");
    try {
      if (words.length == 2 && words[0].equals("ready")) {
        adoption.ready(words[1]);
      } else if (words.length == 5 && words[0].equals("adopt")) {
        adoption.adopt(words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]));
      } else {
        return "no that is not a question which this version knows";
      }
      return "yes";
    } catch (IOException | RuntimeException problem) {
      MendPlugin.LOG.warn("Mend's helper asked: {}", line, problem);
      return "no " + String.valueOf(problem.getMessage()).replace('\n', ' ');
    }
  }

  /** A line; what is longer than any that the helper sends is cut off, and then refused. */
  private static String line(InputStream input) throws IOException {
    StringBuilder line = new StringBuilder();
    for (int next = input.read(); next != -1 && next != '\n' && line.length() < MAX_LINE_BYTES; next = input.read()) {
      line.append((char) next);
    }
    return line.toString();
  }
}
