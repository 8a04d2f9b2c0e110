package mend.hdfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds the parity files of raided files, and keeps them with their files when these are renamed or deleted.
 * Failures are logged: an operation on a file never fails because of its parity.
 */
public final class ParityFiles {
  private static final Logger LOG = LoggerFactory.getLogger(ParityFiles.class);
  private static final long LOOK_AGAIN_NS = TimeUnit.MINUTES.toNanos(1);

  private final DFSClient client;
  private final List<ParityRoot> roots;
  private List<ParityRoot> present;
  private long lookedNs;

  /**
   * Creates an instance with the configured folders.
   *
   * @throws IllegalArgumentException if a setting is invalid
   */
  public ParityFiles(DFSClient client, Configuration conf) {
    this.client = client;
    this.roots = ParityRoot.of(conf);
  }

  // ---- reading ----

  /**
   * Looks a file and its parity up, or the files that form stripes with it and the parity of its folder. The user must have
   * the right to read all of them.
   *
   * @return null if the file has no valid parity
   * @throws IOException if the NameNode does not answer
   */
  public RaidedFile find(String path) throws IOException {
    HdfsLocatedFileStatus source =
        roots.isEmpty() || hasNoParity(path) ? null : client.getLocatedFileInfo(path, true);
    for (ParityRoot root : source == null ? List.<ParityRoot>of() : roots) {
      RaidedFile file =
          root.isOverFolders() ? pairFolder(source, path, root) : pair(source, root.parity(path), root.code());
      if (file != null) {
        return file;
      }
    }
    return null;
  }

  private RaidedFile pair(HdfsLocatedFileStatus source, String parity, StripeCode code) throws IOException {
    try {
      HdfsLocatedFileStatus found = located(parity);
      boolean isUsable = found != null && isTrusted(source, found, parity);
      return isUsable ? RaidedFile.of(source, found, note(parity), code) : null;
    } catch (AccessControlException refused) {
      LOG.info("the parity {} cannot be used: {}", parity, refused.getMessage());
      return null;
    }
  }

  /**
   * Whether parity belongs to the owner of its file or to the superuser, who owns the root folder. Any other user who may
   * write below the parity root could have made it from other bytes. The note for readers proves nothing then: the owner of
   * the parity can set it.
   */
  private boolean isTrusted(HdfsFileStatus source, HdfsFileStatus parity, String path) throws IOException {
    String owner = parity.getOwner();
    if (owner.equals(source.getOwner()) || owner.equals(client.getFileInfo("/").getOwner())) {
      return true;
    }
    LOG.info("the parity {} is not used, because it belongs to {}, and its file to {}", path, owner, source.getOwner());
    return false;
  }

  /** Pairs the blocks of a file with the others of their stripes, which run over the files of its folder. */
  private RaidedFile pairFolder(HdfsLocatedFileStatus source, String path, ParityRoot root) throws IOException {
    String folder = path.substring(0, path.lastIndexOf('/'));
    String parity = root.parity(folder);
    try {
      HdfsLocatedFileStatus found = folder.isEmpty() ? null : located(parity);
      boolean isUsable = found != null && found.isFile() && isTrusted(source, found, parity);
      HdfsFileStatus status = isUsable ? client.getFileInfo(folder) : null;
      String note = status == null ? null : note(parity);
      String text = status == null ? null : attribute(parity, ParityRecord.ATTRIBUTE);
      ParityNote parsed = note == null ? null : ParityNote.parse(note);
      ParityRecord record = text == null ? null : ParityRecord.parse(text);
      if (parsed == null || record == null) {
        return null;
      }
      List<LocatedBlock> blocks = blocksBeside(numbers(source), folder, record, root.code());
      return RaidedFile.ofFolder(status.getFileId(), blocks, found, parsed, record, root.code());
    } catch (AccessControlException refused) {
      LOG.info("the parity {} cannot be used: {}", parity, refused.getMessage());
      return null;
    }
  }

  /**
   * Returns the blocks that are in stripes with blocks of these numbers, with the right to read them. A listing of the
   * folder names the files of the blocks, but gives no such right.
   */
  private List<LocatedBlock> blocksBeside(Set<Long> numbers, String folder, ParityRecord record, StripeCode code)
      throws IOException {
    Set<Long> beside = record.beside(numbers, code.data());
    List<LocatedBlock> blocks = new ArrayList<>();
    for (Map.Entry<String, HdfsFileStatus> child : list(folder, true).entrySet()) {
      boolean isNeeded = child.getValue() instanceof HdfsLocatedFileStatus && child.getValue().isFile()
          && !Collections.disjoint(numbers((HdfsLocatedFileStatus) child.getValue()), beside);
      HdfsLocatedFileStatus file = isNeeded ? located(folder + "/" + child.getKey()) : null;
      if (file != null && !file.getLocatedBlocks().isUnderConstruction()) {
        blocks.addAll(file.getLocatedBlocks().getLocatedBlocks());
      }
    }
    return blocks;
  }

