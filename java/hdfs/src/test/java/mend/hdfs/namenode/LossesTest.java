package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LossesTest {
  /** A file as HDFS 3.4.3 writes it. */
  private static final List<String> SAVED = List.of(
      "10 files and directories, 5 blocks = 15 total",
      "Live Datanodes: 6",
      "Dead Datanodes: 0",
      "Metasave: Blocks waiting for reconstruction: 2",
      "/a blk_-16_1 (replicas:: blk_-9223372036854775792_1001 (replicas: live: 4 decommissioning and decommissioned: 0"
          + " corrupt: 0 in excess: 0 maintenance mode: 0)  10.0.0.1:9866 :  10.0.0.2:9866(corrupt) :  10.0.0.3:9866"
          + " (block deletions maybe out of date) : ",
      "/plain: blk_1073741825_1002 (replicas: live: 1 decommissioning and decommissioned: 0 corrupt: 1 in excess: 0"
          + " maintenance mode: 0)  10.0.0.1:9866 :  10.0.0.2:9866(corrupt) : ",
      "Metasave: Blocks currently missing: 1",
      "/b: blk_-9223372036854775776_1003 MISSING (replicas: live: 0 decommissioning and decommissioned: 0 corrupt: 2"
          + " in excess: 0 maintenance mode: 0)  10.0.0.4:9866(corrupt) :  10.0.0.5:9866(corrupt) (block deletions maybe"
          + " out of date) : ",
      "Mis-replicated blocks that have been postponed:",
      "Metasave: Blocks being reconstructed: 3",
      "blk_-9223372036854775760_1004 StartTime: 04:12:59 NumReconstructInProgress: 1",
      "blk_-9223372036854775792_1001 StartTime: 04:13:00 NumReconstructInProgress: 1",
      "blk_1073741826_1005 StartTime: 04:13:00 NumReconstructInProgress: 1",
      "Metasave: Blocks 2 waiting deletion from 1 datanodes.",
      "10.0.0.6:9866",
      "blk_-9223372036854775744_1006,blk_1073741829_1009",
      "Corrupt Blocks:",
      "Block=blk_-9223372036854775728_1007\tSize=1\tNode=10.0.0.2:9866",
      "Metasave: Number of datanodes: 6");

  /** Returns what is reported of each group and block. */
  private static Map<String, String> groups(List<String> lines) throws IOException {
    Map<String, String> groups = new HashMap<>();
    Losses.groups(new BufferedReader(new StringReader(String.join("\n", lines))))
        .forEach((group, shortage) -> groups.put(group, shortage.toString()));
    return groups;
  }

  @Test
  void groupsAndBlocksThatLackRedundancyOrAreReconstructedAreRead() throws IOException {
    Map<String, String> expected = Map.of(
        "-9223372036854775792", "4 10.0.0.2:9866",
        "-9223372036854775776", "0 10.0.0.4:9866,10.0.0.5:9866",
        "1073741825", "1 10.0.0.2:9866",
        "-9223372036854775760", "-",
        "1073741826", "-");
    assertEquals(expected, groups(SAVED));
  }

  /** The owner of a file chooses its name. It may contain line breaks, but no colon. */
  @Test
  void namesThatLookLikeOtherLinesChangeNothing() throws IOException {
    String replicas = " (replicas: live: 0 decommissioning and decommissioned: 0 corrupt: 0 in excess: 0"
        + " maintenance mode: 0) ";
    List<String> saved = new ArrayList<>(SAVED);
    saved.addAll(4, List.of(
        "/x", "Metasave: blk_1073741827_1008" + replicas,
        "/y", "blk_-9223372036854775712_1010", "blk_-9223372036854775712_1010 StartTime: blk_1073741828_1011" + replicas));
    Map<String, String> expected = groups(SAVED);
    expected.put("1073741827", "0");
    expected.put("1073741828", "0");
    assertEquals(expected, groups(saved));
  }

  @Test
  void anIncompleteFileIsRefused() {
    assertThrows(IOException.class, () -> groups(SAVED.subList(0, SAVED.size() - 1)));
    assertThrows(IOException.class, () -> groups(List.of()));
  }

  @Test
  void metricsAreFoundByName() throws IOException {
    String metrics = "{ \"beans\" : [ {\n    \"PendingReplicationBlocks\" : 7,\n"
        + "    \"PostponedMisreplicatedBlocks\" : 123456789012\n  } ] }";
    assertEquals(123456789012L, Losses.metric(metrics, List.of("PostponedMisreplicatedBlocks")));
    assertEquals(7, Losses.metric(metrics, List.of("PendingReconstructionBlocks", "PendingReplicationBlocks")));
    assertThrows(IOException.class, () -> Losses.metric(metrics, List.of("MisreplicatedBlocks")));
    assertThrows(IOException.class, () -> Losses.metric("", List.of("PostponedMisreplicatedBlocks")));
  }

  @Test
  void aFileFromAnEarlierTimeIsRefused() throws IOException {
    Losses.checkAge(1_000_000, 999_000, 0);
    Losses.checkAge(1_000_000, 900_000, 80_000); // Writing it took long.
    Losses.checkAge(0, 900_000, 0);
    Losses.checkAge(1_000_000, 0, 0);
    assertThrows(IOException.class, () -> Losses.checkAge(1_000_000, 900_000, 0));
  }
}
