package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo.DatanodeInfoBuilder;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class SurveyTest {
  private static final DatanodeInfo NODE = new DatanodeInfoBuilder()
      .setNodeID(new DatanodeID("10.0.0.1", "dn1", "uuid-1", 9866, 0, 0, 0))
      .build();
  private static final String PARITY = "/p/a";
  /** The children of each folder. */
  private static final Map<String, List<HdfsFileStatus>> TREE = Map.of(
      "/", List.of(),
      "/a", List.of(folder("secret"), folder("gone"), folder("deleted"), link("link"), file("f", "o p")));

  @Test
  void pathsThatAreLeftOutAreReported() throws Exception {
    List<String> lines = answer("files %2Fa");
    assertTrue(lines.contains("O %2Fa%2Fsecret refused Permission denied: user=mend"), lines.toString());
    for (String gone : List.of("gone", "deleted")) {
      assertTrue(lines.contains("O %2Fa%2F" + gone + " skipped it was deleted or renamed during the listing"), lines.toString());
    }
    assertTrue(lines.contains("O %2Fa%2Flink skipped it is a symbolic link, which is not followed"), lines.toString());
    assertEquals("done", lines.get(lines.size() - 1));
  }

  @Test
  void corruptReplicasAreNoReplicas() throws Exception {
    List<String> lines = answer("files %2Fa");
    int at = lines.indexOf("B 1 1001 512 -");
    assertTrue(at >= 0, lines.toString());
    assertEquals(List.of("C 1 0", "B 2 1002 512 0", "B 3 1003 512 -"), lines.subList(at + 1, at + 4));
  }

  @Test
  void refusedPathsAndAttributesAreReported() throws Exception {
    assertTrue(answer("files %2Fa%2Fsecret%2Fx").contains("O %2Fa%2Fsecret%2Fx refused Permission denied: user=mend"));
    assertEquals(List.of("O %2Fa%2Fsecret refused Permission denied: user=mend", "done"), answer("attributes %2Fa%2Fsecret"));
  }

  /** The parity of a folder is a file, with the folder's path below the parity root. */
  @Test
  void theFilesOfAFolderAreReportedWithItsParity() throws Exception {
    List<String> lines = answer("raided %2Fp\t%2Fp%2Fa");
    for (String expected : List.of("D %2Fa 0 ", "F 16390 %2Fp%2Fa 1536", "F 16390 %2Fa%2Ff 1536")) {
      assertTrue(lines.stream().anyMatch(line -> line.startsWith(expected)), expected + ": " + lines);
    }
    assertTrue(lines.stream().noneMatch(line -> line.startsWith("D %2Fa%2F")), lines.toString());
    assertTrue(lines.stream().anyMatch(line -> line.startsWith("F ") && line.endsWith(" closed =o+p")), lines.toString());
    assertTrue(lines.stream().anyMatch(line -> line.startsWith("F ") && line.endsWith(" closed -")), lines.toString());
  }

  /** Another user may have made a folder below /tmp that looks like one with parity that is being made. */
  @Test
  void foldersOfTheSuperuserAreToldFromOthers() throws Exception {
    for (String expected : List.of("D %2F 0 16385 -", "D %2Fa 0 16385 =o")) {
      List<String> lines = answer("files " + expected.split(" ")[1]);
      assertTrue(lines.contains(expected), expected + ": " + lines);
    }
  }

  /** Any user may replace a folder by a file of the same name. Otherwise no later changes would be followed. */
  @Test
  void aPathBelowAFileDoesNotExist() throws IOException {
    assertEquals(List.of("done"), answer("walk %2Fnone%2Ff\t%2Fa%2Fdeleted"));
    assertEquals(List.of("failed Permission denied: user=mend"), answer("walk %2Fnone%2Ff\t%2Fa%2Fsecret"));
  }

  /** Names may have every character but a slash. */
  @Test
  void namesWithLineBreaksAreMissing() throws IOException {
    String odd = "%2Fnone%0A9+delete+%2Fa%09%0D";
    assertEquals(List.of("missing " + odd, "done"), answer("missing %2Fa\t" + odd));
    assertTrue(answer("list " + odd).contains("missing " + odd));
  }

  @Test
  void inodesThatOnlySnapshotsHaveAreReported() throws IOException {
    assertEquals(List.of("y 1", "y 2 snapshot", "y 3 snapshot", "y 4 snapshot", "done"), answer("inodes 1,2,3,4,5"));
  }

  /** Text from others cannot end a line and begin another answer. */
  @Test
  void anAnswerHasNoOtherLineBreaks() throws IOException {
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    Answers.Lines lines = new Answers.Lines(new Answers(new PrintStream(output), null, null), "7");
    lines.add("v 0 /disk\r\n8 done");
    lines.flush();
    assertEquals("7 v 0 /disk  8 done\n", output.toString(StandardCharsets.UTF_8));
    assertEquals("java.io.IOException", Answers.text(new IOException("\n")));
    assertEquals("no", Answers.text(new IOException("\nno\nmore")));
  }

  /** Returns the lines of an answer without the number of the question. */
  private static List<String> answer(String question) throws IOException {
    Configuration conf = new Configuration();
    DFSClient client = new DFSClient(null, protocol(), conf, null);
    DistributedFileSystem files = new DistributedFileSystem() {
      @Override
      public DFSClient getClient() {
        return client;
      }

      @Override
      public SnapshottableDirectoryStatus[] getSnapshottableDirListing() {
        return null;
      }
    };
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    PrintStream printed = new PrintStream(output, true, StandardCharsets.UTF_8);
    Answers answers = new Answers(printed, null, ActiveNameNode.of(conf));
    answers.answer(Question.of("7 " + question), files, conf);
    return output.toString(StandardCharsets.UTF_8).lines().map(line -> line.substring(2)).collect(Collectors.toList());
  }

  private static ClientProtocol protocol() {
    return (ClientProtocol) Proxy.newProxyInstance(
        SurveyTest.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, (proxy, method, arguments) -> {
          switch (method.getName()) {
            case "setSafeMode":
              return false;
            case "getDatanodeReport":
              return new DatanodeInfo[0];
            case "getFileInfo":
              return status((String) arguments[0]);
            case "getListing":
              return listing((String) arguments[0]);
            case "getXAttrs":
            case "listXAttrs":
              if (arguments[0].equals(PARITY)) {
                return List.of();
              }
              throw refused();
            default:
              throw new UnsupportedOperationException(method.getName());
          }
        });
  }

  private static HdfsFileStatus status(String path) throws IOException {
    if (path.startsWith("/a/secret/")) {
      throw refused();
    }
    if (path.startsWith("/none")) {
      return null;
    }
    if (path.startsWith("/.reserved/")) {
      return byInode(path);
    }
    if (path.equals("/")) {
      return entry("").owner("root").isdir(true).build();
    }
    return path.equals(PARITY) ? file("a", "root") : folder("");
  }

  /** File 1 exists. The others were deleted; 2 to 4 are in snapshots, and another file is at the former path of 3. */
  private static HdfsFileStatus byInode(String path) throws IOException {
    switch (path) {
      case "/.reserved/.inodes/1":
        return entry("f").fileId(1).build();
      case "/.reserved/.inodes/2":
        return null;
      case "/.reserved/.inodes/3":
        return entry("f").fileId(9).build();
      case "/.reserved/.inodes/4":
        throw new RemoteException(IllegalArgumentException.class.getName(), null);
      default:
        throw new RemoteException(FileNotFoundException.class.getName(), "File for given inode path does not exist");
    }
  }

  private static DirectoryListing listing(String path) throws IOException {
    switch (path) {
      case "/a/secret":
      case "/none/f": // A file is in the place of /none.
        throw refused();
      case "/a/deleted":
        throw new RemoteException(FileNotFoundException.class.getName(), "no such folder");
      default:
        List<HdfsFileStatus> children = TREE.get(path);
        return children == null ? null : new DirectoryListing(children.toArray(new HdfsFileStatus[0]), 0);
    }
  }

  private static IOException refused() {
    return new RemoteException(AccessControlException.class.getName(), "Permission denied: user=mend");
  }

  private static HdfsFileStatus.Builder entry(String name) {
    return new HdfsFileStatus.Builder().path(name.getBytes(StandardCharsets.UTF_8)).perm(FsPermission.getDefault())
        .owner("o").group("g").fileId(16385);
  }

  private static HdfsFileStatus folder(String name) {
    return entry(name).isdir(true).build();
  }

  private static HdfsFileStatus link(String name) {
    return entry(name).symlink("/elsewhere".getBytes(StandardCharsets.UTF_8)).build();
  }

  /** Returns a file with a corrupt, an intact and a missing block. */
  private static HdfsFileStatus file(String name, String owner) {
    List<LocatedBlock> blocks = List.of(block(1, true, NODE), block(2, false, NODE), block(3, true));
    LocatedBlocks located = new LocatedBlocks(1536, false, blocks, blocks.get(2), true, null, null);
    return entry(name).owner(owner).length(1536).blocksize(512).replication(1).fileId(16390).locations(located).build();
  }

  private static LocatedBlock block(long number, boolean isCorrupt, DatanodeInfo... nodes) {
    LocatedBlock block = new LocatedBlock(new ExtendedBlock("pool", number, 512, 1000 + number), nodes);
    block.setCorrupt(isCorrupt);
    return block;
  }
}