  private static Set<Long> numbers(HdfsLocatedFileStatus file) {
    Set<Long> numbers = new HashSet<>();
    if (file.getErasureCodingPolicy() == null) {
      file.getLocatedBlocks().getLocatedBlocks().forEach(block -> numbers.add(block.getBlock().getBlockId()));
    }
    return numbers;
  }

  /** Looks a file up; returns null if there is none. */
  private HdfsLocatedFileStatus located(String path) throws IOException {
    return unlessAbove(() -> client.getLocatedFileInfo(path, true));
  }

  /** Looks a file or folder up; returns null if there is none. */
  private HdfsFileStatus status(String path) throws IOException {
    return unlessAbove(() -> client.getFileInfo(path));
  }

  private interface Question<T> {
    T ask() throws IOException;
  }

  /** Returns null if a file is where a folder above the path would be: the parity of a folder is a file. */
  private static <T> T unlessAbove(Question<T> question) throws IOException {
    try {
      return question.ask();
    } catch (RemoteException problem) {
      if (problem.unwrapRemoteException(ParentNotDirectoryException.class) instanceof ParentNotDirectoryException) {
        return null;
      }
      throw problem;
    } catch (ParentNotDirectoryException above) {
      return null;
    }
  }

  /** Returns the note on a parity file, as text; null if there is none, as on HDFS-RAID's files. */
  private String note(String parity) throws IOException {
    return attribute(parity, ParityNote.ATTRIBUTE);
  }

  private String attribute(String path, String name) throws IOException {
    byte[] value = client.getXAttrs(path).get(name);
    return value == null ? null : new String(value, StandardCharsets.UTF_8);
  }

  /** Whether a path is that of parity, or that of an inode, to which no parity belongs. */
  private boolean hasNoParity(String path) {
    return path.startsWith(Inodes.FOLDER) || roots.stream().anyMatch(root -> root.contains(path));
  }

  // ---- renaming ----

  /** A parity file and its source, which is a file or folder; or a folder of parity files. */
  public static final class Owned {
    private final String path;
    private final long inode;
    private final Long source;

    /** {@code inode} is that of the parity file or folder, and {@code source} that of the source; null for a folder. */
    Owned(String path, long inode, Long source) {
      this.path = path;
      this.inode = inode;
      this.source = source;
    }
  }

  /** Parity of a file, or of files below a folder, before it is renamed. */
  public final class Renaming {
    private final String from;
    private final String to;
    private final List<ParityRoot> holding;
    private final List<Owned> replaced;

    private Renaming(String from, String to, List<ParityRoot> holding, List<Owned> replaced) {
      this.from = from;
      this.to = to;
      this.holding = holding;
      this.replaced = replaced;
    }

    /** Moves the parity along, after the file or folder was renamed. */
    public void finish() {
      removeAll(replaced);
      for (ParityRoot root : holding) {
        try {
          String target = root.parity(to);
          client.mkdirs(new Path(target).getParent().toUri().getPath(), null, true);
          client.rename(root.parity(from), target, Options.Rename.NONE);
        } catch (IOException | RuntimeException problem) {
          LOG.warn("{} was renamed to {}, but its parity stays at {}: {}", from, to, root.parity(from),
              problem.toString());
        }
      }
    }
  }

  /**
   * Looks for parity before a rename that never replaces a file, and that moves into a folder at {@code to}.
   */
  public Renaming beforeRename(String from, String to) {
    List<ParityRoot> holding = holding(from, to);
    return new Renaming(from, holding.isEmpty() ? to : inFolder(from, to), holding, List.of());
  }

  /** Looks for parity before a rename to exactly {@code to}. */
  public Renaming beforeRename(String from, String to, Options.Rename[] options) {
    boolean replaces = Arrays.asList(options).contains(Options.Rename.OVERWRITE);
    return new Renaming(from, to, holding(from, to), replaces ? belonging(to) : List.of());
  }

  private List<ParityRoot> holding(String from, String to) {
    return hasNoParity(to) || from.equals(to) ? List.of() : holding(from);
  }

  /** Returns the path that a file gets by a rename to {@code to}, which may be a folder. */
  private String inFolder(String from, String to) {
    try {
      HdfsFileStatus target = client.getFileInfo(to);
      boolean isFolder = target != null && target.isDirectory();
      return isFolder ? new Path(to, new Path(from).getName()).toUri().getPath() : to;
    } catch (IOException | RuntimeException problem) {
      return to;
    }
  }

  /**
   * Returns the folders in which there is parity of a file, or a folder for parity of files below a folder.
   */
  private List<ParityRoot> holding(String path) {
    List<ParityRoot> holding = new ArrayList<>();
    try {
      for (ParityRoot root : hasNoParity(path) ? List.<ParityRoot>of() : present()) {
        HdfsFileStatus parity = status(root.parity(path));
        if (parity != null && isOf(client.getFileInfo(path), parity, root.parity(path))) {
          holding.add(root);
        }
      }
    } catch (IOException | RuntimeException problem) {
      LOG.info("cannot look for the parity of {}: {}", path, problem.toString());
    }
    return holding;
  }

