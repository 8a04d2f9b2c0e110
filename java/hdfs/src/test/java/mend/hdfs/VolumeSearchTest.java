package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Tests searches of volumes of which the disk of one hangs. */
class VolumeSearchTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);
  private static final Map<String, String> VOLUMES = Map.of("/d1", "hangs", "/d2", "empty", "/d3", "holds");

  private final CountDownLatch ended = new CountDownLatch(1);
  private final Predicate<String> holds = volume -> {
    if (volume.equals("hangs")) {
      try {
        ended.await();
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }
    return volume.equals("holds");
  };

  @AfterEach
  void end() {
    ended.countDown();
  }

  @Test
  void aDiskThatHangsDelaysNoSearchThatAnotherOneAnswers() {
    VolumeSearch search = new VolumeSearch(LIMIT.toMillis());
    long before = searching(); // Threads of other tests.
    assertTimeoutPreemptively(LIMIT, () -> {
      for (int call = 0; call < 1000; call++) {
        assertEquals("holds", search.find(VOLUMES, holds));
      }
    });
    long begun = searching() - before;
    assertTrue(begun <= VOLUMES.size(), begun + " threads");
  }

  private static long searching() {
    return Thread.getAllStackTraces().keySet().stream().filter(it -> it.getName().equals("mend-volume")).count();
  }

  @Test
  void aDiskThatHangsIsNamedIfNoOtherOneHoldsTheReplica() {
    VolumeSearch search = new VolumeSearch(100);
    Map<String, String> volumes = Map.of("/d1", "hangs", "/d2", "empty");
    IOException problem = assertThrows(IOException.class, () -> search.find(volumes, holds));
    assertTrue(problem.getMessage().contains("volumes [/d1]"), problem.getMessage());
  }

  @Test
  void aReplicaThatNoVolumeHoldsIsNotFound() throws IOException {
    VolumeSearch search = new VolumeSearch(LIMIT.toMillis());
    assertNull(search.find(Map.of("/d2", "empty", "/d4", "empty"), holds));
    assertNull(search.find(Map.<String, String>of(), holds));
    IOException problem = assertThrows(IOException.class, () -> search.find(VOLUMES, volume -> {
      throw new IllegalStateException("another version");
    }));
    assertTrue(problem.getMessage().contains("another version"), problem.getMessage());
  }
}
