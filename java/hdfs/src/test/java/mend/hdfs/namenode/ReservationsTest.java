package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.junit.jupiter.api.Test;

class ReservationsTest {
  private static final long BLOCK_BYTES = 1 << 20;
  private static final String PATH = "/tmp/raidrs/f/.mend-1-2-3/0-0";

  private final ByteArrayOutputStream output = new ByteArrayOutputStream();
  private final Answers answers = new Answers(new PrintStream(output, true, StandardCharsets.UTF_8), null, null);
  private final Answers.Lines lines = new Answers.Lines(answers, "7");
  /** The NameNode's answers to {@code complete}; afterwards it is true. */
  private final List<Boolean> completed = new ArrayList<>();
  private final List<String> calls = new ArrayList<>();
  private boolean isOpen = true;

  private static LocatedBlock located(String address, long number, long stamp, long bytes) {
    DatanodeID id = new DatanodeID(address, "host", "uuid", 9866, 0, 0, 0);
    DatanodeInfo[] nodes = {new DatanodeInfo.DatanodeInfoBuilder().setNodeID(id).build()};
    return new LocatedBlock(new ExtendedBlock("BP-1", number, bytes, stamp), nodes);
  }

  /** A NameNode that allocates every block on this DataNode. */
  private Reservations reservations(String address) {
    ClientProtocol namenode = (ClientProtocol) Proxy.newProxyInstance(getClass().getClassLoader(),
        new Class<?>[] {ClientProtocol.class}, (proxy, method, words) -> {
          switch (method.getName()) {
            case "create":
              calls.add("create " + words[0] + " for " + words[2] + " with parents " + words[4] + " × " + words[5]);
              return file();
            case "addBlock":
              calls.add("addBlock " + words[0] + " for " + words[1] + " at " + String.join(",", (String[]) words[5]));
              return located(address, 90, 1009, 0);
            case "getBlockLocations":
              LocatedBlock last = located(address, 90, 1009, isOpen ? 0 : BLOCK_BYTES);
              return new LocatedBlocks(0, isOpen, List.of(), last, !isOpen, null, null);
            case "getFileInfo":
              return file();
            case "complete":
              ExtendedBlock block = (ExtendedBlock) words[2];
              calls.add("complete " + words[0] + " for " + words[1] + " with " + block.getBlockId() + "_"
                  + block.getGenerationStamp() + " of " + block.getNumBytes() + ", inode " + words[3]);
              return completed.isEmpty() || completed.remove(0);
            default:
              throw new UnsupportedOperationException(method.getName());
          }
        });
    return new Reservations(namenode, lines, BLOCK_BYTES);
  }

  private static HdfsFileStatus file() {
    return new HdfsFileStatus.Builder().fileId(17).build();
  }

  private String said() {
    lines.flush();
    return output.toString(StandardCharsets.UTF_8);
  }

  @Test
  void aBlockIsAllocatedAtItsDataNodeForAClientNamedAfterTheFile() throws IOException {
    reservations("10.0.0.5").reserve(PATH, "10.0.0.5:9866");
    assertEquals("7 A " + Survey.encoded(PATH) + " 90 1009 plain\n", said());
    assertEquals(List.of("create " + PATH + " for mend-" + PATH + " with parents false × 1",
        "addBlock " + PATH + " for mend-" + PATH + " at 10.0.0.5:9866"), calls);
  }

  @Test
  void aBlockThatHdfsAllocatesElsewhereIsRefused() {
    Changes.ChangedException problem = assertThrows(Changes.ChangedException.class,
        () -> reservations("10.0.0.6").reserve(PATH, "10.0.0.5:9866"));
    assertTrue(problem.getMessage().contains("10.0.0.6:9866 instead of 10.0.0.5:9866"), problem.getMessage());
    assertEquals("", said());
  }

  @Test
  void aFileIsCompletedWithTheWholeBlockOnceItIsReported() throws IOException {
    completed.addAll(List.of(false, false));
    reservations("10.0.0.5").complete(PATH, 90, 1009);
    String call = "complete " + PATH + " for mend-" + PATH + " with 90_1009 of " + BLOCK_BYTES + ", inode 17";
    assertEquals(List.of(call, call, call), calls);
  }

  @Test
  void aCompleteFileStaysAsItIs() throws IOException {
    isOpen = false;
    reservations("10.0.0.5").complete(PATH, 90, 1009);
    assertEquals(List.of(), calls);
  }

  @Test
  void aFileWithAnotherBlockIsNotCompleted() {
    assertThrows(Changes.ChangedException.class, () -> reservations("10.0.0.5").complete(PATH, 90, 1010));
    assertThrows(Changes.ChangedException.class, () -> reservations("10.0.0.5").complete(PATH, 91, 1009));
    assertEquals(List.of(), calls);
  }
}
