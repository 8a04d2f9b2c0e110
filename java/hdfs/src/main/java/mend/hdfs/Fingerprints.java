package mend.hdfs;

import java.util.List;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** Identifies the blocks of a file, as Mend's notes on parity do. */
public final class Fingerprints {
  private Fingerprints() {}

  /** Returns the fingerprint of these blocks as text. */
  public static String of(List<LocatedBlock> blocks) {
    return String.format("%016x", ParityNote.fingerprint(blocks));
  }
}
