package mend.client;

import java.util.ArrayList;
import java.util.List;

/** The state of a repair. */
public final class Repair {
  private final long number;
  private final String state;
  private final List<String> reasons = new ArrayList<>();
  private final List<String> unknown = new ArrayList<>();
  private boolean contradictory;

  Repair(Json.Node view) throws MendException {
    number = view.get("repair").number();
    state = view.get("state").text();
    Json.Node items = view.get("items");
    if (!items.isNull()) {
      for (Json.Node item : items.list()) {
        contradictory |= item.get("state").text().equals("contradictory");
        if (!item.get("reason").isNull()) {
          reasons.add(item.get("reason").text());
        }
      }
    }
    Json.Node conditions = view.get("unknown");
    if (!conditions.isNull()) {
      for (Json.Node condition : conditions.list()) {
        unknown.add(condition.get("text").text());
      }
    }
  }

  /** Returns the repair's number. */
  public long number() {
    return number;
  }

  /** Whether all blocks are repaired, published and read back. */
  public boolean isDone() {
    return state.equals("done");
  }

  /** Whether the repair has ended, successfully or not. */
  public boolean hasEnded() {
    return isDone() || state.equals("failed") || state.equals("cancelled");
  }

  /**
   * Whether the repair failed because the blocks contradict each other: some are wrong although their
   * checksums match, and the wrong ones cannot be identified. Rebuilding from these blocks by other means may
   * produce wrong data.
   */
  public boolean isContradictory() {
    return contradictory;
  }

  /**
   * Returns why the state of some blocks was unknown when the repair ended. If the list is not empty, blocks may
   * be lost although the repair is done. Recorded for repairs of all lost blocks and for those that found none.
   */
  public List<String> unknown() {
    return List.copyOf(unknown);
  }

  @Override
  public String toString() {
    return "repair " + number + " is " + state + (reasons.isEmpty() ? "" : ": " + String.join("; ", reasons));
  }
}
