package mend.hdfs;

import static mend.hdfs.RaidedFileTest.BLOCK;
import static mend.hdfs.RaidedFileTest.CODE;
import static mend.hdfs.RaidedFileTest.MODIFIED;
import static mend.hdfs.RaidedFileTest.PARITY;
import static mend.hdfs.RaidedFileTest.SOURCE;
import static mend.hdfs.RaidedFileTest.block;
import static mend.hdfs.RaidedFileTest.file;
import static mend.hdfs.RaidedFileTest.node;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.junit.jupiter.api.Test;

class RaidDecoderTest {
  private static final LocatedBlock LOST = block(4, 104, 40);

  /** Blocks of zeros; records what is asked. */
  private static final class Fake implements RaidDecoder.Access {
    private final List<String> asked = new ArrayList<>();
    private final Set<DatanodeInfo> dead = new HashSet<>();
    private final RaidedFile again;
    private DatanodeInfo failing;

    Fake(RaidedFile again) {
      this.again = again;
    }

    @Override
    public RaidedFile lookAgain() {
      asked.add("look");
      return again;
    }

    @Override
    public boolean isDead(DatanodeInfo node) {
      return dead.contains(node);
    }

    @Override
    public byte[] read(LocatedBlock block, DatanodeInfo holder, long from, int bytes) {
      asked.add("read " + block.getBlock().getBlockId());
      if (holder.equals(failing)) {
        dead.add(holder);
        return null;
      }
      return new byte[bytes];
    }

    byte[] decode() throws IOException {
      return RaidDecoder.decode(RaidedFile.of(SOURCE, PARITY, null, CODE), LOST, 0, 10, this);
    }
  }

  @Test
  void theFileIsLookedUpAgainAfterItsBlocksWereRead() throws IOException {
    Fake fake = new Fake(RaidedFile.of(SOURCE, PARITY, null, CODE));
    assertArrayEquals(new byte[10], fake.decode());
    assertEquals(List.of("read 103", "read 202", "look"), fake.asked);
  }

  @Test
  void anotherBlockReplacesOneThatCannotBeRead() throws IOException {
    Fake fake = new Fake(RaidedFile.of(SOURCE, PARITY, null, CODE));
    fake.failing = node(3);
    assertArrayEquals(new byte[10], fake.decode());
    assertEquals(List.of("read 103", "read 202", "read 103", "read 203", "look"), fake.asked);
  }

  /** DataNodes serve newer replicas than they were asked for, so the bytes may be of such. */
  @Test
  void bytesAreDiscardedIfABlockHasChanged() {
    HdfsLocatedFileStatus rewritten = file(100, 4 * BLOCK + 40, MODIFIED, false);
    rewritten.getLocatedBlocks().get(3).getBlock().setGenerationStamp(2000);
    HdfsLocatedFileStatus shorter = file(100, 4 * BLOCK + 39, MODIFIED, false);
    HdfsLocatedFileStatus otherParity = file(200, 4 * BLOCK, MODIFIED, false);
    otherParity.getLocatedBlocks().get(2).getBlock().setGenerationStamp(2000);
    for (RaidedFile again : new RaidedFile[] {
        RaidedFile.of(rewritten, PARITY, null, CODE), RaidedFile.of(shorter, PARITY, null, CODE),
        RaidedFile.of(SOURCE, otherParity, null, CODE),
        RaidedFile.of(SOURCE, file(300, 4 * BLOCK, MODIFIED, false), null, CODE), null}) {
      assertThrows(IOException.class, () -> new Fake(again).decode());
    }
  }
}
