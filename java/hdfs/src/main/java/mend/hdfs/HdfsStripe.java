package mend.hdfs;

import java.io.IOException;
import mend.client.Stripe;

/** A stripe of HDFS that can be described to the coordinator: a block group, or blocks of a raided file. */
public interface HdfsStripe {
  /**
   * Returns the stripe's name. The coordinator uses the same name if it knows the stripe from the NameNode.
   */
  String name();

  /** Returns the sizes and the holders as text, for comparison. */
  String whereabouts();

  /**
   * Converts an HDFS index of a block to the block's index in the stripe.
   *
   * @throws IOException if the stripe has no such block
   */
  int indexInStripe(int index) throws IOException;

  /**
   * Returns the description.
   *
   * @throws IOException if Mend does not support the code
   */
  Stripe stripe() throws IOException;
}
