package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.lang.reflect.Proxy;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider;
import org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProviderWithIPFailover;
import org.apache.hadoop.hdfs.server.namenode.ha.RequestHedgingProxyProvider;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.ipc.RpcNoSuchMethodException;
import org.apache.hadoop.ipc.StandbyException;
import org.junit.jupiter.api.Test;

class ActiveNameNodeTest {
  private static final String KEY = "dfs.client.failover.proxy.provider.cluster";
  private int calls;

  private static Configuration with(String provider) {
    Configuration conf = new Configuration(false);
    conf.set("fs.defaultFS", "hdfs://cluster");
    if (provider != null) {
      conf.set(KEY, provider);
    }
    return conf;
  }

  /** Returns a NameNode that answers {@code msync} with this failure, or without one. */
  private ClientProtocol namenode(IOException failure) {
    return (ClientProtocol) Proxy.newProxyInstance(
        ClientProtocol.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, (proxy, method, arguments) -> {
          assertEquals("msync", method.getName());
          calls++;
          if (failure != null) {
            throw failure;
          }
          return null;
        });
  }

  @Test
  void readsAreNotSentToObservers() {
    for (Class<?> provider : new Class<?>[] {
        ObserverReadProxyProvider.class, ObserverReadProxyProviderWithIPFailover.class}) {
      Configuration conf = with(" " + provider.getName() + " ");
      ActiveNameNode.of(conf);
      assertEquals(ActiveNameNode.ACTIVE_READS, conf.get(KEY));
    }
  }

  @Test
  void otherConfigurationsStay() {
    for (String provider : new String[] {
        ActiveNameNode.ACTIVE_READS, RequestHedgingProxyProvider.class.getName(), "no.such.Provider"}) {
      Configuration conf = with(provider);
      ActiveNameNode.of(conf);
      assertEquals(provider, conf.get(KEY));
    }
    Configuration single = with(null);
    ActiveNameNode.of(single);
    assertNull(single.get(KEY));
  }

  @Test
  void aClientIsLedToTheActiveNameNodeBeforeEachQuestion() throws IOException {
    ActiveNameNode active = ActiveNameNode.of(with(ActiveNameNode.ACTIVE_READS));
    active.lead(namenode(null));
    active.lead(namenode(null));
    assertEquals(2, calls);
    IOException standby = new RemoteException(StandbyException.class.getName(), "msync is not supported in standby");
    assertThrows(IOException.class, () -> active.lead(namenode(standby)), "no NameNode is active");
    ActiveNameNode.of(with(null)).lead(namenode(null));
    assertEquals(3, calls, "a single NameNode has no observers");
  }

  @Test
  void nameNodesAndRoutersWithoutObserversAreAskedOnce() throws IOException {
    for (Class<?> failure : new Class<?>[] {RpcNoSuchMethodException.class, UnsupportedOperationException.class}) {
      calls = 0;
      ActiveNameNode active = ActiveNameNode.of(with(ActiveNameNode.ACTIVE_READS));
      ClientProtocol old = namenode(new RemoteException(failure.getName(), "msync"));
      active.lead(old);
      active.lead(old);
      assertEquals(1, calls);
    }
  }
}
