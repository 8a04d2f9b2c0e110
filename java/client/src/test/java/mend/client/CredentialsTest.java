package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that certificates are loaded and renewed although their folder does not answer at first. */
class CredentialsTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  @TempDir
  Path folder;

  @Test
  void aFolderThatHangsDelaysOneCallerByASecond() throws Exception {
    Path certificate = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    Certificates.issue(certificate, key);
    // The certificate signs itself, so it is its own authority.
    Credentials credentials = Credentials.load(certificate, certificate, key);
    SSLContext former = credentials.towards(Certificates.NAME);

    // A read of a pipe hangs until the pipe is opened for writing.
    Path pipe = folder.resolve("pipe");
    Certificates.run("mkfifo", pipe.toString());
    Files.move(pipe, certificate, StandardCopyOption.REPLACE_EXISTING);
    assertTimeoutPreemptively(LIMIT, () -> {
      for (int call = 0; call < 300; call++) {
        credentials.refresh();
        assertSame(former, credentials.towards(Certificates.NAME));
        Thread.sleep(10);
      }
    });

    Files.move(certificate, pipe);
    Certificates.issue(certificate, key);
    assertTimeoutPreemptively(LIMIT, () -> {
      Files.newOutputStream(pipe).close();
      while (credentials.towards(Certificates.NAME) == former) {
        Thread.sleep(10);
        credentials.refresh();
      }
    });
  }

  @Test
  void aLoadFromAFolderThatHangsFailsAndASecondOneStartsNoThread() throws Exception {
    Path certificate = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    Certificates.run("mkfifo", certificate.toString());
    assertTimeoutPreemptively(LIMIT, () -> {
      for (int call = 0; call < 3; call++) {
        MendException problem =
            assertThrows(MendException.class, () -> Credentials.load(certificate, certificate, key, 100));
        assertEquals(MendException.Kind.TIMED_OUT, problem.kind());
        assertTrue(problem.getMessage().contains(certificate + " and " + key), problem.getMessage());
        assertTrue(problem.getMessage().contains("could not be read within 100 ms"), problem.getMessage());
      }
    });
    assertEquals(1, loaders());

    Path pipe = folder.resolve("pipe");
    Files.move(certificate, pipe);
    Certificates.issue(certificate, key);
    assertTimeoutPreemptively(LIMIT, () -> {
      Files.newOutputStream(pipe).close();
      while (loaders() > 0) {
        Thread.sleep(10);
      }
    });
    Credentials.load(certificate, certificate, key).towards(Certificates.NAME);
  }

  private static long loaders() {
    return Thread.getAllStackTraces().keySet().stream().filter(it -> it.getName().equals(Credentials.LOADER)).count();
  }
}
