package mend.hdfs.namenode;

import java.io.IOException;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.NameNodeProxies;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocolPB.PBHelperClient;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenSecretManager;
import org.apache.hadoop.hdfs.security.token.block.ExportedBlockKeys;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol;
import org.apache.hadoop.security.token.Token;

/**
 * Creates block tokens in the same way as HDFS's Balancer: with keys that the NameNode sends to HDFS's
 * superuser.
 *
 * <p>The keys are requested each time, because they change, and a restarted NameNode has new keys.
 */
final class BlockTokens {
  /**
   * The operations that a token allows: a helper first tries to read the block from its DataNode and then
   * writes it.
   */
  private static final EnumSet<AccessMode> MODES = EnumSet.of(AccessMode.READ, AccessMode.WRITE);
  /** The operations of a move: the new DataNode takes the block, and fetches it from another one. */
  private static final EnumSet<AccessMode> MOVE_MODES = EnumSet.of(AccessMode.REPLACE, AccessMode.COPY);
  private final Configuration conf;
  private NamenodeProtocol namenode;

  BlockTokens(Configuration conf) {
    this.conf = conf;
  }

  /**
   * Creates a token for each of these blocks of one pool, encoded as in the data transfer protocol's headers.
   */
  byte[][] make(ExtendedBlock[] blocks) throws IOException {
    BlockTokenSecretManager manager = manager(blocks[0].getBlockPoolId());
    byte[][] tokens = new byte[blocks.length][];
    for (int at = 0; at < blocks.length; at++) {
      // Valid for any storage type; the DataNode chooses one.
      tokens[at] = PBHelperClient.convert(
          manager.generateToken(null, blocks[at], MODES, new StorageType[0], new String[0])).toByteArray();
    }
    return tokens;
  }

  /**
   * Creates a token with which a DataNode copies a block from another one; an empty one if HDFS requires no tokens:
   * the token that a reader of the block gets is then empty.
   */
  Token<BlockTokenIdentifier> forMove(LocatedBlock block) throws IOException {
    if (block.getBlockToken().getIdentifier().length == 0) {
      return BlockTokenSecretManager.DUMMY_TOKEN;
    }
    return manager(block.getBlock().getBlockPoolId())
        .generateToken(null, block.getBlock(), MOVE_MODES, new StorageType[0], new String[0]);
  }

  private BlockTokenSecretManager manager(String pool) throws IOException {
    ExportedBlockKeys keys = namenode().getBlockKeys();
    if (!keys.isBlockTokenEnabled()) {
      throw new IOException("the NameNode requires block tokens, but has no keys to create them");
    }
    boolean asProtobuf = conf.getBoolean(DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE,
        DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE_DEFAULT);
    BlockTokenSecretManager manager = new BlockTokenSecretManager(keys.getKeyUpdateInterval(),
        keys.getTokenLifetime(), pool, conf.get(DFSConfigKeys.DFS_DATA_ENCRYPTION_ALGORITHM_KEY), asProtobuf);
    manager.addKeys(keys);
    return manager;
  }

  private synchronized NamenodeProtocol namenode() throws IOException {
    if (namenode == null) {
      namenode =
          NameNodeProxies.createProxy(conf, FileSystem.getDefaultUri(conf), NamenodeProtocol.class).getProxy();
    }
    return namenode;
  }
}
