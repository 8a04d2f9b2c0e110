package mend.client;

import java.io.IOException;

/** The reason why a request to Mend failed. The message says what failed, where, and what to do next. */
public final class MendException extends IOException {
  private static final long serialVersionUID = 1;

  /** The kind of a failure, for programs. */
  public enum Kind {
    /** The coordinator cannot be reached or does not answer; a retry may succeed later. */
    UNREACHABLE,
    /** The peer is not a member of this cluster, or it rejects our certificate. */
    UNTRUSTED,
    /** The coordinator refused the request: it names something unknown, or is currently impossible. */
    REFUSED,
    /** The stripe is being read or repaired under an earlier description. */
    BUSY,
    /** More blocks are lost than the code tolerates. */
    TOO_MUCH_LOST,
    /** The request failed after it started: nodes failed, or blocks contradict each other. */
    FAILED,
    /** The request took longer than the caller's limit. */
    TIMED_OUT,
    /** The connection to the coordinator broke during the request. */
    LOST,
    /** The peer violated the protocol. */
    PROTOCOL,
    /** The caller closed the stream or the client. */
    CLOSED,
    /** This library does not support the operation. */
    UNSUPPORTED
  }

  private final Kind kind;

  MendException(Kind kind, String message) {
    super(message);
    this.kind = kind;
  }

  MendException(Kind kind, String message, Throwable cause) {
    super(message, cause);
    this.kind = kind;
  }

  /** Returns the kind of the failure. */
  public Kind kind() {
    return kind;
  }

  /**
   * Returns the same failure with the current stack trace, because several callers may receive the failure.
   */
  MendException again() {
    return new MendException(kind, getMessage(), this);
  }
}
