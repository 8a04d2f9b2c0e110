package mend.client;

import static mend.client.Json.object;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A stripe of another system, described for the coordinator ({@code POST /v1/stripes},
 * docs/reference/api.md).
 */
public final class Stripe {
  private final String name;
  private final String code;
  private final long blockBytes;
  private final List<Object> blocks = new ArrayList<>();

  /**
   * Creates a stripe without blocks.
   *
   * @param name the name for later requests
   * @param code the code, such as {@code rs-9-6}
   * @param blockBytes the block size used by the code
   */
  public Stripe(String name, String code, long blockBytes) {
    this.name = name;
    this.code = code;
    this.blockBytes = blockBytes;
  }

  /**
   * Adds the next block.
   *
   * @param block the name by which the helper finds the block
   * @param bytes the block's size; a smaller block is padded with zeros for the code
   * @param node the helper that holds the block; null if the block is lost
   */
  public Stripe block(String block, long bytes, String node) {
    blocks.add(object("block", block, "bytes", bytes, "node", node, "digest", null));
    return this;
  }

  /** Returns the stripe's name. */
  public String name() {
    return name;
  }

  Map<String, Object> json() {
    return object("stripe", name, "code", code, "block_bytes", blockBytes, "blocks", blocks);
  }
}
