package mend.hdfs;

import java.io.IOException;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * Rebuilds bytes of a lost block of a raided file from the same bytes of k other blocks of its stripe.
 *
 * <p>A DataNode that is asked for a block serves a replica with a newer generation stamp too. So the bytes are
 * discarded unless the file and its parity have the same blocks after all sources were read.
 */
public final class RaidDecoder {
  /** The calls to HDFS. */
  public interface Access {
    /** Looks the file and its parity up again; returns null if there is no valid parity, or no answer. */
    RaidedFile lookAgain();

    /** Whether a DataNode is known not to answer. */
    boolean isDead(DatanodeInfo node);

    /**
     * Returns a range of a block, with zeros where the block has ended; null if the DataNode cannot deliver it,
     * and is dead from now on.
     */
    byte[] read(LocatedBlock block, DatanodeInfo holder, long from, int bytes);
  }

  private RaidDecoder() {}

  /**
   * Returns bytes of a lost block.
   *
   * @throws IOException if too many blocks are lost, or if a block of the file or its parity has changed
   */
  public static byte[] decode(RaidedFile file, LocatedBlock lost, long from, int bytes, Access access)
      throws IOException {
    byte[] decoded = null;
    while (decoded == null) {
      decoded = decoded(file.decoding(lost, access::isDead), from, bytes, access);
    }
    RaidedFile now = access.lookAgain();
    if (now == null || !file.hasBlocksOf(now)) {
      throw new IOException("the file or its parity changed, or the NameNode did not answer, while " + lost.getBlock()
          + " was decoded");
    }
    return decoded;
  }

  /** Returns null if a source cannot be read. */
  private static byte[] decoded(Decoding decoding, long from, int bytes, Access access) {
    byte[] sum = new byte[bytes];
    for (int at = 0; at < decoding.sources(); at++) {
      byte[] source = access.read(decoding.source(at), decoding.holder(at), from, bytes);
      if (source == null) {
        return null;
      }
      decoding.add(at, source, sum);
    }
    return sum;
  }
}
