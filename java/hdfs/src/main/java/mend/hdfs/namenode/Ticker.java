package mend.hdfs.namenode;

/**
 * Runs a task every second on another thread, until it is closed. The thread that has created the ticker waits for a
 * call meanwhile, so the task may use what belongs to that thread.
 */
final class Ticker implements AutoCloseable {
  private static final long EVERY_MS = 1_000;

  private final Thread thread;

  Ticker(Runnable task) {
    thread = new Thread(() -> run(task), "ticker");
    thread.setDaemon(true);
    thread.start();
  }

  private static void run(Runnable task) {
    try {
      while (true) {
        Thread.sleep(EVERY_MS);
        task.run();
      }
    } catch (InterruptedException closed) {
      // The call has ended.
    }
  }

  /** Returns when the task does not run any more. */
  @Override
  public void close() {
    thread.interrupt();
    try {
      thread.join();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt(); // Nothing interrupts the threads that answer questions.
    }
  }
}
