package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.SnapshotException;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class ParityFilesTest {
  /** The snapshots of folders. */
  private interface Snapshots {
    /** Returns the number of snapshots; fails as the NameNode does if the folder can have none. */
    int of(String path) throws IOException;
  }

  private final List<String> deleted = new ArrayList<>();

  private List<String> removed(Snapshots snapshots) throws IOException {
    InvocationHandler namenode = (proxy, method, arguments) -> {
      switch (method.getName()) {
        case "getListing":
          return new DirectoryListing(new HdfsFileStatus[snapshots.of((String) arguments[0])], 0);
        case "delete":
          deleted.add((String) arguments[0]);
          return true;
        default:
          throw new UnsupportedOperationException(method.getName());
      }
    };
    ClientProtocol protocol = (ClientProtocol) Proxy.newProxyInstance(
        ClientProtocol.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, namenode);
    Configuration conf = new Configuration();
    DFSClient client = new DFSClient(null, protocol, conf, null);
    deleted.clear();
    new ParityFiles(client, conf).removeAll("/a/b/f", List.of("/raidrs/a/b/f"));
    return List.copyOf(deleted);
  }

  private static int listed(String path, String folder, int snapshots) throws IOException {
    switch (path) {
      case "/.snapshot":
        return 0;
      case "/a/.snapshot":
        if (folder.equals("/a")) {
          return snapshots;
        }
        throw new RemoteException(SnapshotException.class.getName(), "Directory is not a snapshottable directory: /a");
      case "/a/b/.snapshot":
        if (folder.equals("/a/b")) {
          return snapshots;
        }
        throw new FileNotFoundException(path);
      default:
        throw new IllegalArgumentException(path);
    }
  }

  @Test
  void parityIsRemovedUnlessAFolderAboveHasSnapshots() throws IOException {
    List<String> parity = List.of("/raidrs/a/b/f");
    assertEquals(parity, removed(path -> listed(path, "none", 0)));
    assertEquals(parity, removed(path -> listed(path, "/a", 0)), "folders that may have snapshots");
    assertEquals(List.of(), removed(path -> listed(path, "/a", 2)));
    assertEquals(List.of(), removed(path -> listed(path, "/a/b", 1)));
  }

  @Test
  void parityStaysIfSnapshotsCannotBeLookedFor() throws IOException {
    assertEquals(List.of(), removed(path -> {
      throw new AccessControlException(path);
    }));
  }
}
