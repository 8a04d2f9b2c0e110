package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import mend.hdfs.Fingerprints;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DSQuotaExceededException;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class ChangesTest {
  private static IOException remote(String type, String text) {
    return new RemoteException(type, text);
  }

  @Test
  void failuresHaveKinds() {
    assertEquals("permission", Changes.kind(new AccessControlException("superuser privilege is required")));
    assertEquals("permission", Changes.kind(remote(AccessControlException.class.getName(), "no")));
    assertEquals("quota", Changes.kind(new DSQuotaExceededException(1, 2)));
    assertEquals("quota", Changes.kind(remote(DSQuotaExceededException.class.getName(), "The quota is exceeded")));
    String safeMode = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
    assertEquals("safemode", Changes.kind(remote(safeMode, "Name node is in safe mode.")));
    String full = "File /t could only be written to 0 of the 1 minReplication nodes.";
    assertEquals("space", Changes.kind(remote(IOException.class.getName(), full)));
    assertEquals("other", Changes.kind(new IOException("Connection reset by peer")));
  }

  @Test
  void filesThatAreNotAsExpectedHaveChanged() {
    assertEquals("changed", Changes.kind(new FileNotFoundException("Parent directory doesn't exist")));
    assertEquals("changed", Changes.kind(remote(FileAlreadyExistsException.class.getName(), "/t exists")));
    assertEquals("changed", Changes.kind(new Changes.ChangedException("the file has changed")));
    String lease = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
    assertEquals("changed", Changes.kind(remote(lease, "No lease on /t")));
  }

  /** Readers could not reach parity below a parent of the parity root that only the superuser may enter. */
  @Test
  void foldersAboveParityAreCreatedOneByOne() {
    assertEquals(List.of("/raid", "/raid/xor"), Changes.foldersAbove("/raid/xor/"));
    assertEquals(List.of("/warehouse", "/warehouse/a"), Changes.foldersAbove("/warehouse/a/f"));
    assertEquals(List.of(), Changes.foldersAbove("/f"));
  }

  @Test
  void changesAreToldFromQuestions() {
    assertTrue(Changes.has("encode"));
    assertFalse(Changes.has("files"));
  }

  /** The calls that changed something. */
  private final List<String> calls = new ArrayList<>();
  private final List<String> permissions = new ArrayList<>();

  /** Carries a call out on a namespace in which inodes above 100 do not exist. */
  private void carryOut(String word, String... words) throws IOException {
    DFSClient client = new DFSClient(null, protocol(), new Configuration(), null);
    new Changes(client, null, null).carryOut(word, String.join("\t", words));
  }

  private ClientProtocol protocol() {
    return (ClientProtocol) Proxy.newProxyInstance(
        ChangesTest.class.getClassLoader(), new Class<?>[] {ClientProtocol.class}, (proxy, method, arguments) -> {
          String path = (String) arguments[0];
          if (path.startsWith("/.reserved/.inodes/1")) {
            throw new RemoteException(FileNotFoundException.class.getName(), "no such inode");
          }
          switch (method.getName()) {
            case "getFileInfo":
              return status(path, path.startsWith("/p") ? 8 : 7, permission(path), path.equals("/p/left"));
            case "getBlockLocations":
              return new LocatedBlocks(0, false, List.of(), null, true, null, null);
            case "setOwner":
              return null;
            case "setPermission":
              permissions.add(path + " " + arguments[1]);
              return null;
            case "rename2":
              calls.add("rename " + path + " " + arguments[1] + " " + ((Rename[]) arguments[2])[0]);
              return null;
            default:
              calls.add(method.getName() + " " + path);
              return true;
          }
        });
  }

  private static int permission(String path) {
    switch (path) {
      case "/d":
        return 0755;
      case "/closed":
        return 0750;
      default:
        return path.endsWith("secret") ? 0600 : 0644;
    }
  }

  private static HdfsFileStatus status(String path, long inode, int permission, boolean isFolder) {
    String owner = path.endsWith("theirs") ? "other" : "o";
    return new HdfsFileStatus.Builder().path(new byte[] {'f'}).isdir(isFolder).perm(new FsPermission((short) permission))
        .owner(owner).group("g").fileId(inode).build();
  }

  private void assertChanged(String word, String... words) {
    IOException problem = assertThrows(IOException.class, () -> carryOut(word, words));
    assertTrue(problem.getMessage().startsWith("changed "), problem.getMessage());
    assertEquals(List.of(), calls);
  }

  /** Otherwise, the parity of another file would be lost, which a client has moved there meanwhile. */
  @Test
  void parityReplacesOnlyTheFileThatWasLookedUp() throws IOException {
    assertChanged("publish", "%2F.reserved%2F.inodes%2F9", "%2Fp%2Ff", "9", "%2Ff", "7");
    assertChanged("publish", "%2F.reserved%2F.inodes%2F100", "%2Fp%2Ff", "-", "%2Ff", "7");
    assertChanged("publish", "%2F.reserved%2F.inodes%2F9", "%2Fp%2Ff", "-", "%2Ff", "6");
    carryOut("publish", "%2F.reserved%2F.inodes%2F9", "%2Fp%2Ff", "8", "%2Ff", "7");
    carryOut("publish", "%2F.reserved%2F.inodes%2F9", "%2Fp%2Ff", "-", "%2Ff", "7");
    String renamed = "rename /.reserved/.inodes/9 /p/f ";
    assertEquals(List.of(renamed + "OVERWRITE", renamed + "NONE"), calls);
  }

  /** From the parity of a folder and the files that a user may read, the others could be computed. */
  @Test
  void parityOfFilesWithDifferentPermissionsIsPrivate() throws IOException {
    String from = "%2F.reserved%2F.inodes%2F9";
    carryOut("publish", from, "%2Fp%2Fd", "-", "%2Fd", "7", "%2Fd%2Fa", "%2Fd%2Fb");
    assertEquals(List.of("/.reserved/.inodes/9 rw-r--r--"), permissions);
    permissions.clear();
    carryOut("publish", from, "%2Fp%2Fd", "-", "%2Fd", "7", "%2Fd%2Fa", "%2Fd%2Fsecret");
    assertEquals(List.of("/.reserved/.inodes/9 rw-------"), permissions);
  }

  /** Parity of a single block is as good as the block itself. */
  @Test
  void whoMayNotEnterAFolderMayNotReadItsParity() throws IOException {
    String from = "%2F.reserved%2F.inodes%2F9";
    carryOut("publish", from, "%2Fp%2Fclosed", "-", "%2Fclosed", "7", "%2Fclosed%2Fa", "%2Fclosed%2Fb");
    assertEquals(List.of("/.reserved/.inodes/9 rw-r-----"), permissions);
  }

  /** The parity of subfolders, which do not exist any more, was in it. */
  @Test
  void anEmptyFolderGivesWayToParity() throws IOException {
    carryOut("publish", "%2F.reserved%2F.inodes%2F9", "%2Fp%2Fleft", "-", "%2Fleft", "7", "%2Fleft%2Fa");
    assertEquals(List.of("delete /p/left", "rename /.reserved/.inodes/9 /p/left NONE"), calls);
  }

  /** Every user may create folders below /tmp. */
  @Test
  void parityIsNotMadeInFoldersOfOtherUsers() throws IOException {
    carryOut("mkdir", "%2Ftmp%2Fp%2Ff%2Fours");
    assertEquals(List.of("mkdirs /tmp/p/f/ours"), calls);
    IOException problem = assertThrows(IOException.class, () -> carryOut("mkdir", "%2Ftmp%2Fp%2Ff%2Ftheirs"));
    assertEquals("changed it belongs to the user other, and not to Mend: delete it", problem.getMessage());
  }

  @Test
  void aFileThatIsGoneIsDeleted() throws IOException {
    carryOut("delete", "%2F.reserved%2F.inodes%2F100");
    assertEquals(List.of(), calls);
    carryOut("delete", "%2F.reserved%2F.inodes%2F9");
    assertEquals(List.of("delete /.reserved/.inodes/9"), calls);
  }

  /** Without its parity, the file must keep its replicas. */
  @Test
  void theReplicationIsLoweredOnlyIfTheParityIsTheSame() throws IOException {
    String until = Long.toString(Long.MAX_VALUE);
    String none = Fingerprints.of(List.of());
    assertChanged("replicate", "%2Ff", "1", until, "7", none, "%2Fp%2Ff", "9", none);
    assertChanged("replicate", "%2Ff", "1", until, "7", none, "%2Fp%2Ff", "8", "00");
    carryOut("replicate", "%2Ff", "1", until, "7", none, "%2Fp%2Ff", "8", none);
    assertEquals(List.of("setReplication /.reserved/.inodes/7"), calls);
  }
}
