package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.junit.jupiter.api.Test;

class ReconstructionPoolTest {
  private static final String POOL = "BP-1";
  private static final long GROUP = -9223372036854775792L;

  private static DatanodeInfo node(int number) {
    DatanodeID id = new DatanodeID("10.0.0." + number, "node-" + number, "uuid-" + number, 9866, 9864, 9865, 9867);
    return new DatanodeInfo.DatanodeInfoBuilder().setNodeID(id).build();
  }

  /** A command that rebuilds blocks 1 and 4 of five, on DataNodes 11 and 14. */
  private static ReconstructionCommand command(short... targetIndices) {
    ErasureCodingPolicy policy = new ErasureCodingPolicy(new ECSchema("rs", 3, 2), 1 << 20);
    return new ReconstructionCommand(new ExtendedBlock(POOL, GROUP, 3 << 20, 1001), policy, new byte[] {0, 2, 3},
        new DatanodeInfo[] {node(0), node(2), node(3)}, targetIndices, new DatanodeInfo[] {node(11), node(14)});
  }

  /** Whether a DataNode that has the block with this index holds another block than those rebuilt there. */
  private static boolean holdsAnother(String dataNode, int index) {
    return ReconstructionPool.another(command((short) 1, (short) 4), dataNode, (pool, block) -> {
      assertEquals(POOL, pool);
      return block == GROUP + index ? new Block(block) : null;
    }).isPresent();
  }

  @Test
  void onlyTheBlockThatIsRebuiltHereIsNoOther() {
    assertFalse(holdsAnother("uuid-11", 1));
    assertTrue(holdsAnother("uuid-11", 4), "it is rebuilt elsewhere");
    assertTrue(holdsAnother("uuid-14", 1));
    assertTrue(holdsAnother("uuid-11", 0));
    assertFalse(holdsAnother("uuid-11", 5), "the policy has no such block");
    assertFalse(holdsAnother("uuid-11", -1), "a block of the group before");
  }

  @Test
  void aBlockThatCannotBeLookedUpIsPassedOver() {
    assertTrue(ReconstructionPool.another(command((short) 1, (short) 4), "uuid-11", (pool, block) -> {
      if (block == GROUP) {
        throw new IOException("the disk fails");
      }
      return block == GROUP + 2 ? new Block(block) : null;
    }).isPresent());
  }

  /** Whether a DataNode that has a replica of block 1 has already what a command rebuilds. */
  private static boolean isMade(String dataNode, long bytes, long stamp, short... targetIndices) throws IOException {
    return ReconstructionPool.madeAlready(command(targetIndices), dataNode,
        (pool, block) -> block == GROUP + 1 ? new Block(block, bytes, stamp) : null).isPresent();
  }

  @Test
  void aCommandWhoseBlockIsHereAlreadyIsComplete() throws IOException {
    short[] one = {1, 0};
    assertTrue(isMade("uuid-11", 1 << 20, 1001, one));
    assertFalse(isMade("uuid-14", 1 << 20, 1001, one), "it is rebuilt elsewhere");
    assertFalse(isMade("uuid-11", 1 << 20, 1000, one), "it has an older generation stamp");
    assertFalse(isMade("uuid-11", 1000, 1001, one), "it is truncated");
    assertFalse(isMade("uuid-11", 1 << 20, 1001, (short) 1, (short) 4), "another block is missing");
    assertFalse(isMade("uuid-11", 1 << 20, 1001, (short) 4, (short) 0), "another block is missing");
  }

  @Test
  void aSlotIsCountedOnce() {
    AtomicInteger transfers = new AtomicInteger(3);
    Slot slot = new Slot(3, transfers::addAndGet);
    slot.takeAgain();
    assertEquals(3, transfers.get(), "HDFS has counted it");
    slot.giveBack();
    slot.giveBack();
    assertEquals(0, transfers.get());
    slot.takeAgain();
    assertEquals(3, transfers.get(), "HDFS subtracts it after its own work");
  }

  @Test
  void theBlocksToRebuildAreNamed() {
    assertEquals(List.of(1, 4), command((short) 1, (short) 4).lost());
    assertEquals(List.of(1), command((short) 1, (short) 0).lost(), "padded with zeros");
    assertThrows(IllegalStateException.class, () -> command((short) 2));
  }
}
