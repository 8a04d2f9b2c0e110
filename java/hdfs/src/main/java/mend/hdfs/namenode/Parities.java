package mend.hdfs.namenode;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import mend.hdfs.Fingerprints;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.net.NetUtils;

/** Writes the parity blocks of raided files, and compares them with the data. */
final class Parities {
  /** Parity is readable for HDFS's superuser only, until it is published with the permissions of its source. */
  static final FsPermission PRIVATE = new FsPermission((short) 0600);
  private static final int BUFFER = 1 << 16;
  /**
   * The smallest block size with which HDFS creates files (the default of dfs.namenode.fs-limits.min-block-size). The blocks
   * of a folder's small files are shorter, and so are its parity blocks: each is the only block of its file, and not full.
   */
  private static final long LEAST_BLOCK_SIZE = 1 << 20;

  private final DFSClient client;
  private final Answers.Lines lines;
  private final ParityRows rows;
  private final long blockBytes;
  private long pieces;

  Parities(DFSClient client, Answers.Lines lines, ParityRows rows, long blockBytes) {
    this.client = client;
    this.lines = lines;
    this.rows = rows;
    this.blockBytes = blockBytes;
  }

  /** A new file of one block. */
  static final class Target {
    private final int parity;
    private final String path;
    private final String datanode;

    Target(int parity, String path, String datanode) {
      this.parity = parity;
      this.path = path;
      this.datanode = datanode;
    }
  }

  /**
   * Computes parity blocks of a stripe and writes each as a file of one block, which must not exist; their folder
   * must.
   *
   * @param sources the files with the stripe's data blocks
   * @param first the position of the stripe's first block among the blocks of these files
   * @param present the number of data blocks in the stripe
   */
  void write(List<String> sources, int first, int present, List<Target> targets) throws IOException {
    OutputStream[] outputs = new OutputStream[rows.parityBlocks()];
    int[] wanted = targets.stream().mapToInt(target -> target.parity).toArray();
    try (FileBlocks data = new FileBlocks(client, sources)) {
      for (Target target : targets) {
        outputs[target.parity] = create(target);
      }
      rows.encode(blockBytes, wanted, stripe(data, first, present), (parity, computed, bytes) -> {
        outputs[parity].write(computed, 0, bytes);
        tellProgress();
      });
      for (int parity : wanted) {
        outputs[parity].close();
        outputs[parity] = null;
      }
    } finally {
      closeQuietly(outputs);
    }
  }

  /** Returns the block size of a file for a parity block of this length. */
  static long blockSize(long blockBytes) {
    return Math.max(blockBytes, LEAST_BLOCK_SIZE);
  }

  private OutputStream create(Target target) throws IOException {
    InetSocketAddress[] favoured = {NetUtils.createSocketAddr(target.datanode)};
    // Even if the folder above has an erasure coding policy, and never over another file.
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.SHOULD_REPLICATE);
    return client.create(
        target.path, PRIVATE, flags, false, (short) 1, blockSize(blockBytes), null, BUFFER, null, favoured);
  }

  /** Closes files that were not completed. They are too short, so they are deleted later. */
  private static void closeQuietly(OutputStream[] outputs) {
    for (OutputStream output : outputs) {
      try {
        if (output != null) {
          output.close();
        }
      } catch (IOException problem) {
        // The problem that interrupted the writing is reported.
      }
    }
  }

  /**
   * Whether the parity in these files is that of the sources. The blocks of both must have these fingerprints before
   * and after they are read.
   */
  boolean prove(List<String> sources, List<String> files, int dataBlocks, String sourcePrint, String parityPrint)
      throws IOException {
    boolean isRight = true;
    try (FileBlocks data = new FileBlocks(client, sources); FileBlocks parity = new FileBlocks(client, files)) {
      check(data, parity, sourcePrint, parityPrint);
      for (int first = 0, stripe = 0; first < data.all().size() && isRight; first += dataBlocks, stripe++) {
        int present = Math.min(dataBlocks, data.all().size() - first);
        isRight = isRight(stripe(data, first, present), parity, stripe * rows.parityBlocks());
        data.close();
        parity.close();
      }
    }
    try (FileBlocks data = new FileBlocks(client, sources); FileBlocks parity = new FileBlocks(client, files)) {
      // A DataNode that is asked for a block also serves a replica with a newer generation stamp.
      check(data, parity, sourcePrint, parityPrint);
    }
    return isRight;
  }

  private static void check(FileBlocks data, FileBlocks parity, String sourcePrint, String parityPrint)
      throws Changes.ChangedException {
    if (!Fingerprints.of(data.all()).equals(sourcePrint) || !Fingerprints.of(parity.all()).equals(parityPrint)) {
      throw new Changes.ChangedException("the file or its parity has changed meanwhile");
    }
  }

  private boolean isRight(ParityRows.Data data, FileBlocks parity, int firstParity) throws IOException {
    int[] all = new int[rows.parityBlocks()];
    Arrays.setAll(all, at -> at);
    long[] compared = new long[all.length];
    byte[] stored = new byte[ParityRows.PIECE];
    boolean[] isWrong = new boolean[1];
    rows.encode(blockBytes, all, data, (at, computed, bytes) -> {
      parity.read(firstParity + at, compared[at], stored, bytes);
      compared[at] += bytes;
      isWrong[0] |= !Arrays.equals(stored, 0, bytes, computed, 0, bytes);
      tellProgress();
    });
    return !isWrong[0];
  }

  /** Returns the data of a stripe; missing blocks of a short stripe count as zeros. */
  private static ParityRows.Data stripe(FileBlocks data, int first, int present) {
    return (block, from, into, bytes) ->
        data.read(block < present ? first + block : Integer.MAX_VALUE, from, into, bytes);
  }

  /** Tells the coordinator that the work goes on. */
  private void tellProgress() {
    pieces++;
    lines.tellProgress(0, pieces);
  }
}
