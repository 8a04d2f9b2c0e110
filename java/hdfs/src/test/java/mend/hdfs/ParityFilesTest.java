package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.DataInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
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
    return removed(snapshots, Set.of());
  }

  /** Returns the files that are deleted after a file with inode number 7 was deleted, if these inodes exist. */
  private List<String> removed(Snapshots snapshots, Set<String> inodes) throws IOException {
    InvocationHandler namenode = (proxy, method, arguments) -> {
      switch (method.getName()) {
        case "getListing":
          return new DirectoryListing(new HdfsFileStatus[snapshots.of((String) arguments[0])], 0);
        case "getFileInfo":
          String inode = ((String) arguments[0]).substring("/.reserved/.inodes/".length());
          if (!inodes.contains(inode)) {
            throw new FileNotFoundException("File for given inode path does not exist"); // As a NameNode.
          }
          return new HdfsFileStatus.Builder().build();
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
    new ParityFiles(client, conf).removeAll("/a/b/f",
        List.of(new ParityFiles.Owned("/raidrs/a/b/f", 7L), new ParityFiles.Owned("/raidrs/a/b", null)));
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
    List<String> parity = List.of("/raidrs/a/b/f", "/raidrs/a/b");
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

  @Test
  void parityStaysIfItsFileExistsUnderAnotherName() throws IOException {
    // The folder of the parity is not empty then, so HDFS does not delete it.
    assertEquals(List.of("/raidrs/a/b"), removed(path -> 0, Set.of("7")));
    assertEquals(List.of("/raidrs/a/b/f", "/raidrs/a/b"), removed(path -> 0, Set.of("8")));
  }

  /** Returns whether parity with this owner is used for a file of the user {@code ada}. */
  private static boolean isUsed(String owner) throws IOException {
    InvocationHandler namenode = (proxy, method, arguments) -> {
      switch (method.getName()) {
        case "getLocatedFileInfo":
          boolean isSource = arguments[0].equals("/f");
          boolean isParity = arguments[0].equals("/raidrs/f");
          return isSource ? RaidedFileTest.file("ada", 100, 3 * RaidedFileTest.BLOCK)
              : isParity ? RaidedFileTest.file(owner, 200, 4 * RaidedFileTest.BLOCK) : null;
        case "getFileInfo":
          return new HdfsFileStatus.Builder().isdir(true).owner("hdfs").build();
        case "getXAttrs":
          return List.of();
        default:
          throw new UnsupportedOperationException(method.getName());
      }
    };
    ClientProtocol protocol = (ClientProtocol) Proxy.newProxyInstance(
        ClientProtocol.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, namenode);
    Configuration conf = new Configuration();
    return new ParityFiles(new DFSClient(null, protocol, conf, null), conf).find("/f") != null;
  }

  @Test
  void parityOfOtherUsersIsNotUsed() throws IOException {
    assertEquals(List.of(true, true, false), List.of(isUsed("ada"), isUsed("hdfs"), isUsed("bob")));
  }

  /** HDFS's clients do not need the jar of its servers. */
  @Test
  void readersNeedOnlyTheClassesOfHdfsClients() throws Exception {
    List<URL> jars = new ArrayList<>();
    for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
      if (!new File(entry).getName().matches("hadoop-hdfs-[0-9].*\\.jar")) {
        jars.add(new File(entry).toURI().toURL());
      }
    }
    List<String> missing = new ArrayList<>();
    try (URLClassLoader loader = new URLClassLoader(jars.toArray(URL[]::new), ClassLoader.getPlatformClassLoader())) {
      for (Class<?> reader : List.of(ParityFiles.class, ParityFiles.Renaming.class, RaidedFile.class, RaidDecoder.class,
          DegradedReads.class, Class.forName("org.apache.hadoop.hdfs.MendDFSClient"),
          Class.forName("org.apache.hadoop.hdfs.MendRaidInputStream"))) {
        for (String name : classesIn(reader)) {
          try {
            Class.forName(name, false, loader);
          } catch (ClassNotFoundException | NoClassDefFoundError absent) {
            missing.add(reader.getName() + " needs " + name);
          }
        }
      }
    }
    assertEquals(List.of(), missing);
  }

  /** Returns the names of the classes in the constant pool of a class. */
  private static List<String> classesIn(Class<?> of) throws IOException {
    String file = of.getName().substring(of.getName().lastIndexOf('.') + 1) + ".class";
    Map<Integer, String> texts = new HashMap<>();
    List<Integer> classes = new ArrayList<>();
    try (DataInputStream input = new DataInputStream(of.getResourceAsStream(file))) {
      input.readFully(new byte[8]);
      int constants = input.readUnsignedShort();
      for (int at = 1; at < constants; at++) {
        int tag = input.readUnsignedByte();
        switch (tag) {
          case 1:
            texts.put(at, input.readUTF());
            break;
          case 7:
            classes.add(input.readUnsignedShort());
            break;
          case 5:
          case 6:
            input.readFully(new byte[8]);
            at++; // Long constants take two places.
            break;
          case 15:
            input.readFully(new byte[3]);
            break;
          default:
            input.readFully(new byte[tag == 8 || tag == 16 || tag == 19 || tag == 20 ? 2 : 4]);
        }
      }
    }
    return classes.stream().map(texts::get).filter(name -> !name.startsWith("["))
        .map(name -> name.replace('/', '.')).collect(Collectors.toList());
  }
}
