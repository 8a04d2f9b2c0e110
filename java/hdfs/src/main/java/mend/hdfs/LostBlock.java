package mend.hdfs;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;

/** A lost block of a stripe, which Mend rebuilds while it is read. Its text form names block and stripe. */
public interface LostBlock {
  /** The result of a read. */
  enum Result {
    /** The bytes were read. */
    READ,
    /** The coordinator did not answer, or cannot serve the stripe now. */
    UNAVAILABLE,
    /** The bytes cannot be decoded, or cannot be trusted. */
    FAILED
  }

  /**
   * Fills {@code target} with bytes of the block, starting at offset {@code from}.
   *
   * @return the result; unless it is {@code READ}, the content of {@code target} is undefined
   */
  Result read(long from, ByteBuffer target);

  /**
   * Opens a stream of bytes, after a successful {@link #read}. The bytes are fetched ahead. The stream fails
   * if the coordinator has forgotten the stripe; the next {@code read} then describes it again.
   */
  InputStream open(long from, long to) throws IOException;
}
