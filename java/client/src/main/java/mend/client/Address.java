package mend.client;

import java.net.InetSocketAddress;

/** An address {@code HOST:PORT}; an IPv6 host is written in brackets. */
final class Address {
  private final String host;
  private final int port;

  private Address(String host, int port) {
    this.host = host;
    this.port = port;
  }

  /**
   * Parses an address.
   *
   * @throws IllegalArgumentException if the text is not an address
   */
  static Address parse(String text) {
    int colon = text.lastIndexOf(':');
    String host = colon < 0 ? "" : text.substring(0, colon);
    if (host.startsWith("[") && host.endsWith("]")) {
      host = host.substring(1, host.length() - 1);
    }
    try {
      int port = Integer.parseInt(text.substring(colon + 1));
      if (!host.isEmpty() && port > 0 && port < 1 << 16) {
        return new Address(host, port);
      }
    } catch (NumberFormatException noPort) {
      // The error is reported below.
    }
    throw new IllegalArgumentException("`" + text + "` is not an address: write HOST:PORT");
  }

  /** Resolves the host on every call, because its addresses may change. */
  InetSocketAddress resolve() {
    return new InetSocketAddress(host, port);
  }

  /** Whether the address is on this machine. */
  boolean isLoopback() {
    InetSocketAddress resolved = resolve();
    return !resolved.isUnresolved() && resolved.getAddress().isLoopbackAddress();
  }

  @Override
  public String toString() {
    return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
  }
}
