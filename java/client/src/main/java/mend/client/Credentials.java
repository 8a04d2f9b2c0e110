package mend.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.X509TrustManager;

/**
 * The certificates of the cluster's authority, and our own certificate and key, as {@code mend init} and
 * {@code mend issue} write them.
 *
 * <p>A member is identified by the single DNS name in its certificate, independently of the dialled address
 * (docs/explanation/security.md). Therefore each name gets a TLS context that trusts only that name. Java's
 * own check would compare the name with the host of the URL; the trust manager here replaces that check.
 */
public final class Credentials {
  private static final char[] NO_PASSWORD = new char[0];
  private static final int DNS_NAME = 2;

  private final KeyManager[] keys;
  private final X509TrustManager authority;
  private final Map<String, SSLContext> contexts = new ConcurrentHashMap<>();

  private Credentials(KeyManager[] keys, X509TrustManager authority) {
    this.keys = keys;
    this.authority = authority;
  }

  /**
   * Loads a member's credentials from a cluster folder: {@code folder/ca/ca.pem}, and {@code cert.pem} and
   * {@code key.pem} in {@code folder/member}, such as {@code plugins/hdfs} or {@code client}.
   *
   * @throws MendException if a file is missing or invalid
   */
  public static Credentials load(Path folder, String member) throws MendException {
    Path own = folder.resolve(member);
    return load(folder.resolve("ca").resolve("ca.pem"), own.resolve("cert.pem"), own.resolve("key.pem"));
  }

  /**
   * Loads credentials from three PEM files.
   *
   * @throws MendException if a file is missing or invalid
   */
  public static Credentials load(Path authority, Path certificate, Path key) throws MendException {
    try {
      return new Credentials(keys(certificate, key), authority(authority));
    } catch (IOException | GeneralSecurityException | IllegalArgumentException problem) {
      String files = authority + ", " + certificate + " and " + key;
      throw new MendException(MendException.Kind.UNTRUSTED, "cannot use the certificates " + files
          + ": " + problem + "; create them with `mend issue`, and check that this process may read them", problem);
    }
  }

  private static KeyManager[] keys(Path certificate, Path key) throws IOException, GeneralSecurityException {
    KeyStore store = emptyStore();
    Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
    store.setKeyEntry("own", privateKey(key), NO_PASSWORD, chain);
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(store, NO_PASSWORD);
    return factory.getKeyManagers();
  }

  private static X509TrustManager authority(Path authority) throws IOException, GeneralSecurityException {
    KeyStore store = emptyStore();
    int number = 0; // While an authority is being replaced, the file has two certificates.
    for (Certificate certificate : certificates(authority)) {
      store.setCertificateEntry("authority" + number++, certificate);
    }
    TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(store);
    for (TrustManager manager : factory.getTrustManagers()) {
      if (manager instanceof X509TrustManager) {
        return (X509TrustManager) manager;
      }
    }
    throw new GeneralSecurityException("this JVM has no trust manager for X.509");
  }

  private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    return store;
  }

  private static Collection<? extends Certificate> certificates(Path path)
      throws IOException, CertificateException {
    byte[] bytes = Files.readAllBytes(path);
    Collection<? extends Certificate> certificates =
        CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(bytes));
    if (certificates.isEmpty()) {
      throw new CertificateException(path + " contains no certificate");
    }
    return certificates;
  }

  private static PrivateKey privateKey(Path path) throws IOException, GeneralSecurityException {
    String pem = new String(Files.readAllBytes(path), StandardCharsets.US_ASCII);
    String body = pem.replaceAll("-----(BEGIN|END) PRIVATE KEY-----", "").replaceAll("\\s", "");
    return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(body)));
  }

  /** Returns the TLS context for connections to the member with this name. */
  SSLContext towards(String name) {
    return contexts.computeIfAbsent(name, wanted -> {
      try {
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(keys, new TrustManager[] {new OneMember(authority, wanted)}, null);
        return context;
      } catch (GeneralSecurityException problem) {
        // Every JDK since 11 supports TLS 1.3.
        throw new IllegalStateException("this JVM has no TLS 1.3", problem);
      }
    });
  }

  /** Trusts the authority's certificates for one name only. */
  private static final class OneMember extends X509ExtendedTrustManager {
    private final X509TrustManager authority;
    private final String name;

    OneMember(X509TrustManager authority, String name) {
      this.authority = authority;
      this.name = name;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
      authority.checkServerTrusted(chain, type);
      Collection<List<?>> names = chain[0].getSubjectAlternativeNames();
      boolean isIt = names != null && names.size() == 1
          && names.stream().allMatch(entry -> entry.get(0).equals(DNS_NAME) && name.equals(entry.get(1)));
      if (!isIt) {
        throw new CertificateException("the certificate is for " + names + ", but " + name + " was expected");
      }
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
        throws CertificateException {
      checkServerTrusted(chain, type);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
        throws CertificateException {
      checkServerTrusted(chain, type);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
      throw new CertificateException("this client accepts no connections");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
        throws CertificateException {
      checkClientTrusted(chain, type);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
        throws CertificateException {
      checkClientTrusted(chain, type);
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return authority.getAcceptedIssuers();
    }
  }
}
