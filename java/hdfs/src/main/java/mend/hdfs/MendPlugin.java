package mend.hdfs;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.util.ServicePlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The plug-in with which a DataNode cooperates with the Mend helper on its machine: {@code
 * dfs.datanode.plugins=mend.hdfs.MendPlugin}.
 *
 * <p>The plug-in listens on loopback on port {@code mend.datanode.port}, where the helper announces replicas
 * that it has placed in the DataNode's folders ({@link Adoption}). If a coordinator is configured, the
 * plug-in also executes the NameNode's reconstruction commands ({@link Takeover}). If the plug-in cannot
 * start, the DataNode runs without it.
 */
public final class MendPlugin implements ServicePlugin {
  static final Logger LOG = LoggerFactory.getLogger(MendPlugin.class);
  static final String PORT_KEY = "mend.datanode.port";
  static final int DEFAULT_PORT = 7410;
  /** A single helper connects, so a short queue suffices. */
  private static final int BACKLOG = 16;

  private volatile ServerSocket listener;
  private volatile Takeover takeover;
  private volatile Thread waiting;

  @Override
  public void start(Object service) {
    DataNode dataNode = (DataNode) service;
    int port = dataNode.getConf().getInt(PORT_KEY, DEFAULT_PORT);
    try {
      ServerSocket socket = new ServerSocket();
      socket.setReuseAddress(true); // After a restart, earlier connections may still be closing.
      socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), BACKLOG);
      listener = socket;
    } catch (IOException problem) {
      throw new IllegalStateException("cannot listen on port " + port + " (" + PORT_KEY + ")", problem);
    }
    Thread thread = new Thread(new Desk(listener, new Adoption(dataNode)), "mend");
    thread.setDaemon(true);
    thread.start();
    LOG.info("listening for Mend's helper on port {}", port);
    takeOver(dataNode);
  }

  /** Redirects reconstruction commands to Mend if a coordinator is configured. */
  private void takeOver(DataNode dataNode) {
    if (!MendSettings.isConfigured(dataNode.getConf())) {
      return;
    }
    Takeover made = new Takeover(dataNode.getConf());
    takeover = made;
    waiting = new Thread(() -> {
      try {
        made.install(dataNode);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }, "mend-takeover");
    waiting.setDaemon(true);
    waiting.start();
  }

  @Override
  public void stop() {
    Thread thread = waiting;
    if (thread != null) {
      thread.interrupt();
    }
    Takeover made = takeover;
    if (made != null) {
      made.close();
    }
    ServerSocket socket = listener;
    if (socket != null) {
      try {
        socket.close(); // This ends the thread that accepts connections.
      } catch (IOException problem) {
        LOG.warn("cannot close the port for Mend's helper", problem);
      }
    }
  }

  @Override
  public void close() {
    stop();
  }
}
