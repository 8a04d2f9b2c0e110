package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.inotify.Event;
import org.apache.hadoop.hdfs.inotify.Event.MetadataUpdateEvent.MetadataType;
import org.apache.hadoop.hdfs.inotify.EventBatch;
import org.apache.hadoop.hdfs.inotify.EventBatchList;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.junit.jupiter.api.Test;

class EditsTest {
  /** Each answer of this NameNode contains one transaction with these events, and there is always another one. */
  private static String editsOfABusyNameNode(long first, Event... events) throws Exception {
    ClientProtocol namenode = (ClientProtocol) Proxy.newProxyInstance(
        ClientProtocol.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, (proxy, method, arguments) -> {
          if (method.getName().equals("getEditsFromTxid")) {
            long from = (Long) arguments[0];
            return new EventBatchList(List.of(new EventBatch(from, events)), from, from, from + 2);
          }
          throw new UnsupportedOperationException(method.getName());
        });
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    Answers.Lines lines = new Answers.Lines(new Answers(new PrintStream(bytes), null, null), "1");
    new Edits(new DFSClient(null, namenode, new Configuration(), null), lines).since(first);
    lines.flush();
    return bytes.toString(StandardCharsets.UTF_8);
  }

  @Test
  void anAnswerEndsWhereTheLogEndedWhenItBegan() {
    assertTimeoutPreemptively(Duration.ofSeconds(30), () -> assertEquals("1 e 10\n", editsOfABusyNameNode(7)));
  }

  private static Event update(MetadataType what, long modified) {
    return new Event.MetadataUpdateEvent.Builder().path("/" + what).metadataType(what).mtime(modified).build();
  }

  /** A note or another owner makes parity valid, and lost blocks of its file are then repaired. */
  @Test
  void changesThatMakeParityValidAreReported() throws Exception {
    List<MetadataType> heeded =
        List.of(MetadataType.TIMES, MetadataType.REPLICATION, MetadataType.OWNER, MetadataType.XATTRS);
    for (MetadataType what : heeded) {
      String line = "1 z %2F" + what + "\n";
      assertEquals(line.repeat(3) + "1 e 10\n", editsOfABusyNameNode(7, update(what, 5)));
    }
    for (MetadataType what : List.of(MetadataType.PERMS, MetadataType.ACLS)) {
      assertEquals("1 e 10\n", editsOfABusyNameNode(7, update(what, 5)));
    }
    assertEquals("1 e 10\n", editsOfABusyNameNode(7, update(MetadataType.TIMES, -1)), "a time of access");
  }
}
