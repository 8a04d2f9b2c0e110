package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.hdfs.protocol.DSQuotaExceededException;
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
}
