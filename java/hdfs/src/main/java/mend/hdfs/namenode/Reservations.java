package mend.hdfs.namenode;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.EnumSet;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.io.EnumSetWritable;

/**
 * Files of one block whose bytes come from Mend's helpers. This program only creates such a file and has its block
 * allocated; a helper then delivers the block to its DataNode, and the file is completed.
 *
 * <p>A file's lease belongs to a client that is named after the file's path. So any JVM can complete the file, but not
 * after another coordinator has renamed the draft. The lease is not renewed, so a file must be completed before the
 * hard limit of leases, by default 20 minutes.
 */
final class Reservations {
  /** The time for a DataNode to report a block that it has accepted. Usually this takes a moment. */
  private static final long REPORT_LIMIT_MS = 20_000;
  private static final long FIRST_PAUSE_MS = 5;
  private static final long LAST_PAUSE_MS = 500;
  private static final EnumSet<CreateFlag> FLAGS = EnumSet.of(CreateFlag.CREATE, CreateFlag.SHOULD_REPLICATE);

  private final ClientProtocol namenode;
  private final Answers.Lines lines;
  private final long blockBytes;

  Reservations(ClientProtocol namenode, Answers.Lines lines, long blockBytes) {
    this.namenode = namenode;
    this.lines = lines;
    this.blockBytes = blockBytes;
  }

  private static String holder(String path) {
    return "mend-" + path;
  }

  /**
   * Creates a file, which must not exist, and has its block allocated on a DataNode. Answers {@code A PATH BLOCK STAMP
   * token|plain}: the block, and whether DataNodes require a token.
   */
  void reserve(String path, String datanode) throws IOException {
    HdfsFileStatus file = namenode.create(path, Parities.PRIVATE, holder(path), new EnumSetWritable<>(FLAGS), false,
        (short) 1, Parities.blockSize(blockBytes), CryptoProtocolVersion.supported(), null, null);
    String[] favoured = {datanode};
    LocatedBlock located = namenode.addBlock(path, holder(path), null, null, file.getFileId(), favoured,
        EnumSet.noneOf(AddBlockFlag.class));
    ExtendedBlock block = located.getBlock();
    checkPlace(path, located.getLocations(), datanode);
    String token = located.getBlockToken().getIdentifier().length == 0 ? "plain" : "token";
    lines.add(
        "A " + Survey.encoded(path) + " " + block.getBlockId() + " " + block.getGenerationStamp() + " " + token);
  }

  /** HDFS treats the wanted DataNode as a hint only. */
  private static void checkPlace(String path, DatanodeInfo[] places, String datanode) throws IOException {
    if (places.length != 1 || !places[0].getXferAddr().equals(datanode)) {
      String place = places.length == 0 ? "no DataNode" : places[0].getXferAddr();
      throw new Changes.ChangedException("HDFS allocated the block of " + path + " on " + place + " instead of "
          + datanode + ", which may be full or busy");
    }
  }

  /** Completes a file once a DataNode has reported the whole block. A file that is complete stays as it is. */
  void complete(String path, long number, long stamp) throws IOException {
    LocatedBlocks blocks = namenode.getBlockLocations(path, 0, Long.MAX_VALUE);
    HdfsFileStatus file = namenode.getFileInfo(path);
    if (blocks == null || file == null) {
      throw new FileNotFoundException(path + " does not exist any more");
    }
    ExtendedBlock block = reserved(path, blocks.getLastLocatedBlock(), number, stamp);
    if (!blocks.isUnderConstruction()) {
      return;
    }
    ExtendedBlock whole = new ExtendedBlock(block.getBlockPoolId(), number, blockBytes, stamp);
    long until = System.currentTimeMillis() + REPORT_LIMIT_MS;
    long pause = FIRST_PAUSE_MS;
    while (!namenode.complete(path, holder(path), whole, file.getFileId())) {
      if (System.currentTimeMillis() > until) {
        throw new IOException("no DataNode has reported block " + number + " of " + path + " within "
            + REPORT_LIMIT_MS / 1000 + " s");
      }
      lines.tellProgress(0, 0);
      sleep(pause);
      pause = Math.min(2 * pause, LAST_PAUSE_MS);
    }
  }

  /** Returns the block of a file if it is the one that was reserved. */
  private static ExtendedBlock reserved(String path, LocatedBlock last, long number, long stamp) throws IOException {
    ExtendedBlock block = last == null ? null : last.getBlock();
    if (block == null || block.getBlockId() != number || block.getGenerationStamp() != stamp) {
      throw new Changes.ChangedException(path + " has another block than " + number + " with generation stamp " + stamp);
    }
    return block;
  }

  private static void sleep(long pauseMs) throws IOException {
    try {
      Thread.sleep(pauseMs);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while waiting for a DataNode's report");
    }
  }
}
