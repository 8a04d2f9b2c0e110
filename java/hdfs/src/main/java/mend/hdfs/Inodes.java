package mend.hdfs;

/** Paths by which HDFS finds files whatever their names are. */
public final class Inodes {
  /** The folder in which HDFS finds each file by its inode number. */
  public static final String FOLDER = "/.reserved/.inodes/";

  private Inodes() {}
}
