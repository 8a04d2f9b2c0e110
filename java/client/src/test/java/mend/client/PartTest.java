package mend.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests a part with senders that send wrong data, stop and return. The helpers of a real test cluster cannot
 * be made to do that.
 */
class PartTest {
  private static final int SLICE = 4096;
  private static final int BYTES = 2 * SLICE + 100;

  private final BlockingQueue<String> reports = new LinkedBlockingQueue<>();
  private final byte[][] streams = new byte[2][BYTES];
  private final Delivery delivery = new Delivery(0, BYTES);
  private final Edges edges = new Edges(null);
  private ServerSocket listener;
  private Part part;

  @BeforeEach
  void begin() throws IOException {
    listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
    listener.setSoTimeout(60_000); // A test fails rather than hang.
    Random random = new Random(3);
    random.nextBytes(streams[0]);
    random.nextBytes(streams[1]);
    part = new Part(7, delivery, new Part.Surroundings() {
      @Override
      public void report(long job, long epoch, Map<String, Object> report) {
        reports.add(epoch + " " + new String(Json.write(report), StandardCharsets.UTF_8));
      }

      @Override
      public void execute(Runnable inflow) {
        Thread thread = new Thread(inflow);
        thread.setDaemon(true);
        thread.start();
      }

      @Override
      public Edges edges() {
        return edges;
      }

      @Override
      public boolean allowsPlainEdges() {
        return false;
      }
    });
  }

  @AfterEach
  void end() throws IOException {
    part.end();
    edges.close();
    listener.close();
  }

  /** Returns a plan with two senders, whose streams are combined with the coefficients 1 and 3. */
  private Assignment plan(int epoch, String slices) throws MendException {
    return plan(epoch, slices, "pipelined");
  }

  private Assignment plan(int epoch, String slices, String pacing) throws MendException {
    String at = "127.0.0.1:" + listener.getLocalPort();
    String text = ("{'job':7,'epoch':" + epoch + ",'tag':1,'geometry':{'window':{'start':0,'end':" + BYTES
        + "},'slice_bytes':4096},'slices':" + slices + ",'dealing':[1],'pacing':'" + pacing
        + "','chunking':{'sub_blocks':1},'lanes':[{'node':9,"
        + "'reads':[],'receives':[{'from':0,'streams':1},{'from':1,'streams':1}],'sends':[],'delivers':[{'output':0,"
        + "'combination':[{'r':[0,0,1]},{'r':[1,0,3]}]}]}],'inlets':["
        + "{'from':0,'dial':'" + at + "','key':'00000000000000000000000000000000'},"
        + "{'from':1,'dial':'" + at + "','key':'01000000000000000000000000000000'}],"
        + "'outlets':[],'sinks':[],'stall_ms':300}").replace('\'', '"');
    return new Assignment(Json.parseObject(text.getBytes(StandardCharsets.UTF_8)));
  }

  private byte[] sum() {
    byte[] sum = streams[0].clone();
    Gf.mulAdd(3, streams[1], sum, 0, BYTES);
    return sum;
  }

  /**
   * Accepts the connection of an edge. Stores the first byte of the edge's key, which identifies the edge, in
   * {@code whose[0]}.
   */
  private Socket accept(int[] whose) throws IOException {
    Socket socket = listener.accept();
    socket.setSoTimeout(60_000);
    byte[] greeting = new DataInputStream(socket.getInputStream()).readNBytes(40);
    CRC32C checksum = new CRC32C();
    checksum.update(greeting, 0, 36);
    assertEquals((int) checksum.getValue(), ByteBuffer.wrap(greeting).getInt(36));
    assertEquals(7, ByteBuffer.wrap(greeting).getLong(8));
    whose[0] = greeting[20];
    return socket;
  }

  private Socket[] acceptBoth() throws IOException {
    Socket[] sockets = new Socket[2];
    for (int edge = 0; edge < 2; edge++) {
      int[] whose = new int[1];
      Socket socket = accept(whose);
      sockets[whose[0]] = socket;
    }
    return sockets;
  }

  private byte[] frame(int sender, int slice) {
    int bytes = Math.min(SLICE, BYTES - slice * SLICE);
    ByteBuffer frame = ByteBuffer.allocate(24 + bytes);
    frame.put((byte) 1).put(new byte[3]).putShort((short) 0).putShort((short) 0).putInt(slice).putInt(bytes);
    CRC32C checksum = new CRC32C();
    checksum.update(frame.array(), 0, 16);
    checksum.update(streams[sender], slice * SLICE, bytes);
    frame.putInt((int) checksum.getValue()).putInt(0).put(streams[sender], slice * SLICE, bytes);
    return frame.array();
  }

  private void send(Socket socket, byte[] frame) throws IOException {
    socket.getOutputStream().write(frame);
  }

  private String report() throws InterruptedException {
    String report = reports.poll(20, TimeUnit.SECONDS);
    assertTrue(report != null, "a report is due");
    return report;
  }

  @Test
  void whatComesIsSummedAndHandedOutInOrder() throws Exception {
    part.assign(plan(1, "[[0,3]]"));
    Socket[] senders = acceptBoth();
    send(senders[0], frame(0, 0));
    send(senders[0], frame(0, 1));
    send(senders[1], frame(1, 0));
    assertEquals(SLICE, delivery.await(0, 20_000));
    for (int slice = 1; slice < 3; slice++) {
      send(senders[1], frame(1, slice));
    }
    assertEquals(2 * SLICE, delivery.await(SLICE, 20_000));
    send(senders[0], frame(0, 2));
    assertEquals(BYTES, delivery.await(2 * SLICE, 20_000));
    assertEquals("1 {\"what\":\"delivered\"}", report());
    assertArrayEquals(sum(), delivery.bytes());
  }

