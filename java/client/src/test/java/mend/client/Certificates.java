package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.Base64;

/** Issues certificates for tests. Each signs itself, so it is its own authority. */
final class Certificates {
  static final String NAME = "coordinator.mend";
  static final char[] PASSWORD = "password".toCharArray();
  private static final String ALIAS = "own";

  private Certificates() {}

  /** Writes a new key, and a certificate for it, and returns the store that contains both. */
  static KeyStore issue(Path certificate, Path key) throws IOException, GeneralSecurityException, InterruptedException {
    Path store = Files.createTempDirectory(certificate.getParent(), "keys").resolve("store");
    run(Paths.get(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
        "-alias", ALIAS, "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=" + NAME, "-ext", "san=dns:" + NAME,
        "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", new String(PASSWORD));
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream stream = Files.newInputStream(store)) {
      keys.load(stream, PASSWORD);
    }
    write(key, "PRIVATE KEY", keys.getKey(ALIAS, PASSWORD).getEncoded());
    write(certificate, "CERTIFICATE", keys.getCertificate(ALIAS).getEncoded());
    return keys;
  }

  private static void write(Path path, String kind, byte[] content) throws IOException {
    String body = Base64.getMimeEncoder().encodeToString(content);
    String pem = "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
    Files.write(path, pem.getBytes(StandardCharsets.US_ASCII));
  }

  /** Runs a command that succeeds. */
  static void run(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
  }
}
