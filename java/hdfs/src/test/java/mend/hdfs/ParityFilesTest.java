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
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class ParityFilesTest {
  /** The paths by which parity is deleted. Another client may have given its former path to the parity of another file. */
  private static final String FILE = "/.reserved/.inodes/20";
  private static final String FOLDER = "/.reserved/.inodes/21";

  /** The answer of a NameNode to the question for a file by its inode number. */
  private interface Answer {
    HdfsFileStatus get() throws IOException;
  }

  private final List<String> deleted = new ArrayList<>();
  /** What the NameNode finds at paths and by inodes, apart from the source. */
  private final Map<String, HdfsFileStatus> found = new HashMap<>(Map.of("/raidrs/a/b/f", file(20), FILE, file(20),
      "/raidrs/a/b", file(21), FOLDER, file(21)));

  /** Returns the files that are deleted after a file with inode number 7 was deleted, if the NameNode answers this. */
  private List<String> removed(Answer answer) throws IOException {
    InvocationHandler namenode = (proxy, method, arguments) -> {
      switch (method.getName()) {
        case "getFileInfo":
          return arguments[0].equals("/.reserved/.inodes/7") ? answer.get() : found.get((String) arguments[0]);
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
    new ParityFiles(client, conf).removeAll(
        List.of(new ParityFiles.Owned("/raidrs/a/b/f", 20, 7L), new ParityFiles.Owned("/raidrs/a/b", 21, null)));
    return List.copyOf(deleted);
  }

  private static HdfsFileStatus file(long inode) {
    return new HdfsFileStatus.Builder().fileId(inode).build();
  }

  @Test
  void parityOfAFileThatIsGoneIsRemoved() throws IOException {
    assertEquals(List.of(FILE, FOLDER), removed(() -> {
      throw new FileNotFoundException("File for given inode path does not exist"); // As a NameNode.
    }));
  }

  /** Through a router, a file of another namespace may have the inode number. In a snapshot, HDFS finds it at a former path. */
  @Test
  void parityThatHdfsDoesNotFindByItsInodeStays() throws IOException {
    Answer gone = () -> {
      throw new FileNotFoundException("File for given inode path does not exist");
    };
    HdfsFileStatus namesake = new HdfsFileStatus.Builder().fileId(20).mtime(1).build();
    for (HdfsFileStatus other : List.of(file(30), namesake)) {
      found.put(FILE, other);
      assertEquals(List.of(FOLDER), removed(gone));
      found.put(FILE, file(20));
      found.put("/raidrs/a/b/f", other);
      assertEquals(List.of(FOLDER), removed(gone));
      found.put("/raidrs/a/b/f", file(20));
    }
    found.remove(FOLDER);
    assertEquals(List.of(FILE), removed(gone));
    found.remove("/raidrs/a/b/f");
    assertEquals(List.of(), removed(gone));
  }

  /** The folder of the parity is not empty then, so HDFS does not delete it. */
  @Test
  void parityStaysIfItsFileExistsUnderAnotherName() throws IOException {
    assertEquals(List.of(FOLDER), removed(() -> file(7)));
  }

  /** The file was deleted at its place, its place has another file, or it was first moved out of the folder with snapshots. */
  @Test
  void parityStaysIfItsFileIsInASnapshot() throws IOException {
    assertEquals(List.of(FOLDER), removed(() -> null));
    assertEquals(List.of(FOLDER), removed(() -> file(8)));
    assertEquals(List.of(FOLDER), removed(() -> {
      throw new RemoteException(IllegalArgumentException.class.getName(), null); // As a NameNode.
    }));
  }

  @Test
  void parityStaysIfItsFileCannotBeLookedFor() throws IOException {
    assertEquals(List.of(FOLDER), removed(() -> {
      throw new AccessControlException("no");
    }));
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
      for (Class<?> reader : List.of(ParityFiles.class, ParityFiles.Renaming.class, Inodes.class, RaidedFile.class, RaidDecoder.class,
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
