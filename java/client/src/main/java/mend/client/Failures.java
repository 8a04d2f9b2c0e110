package mend.client;

import java.io.EOFException;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.security.cert.CertificateException;
import javax.net.ssl.SSLException;

/** Converts failures into the exceptions that callers see. */
final class Failures {
  private Failures() {}

  /** Returns the exception for a problem with the connection to the coordinator. */
  static MendException ofConnection(Address address, Exception problem) {
    if (problem instanceof MendException) {
      return (MendException) problem;
    }
    if (isMistrust(problem)) {
      return new MendException(MendException.Kind.UNTRUSTED, address + " is not the coordinator of this cluster, or does "
          + "not accept our certificate: " + problem.getMessage(), problem);
    }
    return new MendException(MendException.Kind.UNREACHABLE, "cannot reach the coordinator at " + address + ": " + problem
        + "; is `mend coordinator` running?", problem);
  }

  /** Whether a certificate is the cause. A connection that breaks during a handshake does not count. */
  private static boolean isMistrust(Throwable problem) {
    boolean isTls = false;
    for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
      if (cause instanceof EOFException || cause instanceof SocketException || cause instanceof SocketTimeoutException) {
        return false;
      }
      isTls |= cause instanceof SSLException || cause instanceof CertificateException;
    }
    return isTls;
  }

  /** Returns the exception for a request that the coordinator reports as failed. */
  static MendException ofRequest(Json.Node failure) throws MendException {
    String detail = failure.get("detail").isNull() ? "" : failure.get("detail").text();
    switch (failure.get("why").text()) {
      case "refused":
        return new MendException(MendException.Kind.REFUSED, detail + "; " + failure.get("next_step").text());
      case "too-much-lost":
        return new MendException(MendException.Kind.TOO_MUCH_LOST, detail);
      case "called-off":
        return new MendException(MendException.Kind.CLOSED, "the read was cancelled");
      default:
        return new MendException(MendException.Kind.FAILED, detail);
    }
  }
}
