package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import java.util.Base64;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that certificates are loaded and renewed although their folder does not answer at first. */
class CredentialsTest {
  private static final String NAME = "coordinator.mend";
  private static final String PASSWORD = "password";
  private static final Duration LIMIT = Duration.ofSeconds(60);

  @TempDir
  Path folder;

  @Test
  void aFolderThatHangsDelaysOneCallerByASecond() throws Exception {
    Path certificate = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    issue(certificate, key);
    // The certificate signs itself, so it is its own authority.
    Credentials credentials = Credentials.load(certificate, certificate, key);
    SSLContext former = credentials.towards(NAME);

    // A read of a pipe hangs until the pipe is opened for writing.
    Path pipe = folder.resolve("pipe");
    run("mkfifo", pipe.toString());
    Files.move(pipe, certificate, StandardCopyOption.REPLACE_EXISTING);
    assertTimeoutPreemptively(LIMIT, () -> {
      for (int call = 0; call < 300; call++) {
        credentials.refresh();
        assertSame(former, credentials.towards(NAME));
        Thread.sleep(10);
      }
    });

    Files.move(certificate, pipe);
    issue(certificate, key);
    assertTimeoutPreemptively(LIMIT, () -> {
      Files.newOutputStream(pipe).close();
      while (credentials.towards(NAME) == former) {
        Thread.sleep(10);
        credentials.refresh();
      }
    });
  }

  @Test
  void aLoadFromAFolderThatHangsFailsAndASecondOneStartsNoThread() throws Exception {
    Path certificate = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    run("mkfifo", certificate.toString());
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
    issue(certificate, key);
    assertTimeoutPreemptively(LIMIT, () -> {
      Files.newOutputStream(pipe).close();
      while (loaders() > 0) {
        Thread.sleep(10);
      }
    });
    Credentials.load(certificate, certificate, key).towards(NAME);
  }

  private static long loaders() {
    return Thread.getAllStackTraces().keySet().stream().filter(it -> it.getName().equals(Credentials.LOADER)).count();
  }

  /** Writes a new key, and a certificate for it. */
  private void issue(Path certificate, Path key) throws IOException, GeneralSecurityException, InterruptedException {
    Path store = Files.createTempDirectory(folder, "keys").resolve("store");
    run(Paths.get(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
        "-alias", "own", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=" + NAME,
        "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", PASSWORD);
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream stream = Files.newInputStream(store)) {
      keys.load(stream, PASSWORD.toCharArray());
    }
    write(key, "PRIVATE KEY", keys.getKey("own", PASSWORD.toCharArray()).getEncoded());
    write(certificate, "CERTIFICATE", keys.getCertificate("own").getEncoded());
  }

  private static void write(Path path, String kind, byte[] content) throws IOException {
    String body = Base64.getMimeEncoder().encodeToString(content);
    String pem = "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
    Files.write(path, pem.getBytes(StandardCharsets.US_ASCII));
  }

  private static void run(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
  }
}
