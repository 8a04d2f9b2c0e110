package mend.hdfs;

import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Answers the helper's requests, some at a time. Each connection carries one request line, {@code ready POOL},
 * {@code adopt POOL BLOCK STAMP BYTES} or {@code tell POOL BLOCK}, and one response line, {@code yes} or {@code no
 * WHY}.
 *
 * <p>Requests other than {@code ready} may wait for a disk, so they have threads of their own, and delay neither {@code
 * ready} nor new connections.
 */
final class Desk implements Runnable {
  /** The time limit for a connection's request line. */
  private static final long LINE_LIMIT_MS = 10_000;
  /** The delay after a failed accept, for example because no file descriptor is free. */
  private static final long PAUSE_MS = 500;
  private static final int MAX_LINE_BYTES = 512;
  /** The number of request lines that are read in addition to the one that the accepting thread reads. */
  private static final int READ_AT_ONCE = 4;
  /** The number of requests that are carried out at once, and that of those that wait for their turn. */
  private static final int AT_ONCE = 16;
  private static final int MOST_WAITING = 256;
  private static final long IDLE_S = 60;

  private final ServerSocket listener;
  private final Adoption adoption;
  /** If all threads are busy, the accepting thread reads the line itself. Further connections wait meanwhile. */
  private final Executor readers = new ThreadPoolExecutor(0, READ_AT_ONCE, IDLE_S, TimeUnit.SECONDS,
      new SynchronousQueue<>(), Desk::thread, new ThreadPoolExecutor.CallerRunsPolicy());
  private final ThreadPoolExecutor workers = new ThreadPoolExecutor(AT_ONCE, AT_ONCE, IDLE_S, TimeUnit.SECONDS,
      new ArrayBlockingQueue<>(MOST_WAITING), Desk::thread);

  Desk(ServerSocket listener, Adoption adoption) {
    this.listener = listener;
    this.adoption = adoption;
    workers.allowCoreThreadTimeOut(true);
  }

  @Override
  public void run() {
    while (!listener.isClosed()) {
      Socket accepted;
      try {
        accepted = listener.accept();
      } catch (IOException problem) {
        if (listener.isClosed()) {
          return;
        }
        MendPlugin.LOG.warn("cannot accept connections from Mend's helper", problem);
        if (!pause()) {
          return;
        }
        continue;
      }
      readers.execute(() -> serve(accepted));
    }
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "mend-request");
    thread.setDaemon(true);
    return thread;
  }

  /** Reads a request, and answers it or has a worker answer it. */
  private void serve(Socket accepted) {
    try {
      String line = line(accepted);
      Executor by = line.startsWith("ready ") ? Runnable::run : workers;
      by.execute(() -> respond(accepted, line));
    } catch (IOException | RejectedExecutionException problem) {
      MendPlugin.LOG.warn("cannot answer a request of Mend's helper", problem);
      close(accepted);
    }
  }

  private void respond(Socket accepted, String line) {
    try (Socket socket = accepted) {
      socket.getOutputStream().write((answer(line) + "\n").getBytes(StandardCharsets.UTF_8));
    // This also catches errors due to another HDFS version, so that later requests are still answered.
    } catch (Throwable problem) {
      MendPlugin.LOG.warn("cannot answer a request of Mend's helper", problem);
    }
  }

  private static void close(Socket socket) {
    try {
      socket.close();
    } catch (IOException ignored) {
      // The helper takes the request for unanswered in any case.
    }
  }

  /** Waits for {@link #PAUSE_MS}. Returns false if the thread was interrupted. */
  private static boolean pause() {
    try {
      Thread.sleep(PAUSE_MS);
      return true;
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private String answer(String line) {
    String[] words = line.split(" ");
    try {
      if (words.length == 2 && words[0].equals("ready")) {
        adoption.ready(words[1]);
      } else if (words.length == 5 && words[0].equals("adopt")) {
        adoption.adopt(words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]));
      } else if (words.length == 3 && words[0].equals("tell")) {
        adoption.tell(words[1], Long.parseLong(words[2]));
      } else {
        return "no this version of the plug-in does not support the request";
      }
      return "yes";
    } catch (IOException | RuntimeException problem) {
      MendPlugin.LOG.warn("a request of Mend's helper failed: {}", line, problem);
      return "no " + String.valueOf(problem.getMessage()).replace('\n', ' ');
    }
  }

  /** Reads a line. Lines longer than any request of the helper are truncated, and then rejected. */
  private static String line(Socket socket) throws IOException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LINE_LIMIT_MS);
    InputStream input = socket.getInputStream();
    StringBuilder line = new StringBuilder();
    while (line.length() < MAX_LINE_BYTES) {
      long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
      if (leftMs <= 0) {
        throw new SocketTimeoutException("no complete line arrived within " + LINE_LIMIT_MS + " ms");
      }
      socket.setSoTimeout((int) leftMs);
      int next = input.read();
      if (next == -1 || next == '\n') {
        break;
      }
      line.append((char) next);
    }
    return line.toString();
  }
}
