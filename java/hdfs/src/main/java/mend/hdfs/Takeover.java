package mend.hdfs;

import java.io.Closeable;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import mend.client.MendException;
import mend.client.Repair;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.erasurecode.ReconstructionCommand;
import org.apache.hadoop.hdfs.server.datanode.erasurecode.ReconstructionPool;

/**
 * Executes the NameNode's reconstruction commands through Mend. All lost blocks of a command are rebuilt in
 * one repair. The helper of each target DataNode writes the rebuilt block, and the DataNode adopts it.
 *
 * <p>HDFS's own thread waits for the repair, so HDFS's limit on concurrent commands applies. Every failure is
 * reported as an exception; {@link ReconstructionPool} then lets HDFS do the work itself, unless the blocks
 * of the group are known to contradict each other.
 */
final class Takeover implements ReconstructionPool.Repairer, Closeable {
  private static final long LOOK_MS = 100;
  /**
   * The mean interval between requests for the list of contradictions. Each interval is random, so that
   * DataNodes started together do not ask at the same time.
   */
  private static final long REFRESH_MS = 30_000;

  private final CurrentClient mend;
  private final Duration limit;
  private final Breaker breaker = new Breaker();
  private final Contradictions contradictions;

  Takeover(Configuration conf) {
    this.mend = new CurrentClient(conf);
    this.contradictions = new Contradictions(mend);
    this.limit = MendSettings.repairLimit(conf);
  }

  /**
   * Waits until the DataNode has registered with its NameNode and has a reconstruction pool, then replaces
   * that pool. Afterwards refreshes the list of contradictions until the thread is interrupted.
   */
  void install(DataNode dataNode) throws InterruptedException {
    while (dataNode.getErasureCodingWorker() == null) {
      Thread.sleep(LOOK_MS);
    }
    try {
      ReconstructionPool.install(dataNode, this);
      MendPlugin.LOG.info("Mend executes reconstruction commands");
    } catch (ReflectiveOperationException | RuntimeException problem) {
      MendPlugin.LOG.error(
          "this version of HDFS is not supported; HDFS executes reconstruction commands itself", problem);
      return;
    }
    greet();
    while (true) {
      Thread.sleep(REFRESH_MS / 2 + ThreadLocalRandom.current().nextLong(REFRESH_MS));
      keepUp();
    }
  }

  /**
   * Refreshes the list of contradictions in the background. A failure does not open the breaker; the next
   * command detects the failure itself.
   */
  private void keepUp() {
    try {
      contradictions.refresh();
      breaker.succeeded();
    } catch (IOException | RuntimeException problem) {
      MendPlugin.LOG.debug("cannot fetch the list of contradictory block groups", problem);
    }
  }

  /** Reports connection problems early, and loads classes and opens a connection before the first command. */
  private void greet() {
    try {
      contradictions.refresh();
    } catch (IOException problem) {
      MendPlugin.LOG.warn("cannot reach Mend's coordinator; until it can be reached, HDFS executes commands itself: {}",
          problem.toString());
    }
  }

  @Override
  public Optional<ReconstructionPool.Begun> begin(ReconstructionCommand command, Duration waited)
      throws IOException {
    if (!breaker.allows()) {
      throw new IOException("the coordinator did not answer recent requests");
    }
    // The NameNode gives up its command some time after it has sent it.
    Duration left = limit.minus(waited);
    if (left.isNegative()) {
      throw new IOException("the command has waited for other ones for " + waited.getSeconds() + " s");
    }
    Group group = new Group(command.group(), command.policy());
    command.forEachSource(group::hold);
    Map<Integer, String> homes = new HashMap<>();
    for (int lost : command.lost()) {
      homes.put(group.indexInStripe(lost), command.target(lost).getXferAddr());
    }
    try {
      mend.describe(group.stripe());
      Repair begun = mend.get().repair(group.name(), homes);
      return Optional.of(() -> await(group.name(), begun, left));
    } catch (MendException problem) {
      breaker.failed(problem);
      if (problem.kind() == MendException.Kind.BUSY) {
        MendPlugin.LOG.info("{} is being repaired already: {}", group.name(), problem.getMessage());
        return Optional.empty();
      }
      throw problem;
    }
  }

  @Override
  public boolean isContradictory(ExtendedBlock group) {
    String name = Group.name(group);
    if (!contradictions.has(name) && breaker.allows()) {
      refresh();
    }
    return contradictions.has(name);
  }

  /** Refreshes contradictions; the known contradictions stay valid if the coordinator does not answer. */
  private void refresh() {
    try {
      contradictions.refresh();
    } catch (IOException | RuntimeException problem) { // The caller continues with the known contradictions.
      breaker.failed(problem);
      MendPlugin.LOG.debug("cannot fetch the list of contradictory block groups", problem);
    }
  }

  private void await(String group, Repair begun, Duration left) throws IOException {
    boolean isOver = false;
    try {
      Repair repair = mend.get().await(begun, left);
      breaker.succeeded();
      isOver = repair.hasEnded();
      if (repair.isContradictory()) {
        contradictions.add(group);
      }
      if (!repair.isDone()) {
        throw new IOException(repair + (isOver ? "" : ", and did not finish within " + limit.getSeconds() + " s"));
      }
    } catch (MendException problem) {
      breaker.failed(problem);
      throw problem;
    } finally {
      if (!isOver) {
        cancel(begun);
      }
    }
  }

  /** Cancels a repair, because HDFS is about to rebuild the blocks itself. */
  private void cancel(Repair repair) {
    try {
      mend.get().cancel(repair);
    } catch (IOException problem) {
      MendPlugin.LOG.warn("cannot cancel repair {}", repair.number(), problem);
    }
  }

  @Override
  public void close() {
    mend.close();
  }
}
