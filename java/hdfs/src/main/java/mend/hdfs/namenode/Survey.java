package mend.hdfs.namenode;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import mend.hdfs.Inodes;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.BlockReportOptions;
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
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.ipc.RPC;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;

/**
 * One answer of the NameNode, line by line. DataNodes are numbered in order of appearance; the numbers are
 * valid within this answer only.
 *
 * <pre>
 *   safe                        the NameNode is in safe mode, so its data is incomplete
 *   n NUMBER UUID ADDRESS       a DataNode that later lines refer to
 *   d NUMBER RACK live|silent|dead normal|leaving|maintenance REPORTED
 *                               the DataNode's state, and the time of its last block report; silent: the
 *                               NameNode still takes it for live, but has had no heartbeat for a while
 *   v NUMBER FOLDER             a folder of a DataNode
 *   w NUMBER WHY                the DataNode does not report its folders, and why
 *   missing PATH                the encoded path of a folder to list that does not exist
 *   a FOLDERS FILES             progress of a walk
 *   f PATH                      the encoded path of the folder of the files that follow
 *   i FILE NAME open|closed     a file whose groups follow: its encoded name, and whether it is being written
 *   y FILE [snapshot]           the file or folder exists; snapshot: only in a snapshot
 *   p FILE PATH                 a file that exists only in a snapshot: its encoded path
 *   s FOLDERS SNAPSHOTS FILES   numbers of examined folders with snapshots, of snapshots, and of files only in them
 *   x PATH WHY                  files that exist only in snapshots of this folder are omitted, and why
 *   g FILE START GROUP STAMP BYTES POLICY open|new|old INDEX:NUMBER,… [corrupt]
 *                               a complete group, whether its file is open or was closed recently,
 *                               and the holders of its blocks; corrupt: corrupt replicas are among them
 *   h TYPE/BYTES                the format of a group's checksums, such as crc32c/512
 *   D PATH MODIFIED INODE =OWNER|-
 *                               a folder: its encoded path, its modification time, its inode number, and its encoded owner, or -
 *                               for the owner of /, who is HDFS's superuser, and for the user as whom Mend acts
 *   F INODE PATH BYTES BLOCKSIZE REPLICATION MODIFIED replicated|encrypted|striped open|closed =OWNER|-
 *                               a file: its encoded path, lengths in bytes, its modification time, and its encoded owner,
 *                               or - for the owner of /, who is HDFS's superuser
 *   B BLOCK STAMP BYTES NUMBER,…|-
 *                               the next block of the last file F, and the DataNodes with intact replicas
 *   C BLOCK NUMBER,…            the DataNodes with corrupt replicas of the last block B, if no replica is intact
 *   S PATH                      a folder that has snapshots: its encoded path
 *   O PATH refused|skipped WHY  files or attributes that are left out: the encoded path of a file or folder, and the
 *                               reason; refused: the user lacks permissions
 *   X PATH NAME =VALUE          an attribute of Mend on a file; path, name and value are encoded
 *   P right|wrong               whether parity is that of the data, see {@link Changes}
 *   t INDEX TOKEN               a token for an internal block, in base64: a secret
 * </pre>
 */
final class Survey {
  /** Mend's extended attributes. Only HDFS's superuser sees the second kind. */
  private static final Pattern ATTRIBUTES = Pattern.compile("(user|trusted)\\.mend\\..*", Pattern.DOTALL);
  private static final String GONE = "it was deleted or renamed during the listing";
  private static final int DATANODE_LIMIT_MS = 10_000;
  /** DataNodes report their blocks within this time, unless the NameNode is very busy. */
  private static final long NEW_MS = 60_000;
  /**
   * A DataNode without a heartbeat for this long is silent, or without as many heartbeats. HDFS calls it stale
   * after the same time (dfs.namenode.stale.datanode.interval), but dead only after ten minutes.
   */
  private static final long SILENT_MS = 30_000;
  private static final long SILENT_HEARTBEATS = 10;

  private final DistributedFileSystem files;
  private final DFSClient client;
  private final Configuration conf;
  private final Answers.Lines lines;
  private final Map<String, Integer> numbers = new HashMap<>();
  private final NameNodeClock clock = new NameNodeClock();
  private final Owners owners;
  private long foldersSeen;
  private long filesSeen;

