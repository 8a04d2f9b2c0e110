package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class AssignmentTest {
  private static final String PLAN = "{'job':1,'epoch':2,'class':'read','tag':3,"
      + "'geometry':{'window':{'start':100,'end':10100},'slice_bytes':4096},'slices':[[0,1],[2,3]],'dealing':[1,1],"
      + "'pacing':'pipelined','chunking':{'block_bytes':16384,'chunk_bytes':16384,'sub_blocks':1},"
      + "'lanes':[{'node':4,'reads':[],'receives':[{'from':0,'streams':1},{'from':2,'streams':2}],'sends':[],"
      + "'delivers':[{'output':0,'combination':[{'r':[0,0,143]},{'r':[2,1,3]}]}]},null],"
      + "'locals':[],'inlets':[{'from':0,'dial':'127.0.0.1:7410','key':'2566a61cc55c3ca875dbb4cc41c0deb7'},"
      + "{'from':2,'dial':'[::1]:7412','key':'89f8e7bf881836381ecc3686b60ee3b8','tls_name':'h2.helper.mend'}],"
      + "'outlets':[],'outputs':[{'block':1,'sub':0}],'sinks':[],'stall_ms':1500}";

  private static Assignment read(String plan) throws MendException {
    return new Assignment(Json.parseObject(plan.replace('\'', '"').getBytes(StandardCharsets.UTF_8)));
  }

  @Test
  void aPlanIsRead() throws MendException {
    Assignment plan = read(PLAN);
    assertEquals(3, plan.count());
    assertEquals("{0, 2}", plan.slices.toString());
    assertEquals(10_000 - 2 * 4096, plan.bytes(2));
    Assignment.Task task = plan.taskOf(0);
    assertEquals(3, task.streams());
    assertEquals(2, task.streamsFrom(2));
    assertEquals(143, task.coefficient(0, 0));
    assertEquals(0, task.coefficient(2, 0));
    assertEquals(3, task.coefficient(2, 1));
    assertNull(plan.taskOf(1));
    assertNull(plan.inlets.get(0).tlsName);
    assertEquals("[::1]:7412", plan.inlets.get(1).dial.toString());
    assertEquals((byte) 0x89, plan.inlets.get(1).key[0]);
  }

  @Test
  void whatARequestorDoesNotDoIsRefused() {
    for (String[] change : new String[][] {
        {"'sub_blocks':1", "'sub_blocks':2"},
        {"'reads':[]", "'reads':[{'block':0,'sub':0}]"},
        {"'outlets':[]", "'outlets':[{'to':1}]"},
        {"'sinks':[]", "'sinks':[{'index':1,'id':'s.1','bytes':9,'end':{'end':'taken','checked':true}}]"},
        {"'dealing':[1,1]", "'dealing':[1]"},
        {"'slice_bytes':4096", "'slice_bytes':0"},
        {"'slices':[[0,1],[2,3]]", "'slices':[[0,4]]"},
        {"2566a61c", "2566a6zz"},
        {"127.0.0.1:7410", "127.0.0.1"},
        {",143]", ",256]"}}) {
      String plan = PLAN.replace(change[0], change[1]);
      assertThrows(MendException.class, () -> read(plan), change[1]);
    }
  }
}
