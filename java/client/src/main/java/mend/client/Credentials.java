package mend.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
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
 *
 * <p>After our certificate and key were renewed, new connections present the new ones. The certificates of
 * the authority stay as loaded. The files may be on a network file system that does not answer, so {@link #load}
 * and {@link #refresh} read them on threads of their own, and wait for a limited time.
 */
public final class Credentials {
  private static final char[] NO_PASSWORD = new char[0];
  private static final int DNS_NAME = 2;
  /** The least time between two checks whether the certificate was renewed. */
  private static final long CHECK_EVERY_NS = TimeUnit.SECONDS.toNanos(1);
  /** How long the caller that starts a check waits for its end. */
  private static final long WAIT_MS = 1000;
  /** How long {@link #load} waits for the files. */
  private static final long LOAD_LIMIT_MS = 10_000;
  /** The name of threads that load files. */
  static final String LOADER = "mend-certificates";
  /** Loads of files that did not answer in time. As long as such a load hangs, further ones fail at once. */
  private static final Map<List<Path>, FutureTask<Credentials>> HANGING = new ConcurrentHashMap<>();

  private final Path certificate;
  private final Path key;
  private final X509TrustManager authority;
  /** Whether a thread reads the files. */
  private final AtomicBoolean checking = new AtomicBoolean();
  /** When the last check ended. */
  private volatile long checkedNs = System.nanoTime();
  private volatile Own own;

  private Credentials(Path certificate, Path key, X509TrustManager authority)
      throws IOException, GeneralSecurityException {
    this.certificate = certificate;
    this.key = key;
    this.authority = authority;
    this.own = new Own(Files.readAllBytes(certificate), key);
  }

  /**
   * Loads a member's credentials from a cluster folder: {@code folder/ca/ca.pem}, and {@code cert.pem} and
   * {@code key.pem} in {@code folder/member}, such as {@code plugins/hdfs} or {@code client}.
   *
   * @throws MendException if a file is missing or invalid, or cannot be read within 10 s
   */
  public static Credentials load(Path folder, String member) throws MendException {
    Path own = folder.resolve(member);
    return load(folder.resolve("ca").resolve("ca.pem"), own.resolve("cert.pem"), own.resolve("key.pem"));
  }

  /**
   * Loads credentials from three PEM files.
   *
   * @throws MendException if a file is missing or invalid, or cannot be read within 10 s
   */
  public static Credentials load(Path authority, Path certificate, Path key) throws MendException {
    return load(authority, certificate, key, LOAD_LIMIT_MS);
  }

  /** Loads credentials; waits at most {@code limitMs} for the files, and not at all while an earlier load hangs. */
  static Credentials load(Path authority, Path certificate, Path key, long limitMs) throws MendException {
    List<Path> files = Arrays.asList(authority, certificate, key);
    String what = "the certificates " + authority + ", " + certificate + " and " + key;
    FutureTask<Credentials> hanging = HANGING.get(files);
    boolean hangs = hanging != null && !hanging.isDone();
    FutureTask<Credentials> loading = hangs ? hanging : begin(authority, certificate, key);
    try {
      return loading.get(hangs ? 0 : limitMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException problem) {
      HANGING.put(files, loading);
      throw new MendException(MendException.Kind.TIMED_OUT, what + " could not be read within " + limitMs
          + " ms; check that the file system with these files answers, and restart this process if it did not for long",
          problem);
    } catch (ExecutionException failed) {
      Throwable problem = failed.getCause();
      throw new MendException(MendException.Kind.UNTRUSTED, "cannot use " + what
          + ": " + problem + "; create them with `mend issue`, and check that this process may read them", problem);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new MendException(MendException.Kind.CLOSED, "interrupted while reading " + what, stopped);
    }
  }

  /** Begins to load the files on a thread of its own. */
  private static FutureTask<Credentials> begin(Path authority, Path certificate, Path key) throws MendException {
    FutureTask<Credentials> loading =
        new FutureTask<>(() -> new Credentials(certificate, key, authority(authority)));
    Thread thread = new Thread(loading, LOADER);
    thread.setDaemon(true);
    try {
      thread.start();
    } catch (OutOfMemoryError problem) {
      throw new MendException(MendException.Kind.FAILED, "cannot start a thread that reads the certificate "
          + certificate + ": " + problem.getMessage(), problem);
    }
    return loading;
  }

  /** Our certificate with its key, and the TLS contexts that present it. Renewed ones get contexts of their own. */
  private static final class Own {
    final byte[] pem;
    final KeyManager[] keys;
    final Map<String, SSLContext> contexts = new ConcurrentHashMap<>();

    Own(byte[] pem, Path key) throws IOException, GeneralSecurityException {
      this.pem = pem;
      Certificate[] chain = certificates(pem).toArray(new Certificate[0]);
      PrivateKey secret = privateKey(key);
      requireMatch(secret, chain[0]);
      KeyStore store = emptyStore();
      store.setKeyEntry("own", secret, NO_PASSWORD, chain);
      KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      factory.init(store, NO_PASSWORD);
      this.keys = factory.getKeyManagers();
    }

    private static void requireMatch(PrivateKey key, Certificate certificate) throws GeneralSecurityException {
      byte[] text = {1};
      Signature signature = Signature.getInstance("SHA256withECDSA");
      signature.initSign(key);
      signature.update(text);
      byte[] signed = signature.sign();
      signature.initVerify(certificate.getPublicKey());
      signature.update(text);
      if (!signature.verify(signed)) {
        throw new KeyException("the key does not match the certificate");
      }
    }
  }

  /**
   * Loads our certificate if it was renewed. One of several callers waits for the files, for at most a second,
   * and the others go on meanwhile. If the folder does not answer, the next check begins after this one has
   * ended. Callers should hold no monitor.
   */
  void refresh() {
    if (System.nanoTime() - checkedNs < CHECK_EVERY_NS || !checking.compareAndSet(false, true)) {
      return;
    }
    Thread check = new Thread(this::check, "mend-certificate");
    check.setDaemon(true);
    try {
      check.start();
      check.join(WAIT_MS);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (OutOfMemoryError problem) {
      endCheck(); // This process cannot have another thread now. A later call tries again.
    }
  }

  private void check() {
    try {
      takeRenewed();
    } finally {
      endCheck();
    }
  }

  private void endCheck() {
    checkedNs = System.nanoTime();
    checking.set(false);
  }

  private void takeRenewed() {
    try {
      byte[] pem = Files.readAllBytes(certificate);
      if (!Arrays.equals(pem, own.pem)) {
        own = new Own(pem, key);
      }
    } catch (IOException | GeneralSecurityException | IllegalArgumentException problem) {
      // The files are being replaced, or cannot be used. The former certificate stays in use.
    }
  }

  private static X509TrustManager authority(Path authority) throws IOException, GeneralSecurityException {
    KeyStore store = emptyStore();
    int number = 0; // While an authority is being replaced, the file has two certificates.
    for (Certificate certificate : certificates(Files.readAllBytes(authority))) {
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

  private static Collection<? extends Certificate> certificates(byte[] pem) throws CertificateException {
    Collection<? extends Certificate> certificates =
        CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
    if (certificates.isEmpty()) {
      throw new CertificateException("a file contains no certificate");
    }
    return certificates;
  }

  private static PrivateKey privateKey(Path path) throws IOException, GeneralSecurityException {
    String pem = new String(Files.readAllBytes(path), StandardCharsets.US_ASCII);
    String body = pem.replaceAll("-----(BEGIN|END) PRIVATE KEY-----", "").replaceAll("\\s", "");
    return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(body)));
  }

  /** Returns the TLS context for new connections to the member with this name. Does not read the files. */
  SSLContext towards(String name) {
    Own now = own;
    return now.contexts.computeIfAbsent(name, wanted -> {
      try {
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(now.keys, new TrustManager[] {new OneMember(authority, wanted)}, null);
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
