package mend.hdfs.namenode;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeVolumeInfo;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.ipc.RPC;

/**
 * One answer of the NameNode, line by line. DataNodes are numbered as they come; a number is good for this answer alone.
 *
 * <pre>
 *   safe                                               the NameNode is in safe mode, and knows little
 *   n NUMBER UUID ADDRESS                              a DataNode that the lines after this one name
 *   d NUMBER RACK live|dead normal|leaving|maintenance REPORTED   what it is now, and when it last reported its blocks
 *   v NUMBER FOLDER                                    a folder of a DataNode
 *   w NUMBER WHY                                       it does not say which folders it has
 *   g FILE START GROUP STAMP BYTES POLICY INDEX:NUMBER,…          a group that nobody writes to, and who has its blocks
 *   t INDEX TOKEN                                      a token for an internal block, in base64: a secret
 * </pre>
 */
final class Survey {
  private static final String BY_INODE = "/.reserved/.inodes/";
  private static final int DATANODE_LIMIT_MS = 10_000;
  private final DFSClient client;
  private final Configuration conf;
  private final Answers.Lines lines;
  private final Map<String, Integer> numbers = new HashMap<>();

  Survey(DFSClient client, Configuration conf, Answers.Lines lines) {
    this.client = client;
    this.conf = conf;
    this.lines = lines;
  }

  /** All DataNodes. */
  void nodes() throws IOException {
    tellSafeMode();
    tell(DatanodeReportType.LIVE, "live");
    tell(DatanodeReportType.DEAD, "dead");
  }

  private void tellSafeMode() throws IOException {
    if (client.setSafeMode(SafeModeAction.SAFEMODE_GET, true)) {
      lines.add("safe");
    }
  }

  private void tell(DatanodeReportType which, String word) throws IOException {
    for (DatanodeInfo node : client.datanodeReport(which)) {
      String rack = plain(node.getNetworkLocation());
      lines.add("d " + number(node) + " " + rack + " " + word + " " + service(node) + " " + node.getLastBlockReportTime());
    }
  }

  private static String service(DatanodeInfo node) {
    if (node.isMaintenance()) {
      return "maintenance";
    }
    return node.isDecommissioned() || node.isDecommissionInProgress() ? "leaving" : "normal";
  }

  /** All DataNodes, with the folders of those that live. */
  void volumes() throws IOException {
    nodes();
    for (DatanodeInfo node : client.datanodeReport(DatanodeReportType.LIVE)) {
      ClientDatanodeProtocol proxy = null;
      try {
        proxy = DFSUtilClient.createClientDatanodeProtocolProxy(node, conf, DATANODE_LIMIT_MS, false);
        for (DatanodeVolumeInfo volume : proxy.getVolumeReport()) {
          lines.add("v " + number(node) + " " + volume.getPath());
        }
      } catch (IOException problem) {
        lines.add("w " + number(node) + " " + Answers.text(problem));
      } finally {
        if (proxy != null) {
          RPC.stopProxy(proxy);
        }
      }
    }
  }

  /** All DataNodes, and all groups of all files below these folders. */
  void list(String[] folders) throws IOException {
    nodes();
    Deque<String> left = new ArrayDeque<>();
    for (String folder : folders) {
      left.add(folder);
    }
    while (!left.isEmpty()) {
      listFolder(left.pop(), left);
    }
  }

  /** A folder that goes meanwhile has nothing in it. */
  private void listFolder(String folder, Deque<String> left) throws IOException {
    byte[] after = HdfsFileStatus.EMPTY_NAME;
    DirectoryListing listing;
    do {
      try {
        listing = client.listPaths(folder, after, true);
      } catch (FileNotFoundException gone) {
        return;
      }
      if (listing == null) {
        return;
      }
      for (HdfsFileStatus status : listing.getPartialListing()) {
        if (status.isDirectory()) {
          left.push(status.getFullName(folder));
        } else if (status instanceof HdfsLocatedFileStatus && status.getErasureCodingPolicy() != null) {
          LocatedBlocks blocks = ((HdfsLocatedFileStatus) status).getLocatedBlocks();
          tell(status.getFileId(), status.getErasureCodingPolicy(), blocks);
        }
      }
      after = listing.getLastName();
    } while (listing.hasMore());
  }

  /** One group of a file, whatever the file is called by now. */
  void group(long file, long start) throws IOException {
    tellSafeMode();
    LocatedBlocks blocks = client.getLocatedBlocks(BY_INODE + file, start, 1);
    if (blocks != null && blocks.getErasureCodingPolicy() != null) {
      tell(file, blocks.getErasureCodingPolicy(), blocks);
    }
  }

  /** A token for each of these internal blocks of a group; none if HDFS wants no tokens, as those that it gives to readers show. */
  void tokens(long file, long start, String[] indices, BlockTokens tokens) throws IOException {
    LocatedBlocks blocks = client.getLocatedBlocks(BY_INODE + file, start, 1);
    if (blocks == null || blocks.getLocatedBlocks().isEmpty()) {
      return;
    }
    LocatedBlock group = blocks.get(0);
    if (group.getBlockToken().getIdentifier().length == 0) {
      return;
    }
    ExtendedBlock[] internal = new ExtendedBlock[indices.length];
    for (int at = 0; at < indices.length; at++) {
      internal[at] = new ExtendedBlock(group.getBlock());
      internal[at].setBlockId(group.getBlock().getBlockId() + Integer.parseInt(indices[at]));
    }
    byte[][] made = tokens.make(internal);
    for (int at = 0; at < indices.length; at++) {
      lines.add("t " + indices[at] + " " + Base64.getEncoder().encodeToString(made[at]));
    }
  }

  private void tell(long file, ErasureCodingPolicy policy, LocatedBlocks blocks) {
    if (blocks == null) {
      return;
    }
    for (LocatedBlock block : blocks.getLocatedBlocks()) {
      if (block instanceof LocatedStripedBlock && !isOpen(blocks, block)) {
        tell(file, policy, (LocatedStripedBlock) block);
      }
    }
  }

  /** Whether a group is still written to, or may be. */
  private static boolean isOpen(LocatedBlocks blocks, LocatedBlock block) {
    LocatedBlock last = blocks.getLastLocatedBlock();
    boolean isLast = last != null && last.getBlock().getBlockId() == block.getBlock().getBlockId();
    return isLast && blocks.isUnderConstruction() && !blocks.isLastBlockComplete();
  }

  private void tell(long file, ErasureCodingPolicy policy, LocatedStripedBlock block) {
    DatanodeInfo[] nodes = block.getLocations();
    byte[] indices = block.getBlockIndices();
    StringBuilder homes = new StringBuilder();
    for (int at = 0; at < nodes.length; at++) {
      homes.append(at == 0 ? "" : ",").append(indices[at]).append(':').append(number(nodes[at]));
    }
    ExtendedBlock group = block.getBlock();
    lines.add("g " + file + " " + block.getStartOffset() + " " + group.getBlockId() + " " + group.getGenerationStamp()
        + " " + group.getNumBytes() + " " + plain(policy.getName()) + " " + (nodes.length == 0 ? "-" : homes));
  }

  private int number(DatanodeInfo node) {
    Integer known = numbers.get(node.getDatanodeUuid());
    if (known != null) {
      return known;
    }
    int number = numbers.size();
    numbers.put(node.getDatanodeUuid(), number);
    lines.add("n " + number + " " + plain(node.getDatanodeUuid()) + " " + plain(node.getXferAddr()));
    return number;
  }

  /** As one word. */
  private static String plain(String text) {
    return text.replaceAll("\\s", "_");
  }
}
