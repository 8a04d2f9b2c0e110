package mend.client;

import java.time.Duration;

/** Where a cluster is and how it is spoken to. Immutable: each {@code with…} gives another one. */
public final class Settings {
  private final Address api;
  private final Address control;
  private final Credentials credentials;
  private final String scheme;
  private final boolean allowsPlainEdges;
  private final Duration patience;
  private final String rack;

  private Settings(
      Address api, Address control, Credentials credentials, String scheme, boolean allowsPlainEdges,
      Duration patience, String rack) {
    this.api = api;
    this.control = control;
    this.credentials = credentials;
    this.scheme = scheme;
    this.allowsPlainEdges = allowsPlainEdges;
    this.patience = patience;
    this.rack = rack;
  }

  /**
   * A cluster whose coordinator listens on {@code api} and {@code control}, both {@code HOST:PORT}: the two addresses in
   * {@code [coordinator]} of its mend.toml.
   *
   * @throws IllegalArgumentException if an address is none
   */
  public static Settings of(String api, String control, Credentials credentials) {
    return new Settings(
        Address.parse(api), Address.parse(control), credentials, "auto", false, Duration.ofSeconds(30), "");
  }

  /** With this scheme for what is lost; {@code auto}, which lets the planner choose, unless said. */
  public Settings withScheme(String name) {
    return new Settings(api, control, credentials, name, allowsPlainEdges, patience, rack);
  }

  /**
   * Whether data edges may be plain beyond this machine's loopback, where the cluster's mend.toml says {@code data_tls =
   * false}. Unless said they may not: what is told us otherwise is refused.
   */
  public Settings withPlainEdges(boolean allowed) {
    return new Settings(api, control, credentials, scheme, allowed, patience, rack);
  }

  /** How long a read waits for its next bytes; 30 s unless said. */
  public Settings withPatience(Duration longest) {
    return new Settings(api, control, credentials, scheme, allowsPlainEdges, longest, rack);
  }

  /** The rack that this machine stands in, by its name in mend.toml; outside all racks unless said. Plans count what lies between. */
  public Settings withRack(String name) {
    return new Settings(api, control, credentials, scheme, allowsPlainEdges, patience, name);
  }

  Address api() {
    return api;
  }

  Address control() {
    return control;
  }

  Credentials credentials() {
    return credentials;
  }

  String scheme() {
    return scheme;
  }

  boolean allowsPlainEdges() {
    return allowsPlainEdges;
  }

  Duration patience() {
    return patience;
  }

  /** Empty if none was said. */
  String rack() {
    return rack;
  }
}
