package mend.hdfs;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/**
 * Searches all volumes of a DataNode at once, each on a thread of its own. A disk that hangs keeps its own thread, and
 * delays no search that another volume answers.
 */
final class VolumeSearch {
  private static final long LIMIT_MS = 10_000;
  private static final long IDLE_S = 60;
  /** The number of searches that wait for the thread of one volume. */
  private static final int MOST_WAITING = 64;

  private final long limitMs;
  /** The threads by the names of the volumes. */
  private final Map<String, Executor> threads = new ConcurrentHashMap<>();

  VolumeSearch() {
    this(LIMIT_MS);
  }

  /** Creates a search that waits at most {@code limitMs} for volumes. */
  VolumeSearch(long limitMs) {
    this.limitMs = limitMs;
  }

  private static Executor thread() {
    ThreadPoolExecutor thread = new ThreadPoolExecutor(
        1, 1, IDLE_S, TimeUnit.SECONDS, new ArrayBlockingQueue<>(MOST_WAITING), VolumeSearch::daemon);
    thread.allowCoreThreadTimeOut(true);
    return thread;
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "mend-volume");
    thread.setDaemon(true);
    return thread;
  }

  /**
   * Returns the first volume that is found to hold what is searched; null if none does.
   *
   * @param volumes the volumes by name
   * @throws IOException if some volumes have not answered in time, and no other one holds it
   */
  <V> V find(Map<String, V> volumes, Predicate<V> holds) throws IOException {
    if (volumes.isEmpty()) {
      return null;
    }
    CompletableFuture<V> found = new CompletableFuture<>();
    Set<String> silent = ConcurrentHashMap.newKeySet();
    silent.addAll(volumes.keySet());
    volumes.forEach((name, volume) -> begin(name, () -> {
      try {
        if (holds.test(volume)) {
          found.complete(volume);
        }
        silent.remove(name);
        if (silent.isEmpty()) {
          found.complete(null);
        }
      } catch (Throwable problem) { // Such as an error due to another HDFS version.
        found.completeExceptionally(problem);
      }
    }));
    return await(found, silent);
  }

  /** Begins a search of a volume, unless so many wait for it that its disk must be hanging. */
  private void begin(String volume, Runnable search) {
    try {
      threads.computeIfAbsent(volume, name -> thread()).execute(search);
    } catch (RejectedExecutionException hangs) {
      MendPlugin.LOG.debug("volume {} has not answered for long", volume);
    }
  }

  private <V> V await(CompletableFuture<V> found, Set<String> silent) throws IOException {
    try {
      return found.get(limitMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException problem) {
      throw new IOException("no answer within " + limitMs / 1000 + " s from the disks of volumes " + silent
          + ": check them, and remove disks that hang from dfs.datanode.data.dir", problem);
    } catch (ExecutionException problem) {
      throw new IOException("cannot search the folders of the DataNode: " + problem.getCause(), problem.getCause());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while searching the folders of the DataNode", stopped);
    }
  }
}
