package mend.client;

import static mend.client.Json.object;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A stripe of another system, described for the coordinator ({@code POST /v1/stripes}, docs/reference/api.md). */
public final class Stripe {
  private final String name;
  private final String code;
  private final long blockBytes;
  private final List<Object> blocks = new ArrayList<>();

  /**
   * A stripe without blocks so far.
   *
   * @param name by which it is asked for from now on
   * @param code such as {@code rs-9-6}
   * @param blockBytes of a block for the purpose of coding
   */
  public Stripe(String name, String code, long blockBytes) {
    this.name = name;
    this.code = code;
    this.blockBytes = blockBytes;
  }

  /**
   * Adds the next block.
   *
   * @param block its name, by which its helper finds it
   * @param bytes its bytes; zeros follow in coding
   * @param node the helper that has it; null if it is lost
   */
  public Stripe block(String block, long bytes, String node) {
    blocks.add(object("block", block, "bytes", bytes, "node", node, "digest", null));
    return this;
  }

  /** Its name. */
  public String name() {
    return name;
  }

  Map<String, Object> json() {
    return object("stripe", name, "code", code, "block_bytes", blockBytes, "blocks", blocks);
  }
}
