package mend.client;

import java.util.ArrayList;
import java.util.List;

/** How far a repair is. */
public final class Repair {
  private final long number;
  private final String state;
  private final List<String> reasons = new ArrayList<>();
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
  }

  /** Its number. */
  public long number() {
    return number;
  }

  /** Whether all is repaired, published and read back. */
  public boolean isDone() {
    return state.equals("done");
  }

  /** Whether it ended, well or badly. */
  public boolean hasEnded() {
    return isDone() || state.equals("failed") || state.equals("cancelled");
  }

  /**
   * Whether it failed because the blocks contradict each other: some are wrong although their checksums hold, and nothing
   * tells which. Whoever rebuilds from them otherwise may make wrong blocks.
   */
  public boolean isContradictory() {
    return contradictory;
  }

  @Override
  public String toString() {
    return "repair " + number + " is " + state + (reasons.isEmpty() ? "" : ": " + String.join("; ", reasons));
  }
}
