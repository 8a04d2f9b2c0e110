package mend.hdfs.namenode;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Locale;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.net.Peer;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.DataTransferProtoUtil;
import org.apache.hadoop.hdfs.protocol.datatransfer.Sender;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.BlockOpResponseProto;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.ChecksumProto;
import org.apache.hadoop.hdfs.protocolPB.PBHelperClient;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.DataChecksum;

/** Requests the replicas of a group or of a replicated block from DataNodes, as HDFS's readers do. */
final class Replicas {
  /** The client's name in a DataNode's log. */
  private static final String NAME = "mend";
  /** The most DataNodes that are asked for the format of checksums. */
  private static final int ASKED = 2;
  private final DFSClient client;

  Replicas(DFSClient client) {
    this.client = client;
  }

  /**
   * Returns the format of the checksums of a group's blocks or of a replicated block, such as {@code crc32c/512}, as a
   * DataNode that holds one of them states it. All blocks of a group have the same format.
   *
   * @param policy the policy of a group; null for a replicated block
   * @return null if the group has no checksums, or no DataNode holds a block
   * @throws IOException if the DataNodes cannot be asked
   */
  String checksum(LocatedBlock group, ErasureCodingPolicy policy) throws IOException {
    IOException problem = null;
    for (int at = 0; at < group.getLocations().length && at < ASKED; at++) {
      try {
        ChecksumProto checksum = open(group, policy, at);
        DataChecksum.Type type = PBHelperClient.convert(checksum.getType());
        if (type == DataChecksum.Type.CRC32 || type == DataChecksum.Type.CRC32C) {
          return type.name().toLowerCase(Locale.ROOT) + "/" + checksum.getBytesPerChecksum();
        }
      } catch (IOException unanswered) {
        problem = unanswered;
      }
    }
    if (problem != null) {
      throw problem;
    }
    return null;
  }

  /**
   * Requests each block of a group that the NameNode lists on the DataNode with this address. If the DataNode has
   * lost the files of a block, it notices this, forgets the block, and tells the NameNode.
   */
  void touch(LocatedStripedBlock group, ErasureCodingPolicy policy, String address) {
    DatanodeInfo[] nodes = group.getLocations();
    for (int at = 0; at < nodes.length; at++) {
      if (nodes[at].getXferAddr().equals(address)) {
        try {
          open(group, policy, at);
        } catch (IOException lost) {
          // The DataNode has no such block, or cannot be reached.
        }
      }
    }
  }

  /** Requests the first byte of the block at this location. Returns the DataNode's answer, but does not read the byte. */
  private ChecksumProto open(LocatedBlock group, ErasureCodingPolicy policy, int at) throws IOException {
    ExtendedBlock block = new ExtendedBlock(group.getBlock());
    Token<BlockTokenIdentifier> token = group.getBlockToken();
    if (group instanceof LocatedStripedBlock) {
      LocatedStripedBlock striped = (LocatedStripedBlock) group;
      int index = striped.getBlockIndices()[at];
      block.setBlockId(group.getBlock().getBlockId() + index);
      block.setNumBytes(StripedBlockUtil.getInternalBlockLength(group.getBlockSize(), policy, index));
      token = striped.getBlockTokens()[at];
    }
    DatanodeInfo node = group.getLocations()[at];
    String address = node.getXferAddr(client.getConf().isConnectToDnViaHostname());
    try (Peer peer = client.newConnectedPeer(NetUtils.createSocketAddr(address), token, node)) {
      DataOutputStream output = new DataOutputStream(new BufferedOutputStream(peer.getOutputStream()));
      new Sender(output).readBlock(block, token, NAME, 0, 1, true, CachingStrategy.newDefaultStrategy());
      BlockOpResponseProto answer = BlockOpResponseProto.parseFrom(PBHelperClient.vintPrefixed(peer.getInputStream()));
      DataTransferProtoUtil.checkBlockOpStatus(answer, "reading " + block + " from " + node);
      return answer.getReadOpChecksumInfo().getChecksum();
    }
  }
}
