package mend.hdfs.namenode;

import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.inotify.Event;
import org.apache.hadoop.hdfs.inotify.EventBatch;
import org.apache.hadoop.hdfs.inotify.EventBatchList;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;

/**
 * Reads the NameNode's edit log, as {@code DFSInotifyEventInputStream} does. The caller keeps the position, so
 * that a restart of this program or of the NameNode loses nothing.
 *
 * <pre>
 *   k PATH        a replicated file was created
 *   c PATH        an erasure-coded file was created
 *   m PATH        a file was closed, appended to or truncated
 *   z PATH        the modification time, the owner or an attribute of a file or folder was set, or the replication
 *                 of a file
 *   u PATH        a file or folder was deleted
 *   r FROM TO     a file or folder was renamed
 *   e NEXT        the transaction to continue with
 *   gap FIRST     edits are missing: the NameNode no longer has those before this one
 * </pre>
 */
final class Edits {
  /** An answer ends after about this many events. */
  private static final int AT_ONCE = 20_000;

  private final ClientProtocol namenode;
  private final Answers.Lines lines;

  Edits(DFSClient client, Answers.Lines lines) {
    this.namenode = client.getNamenode();
    this.lines = lines;
  }

  /** Reports the transaction after the last one. */
  void position() throws IOException {
    tellNext(namenode.getCurrentEditLogTxid() + 1);
  }

  /**
   * Reports the events from this transaction on, up to the last transaction at this time: on a busy NameNode, there
   * is always another one.
   */
  void since(long first) throws IOException {
    long next = first;
    long last = Long.MAX_VALUE;
    int events = 0;
    while (events < AT_ONCE && next <= last) {
      EventBatchList edits = namenode.getEditsFromTxid(next);
      last = Math.min(last, edits.getSyncTxid());
      if (edits.getLastTxid() == -1) {
        long written = namenode.getCurrentEditLogTxid();
        if (written != -1 && written + 1 < next) { // The NameNode was formatted, or started from an older image.
          lines.add("gap " + (written + 1));
          return;
        }
        break;
      }
      if (edits.getFirstTxid() != next) {
        lines.add("gap " + edits.getFirstTxid());
        return;
      }
      for (EventBatch batch : edits.getBatches()) {
        for (Event event : batch.getEvents()) {
          tell(event);
          events++;
        }
      }
      next = edits.getLastTxid() + 1;
    }
    tellNext(next);
  }

  private void tellNext(long next) throws IOException {
    if (next <= 0) {
      throw new IOException("the NameNode is becoming active and has no position in its edits yet");
    }
    lines.add("e " + next);
  }

  private void tell(Event event) {
    switch (event.getEventType()) {
      case CREATE:
        Event.CreateEvent created = (Event.CreateEvent) event;
        if (created.getiNodeType() == Event.CreateEvent.INodeType.FILE) {
          // NameNodes before 3.1 do not say whether a file is erasure-coded.
          Optional<Boolean> isErasureCoded = created.isErasureCoded();
          lines.add((isErasureCoded.orElse(true) ? "c " : "k ") + Survey.encoded(created.getPath()));
        }
        break;
      case CLOSE:
        tellModified(((Event.CloseEvent) event).getPath());
        break;
      case APPEND:
        tellModified(((Event.AppendEvent) event).getPath());
        break;
      case TRUNCATE:
        tellModified(((Event.TruncateEvent) event).getPath());
        break;
      case UNLINK:
        lines.add("u " + Survey.encoded(((Event.UnlinkEvent) event).getPath()));
        break;
      case RENAME:
        Event.RenameEvent renamed = (Event.RenameEvent) event;
        lines.add("r " + Survey.encoded(renamed.getSrcPath()) + " " + Survey.encoded(renamed.getDstPath()));
        break;
      case METADATA:
        tellTouched((Event.MetadataUpdateEvent) event);
        break;
      default: // Other events do not matter.
    }
  }

  private void tellTouched(Event.MetadataUpdateEvent event) {
    if (isHeeded(event)) {
      lines.add("z " + Survey.encoded(event.getPath()));
    }
  }

  /**
   * Whether parity may have become valid or invalid: its note is an attribute, and parity without a note counts only with
   * a certain owner.
   */
  private static boolean isHeeded(Event.MetadataUpdateEvent event) {
    switch (event.getMetadataType()) {
      case TIMES:
        return event.getMtime() >= 0; // Otherwise, it is the time of access.
      case REPLICATION:
      case OWNER:
      case XATTRS:
        return true;
      default:
        return false;
    }
  }

  private void tellModified(String path) {
    lines.add("m " + Survey.encoded(path));
  }
}
