package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.junit.jupiter.api.Test;

class ParityRecordTest {
  /** The crate hdfs-raid writes the same text. */
  private static final String TEXT = "1 1073741825.1001.512,..,-2.3.9";

  private static LocatedBlock block(long number, long stamp, long bytes) {
    return new LocatedBlock(new ExtendedBlock("BP-1", number, bytes, stamp), new DatanodeInfo[0]);
  }

  @Test
  void aRecordIsParsedAsMendWritesIt() {
    ParityRecord record = ParityRecord.parse(TEXT);
    assertEquals(3, record.size());
    assertEquals(512, record.blockBytes());
    List<LocatedBlock> blocks =
        List.of(block(1_073_741_825, 1001, 512), block(1_073_741_826, 1002, 512), block(1_073_741_824, 1005, 9));
    assertEquals(blocks, record.find(List.of(blocks.get(2), blocks.get(0), blocks.get(1))));
    assertEquals(0x7017203ccf871af1L, record.fingerprint());
    assertEquals(ParityNote.fingerprint(blocks), record.fingerprint());
    for (String other : List.of("", "1", "1 ", "2 1.1.1", "1 1.1", "1 1.1.1.1", "1 1.x.1", "1 5.5.5,0..")) {
      assertNull(ParityRecord.parse(other), other);
    }
  }

  @Test
  void theParityHasTheLengthOfTheLargestBlockInWholePieces() {
    assertEquals(1024, ParityRecord.parse("1 1.1.9,..700,..512").blockBytes());
  }

  @Test
  void changedBlocksAreNotFound() {
    LocatedBlock same = block(1_073_741_824, 1005, 9);
    List<LocatedBlock> present = List.of(block(1_073_741_825, 1009, 512), block(1_073_741_826, 1002, 511), same);
    assertEquals(Arrays.asList(null, null, same), ParityRecord.parse(TEXT).find(present));
  }

  @Test
  void onlyTheStripesOfTheWantedBlocksAreNeeded() {
    ParityRecord record = ParityRecord.parse("1 1.1.9,..,..,..,..");
    assertEquals(Set.of(1L, 2L), record.beside(Set.of(2L), 2));
    assertEquals(Set.of(1L, 2L, 5L), record.beside(Set.of(1L, 5L, 7L), 2));
  }
}
