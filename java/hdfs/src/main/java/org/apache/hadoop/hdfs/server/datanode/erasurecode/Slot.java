package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import java.util.function.IntConsumer;

/**
 * The share of a task in the DataNode's {@code XmitsInProgress}, by which the NameNode limits its commands. HDFS adds
 * the share when it submits the task, and subtracts it when it has run the task.
 */
final class Slot {
  private final int transfers;
  private final IntConsumer counter;
  private boolean isHeld = true;

  /** {@code counter} adds a number to {@code XmitsInProgress}. */
  Slot(int transfers, IntConsumer counter) {
    this.transfers = transfers;
    this.counter = counter;
  }

  /** Returns the slot. The NameNode then sends further commands. Does nothing if it was returned before. */
  void giveBack() {
    if (isHeld) {
      isHeld = false;
      counter.accept(-transfers);
    }
  }

  /** Takes the slot again, because HDFS is about to run the task. */
  void takeAgain() {
    if (!isHeld) {
      isHeld = true;
      counter.accept(transfers);
    }
  }
}
