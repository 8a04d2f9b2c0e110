package mend.hdfs.namenode;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import mend.hdfs.Fingerprints;
import mend.hdfs.Inodes;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclUtil;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.QuotaExceededException;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * The calls that encode replicated files and undo this, see {@code hdfs_raid::Action}. Words of a question are
 * separated by tabs; paths and values are encoded. A path can be that of an inode: then the call concerns this file,
 * whatever its name is.
 *
 * <pre>
 *   mkdir PATH                  creates a folder that only HDFS's superuser can enter, and those above it
 *   rename FROM TO              renames a folder; fails if the new name exists
 *   delete PATH                 deletes a file, or a folder with its contents
 *   publish FROM TO REPLACED|- SOURCE INODE FILE …
 *                               gives parity its path, and the permissions of its source, if that is this inode.
 *                               Replaces a file with this inode; -: fails if there is a file. FILE: the files of a
 *                               folder that is the source; see {@link #copyCommonPermissions}
 *   mark PATH NAME VALUE …      sets attributes
 *   join TARGET PATH …          appends files to the target by concat
 *   time PATH MODIFIED          sets the modification time
 *   replicate PATH COUNT UNTIL INODE FINGERPRINT|- [OTHER INODE FINGERPRINT] …
 *                               sets the replication, unless this time has passed, another file is at the path, or the
 *                               file is open or has other blocks than these; - allows all blocks. Other files,
 *                               whose replication is not changed, have to be the same too
 *   encode SOURCE,… FIRST PRESENT BLOCKSIZE ROWS PARITY PATH ADDRESS …
 *                               writes parity blocks of the stripe that begins with block FIRST of these files
 *   reserve BLOCKSIZE PATH ADDRESS …
 *                               creates files of one block each, which helpers deliver to the DataNodes, see
 *                               {@link Reservations}
 *   complete BLOCKSIZE PATH BLOCK STAMP …
 *                               completes such files
 *   prove SOURCE,… DATABLOCKS BLOCKSIZE ROWS FINGERPRINT FINGERPRINT PATH …
 *                               compares parity with the data; answers {@code P right} or {@code P wrong}
 *   move PATH BLOCK FROM TO     moves a replica between DataNodes
 * </pre>
 *
 * <p>The reason of a failure begins with its kind: {@code safemode}, {@code permission}, {@code quota},
 * {@code space}, {@code changed} or {@code other}.
 */
final class Changes {
  private static final Set<String> WORDS = Set.of("mkdir", "rename", "delete", "publish", "mark", "join", "time",
      "replicate", "encode", "reserve", "complete", "prove", "move");
  private static final FsPermission PRIVATE = new FsPermission((short) 0700);
  /** The permission of parity roots: everyone may look for the parity of their files. */
  private static final FsPermission ROOT = new FsPermission((short) 0755);
  /** The permission of HDFS's folder for temporary files. */
  private static final FsPermission TEMPORARY = new FsPermission((short) 01777);
  private static final String TEMPORARY_FOLDER = "/tmp";
  /** The beginning of the names of folders with parity that is being made, with the slash before it. */
  private static final String DRAFT = "/.mend-";

  private final DFSClient client;
  private final BlockTokens tokens;
  private final Answers.Lines lines;

  /** Files are no longer as the caller knows them. */
  static final class ChangedException extends IOException {
    private static final long serialVersionUID = 1;

    ChangedException(String message) {
      super(message);
    }
  }

  /** The client must be HDFS's own: one that decodes lost blocks would prove parity by itself. */
  Changes(DFSClient client, BlockTokens tokens, Answers.Lines lines) {
    this.client = client;
    this.tokens = tokens;
    this.lines = lines;
  }

  /** Whether a question asks for a change. */
  static boolean has(String word) {
    return WORDS.contains(word);
  }

  /** Carries a call out. */
  void carryOut(String word, String rest) throws IOException {
    try {
      call(word, rest.split("\t"));
    } catch (IOException problem) {
      throw new IOException(kind(problem) + " " + Answers.text(problem), problem);
    } catch (RuntimeException problem) {
      throw new IOException("other " + Answers.text(problem), problem);
    }
  }

  private void call(String word, String[] words) throws IOException {
    switch (word) {
      case "mkdir":
        makeFolder(Survey.decoded(words[0]));
        break;
      case "rename":
        client.rename(Survey.decoded(words[0]), Survey.decoded(words[1]), Rename.NONE);
        break;
      case "delete":
        delete(Survey.decoded(words[0]));
        break;
      case "publish":
        checkInode(Survey.decoded(words[3]), Long.parseLong(words[4]));
        publish(Survey.decoded(words[0]), Survey.decoded(words[1]), words[2], Survey.decoded(words[3]), paths(words, 5));
        break;
      case "mark":
        mark(Survey.decoded(words[0]), words);
        break;
      case "join":
        client.concat(Survey.decoded(words[0]), paths(words, 1).toArray(new String[0]));
        break;
      case "time":
        client.setTimes(Survey.decoded(words[0]), Long.parseLong(words[1]), -1);
        break;
      case "replicate":
        checkReplicated(Survey.decoded(words[0]), Long.parseLong(words[3]), words[4]);
        for (int at = 5; at + 2 < words.length; at += 3) {
          checkReplicated(Survey.decoded(words[at]), Long.parseLong(words[at + 1]), words[at + 2]);
        }
        replicate(Long.parseLong(words[3]), Short.parseShort(words[1]), Long.parseLong(words[2]));
        break;
      case "encode":
        encode(words);
        break;
      case "reserve":
        reserve(words);
        break;
      case "complete":
        complete(words);
        break;
      case "prove":
        prove(words);
        break;
      case "move":
        new Moves(client, tokens, lines).move(Survey.decoded(words[0]), Integer.parseInt(words[1]), words[2], words[3]);
        break;
      default:
        throw new IllegalArgumentException(word);
    }
  }

  private static List<String> paths(String[] words, int from) {
    List<String> paths = new ArrayList<>();
    Arrays.stream(words, from, words.length).map(Survey::decoded).forEach(paths::add);
    return paths;
  }

  /** Returns the files whose blocks form stripes; no encoded path contains a comma. */
  private static List<String> sources(String word) {
    return paths(word.split(","), 0);
  }

  private void makeFolder(String folder) throws IOException {
    if (folder.startsWith(TEMPORARY_FOLDER + "/") && client.getFileInfo(TEMPORARY_FOLDER) == null) {
      client.mkdirs(TEMPORARY_FOLDER, TEMPORARY, true);
      client.setPermission(TEMPORARY_FOLDER, TEMPORARY); // The first call leaves out bits of the umask.
    }
    client.mkdirs(folder, PRIVATE, true);
    checkOwner(folder);
  }

  /** Checks that Mend has made a folder. Parity in other users' folders is ignored, so it would be made without end. */
  private void checkOwner(String folder) throws IOException {
    HdfsFileStatus status = client.getFileInfo(folder);
    if (status != null && !new Owners(client).isOfMend(status)) {
      throw new ChangedException("it belongs to the user " + status.getOwner() + ", and not to Mend: delete it");
    }
  }

  /** Deletes a file or folder; after a draft, also the folders above it that are empty now. */
  private void delete(String path) throws IOException {
    try {
      client.delete(path, true);
    } catch (FileNotFoundException gone) {
      return; // The NameNode resolves no path by an inode that does not exist.
    }
    int end = path.lastIndexOf('/');
    if (!path.startsWith(DRAFT, end)) {
      return;
    }
    try {
      for (String above = path.substring(0, end); above.startsWith(TEMPORARY_FOLDER + "/"); above = parent(above)) {
        client.delete(above, false);
      }
    } catch (IOException notEmpty) {
      // Other files are being encoded, or are not Mend's.
    }
  }

  private static String parent(String path) {
    return path.substring(0, path.lastIndexOf('/'));
  }

  /** Renames parity to its path. A user who may not read the source may not read its parity either. */
  private void publish(String from, String to, String replaced, String source, List<String> files)
      throws IOException {
    if (!to.endsWith(source)) {
      throw new IllegalArgumentException(to + " is not the path of parity of " + source);
    }
    String root = to.substring(0, to.length() - source.length());
    for (String folder : foldersAbove(root + "/")) {
      if (client.getFileInfo(folder) == null) {
        client.mkdirs(folder, PRIVATE, true);
        client.setPermission(folder, ROOT);
      }
    }
    for (String above : foldersAbove(source)) {
      if (client.getFileInfo(root + above) == null) {
        client.mkdirs(root + above, PRIVATE, true);
        copyPermissions(above, root + above);
      }
    }
    if (files.isEmpty()) {
      copyPermissions(source, from);
    } else {
      copyCommonPermissions(source, files, from);
    }
    if (replaced.equals("-")) {
      deleteEmptyFolder(to);
      client.rename(from, to, Rename.NONE);
    } else {
      checkInode(to, Long.parseLong(replaced));
      client.rename(from, to, Rename.OVERWRITE);
    }
  }

  /** Deletes the folder in which the parity of former subfolders was: the parity of their folder has the same path. */
  private void deleteEmptyFolder(String path) throws IOException {
    HdfsFileStatus there = client.getFileInfo(path);
    if (there != null && there.isDirectory()) {
      client.delete(path, false);
    }
  }

  /**
   * Returns the folders above a path, from the top, without the root of the file system. They are created one by one:
   * HDFS would give the folders above a new folder the permission of the new one.
   */
  static List<String> foldersAbove(String path) {
    List<String> folders = new ArrayList<>();
    for (int end = path.indexOf('/', 1); end >= 0; end = path.indexOf('/', end + 1)) {
      folders.add(path.substring(0, end));
    }
    return folders;
  }

  private void copyPermissions(String from, String to) throws IOException {
    HdfsFileStatus status = client.getFileInfo(from);
    if (status == null) {
      throw new ChangedException(from + " does not exist any more");
    }
    client.setOwner(to, status.getOwner(), status.getGroup());
    if (status.hasAcl()) {
      List<AclEntry> entries = client.getAclStatus(from).getEntries();
      client.setAcl(to, AclUtil.getAclFromPermAndEntries(status.getPermission(), entries));
    } else {
      client.setPermission(to, status.getPermission());
    }
  }

  /**
   * Gives parity of the files of a folder their permissions if these are the same. Otherwise only HDFS's superuser can read
   * it: from the parity and some files, the others could be computed. The parity is not in the folder, so a user who may not
   * enter the folder gets no right to the parity.
   */
  private void copyCommonPermissions(String folder, List<String> files, String to) throws IOException {
    HdfsFileStatus above = client.getFileInfo(folder);
    if (above == null) {
      throw new ChangedException(folder + " does not exist any more");
    }
    HdfsFileStatus first = null;
    for (String file : files) {
      HdfsFileStatus status = client.getFileInfo(file);
      if (status == null) {
        throw new ChangedException(file + " does not exist any more");
      }
      first = first == null ? status : first;
      boolean isSame = status.getPermission().equals(first.getPermission()) && hasOwnersOf(status, first)
          && (hasOwnersOf(status, above) || isOpenToAll(above)) && !status.hasAcl() && !above.hasAcl();
      if (!isSame) {
        client.setOwner(to, UserGroupInformation.getCurrentUser().getShortUserName(), null);
        client.setPermission(to, Parities.PRIVATE);
        return;
      }
    }
    FsPermission ofFile = first.getPermission();
    FsPermission ofFolder = above.getPermission();
    client.setOwner(to, first.getOwner(), first.getGroup());
    client.setPermission(to, new FsPermission(within(ofFile.getUserAction(), ofFolder.getUserAction()),
        within(ofFile.getGroupAction(), ofFolder.getGroupAction()),
        within(ofFile.getOtherAction(), ofFolder.getOtherAction())));
  }

  private static boolean hasOwnersOf(HdfsFileStatus one, HdfsFileStatus other) {
    return one.getOwner().equals(other.getOwner()) && one.getGroup().equals(other.getGroup());
  }

  /** Whether all users may enter a folder. */
  private static boolean isOpenToAll(HdfsFileStatus folder) {
    FsPermission permission = folder.getPermission();
    return permission.getUserAction().implies(FsAction.EXECUTE) && permission.getGroupAction().implies(FsAction.EXECUTE)
        && permission.getOtherAction().implies(FsAction.EXECUTE);
  }

  /** Returns the rights of users to a file in a folder to which they have other rights. */
  private static FsAction within(FsAction ofFile, FsAction ofFolder) {
    return ofFolder.implies(FsAction.EXECUTE) ? ofFile : FsAction.NONE;
  }

  private void mark(String path, String[] words) throws IOException {
    for (int at = 1; at + 1 < words.length; at += 2) {
      byte[] value = Survey.decoded(words[at + 1]).getBytes(StandardCharsets.UTF_8);
      client.setXAttr(path, words[at], value, EnumSet.of(XAttrSetFlag.CREATE, XAttrSetFlag.REPLACE));
    }
  }

  private void checkInode(String path, long inode) throws IOException {
    HdfsFileStatus status = client.getFileInfo(path);
    if (status == null || status.getFileId() != inode) {
      throw new ChangedException(path + " does not exist any more, or is another file");
    }
  }

  private void checkReplicated(String path, long inode, String print) throws IOException {
    checkInode(path, inode);
    if (!print.equals("-")) {
      LocatedBlocks blocks = client.getLocatedBlocks(Inodes.FOLDER + inode, 0, Long.MAX_VALUE);
      if (blocks.isUnderConstruction() || !Fingerprints.of(blocks.getLocatedBlocks()).equals(print)) {
        throw new ChangedException(path + " has changed since it was looked up");
      }
    }
  }

  /** Sets the replication of a file by its inode: a client may move another file to its path at any moment. */
  private void replicate(long inode, short replication, long until) throws IOException {
    if (System.currentTimeMillis() > until) {
      throw new ChangedException("too much time has passed since the file was looked up");
    }
    if (!client.setReplication(Inodes.FOLDER + inode, replication)) {
      throw new ChangedException("the file does not exist any more");
    }
  }

  private void encode(String[] words) throws IOException {
    List<Parities.Target> targets = new ArrayList<>();
    for (int at = 5; at + 2 < words.length; at += 3) {
      targets.add(new Parities.Target(Integer.parseInt(words[at]), Survey.decoded(words[at + 1]), words[at + 2]));
    }
    new Parities(client, lines, ParityRows.parse(words[4]), Long.parseLong(words[3]))
        .write(sources(words[0]), Integer.parseInt(words[1]), Integer.parseInt(words[2]), targets);
  }

  private void reserve(String[] words) throws IOException {
    Reservations reservations = new Reservations(client.getNamenode(), lines, Long.parseLong(words[0]));
    for (int at = 1; at + 1 < words.length; at += 2) {
      reservations.reserve(Survey.decoded(words[at]), words[at + 1]);
    }
  }

  private void complete(String[] words) throws IOException {
    Reservations reservations = new Reservations(client.getNamenode(), lines, Long.parseLong(words[0]));
    for (int at = 1; at + 2 < words.length; at += 3) {
      reservations.complete(Survey.decoded(words[at]), Long.parseLong(words[at + 1]), Long.parseLong(words[at + 2]));
    }
  }

  private void prove(String[] words) throws IOException {
    Parities parities = new Parities(client, lines, ParityRows.parse(words[3]), Long.parseLong(words[2]));
    boolean isRight =
        parities.prove(sources(words[0]), paths(words, 6), Integer.parseInt(words[1]), words[4], words[5]);
    lines.add(isRight ? "P right" : "P wrong");
  }

  /** Returns the kind of a failure. */
  static String kind(IOException problem) {
    IOException cause =
        problem instanceof RemoteException ? ((RemoteException) problem).unwrapRemoteException() : problem;
    String name = cause instanceof RemoteException ? ((RemoteException) cause).getClassName() : cause.getClass().getName();
    if (name.endsWith("SafeModeException")) {
      return "safemode";
    }
    if (cause instanceof AccessControlException) {
      return "permission";
    }
    if (cause instanceof QuotaExceededException) {
      return "quota";
    }
    if (isChange(cause) || name.endsWith("LeaseExpiredException")) {
      return "changed";
    }
    String text = Answers.text(cause);
    // The exception has no type of its own; the text is that of Hadoop 3, then that of Hadoop 2.
    boolean isFull = text.contains("could only be written to") || text.contains("could only be replicated to");
    return isFull ? "space" : "other";
  }

  private static boolean isChange(IOException cause) {
    return cause instanceof ChangedException || cause instanceof FileNotFoundException
        || cause instanceof FileAlreadyExistsException || cause instanceof ParentNotDirectoryException
        || cause instanceof AlreadyBeingCreatedException;
  }
}
