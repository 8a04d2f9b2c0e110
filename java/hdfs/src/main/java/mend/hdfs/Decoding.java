package mend.hdfs;

import java.util.List;
import mend.client.Gf;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** A lost block as a linear combination of other blocks of its stripe, which have a holder. */
final class Decoding {
  private final List<LocatedBlock> sources;
  private final List<DatanodeInfo> holders;
  private final int[] coefficients;

  Decoding(List<LocatedBlock> sources, List<DatanodeInfo> holders, int[] coefficients) {
    this.sources = sources;
    this.holders = holders;
    this.coefficients = coefficients;
  }

  /** Returns the number of blocks to read. */
  int sources() {
    return sources.size();
  }

  /** Returns a block to read. */
  LocatedBlock source(int at) {
    return sources.get(at);
  }

  /** Returns a DataNode that has the block. */
  DatanodeInfo holder(int at) {
    return holders.get(at);
  }

  /** Adds a source's bytes, multiplied with its coefficient, to the lost block's bytes. */
  void add(int at, byte[] bytes, byte[] sum) {
    Gf.mulAdd(coefficients[at], bytes, sum, 0, bytes.length);
  }
}
