package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import java.io.IOException;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import mend.hdfs.HeldReplicas;
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
 * <p>A task's {@link Slot} is returned as soon as the repairer has taken the task over. The NameNode then sends more
 * commands at the next heartbeat. The task keeps its thread until its end. So at most as many tasks are taken over as
 * the pool has threads; further ones wait with their slots, and the NameNode then sends none.
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
     * Begins to rebuild the lost blocks.
     *
     * @param waited the time since the NameNode's command arrived
     * @return the repair; empty if another repair is already rebuilding the blocks
     * @throws Exception if HDFS must do the work itself
     */
    Optional<Begun> begin(ReconstructionCommand command, Duration waited) throws Exception;

    /**
     * Whether the blocks of a group contradict each other: some block is wrong although its checksums match.
     * HDFS would rebuild wrong blocks from them.
     */
    boolean isContradictory(ExtendedBlock group);
  }

  /** A repair that has begun. */
  public interface Begun {
    /**
     * Waits until the DataNodes of the rebuilt blocks have reported them.
     *
     * @throws Exception if HDFS must do the work itself
     */
    void await() throws Exception;
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
      long submittedNs = System.nanoTime();
      return super.submit(() -> offer((StripedBlockReconstructor) task, submittedNs));
    }
    return super.submit(task);
  }

  private void offer(StripedBlockReconstructor task, long submittedNs) {
    Slot slot = slot(task);
    ReconstructionCommand command = null;
    try {
      command = ReconstructionCommand.of(task);
      if (tellIfMade(command)) {
        slot.giveBack();
        return;
      }
      Optional<Begun> begun = repairer.begin(command, Duration.ofNanos(System.nanoTime() - submittedNs));
      slot.giveBack();
      if (begun.isPresent()) {
        begun.get().await();
        count(command);
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - submittedNs);
        LOG.info("Mend reconstructed blocks {} of {} in {} ms", command.lost(), task.getBlockGroup(), ms);
      }
    } catch (Throwable problem) { // Includes errors due to another HDFS version.
      fallBack(task, command, slot, problem);
    }
  }

  /** Has HDFS do the work, unless that would do harm. */
  private void fallBack(StripedBlockReconstructor task, ReconstructionCommand command, Slot slot, Throwable problem) {
    if (repairer.isContradictory(task.getBlockGroup())) {
      LOG.error(
          "{} is not reconstructed, because its blocks contradict each other; see mend status for the next step: {}",
          task.getBlockGroup(), problem.toString());
      fail(slot);
      return;
    }
    Optional<Block> other =
        command == null ? Optional.empty() : another(command, dataNode.getDatanodeUuid(), replicas());
    if (other.isPresent()) {
      LOG.warn("{} is not reconstructed, because this DataNode has {} of the group by now: {}", task.getBlockGroup(),
          other.get(), problem.toString());
      fail(slot);
      tell(command.group().getBlockPoolId(), other.get());
      return;
    }
    LOG.warn("Mend did not reconstruct {}; HDFS reconstructs it itself: {}", task.getBlockGroup(),
        problem.toString());
    LOG.debug("why", problem);
    slot.takeAgain();
    task.run();
  }

  private void fail(Slot slot) {
    slot.giveBack();
    dataNode.getMetrics().incrECFailedReconstructionTasks();
  }

  /** Tells the NameNode of the block that a command rebuilds, if it is here already. Returns whether it is. */
  private boolean tellIfMade(ReconstructionCommand command) {
    try {
      Optional<Block> made = madeAlready(command, dataNode.getDatanodeUuid(), replicas());
      if (made.isPresent()) {
        HeldReplicas.tell(dataNode, command.group().getBlockPoolId(), made.get().getBlockId());
        LOG.info("{} of {} is here already, and the NameNode is told of it", made.get(), command.group());
        return true;
      }
    } catch (IOException problem) {
      LOG.debug("cannot look for the block of {} that is to be rebuilt", command.group(), problem);
    }
    return false;
  }

  /**
   * Tells the NameNode of a block that it does not list here, as it has chosen this DataNode for another block of the
   * group. It then lists the block or has it deleted. Otherwise this DataNode would refuse blocks of the group for
   * hours.
   */
  private void tell(String pool, Block block) {
    try {
      HeldReplicas.tell(dataNode, pool, block.getBlockId());
    } catch (Throwable problem) { // Includes errors due to another HDFS version.
      LOG.debug("cannot tell the NameNode of {}", block, problem);
    }
  }

  private Replicas replicas() {
    return dataNode.getFSDataset()::getStoredBlock;
  }

  /** Returns a replica that a DataNode has, or null. */
  interface Replicas {
    Block stored(String pool, long block) throws IOException;
  }

  /**
   * Returns the block that a command rebuilds, if it is the only one, and this DataNode already has it: it was rebuilt
   * here, but the NameNode has not listed it.
   */
  static Optional<Block> madeAlready(ReconstructionCommand command, String dataNode, Replicas replicas)
      throws IOException {
    List<Integer> lost = command.lost();
    if (lost.size() != 1 || !command.target(lost.get(0)).getDatanodeUuid().equals(dataNode)) {
      return Optional.empty();
    }
    int index = lost.get(0);
    ExtendedBlock group = command.group();
    Block stored = replicas.stored(group.getBlockPoolId(), group.getBlockId() + index);
    boolean isIt = stored != null && stored.getGenerationStamp() == group.getGenerationStamp()
        && stored.getNumBytes() == command.blockBytes(index);
    return isIt ? Optional.of(stored) : Optional.empty();
  }

  /**
   * Returns a block of the group that a DataNode has, and that the command does not rebuild there. The NameNode lists
   * only one block of a group for each DataNode, so another one would never be listed, and never be deleted.
   */
  static Optional<Block> another(ReconstructionCommand command, String dataNode, Replicas replicas) {
    ExtendedBlock group = command.group();
    int blocks = command.policy().getNumDataUnits() + command.policy().getNumParityUnits();
    for (int index = 0; index < blocks; index++) {
      try {
        boolean isMadeHere =
            command.lost().contains(index) && command.target(index).getDatanodeUuid().equals(dataNode);
        Block stored = isMadeHere ? null : replicas.stored(group.getBlockPoolId(), group.getBlockId() + index);
        if (stored != null) {
          return Optional.of(stored);
        }
      } catch (IOException problem) {
        LOG.debug("cannot look for block {} of {}", index, group, problem);
      }
    }
    return Optional.empty();
  }

  /** Updates the counters in the same way as HDFS after its own tasks. */
  private void count(ReconstructionCommand command) {
    // Helpers read as many blocks as HDFS would have, none of them locally: a target holds no other block of
    // the group.
    long read = command.bytesToRead();
    DataNodeMetrics metrics = dataNode.getMetrics();
    metrics.incrECReconstructionTasks();
    metrics.incrECReconstructionBytesRead(read);
    metrics.incrECReconstructionRemoteBytesRead(read);
    metrics.incrECReconstructionBytesWritten(command.bytesToWrite());
  }

  private Slot slot(StripedBlockReconstructor task) {
    float weight = task.getErasureCodingWorker().getXmitWeight();
    return new Slot(Math.max((int) (task.getXmits() * weight), 1), change -> {
      if (change < 0) {
        dataNode.decrementXmitsInProgress(-change);
      } else {
        dataNode.incrementXmitsInProcess(change);
      }
    });
  }
}
