package mend.hdfs.namenode;

import java.io.IOException;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.ipc.RemoteException;

/**
 * Sends all calls to the active NameNode, also if there are observers.
 *
 * <p>An observer answers with the edits and block reports that it has read so far, and counts no blocks that lack
 * redundancy. Mend would take blocks for lost that the observer does not know yet, and would not learn of lost ones.
 * {@code msync} alone is not enough: it makes an observer wait for edits, but not for block reports.
 *
 * <p>Without the configuration of a client for observers, an observer refuses most reads, but not all: it counts
 * blocks, for example. So a client that has failed over may have to be led to the active NameNode.
 */
final class ActiveNameNode {
  private static final String PROVIDER_KEY = "dfs.client.failover.proxy.provider.";
  private static final String PROVIDERS = "org.apache.hadoop.hdfs.server.namenode.ha.";
  /** The class that sends reads to observers. Hadoop's clients before 2.10 and 3.3 do not have it. */
  static final String OBSERVER_READS = PROVIDERS + "ObserverReadProxyProvider";
  static final String ACTIVE_READS = PROVIDERS + "ConfiguredFailoverProxyProvider";
  /** The failures of {@code msync} at NameNodes and routers that know no observers. */
  private static final Set<String> WITHOUT_OBSERVERS = Set.of("org.apache.hadoop.ipc.RpcNoSuchMethodException",
      "org.apache.hadoop.ipc.RpcNoSuchProtocolException", UnsupportedOperationException.class.getName());

  private volatile boolean mayHaveObservers;

  private ActiveNameNode(boolean mayHaveObservers) {
    this.mayHaveObservers = mayHaveObservers;
  }

  /** Changes a configuration that sends reads to observers. */
  static ActiveNameNode of(Configuration conf) {
    String key = PROVIDER_KEY + FileSystem.getDefaultUri(conf).getHost();
    String provider = conf.getTrimmed(key, "");
    if (provider.isEmpty()) {
      return new ActiveNameNode(false); // There is only one NameNode.
    }
    if (isOrExtends(conf.getClassByNameOrNull(provider), OBSERVER_READS)) {
      conf.set(key, ACTIVE_READS);
    }
    return new ActiveNameNode(true);
  }

  private static boolean isOrExtends(Class<?> provider, String name) {
    for (Class<?> it = provider; it != null; it = it.getSuperclass()) {
      if (it.getName().equals(name)) {
        return true;
      }
    }
    return false;
  }

  /**
   * Leads a client to the active NameNode: no other one carries out {@code msync}, so the client fails over until it
   * has found it, and sends its next calls there.
   */
  void lead(ClientProtocol namenode) throws IOException {
    if (!mayHaveObservers) {
      return;
    }
    try {
      namenode.msync();
    } catch (NoSuchMethodError old) { // Hadoop's client is older than observers.
      mayHaveObservers = false;
    } catch (RemoteException problem) {
      if (!WITHOUT_OBSERVERS.contains(problem.getClassName())) {
        throw problem;
      }
      mayHaveObservers = false;
    }
  }
}