  private void awaitCredit(Socket sender, int kind, int slice) throws IOException {
    byte[] credit = new DataInputStream(sender.getInputStream()).readNBytes(12);
    CRC32C checksum = new CRC32C();
    checksum.update(credit, 0, 8);
    ByteBuffer expected = ByteBuffer.allocate(12).put((byte) kind).put(new byte[3]).putInt(slice);
    assertArrayEquals(expected.putInt((int) checksum.getValue()).array(), credit);
  }

  @Test
  void sendersOfSerialPlansGetCredits() throws Exception {
    part.assign(plan(1, "[[0,3]]", "serial"));
    Socket[] senders = acceptBoth();
    for (int slice = 0; slice < 3; slice++) {
      for (int sender = 0; sender < 2; sender++) {
        awaitCredit(senders[sender], 2, slice);
        send(senders[sender], frame(sender, slice));
        awaitCredit(senders[sender], 3, slice);
      }
    }
    assertEquals("1 {\"what\":\"delivered\"}", report());
    assertArrayEquals(sum(), delivery.bytes());
    assertEquals(-1, senders[0].getInputStream().read(), "the connection is not used again");
  }

  @Test
  void aLyingSenderIsNamedAndNothingOfItIsDelivered() throws Exception {
    for (int at : new int[] {0, 5, 7, 11, 15, 19, 24, 4000}) {
      part.assign(plan(at, "[[0,3]]"));
      Socket[] senders = acceptBoth();
      send(senders[0], frame(0, 0));
      byte[] lie = frame(1, 0);
      lie[at] ^= 0x20;
      send(senders[1], lie);
      assertTrue(report().startsWith(at + " {\"what\":\"bad-frame\",\"from\":1,"), "byte " + at);
      assertTrue(delivery.delivered().isEmpty());
      part.stop(at);
      assertEquals(at + " {\"what\":\"stopped\",\"delivered\":[]}", report());
    }
  }

  @Test
  void aPlanAfterOneThatBrokeSumsAnewWhatWasHalfDone() throws Exception {
    part.assign(plan(1, "[[0,3]]"));
    Socket[] senders = acceptBoth();
    send(senders[0], frame(0, 0));
    send(senders[0], frame(0, 1));
    send(senders[1], frame(1, 0));
    delivery.await(0, 20_000);
    senders[1].close();
    assertTrue(report().startsWith("1 {\"what\":\"closed\",\"peer\":1,"));
    part.explain(1);
    assertEquals("1 {\"what\":\"at-rest\"}", report());
    part.stop(1);
    assertEquals("1 {\"what\":\"stopped\",\"delivered\":[[0,1]]}", report());
    part.assign(plan(2, "[[1,3]]"));
    Socket[] others = acceptBoth();
    for (int slice = 1; slice < 3; slice++) {
      send(others[0], frame(0, slice));
      send(others[1], frame(1, slice));
    }
    assertEquals("2 {\"what\":\"delivered\"}", report());
    assertArrayEquals(sum(), delivery.bytes());
    assertTrue(delivery.isComplete());
  }

  @Test
  void aSilentSenderIsComplainedOf() throws Exception {
    part.assign(plan(1, "[[0,3]]"));
    Socket[] senders = acceptBoth();
    for (int slice = 0; slice < 3; slice++) {
      send(senders[0], frame(0, slice));
    }
    String said;
    do {
      Thread.sleep(20);
      part.tick();
      said = reports.poll();
    } while (said == null);
    assertTrue(said.startsWith("1 {\"what\":\"waiting\",\"receive\":[{\"node\":1,\"slice\":0,"), said);
    assertTrue(said.endsWith("}],\"send\":[]}"), said);
  }

  @Test
  void aConnectionServesTheNextPlanUnlessItWasClosedMeanwhile() throws Exception {
    part.assign(plan(1, "[[0,1]]"));
    Socket[] senders = acceptBoth();
    send(senders[0], frame(0, 0));
    send(senders[1], frame(1, 0));
    assertEquals("1 {\"what\":\"delivered\"}", report());
    Thread.sleep(200); // Wait until both connections are idle.
    senders[1].close();
    part.assign(plan(2, "[[1,2]]"));
    // Both edges have the same address, so either may get the remaining connection.
    int first = new DataInputStream(senders[0].getInputStream()).readNBytes(40)[20];
    int[] whose = new int[1];
    // Until the slice is sent, the other edge cannot get this connection after the first one.
    Socket fresh = accept(whose);
    assertEquals(1 - first, whose[0]);
    send(senders[0], frame(first, 1));
    send(fresh, frame(whose[0], 1));
    assertEquals("2 {\"what\":\"delivered\"}", report());
    assertArrayEquals(Arrays.copyOf(sum(), 2 * SLICE), Arrays.copyOf(delivery.bytes(), 2 * SLICE));
  }

  @Test
  void aPlanOfAnotherWindowIsRefused() throws Exception {
    Delivery shorter = new Delivery(0, BYTES - 1);
    MendException problem = assertThrows(MendException.class, () -> shorter.begin(plan(3, "[[0,3]]")));
    assertEquals(MendException.Kind.PROTOCOL, problem.kind());
  }
}
