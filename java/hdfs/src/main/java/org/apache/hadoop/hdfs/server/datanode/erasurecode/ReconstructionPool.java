package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import java.lang.reflect.Field;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stands in for the DataNode's pool of reconstructions: each is offered to somebody else first, and done by HDFS itself if that
 * fails in any way, but for groups whose blocks contradict each other, from which nobody may rebuild.
 *
 * <p>It is in HDFS's package since what a task says is visible there alone. Always true: a task is accounted for once, here or
 * by HDFS, whatever happens.
 */
public final class ReconstructionPool extends ThreadPoolExecutor {
  private static final Logger LOG = LoggerFactory.getLogger(ReconstructionPool.class);
  private static final String FIELD = "stripedReconstructionPool";

  private final DataNode dataNode;
  private final Repairer repairer;

  /** Who is offered a task first. */
  public interface Repairer {
    /**
     * Makes the blocks that are lost, until their DataNodes have reported them.
     *
     * @return whether it made them; not if somebody else is at it
     * @throws Exception if HDFS shall do it itself
     */
    boolean repair(ReconstructionCommand command) throws Exception;

    /** Whether some block of a group is wrong although its checksums hold, so that HDFS would rebuild wrong blocks from it. */
    boolean isContradictory(ExtendedBlock group);
  }

  private ReconstructionPool(ThreadPoolExecutor stock, DataNode dataNode, Repairer repairer) {
    super(stock.getCorePoolSize(), stock.getMaximumPoolSize(), 60, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
        stock.getThreadFactory());
    allowCoreThreadTimeOut(true);
    this.dataNode = dataNode;
    this.repairer = repairer;
  }

  /**
   * Takes the place of the DataNode's pool. What waits in that is done by it; its threads end by themselves.
   *
   * @throws ReflectiveOperationException if this HDFS has no such pool
   */
  public static void install(DataNode dataNode, Repairer repairer) throws ReflectiveOperationException {
    ErasureCodingWorker worker = dataNode.getErasureCodingWorker();
    Field field = ErasureCodingWorker.class.getDeclaredField(FIELD);
    field.setAccessible(true);
    field.set(worker, new ReconstructionPool((ThreadPoolExecutor) field.get(worker), dataNode, repairer));
  }

  @Override
  public Future<?> submit(Runnable task) {
    if (task instanceof StripedBlockReconstructor) {
      return super.submit(() -> offer((StripedBlockReconstructor) task));
    }
    return super.submit(task);
  }

  private void offer(StripedBlockReconstructor task) {
    long startNs = System.nanoTime();
    ReconstructionCommand command;
    boolean made;
    try {
      command = new ReconstructionCommand(task);
      made = repairer.repair(command);
    } catch (Throwable problem) { // Also what another version of HDFS lacks.
      if (repairer.isContradictory(task.getBlockGroup())) {
        LOG.error("{} is not reconstructed, as its blocks contradict each other; mend status says what to do: {}",
            task.getBlockGroup(), problem.toString());
        endTransfer(task);
        dataNode.getMetrics().incrECFailedReconstructionTasks();
        return;
      }
      LOG.warn("Mend did not reconstruct {}; HDFS does it itself: {}", task.getBlockGroup(), problem.toString());
      LOG.debug("why", problem);
      task.run();
      return;
    }
    account(task, command, made);
    if (made) {
      long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNs);
      LOG.info("Mend reconstructed blocks {} of {} in {} ms", command.lost(), task.getBlockGroup(), ms);
    }
  }

  /** What HDFS does at the end of a task of its own. */
  private void account(StripedBlockReconstructor task, ReconstructionCommand command, boolean made) {
    endTransfer(task);
    if (!made) {
      return;
    }
    // Helpers read as many blocks as HDFS would have, none of them here: a target has no other block of the group.
    long read = command.bytesToRead();
    DataNodeMetrics metrics = dataNode.getMetrics();
    metrics.incrECReconstructionTasks();
    metrics.incrECReconstructionBytesRead(read);
    metrics.incrECReconstructionRemoteBytesRead(read);
    metrics.incrECReconstructionBytesWritten(command.bytesToWrite());
  }

  private void endTransfer(StripedBlockReconstructor task) {
    float weight = task.getErasureCodingWorker().getXmitWeight();
    dataNode.decrementXmitsInProgress(Math.max((int) (task.getXmits() * weight), 1));
  }
}
