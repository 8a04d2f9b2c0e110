package mend.hdfs.namenode;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.net.Peer;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.Sender;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.BlockOpResponseProto;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.Status;
import org.apache.hadoop.hdfs.protocolPB.PBHelperClient;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.token.Token;

/**
 * Moves replicas between DataNodes as HDFS's Balancer does: the new DataNode copies the replica, and only then HDFS
 * removes the old one.
 */
final class Moves {
  /** The time without a sign of life from a DataNode that copies a replica. It sends one every few seconds. */
  private static final int COPY_LIMIT_MS = 60_000;
  private final DFSClient client;
  private final BlockTokens tokens;
  private final Answers.Lines lines;

  Moves(DFSClient client, BlockTokens tokens, Answers.Lines lines) {
    this.client = client;
    this.tokens = tokens;
    this.lines = lines;
  }

  /** Moves the replica of a file's block at this position. DataNodes are named by their addresses. */
  void move(String path, int position, String from, String to) throws IOException {
    List<LocatedBlock> blocks = client.getLocatedBlocks(path, 0, Long.MAX_VALUE).getLocatedBlocks();
    if (position >= blocks.size()) {
      throw new Changes.ChangedException(path + " has no block " + position + " any more");
    }
    LocatedBlock block = blocks.get(position);
    DatanodeInfo[] holders = block.getLocations();
    for (int at = 0; at < holders.length; at++) {
      if (holders[at].getXferAddr().equals(from)) {
        move(block, at, live(to));
        return;
      }
    }
    throw new Changes.ChangedException(from + " has no replica of block " + position + " of " + path + " any more");
  }

  private DatanodeInfo live(String address) throws IOException {
    for (DatanodeInfo node : client.datanodeReport(DatanodeReportType.LIVE)) {
      if (node.getXferAddr().equals(address)) {
        return node;
      }
    }
    throw new Changes.ChangedException("the NameNode lists no live DataNode " + address);
  }

  private void move(LocatedBlock block, int at, DatanodeInfo target) throws IOException {
    DatanodeInfo source = block.getLocations()[at];
    Token<BlockTokenIdentifier> token = tokens.forMove(block);
    String address = target.getXferAddr(client.getConf().isConnectToDnViaHostname());
    try (Peer peer = client.newConnectedPeer(NetUtils.createSocketAddr(address), token, target)) {
      peer.setReadTimeout(COPY_LIMIT_MS);
      DataOutputStream output = new DataOutputStream(new BufferedOutputStream(peer.getOutputStream()));
      new Sender(output).replaceBlock(
          block.getBlock(), block.getStorageTypes()[at], token, source.getDatanodeUuid(), source, null);
      BlockOpResponseProto answer;
      do {
        answer = BlockOpResponseProto.parseFrom(PBHelperClient.vintPrefixed(peer.getInputStream()));
        lines.tellProgress(0, 0);
      } while (answer.getStatus() == Status.IN_PROGRESS);
      if (answer.getStatus() != Status.SUCCESS) {
        throw new IOException("the DataNode " + target.getXferAddr() + " cannot copy " + block.getBlock() + " from "
            + source.getXferAddr() + ": " + answer.getMessage());
      }
    }
  }
}
