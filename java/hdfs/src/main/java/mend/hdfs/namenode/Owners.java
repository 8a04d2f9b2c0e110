package mend.hdfs.namenode;

import java.io.IOException;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.security.UserGroupInformation;

/** Tells files and folders of HDFS's superuser and of Mend from those of other users. */
final class Owners {
  private final DFSClient client;
  /** The owner of the root folder; null until it is needed. */
  private String superuser;
  /** The user as whom Mend acts; null until it is needed. */
  private String mend;

  Owners(DFSClient client) {
    this.client = client;
  }

  /** Whether HDFS's superuser, who is the owner of /, owns a file or folder. */
  boolean isOfSuperuser(HdfsFileStatus status) throws IOException {
    if (superuser == null) {
      superuser = client.getFileInfo("/").getOwner();
    }
    return status.getOwner().equals(superuser);
  }

  /**
   * Whether Mend can have made a folder: it belongs to the superuser, or to the user as whom Mend acts. That user may be
   * another member of the superuser's group.
   */
  boolean isOfMend(HdfsFileStatus status) throws IOException {
    if (mend == null) {
      mend = UserGroupInformation.getCurrentUser().getShortUserName();
    }
    return status.getOwner().equals(mend) || isOfSuperuser(status);
  }
}
