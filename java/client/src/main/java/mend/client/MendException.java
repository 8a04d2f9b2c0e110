package mend.client;

import java.io.IOException;

/** Why something that was asked of Mend did not happen. The message says what, where, and what to do next. */
public final class MendException extends IOException {
  private static final long serialVersionUID = 1;

  /** What kind of failure it is, for programs. */
  public enum Kind {
    /** The coordinator cannot be reached, or does not answer. It may be otherwise later. */
    UNREACHABLE,
    /** The other end is not a member of this cluster, or does not take our certificate. */
    UNTRUSTED,
    /** It cannot be begun: it names what is not there, or is not possible now. */
    REFUSED,
    /** The stripe is being read or repaired as it was described before. */
    BUSY,
    /** More is lost than the code gives back. */
    TOO_MUCH_LOST,
    /** It was begun and cannot be finished: nodes failed, or blocks contradict each other. */
    FAILED,
    /** It took longer than the caller waits. */
    TIMED_OUT,
    /** The connection to the coordinator ended in the middle of it. */
    LOST,
    /** Something came that the protocol does not know. */
    PROTOCOL,
    /** The caller closed it. */
    CLOSED,
    /** This library does not do it. */
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

  /** What kind of failure it is. */
  public Kind kind() {
    return kind;
  }

  /** The same failure with the stack of whoever is told of it now; several may be told of one. */
  MendException again() {
    return new MendException(kind, getMessage(), this);
  }
}
