package mend.client;

import java.time.Duration;

/**
 * The addresses of a cluster and the client's options. Immutable: each {@code with…} method returns a
 * changed copy.
 */
public final class Settings {
  private final Address api;
  private final Address control;
  private final Credentials credentials;
  private final String scheme;
  private final int sliceBytes;
  private final boolean allowsPlainEdges;
  private final Duration patience;
  private final String rack;

  private Settings(
      Address api, Address control, Credentials credentials, String scheme, int sliceBytes,
      boolean allowsPlainEdges, Duration patience, String rack) {
    this.api = api;
    this.control = control;
    this.credentials = credentials;
    this.scheme = scheme;
    this.sliceBytes = sliceBytes;
    this.allowsPlainEdges = allowsPlainEdges;
    this.patience = patience;
    this.rack = rack;
  }

  /**
   * Creates the settings for a cluster whose coordinator listens on {@code api} and {@code control}. Both are
   * {@code HOST:PORT}, as in {@code [coordinator]} of the cluster's mend.toml.
   *
   * @throws IllegalArgumentException if an address is invalid
   */
  public static Settings of(String api, String control, Credentials credentials) {
    return new Settings(
        Address.parse(api), Address.parse(control), credentials, "auto", 0, false, Duration.ofSeconds(30), "");
  }

  /** Sets the scheme for rebuilding lost blocks; by default {@code auto}, which lets the planner choose. */
  public Settings withScheme(String name) {
    return new Settings(api, control, credentials, name, sliceBytes, allowsPlainEdges, patience, rack);
  }

  /**
   * Sets the size of slices, a multiple of 64 bytes from 4 KiB to 4 MiB; by default 0, which lets the planner choose.
   */
  public Settings withSliceBytes(int bytes) {
    return new Settings(api, control, credentials, scheme, bytes, allowsPlainEdges, patience, rack);
  }

  /**
   * Allows unencrypted data connections to other machines, for clusters whose mend.toml says {@code data_tls
   * = false}. By default they are refused, even if the coordinator requests them.
   */
  public Settings withPlainEdges(boolean allowed) {
    return new Settings(api, control, credentials, scheme, sliceBytes, allowed, patience, rack);
  }

  /** Sets how long a read waits for its next bytes; 30 s by default. */
  public Settings withPatience(Duration longest) {
    return new Settings(api, control, credentials, scheme, sliceBytes, allowsPlainEdges, longest, rack);
  }

  /**
   * Sets this machine's rack, as named in mend.toml. Plans then account for the links between racks; by
   * default the client is treated as outside all racks.
   */
  public Settings withRack(String name) {
    return new Settings(api, control, credentials, scheme, sliceBytes, allowsPlainEdges, patience, name);
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

  /** Returns the size of slices as the protocol states it; null if the planner chooses. */
  Long sliceBytes() {
    return sliceBytes == 0 ? null : (long) sliceBytes;
  }

  boolean allowsPlainEdges() {
    return allowsPlainEdges;
  }

  Duration patience() {
    return patience;
  }

  /** Returns the rack's name; empty if unset. */
  String rack() {
    return rack;
  }
}