  /** Returns the folders of parity files that exist, as of the last minute. */
  private synchronized List<ParityRoot> present() throws IOException {
    if (present == null || System.nanoTime() - lookedNs > LOOK_AGAIN_NS) {
      List<ParityRoot> found = new ArrayList<>();
      for (ParityRoot root : roots) {
        if (client.getFileInfo(root.folder()) != null) {
          found.add(root);
        }
      }
      present = found;
      lookedNs = System.nanoTime();
    }
    return present;
  }

  // ---- deleting ----

  /**
   * Returns the parity files that belong to a file or to files below a folder, and the folders of these
   * parity files, which come last. Parity of other files, for example of a file that was renamed by another
   * client, is left out.
   */
  public List<Owned> belonging(String path) {
    List<Owned> found = new ArrayList<>();
    for (ParityRoot root : holding(path)) {
      try {
        collect(path, client.getFileInfo(path), root.parity(path), client.getFileInfo(root.parity(path)), found);
      } catch (IOException | RuntimeException problem) {
        LOG.info("cannot look for the parity of {}: {}", path, problem.toString());
      }
    }
    return found;
  }

  private void collect(
      String path, HdfsFileStatus source, String parityPath, HdfsFileStatus parity, List<Owned> found)
      throws IOException {
    if (parity == null || !isOf(source, parity, parityPath)) {
      return;
    }
    if (source.isDirectory() && parity.isDirectory()) {
      Map<String, HdfsFileStatus> parities = list(parityPath, false);
      for (Map.Entry<String, HdfsFileStatus> child : list(path, false).entrySet()) {
        String name = child.getKey();
        collect(path + "/" + name, child.getValue(), parityPath + "/" + name, parities.get(name), found);
      }
    }
    found.add(new Owned(parityPath, parity.getFileId(), parity.isDirectory() ? null : source.getFileId()));
  }

  /**
   * Whether a parity file was made for a file or folder, or for an earlier version of it; or whether both are
   * folders.
   */
  private boolean isOf(HdfsFileStatus source, HdfsFileStatus parity, String parityPath) throws IOException {
    if (source == null || parity.isDirectory()) {
      return source != null && source.isDirectory();
    }
    return isOf(source, parity.getModificationTime(), note(parityPath));
  }

  static boolean isOf(HdfsFileStatus source, long parityModified, String text) {
    if (text == null) {
      return source.getModificationTime() == parityModified;
    }
    ParityNote note = ParityNote.parse(text);
    return note != null && note.isOf(source.getFileId());
  }

  /** Returns the children of a folder by name, with the blocks of files if wanted; none if the folder does not exist. */
  private Map<String, HdfsFileStatus> list(String folder, boolean withBlocks) throws IOException {
    Map<String, HdfsFileStatus> children = new TreeMap<>();
    byte[] after = HdfsFileStatus.EMPTY_NAME;
    DirectoryListing listing;
    do {
      listing = client.listPaths(folder, after, withBlocks);
      if (listing == null) {
        return children;
      }
      for (HdfsFileStatus child : listing.getPartialListing()) {
        children.put(child.getLocalName(), child);
      }
      after = listing.getLastName();
    } while (listing.hasMore());
    return children;
  }

  /**
   * Deletes the parity of a file or folder that was deleted: these files, and those of the folders that are
   * empty. The parity of a file that still exists stays. Another client may have renamed the file before the folder was deleted,
   * or a snapshot may contain it, from wherever it was moved; then the parity protects the blocks in the snapshot. Parity is
   * deleted by its inode: the path may have the parity of another file meanwhile. It stays if HDFS finds another file or
   * folder by this inode.
   */
  public void removeAll(List<Owned> parities) {
    for (Owned parity : parities) {
      try {
        if (parity.source != null && Inodes.find(client, parity.source) != Inodes.Place.NONE) {
          LOG.info("the parity {} stays, because its file was renamed, or is in a snapshot", parity.path);
        } else if (isFoundByInode(parity)) {
          client.delete(Inodes.FOLDER + parity.inode, false);
        } else {
          LOG.info("the parity {} stays, because HDFS does not find it there by its inode {}", parity.path, parity.inode);
        }
      } catch (FileNotFoundException gone) {
        LOG.debug("{} is gone", parity.path);
      } catch (IOException | RuntimeException problem) {
        LOG.info("the parity {} is not removed: {}", parity.path, problem.toString());
      }
    }
  }

  /**
   * Whether HDFS finds parity at its path and also by its inode. Through a router, a file of another namespace may have this
   * inode number. If a snapshot contains the parity, HDFS may look for the inode at a former path, where other parity may be.
   */
  private boolean isFoundByInode(Owned parity) throws IOException {
    HdfsFileStatus there = status(parity.path);
    if (there == null || there.getFileId() != parity.inode) {
      return false;
    }
    HdfsFileStatus found = client.getFileInfo(Inodes.FOLDER + parity.inode);
    return found != null && found.getFileId() == parity.inode && found.isDirectory() == there.isDirectory()
        && found.getLen() == there.getLen() && found.getModificationTime() == there.getModificationTime();
  }
}
