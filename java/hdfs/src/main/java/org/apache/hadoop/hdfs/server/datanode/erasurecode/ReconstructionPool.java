package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Replaces the DataNode's reconstruction pool. Each task is offered to a {@link Repairer} first and falls
 * back to HDFS if that fails. Groups whose blocks contradict each other are not rebuilt.
 *
 * <p>It is in HDFS's package because a task's details are only accessible there. Invariant: every task is
 * accounted for exactly once, here or by HDFS.
 */
public final class ReconstructionPool extends ThreadPoolExecutor {
  private static final Logger LOG = LoggerFactory.getLogger(ReconstructionPool.class);
  private static final String FIELD = "stripedReconstructionPool";

  private final DataNode dataNode;
  private final Repairer repairer;

  /** Does the work of a task instead of HDFS; HDFS does the work only if this fails. */
  public interface Repairer {
    /**
     * Rebuilds the lost blocks, and waits until their DataNodes have reported them.
     *
     * @return whether it rebuilt the blocks; false if another repair is already rebuilding them
     * @throws Exception if HDFS must do the work itself
     */
    boolean repair(ReconstructionCommand command) throws Exception;

    /**
     * Whether the blocks of a group contradict each other: some block is wrong although its checksums match.
     * HDFS would rebuild wrong blocks from them.
     */
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
   * Replaces the DataNode's pool. The old pool completes its queued tasks, and its threads end afterwards.
   *
   * @throws ReflectiveOperationException if this HDFS version has no such pool
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
    ReconstructionCommand command = null;
    boolean made;
    try {
      command = ReconstructionCommand.of(task);
      made = repairer.repair(command);
    } catch (Throwable problem) { // Includes errors due to another HDFS version.
      if (repairer.isContradictory(task.getBlockGroup())) {
        LOG.error(
            "{} is not reconstructed, because its blocks contradict each other; see mend status for the next step: {}",
            task.getBlockGroup(), problem.toString());
        endTransfer(task);
        dataNode.getMetrics().incrECFailedReconstructionTasks();
        return;
      }
      if (command != null
          && holdsAnother(command, dataNode.getDatanodeUuid(), dataNode.getFSDataset()::getStoredBlock)) {
        LOG.warn("{} is not reconstructed, because this DataNode has another block of the group by now: {}",
            task.getBlockGroup(), problem.toString());
        endTransfer(task);
        dataNode.getMetrics().incrECFailedReconstructionTasks();
        return;
      }
      LOG.warn("Mend did not reconstruct {}; HDFS reconstructs it itself: {}", task.getBlockGroup(),
          problem.toString());
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

  /** Returns a replica that a DataNode has, or null. */
  interface Replicas {
    Block stored(String pool, long block) throws IOException;
  }

  /**
   * Whether a DataNode has a block of the group that the command does not rebuild there. The NameNode lists only
   * one block of a group for each storage, so another one would never be listed, and never be deleted.
   */
  static boolean holdsAnother(ReconstructionCommand command, String dataNode, Replicas replicas) {
    ExtendedBlock group = command.group();
    int blocks = command.policy().getNumDataUnits() + command.policy().getNumParityUnits();
    for (int index = 0; index < blocks; index++) {
      try {
        boolean isMadeHere =
            command.lost().contains(index) && command.target(index).getDatanodeUuid().equals(dataNode);
        if (!isMadeHere && replicas.stored(group.getBlockPoolId(), group.getBlockId() + index) != null) {
          return true;
        }
      } catch (IOException problem) {
        LOG.debug("cannot look for block {} of {}", index, group, problem);
      }
    }
    return false;
  }

  /** Updates the counters in the same way as HDFS after its own tasks. */
  private void account(StripedBlockReconstructor task, ReconstructionCommand command, boolean made) {
    endTransfer(task);
    if (!made) {
      return;
    }
    // Helpers read as many blocks as HDFS would have, none of them locally: a target holds no other block of
    // the group.
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
