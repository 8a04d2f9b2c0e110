package mend.hdfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.ipc.RemoteException;

/** Paths with which HDFS finds files by their inodes. */
public final class Inodes {
  /** The folder in which HDFS finds each file by its inode number. */
  public static final String FOLDER = "/.reserved/.inodes/";

  /** The places at which a file or folder exists. */
  public enum Place {
    /** Outside of snapshots, and perhaps in snapshots too. */
    PRESENT,
    /** Only in snapshots. */
    SNAPSHOT,
    /** Nowhere. */
    NONE
  }

  private Inodes() {}

  /**
   * Looks a file or folder up. HDFS keeps its inode while a snapshot contains it, also if it was moved out of the folder with
   * snapshots before it was deleted.
   *
   * @throws IOException if the NameNode does not answer
   */
  public static Place find(DFSClient client, long inode) throws IOException {
    try {
      // At the former path of a file in a snapshot, there is no file or another one.
      HdfsFileStatus found = client.getFileInfo(FOLDER + inode);
      return found != null && found.getFileId() == inode ? Place.PRESENT : Place.SNAPSHOT;
    } catch (FileNotFoundException gone) {
      return Place.NONE; // The NameNode resolves no path by an inode that does not exist.
    } catch (RemoteException problem) {
      // The NameNode has no path for a file that was moved out of the folder with snapshots, and then deleted.
      if (problem.getClassName().equals(IllegalArgumentException.class.getName())) {
        return Place.SNAPSHOT;
      }
      throw problem;
    }
  }
}