  Survey(DistributedFileSystem files, Configuration conf, Answers.Lines lines) {
    this.files = files;
    this.client = files.getClient();
    this.conf = conf;
    this.lines = lines;
    this.owners = new Owners(client);
  }

  /**
   * Returns the path with which to query a file: the path of its inode, which survives renames, or the
   * decoded path of a file in a snapshot.
   */
  static String path(String file) {
    return file.startsWith("%2F") ? decoded(file) : Inodes.FOLDER + file;
  }

  static String decoded(String path) {
    return URLDecoder.decode(path, StandardCharsets.UTF_8);
  }

  /** Reports all DataNodes. */
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
    DatanodeInfo[] nodes = client.datanodeReport(which);
    for (DatanodeInfo node : nodes) {
      clock.heard(node.getLastUpdate());
    }
    for (DatanodeInfo node : nodes) {
      if (node.getDatanodeUuid() == null || node.getDatanodeUuid().isEmpty()) {
        continue; // The include file (dfs.hosts) names it, but it has not registered since the NameNode started.
      }
      String rack = plain(node.getNetworkLocation());
      String heard = which == DatanodeReportType.LIVE && isSilent(node) ? "silent" : word;
      lines.add("d " + number(node) + " " + rack + " " + heard + " " + service(node) + " " + node.getLastBlockReportTime());
    }
  }

  /** Whether the NameNode has had no heartbeat of a DataNode for a while, but has heard from others. */
  private boolean isSilent(DatanodeInfo node) {
    long everyS = conf.getTimeDuration("dfs.heartbeat.interval", 3, TimeUnit.SECONDS);
    long limitMs = Math.max(SILENT_MS, SILENT_HEARTBEATS * TimeUnit.SECONDS.toMillis(everyS));
    return !clock.isWithin(limitMs, node.getLastUpdate());
  }

  private static String service(DatanodeInfo node) {
    if (node.isMaintenance()) {
      return "maintenance";
    }
    if (node.isDecommissioned()) {
      return "decommissioned";
    }
    return node.isDecommissionInProgress() ? "leaving" : "normal";
  }

  /** Reports all DataNodes, with the folders of live ones. */
  void volumes() throws IOException {
    nodes();
    Configuration brief = brief();
    for (DatanodeInfo node : client.datanodeReport(DatanodeReportType.LIVE)) {
      ClientDatanodeProtocol proxy = null;
      try {
        proxy = DFSUtilClient.createClientDatanodeProtocolProxy(node, brief, DATANODE_LIMIT_MS, false);
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

  /** Returns short timeouts. Otherwise an unreachable DataNode would be dialled for minutes. */
  private Configuration brief() {
    Configuration brief = new Configuration(conf);
    brief.setInt("ipc.client.connect.timeout", DATANODE_LIMIT_MS);
    brief.setInt("ipc.client.connect.max.retries", 1);
    brief.setInt("ipc.client.connect.max.retries.on.timeouts", 1);
    return brief;
  }

  /** Makes the DataNode with this address report all its blocks to the NameNode. It does so a moment later. */
  void report(String address) throws IOException {
    for (DatanodeInfo node : client.datanodeReport(DatanodeReportType.LIVE)) {
      if (node.getXferAddr().equals(address)) {
        ClientDatanodeProtocol proxy =
            DFSUtilClient.createClientDatanodeProtocolProxy(node, brief(), DATANODE_LIMIT_MS, false);
        try {
          proxy.triggerBlockReport(new BlockReportOptions.Factory().setIncremental(false).build());
        } finally {
          RPC.stopProxy(proxy);
        }
        return;
      }
    }
    throw new IOException("the NameNode lists no live DataNode " + address);
  }

  /** Reports the checksum format of a group's blocks or of a replicated block, see {@link Replicas#checksum}. */
  void checksum(String path, long start) throws IOException {
    LocatedBlocks blocks = client.getLocatedBlocks(path, start, 1);
    if (blocks == null || blocks.getLocatedBlocks().isEmpty()) {
      return;
    }
    String format = new Replicas(client).checksum(blocks.get(0), blocks.getErasureCodingPolicy());
    if (format != null) {
      lines.add("h " + format);
    }
  }

  /** Makes a DataNode look for the blocks of a group that the NameNode lists there, see {@link Replicas#touch}. */
  void touch(String path, long start, String address) throws IOException {
    LocatedBlocks blocks = client.getLocatedBlocks(path, start, 1);
    if (blocks == null || blocks.getErasureCodingPolicy() == null) {
      return;
    }
    for (LocatedBlock block : blocks.getLocatedBlocks()) {
      if (block instanceof LocatedStripedBlock) {
        new Replicas(client).touch((LocatedStripedBlock) block, blocks.getErasureCodingPolicy(), address);
      }
    }
  }

  /**
   * Reports all DataNodes and all groups of all files below these folders; files that exist only in snapshots
   * come last.
   */
  void list(String[] folders) throws IOException {
    nodes();
    for (String folder : folders) {
      if (client.getFileInfo(folder) == null) {
        lines.add("missing " + encoded(folder));
      } else {
        walk(folder, false);
      }
    }
    // Snapshots come last, so that a file that is deleted during the walk is found in its snapshot.
    Snapshots snapshots = new Snapshots(files, lines, this::tellProgress);
    snapshots.eachDeleted(folders, path -> walk(path, true));
    tellSafeMode(); // Another NameNode may have taken over during the walk.
  }

  /**
   * Reports all DataNodes, all files below these folders with the replicas of their blocks, and the folders. Files
   * that exist only in snapshots are left out. Paths that cannot be listed are reported with the reason.
   */
  void files(String[] folders) throws IOException {
    nodes();
    SnapshottableDirectoryStatus[] roots = files.getSnapshottableDirListing();
    for (SnapshottableDirectoryStatus root : roots == null ? new SnapshottableDirectoryStatus[0] : roots) {
      if (root.getSnapshotNumber() > 0) {
        lines.add("S " + encoded(root.getFullPath().toUri().getPath()));
      }
    }
    for (String folder : folders) {
      try {
        listBelow(folder);
      } catch (AccessControlException refused) {
        tellRefused(decoded(folder), refused);
      }
    }
    tellSafeMode(); // Another NameNode may have taken over during the walk.
  }

  /**
   * Reports the parity files at or below these paths, each with its attributes, its source, and the replicas of
   * the blocks of both. The source is a file, or the files of a folder.
   * Each path follows the parity root above it. Paths that do not exist are ignored.
   */
  void raided(String[] rootsAndPaths) throws IOException {
    tellSafeMode();
    for (int at = 0; at + 1 < rootsAndPaths.length; at += 2) {
      String root = decoded(rootsAndPaths[at]);
      String path = decoded(rootsAndPaths[at + 1]);
      HdfsFileStatus status = statusOf(path);
      if (status != null) {
        Deque<String> left = new ArrayDeque<>();
        FileTeller teller = (parity, found, folders) -> tellParity(root, parity, found, folders);
        teller.tell(path, status, left);
        while (!left.isEmpty()) {
          listFiles(left.pop(), left, teller);
        }
      }
    }
    tellSafeMode(); // Another NameNode may have taken over during the walk.
  }

  /** Reports a parity file and its source, or remembers to list a folder. */
  private void tellParity(String root, String path, HdfsFileStatus status, Deque<String> left) throws IOException {
    if (status.isDirectory()) {
      left.push(path);
      return;
    }
    if (!path.startsWith(root + "/")) {
      return; // A file is in the place of the parity root.
    }
    try {
      tellAttributes(encoded(path), client.getXAttrs(path));
    } catch (FileNotFoundException gone) {
      return;
    }
    tellFileOrFolder(path, status, left);
    String source = path.substring(root.length());
    HdfsFileStatus found = statusOf(source);
    if (found != null && found.isDirectory()) {
      tellFolder(source, found);
      listFiles(source, new ArrayDeque<>(), this::tellUnlessFolder);
    } else if (found != null) {
      tellFileOrFolder(source, found, left);
    }
  }

  /** Reports a file in a folder whose files have parity together; ignores folders. */
  private void tellUnlessFolder(String path, HdfsFileStatus status, Deque<String> left) throws IOException {
    if (!status.isDirectory()) {
      tellFileOrFolder(path, status, left);
    }
  }

  /** Reports these files, each with the replicas of its blocks in a range: FILE START BYTES FILE START BYTES … */
  void blocks(String[] words) throws IOException {
    tellSafeMode();
    for (int at = 0; at + 2 < words.length; at += 3) {
      String path = path(words[at]);
      HdfsFileStatus status = client.getFileInfo(path);
      LocatedBlocks blocks = status == null ? null
          : client.getLocatedBlocks(path, Long.parseLong(words[at + 1]), Long.parseLong(words[at + 2]));
      if (blocks != null) {
        tellFile(path, status, blocks);
      }
    }
  }

  /** Reports a file or folder, and may remember folders to list. */
  private interface FileTeller {
    void tell(String path, HdfsFileStatus status, Deque<String> left) throws IOException;
  }

  private void listBelow(String folder) throws IOException {
    HdfsFileStatus status = statusOf(decoded(folder));
    if (status == null) {
      lines.add("missing " + folder);
      return;
    }
    Deque<String> left = new ArrayDeque<>();
    tellFileOrFolder(decoded(folder), status, left);
    while (!left.isEmpty()) {
      listFiles(left.pop(), left, this::tellFileOrFolder);
    }
  }

  private void tellOmitted(String path, String why) {
    lines.add("O " + encoded(path) + " skipped " + why);
  }

  private void tellRefused(String path, AccessControlException refusal) {
    lines.add("O " + encoded(path) + " refused " + Answers.text(refusal));
  }

  /** Returns the status of a file or folder; null if it, or a folder above it, does not exist. */
  private HdfsFileStatus statusOf(String path) throws IOException {
    try {
      return client.getFileInfo(path);
    } catch (RemoteException problem) {
      // The parity of a folder is a file, and nothing can be below a file.
      if (problem.unwrapRemoteException(ParentNotDirectoryException.class) instanceof ParentNotDirectoryException) {
        return null;
      }
      throw problem;
    } catch (FileNotFoundException | ParentNotDirectoryException gone) {
      return null;
    }
  }

  /** Lists a folder and reports its files. A folder that was deleted or may not be listed is reported as left out. */
  private void listFiles(String folder, Deque<String> left, FileTeller teller) throws IOException {
    byte[] after = HdfsFileStatus.EMPTY_NAME;
    DirectoryListing listing;
    foldersSeen++;
    do {
      try {
        listing = client.listPaths(folder, after, true);
      } catch (FileNotFoundException gone) {
        listing = null;
      } catch (AccessControlException refused) {
        tellRefused(folder, refused);
        return;
      }
      if (listing == null) {
        tellOmitted(folder, GONE);
        return;
      }
      for (HdfsFileStatus status : listing.getPartialListing()) {
        teller.tell(status.getFullName(folder), status, left);
      }
      filesSeen += listing.getPartialListing().length;
      tellProgress();
      after = listing.getLastName();
    } while (listing.hasMore());
  }

  /** Reports a folder, and remembers to list it; or reports a file. */
  private void tellFileOrFolder(String path, HdfsFileStatus status, Deque<String> left) throws IOException {
    if (status.isDirectory()) {
      tellFolder(path, status);
      left.push(path);
      return;
    }
    if (status.isSymlink()) {
      tellOmitted(path, "it is a symbolic link, which is not followed");
      return;
    }
    LocatedBlocks blocks = blocksOf(path, status);
    if (blocks == null) {
      tellOmitted(path, GONE);
    } else {
      tellFile(path, status, blocks);
    }
  }

  private void tellFolder(String path, HdfsFileStatus status) throws IOException {
    lines.add("D " + encoded(path) + " " + status.getModificationTime() + " " + status.getFileId() + " "
        + owner(status, owners.isOfMend(status)));
  }

  /** Returns the blocks of a file; null if it does not exist any more. */
  private LocatedBlocks blocksOf(String path, HdfsFileStatus status) throws IOException {
    if (status instanceof HdfsLocatedFileStatus) {
      return ((HdfsLocatedFileStatus) status).getLocatedBlocks();
    }
    try {
      return client.getLocatedBlocks(path, 0, Long.MAX_VALUE);
    } catch (FileNotFoundException gone) {
      return null;
    }
  }

  /** Returns the owner of a file or folder as one word. */
  private static String owner(HdfsFileStatus status, boolean isTrusted) {
    return isTrusted ? "-" : "=" + encoded(status.getOwner());
  }

  private void tellFile(String path, HdfsFileStatus status, LocatedBlocks blocks) throws IOException {
    boolean isStriped = status.getErasureCodingPolicy() != null;
    String storing = isStriped ? "striped" : status.isEncrypted() ? "encrypted" : "replicated";
    lines.add("F " + status.getFileId() + " " + encoded(path) + " " + status.getLen() + " "
        + status.getBlockSize() + " " + status.getReplication() + " " + status.getModificationTime() + " "
        + storing + " " + (blocks.isUnderConstruction() ? "open" : "closed") + " "
        + owner(status, owners.isOfSuperuser(status)));
    if (isStriped) {
      return;
    }
    for (LocatedBlock block : blocks.getLocatedBlocks()) {
      // If no intact replica is left, the NameNode lists the corrupt ones.
      String homes = numbers(block.getLocations());
      ExtendedBlock id = block.getBlock();
      lines.add("B " + id.getBlockId() + " " + id.getGenerationStamp() + " " + id.getNumBytes() + " "
          + (block.isCorrupt() || homes.isEmpty() ? "-" : homes));
      if (block.isCorrupt() && !homes.isEmpty()) {
        lines.add("C " + id.getBlockId() + " " + homes);
      }
    }
  }

  private String numbers(DatanodeInfo[] nodes) {
    StringBuilder text = new StringBuilder();
    for (DatanodeInfo node : nodes) {
      text.append(text.length() == 0 ? "" : ",").append(number(node));
    }
    return text.toString();
  }

  /** Reports Mend's attributes of these files, or why they are refused; ignores files that do not exist. */
  void attributes(String[] paths) throws IOException {
    for (String path : paths) {
      try {
        tellAttributes(path, client.getXAttrs(decoded(path)));
      } catch (FileNotFoundException gone) {
        // Not reported.
      } catch (AccessControlException refused) {
        tellRefused(decoded(path), refused);
      }
      filesSeen++;
      tellProgress();
    }
  }

  private void tellAttributes(String path, Map<String, byte[]> attributes) {
    if (attributes == null) {
      return;
    }
    for (Map.Entry<String, byte[]> attribute : attributes.entrySet()) {
      if (ATTRIBUTES.matcher(attribute.getKey()).matches()) {
        byte[] value = attribute.getValue() == null ? new byte[0] : attribute.getValue();
        String text = new String(value, StandardCharsets.UTF_8);
        lines.add("X " + path + " " + encoded(attribute.getKey()) + " =" + encoded(text));
      }
    }
  }

  /** Reports which of these folders do not exist. */
  void missing(String[] folders) throws IOException {
    for (String folder : folders) {
      if (client.getFileInfo(folder) == null) {
        lines.add("missing " + encoded(folder));
      }
    }
  }

  /** Reports all groups of these files, and of all files below these folders; ignores those that do not exist. */
  void walk(String[] paths) throws IOException {
    tellSafeMode();
    for (String path : paths) {
      walk(decoded(path), false);
    }
  }

  /** Reports all groups of files that exist only in snapshots of these folders. */
  void snapshots(String[] folders) throws IOException {
    tellSafeMode();
    new Snapshots(files, lines, this::tellProgress).eachDeleted(folders, path -> walk(path, true));
  }

  /** Reports which of these files and folders exist, and which of them only in snapshots. */
  void inodes(String[] inodes) throws IOException {
    for (String inode : inodes) {
      Inodes.Place place = Inodes.find(client, Long.parseLong(inode));
      if (place != Inodes.Place.NONE) {
        lines.add("y " + inode + (place == Inodes.Place.SNAPSHOT ? " snapshot" : ""));
      }
      tellProgress();
    }
  }

  /** Reports the groups of a file or of all files below a folder; returns the number of files with groups. */
  private long walk(String path, boolean isInSnapshot) throws IOException {
    long told = 0;
    Deque<String> left = new ArrayDeque<>();
    left.add(path);
    while (!left.isEmpty()) {
      told += listFolder(left.pop(), left, isInSnapshot);
    }
    return told;
  }

  /**
   * Lists a folder and reports the groups of its files. A folder that is deleted or replaced meanwhile is treated as
   * empty.
   */
  private long listFolder(String folder, Deque<String> left, boolean isInSnapshot) throws IOException {
    long told = 0;
    boolean isTold = false;
    byte[] after = HdfsFileStatus.EMPTY_NAME;
    DirectoryListing listing;
    foldersSeen++;
    do {
      try {
        listing = client.listPaths(folder, after, true);
      } catch (FileNotFoundException gone) {
        return told;
      } catch (AccessControlException refused) {
        if (client.getFileInfo(folder) == null) {
          return told; // A file has taken the place of a folder above: HDFS refuses to list below it.
        }
        throw refused;
      }
      if (listing == null) {
        return told;
      }
      for (HdfsFileStatus status : listing.getPartialListing()) {
        if (status.isDirectory()) {
          left.push(status.getFullName(folder));
        } else if (status instanceof HdfsLocatedFileStatus && status.getErasureCodingPolicy() != null) {
          LocatedBlocks blocks = ((HdfsLocatedFileStatus) status).getLocatedBlocks();
          String path = status.getFullName(folder);
          if (isInSnapshot) {
            lines.add("p " + status.getFileId() + " " + encoded(path));
          } else {
            isTold = isTold || tellFolder(path);
            lines.add("i " + status.getFileId() + " " + encoded(path.substring(path.lastIndexOf('/') + 1)) + " "
                + (blocks.isUnderConstruction() ? "open" : "closed"));
          }
          boolean isNew = clock.isWithin(NEW_MS, status.getModificationTime());
          tell(status.getFileId(), status.getErasureCodingPolicy(), blocks, isNew);
          told++;
        }
      }
      filesSeen += listing.getPartialListing().length;
      tellProgress();
      after = listing.getLastName();
    } while (listing.hasMore());
    return told;
  }

  /** Reports the folder of a file; returns true. */
  private boolean tellFolder(String path) {
    int end = path.lastIndexOf('/');
    lines.add("f " + encoded(end == 0 ? "/" : path.substring(0, end)));
    return true;
  }

  private void tellProgress() {
    lines.tellProgress(foldersSeen, filesSeen);
  }

  static String encoded(String path) {
    return URLEncoder.encode(path, StandardCharsets.UTF_8);
  }

  /** Reports one group of a file. The time when the file was closed is not determined. */
  void group(String path, long start) throws IOException {
    tellSafeMode();
    LocatedBlocks blocks = client.getLocatedBlocks(path, start, 1);
    if (blocks != null && blocks.getErasureCodingPolicy() != null) {
      tell(0, blocks.getErasureCodingPolicy(), blocks, true);
    }
  }

  /**
   * Reports a token for each of these internal blocks of a group. Reports none if HDFS requires no tokens:
   * the token that a reader of the group gets is then empty.
   */
  void tokens(String path, long start, String[] indices, BlockTokens tokens) throws IOException {
    LocatedBlocks blocks = client.getLocatedBlocks(path, start, 1);
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

  private void tell(long file, ErasureCodingPolicy policy, LocatedBlocks blocks, boolean isNew) {
    if (blocks == null) {
      return;
    }
    String phase = blocks.isUnderConstruction() ? "open" : isNew ? "new" : "old";
    for (LocatedBlock block : blocks.getLocatedBlocks()) {
      if (block instanceof LocatedStripedBlock && !isOpen(blocks, block)) {
        tell(file, policy, (LocatedStripedBlock) block, phase);
      }
    }
  }

  /** Whether a group is, or may be, still being written. */
  private static boolean isOpen(LocatedBlocks blocks, LocatedBlock block) {
    LocatedBlock last = blocks.getLastLocatedBlock();
    boolean isLast = last != null && last.getBlock().getBlockId() == block.getBlock().getBlockId();
    return isLast && blocks.isUnderConstruction() && !blocks.isLastBlockComplete();
  }

  private void tell(long file, ErasureCodingPolicy policy, LocatedStripedBlock block, String phase) {
    DatanodeInfo[] nodes = block.getLocations();
    byte[] indices = block.getBlockIndices();
    StringBuilder homes = new StringBuilder();
    for (int at = 0; at < nodes.length; at++) {
      homes.append(at == 0 ? "" : ",").append(indices[at]).append(':').append(number(nodes[at]));
    }
    ExtendedBlock group = block.getBlock();
    lines.add("g " + file + " " + block.getStartOffset() + " " + group.getBlockId() + " " + group.getGenerationStamp()
        + " " + group.getNumBytes() + " " + plain(policy.getName()) + " " + phase + " "
        + (nodes.length == 0 ? "-" : homes)
        // If a group has too few live replicas, the NameNode lists its corrupt replicas too.
        + (block.isCorrupt() ? " corrupt" : ""));
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

  /** Replaces white space, so that the text is one word. */
  private static String plain(String text) {
    return text.replaceAll("\\s", "_");
  }
}
