package mend.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.junit.jupiter.api.Test;

class RaidedFileTest {
  static final StripeCode CODE = StripeCode.parse("rs-5-3-hdfs-raid");
  static final long BLOCK = 512;
  static final long MODIFIED = 7000;

  static DatanodeInfo node(int number) {
    DatanodeID id = new DatanodeID("10.0.0." + number, "d" + number, "uuid-" + number, 9866, 9864, 0, 9867);
    return new DatanodeInfo.DatanodeInfoBuilder().setNodeID(id).build();
  }

  static LocatedBlock block(int at, long number, long bytes) {
    ExtendedBlock block = new ExtendedBlock("BP-1", number, bytes, 1000 + number);
    LocatedBlock located = new LocatedBlock(block, new DatanodeInfo[] {node(at + 1)});
    located.setStartOffset(at * BLOCK);
    return located;
  }

  /** Returns a file in blocks of {@code BLOCK} bytes, each on another DataNode. */
  static HdfsLocatedFileStatus file(long firstNumber, long bytes, long modified, boolean isOpen) {
    return file("ada", firstNumber, bytes, modified, isOpen);
  }

  /** Returns a closed file of a user. */
  static HdfsLocatedFileStatus file(String owner, long firstNumber, long bytes) {
    return file(owner, firstNumber, bytes, MODIFIED, false);
  }

  private static HdfsLocatedFileStatus file(
      String owner, long firstNumber, long bytes, long modified, boolean isOpen) {
    List<LocatedBlock> blocks = new ArrayList<>();
    for (int at = 0; at * BLOCK < bytes; at++) {
      blocks.add(block(at, firstNumber + at, Math.min(BLOCK, bytes - at * BLOCK)));
    }
    LocatedBlocks located = new LocatedBlocks(bytes, isOpen, blocks, null, true, null, null);
    return (HdfsLocatedFileStatus) new HdfsFileStatus.Builder().fileId(16_390).owner(owner).length(bytes).blocksize(BLOCK)
        .mtime(modified).locations(located).build();
  }

  /** Five blocks are two stripes; the last block has 40 bytes. */
  static final HdfsLocatedFileStatus SOURCE = file(100, 4 * BLOCK + 40, MODIFIED, false);
  static final HdfsLocatedFileStatus PARITY = file(200, 4 * BLOCK, MODIFIED, false);

  @Test
  void layoutOfAShortLastStripe() {
    RaidLayout layout = new RaidLayout(CODE, 5, BLOCK);
    assertEquals(List.of(5, 2, 4), List.of(layout.blocks(), layout.stripes(), layout.parityBlocks()));
    assertEquals(List.of(0, 1), List.of(layout.stripe(2), layout.stripe(3)));
    assertEquals(List.of(2, 0, 1), List.of(layout.index(2), layout.index(3), layout.index(4)));
    assertEquals(List.of(3, 2), List.of(layout.present(0), layout.present(1)));
    assertEquals(List.of(0, 2), List.of(layout.firstParity(0), layout.firstParity(1)));
    assertEquals(1, new RaidLayout(CODE, 3, BLOCK).stripes());
  }

  @Test
  void parityIsCheckedAsHdfsRaidDoes() {
    assertNotNull(RaidedFile.of(SOURCE, PARITY, null, CODE));
    assertNull(RaidedFile.of(SOURCE, file(200, 4 * BLOCK, MODIFIED + 1, false), null, CODE), "modified");
    assertNull(RaidedFile.of(SOURCE, file(200, 2 * BLOCK, MODIFIED, false), null, CODE), "too short");
    assertNull(RaidedFile.of(SOURCE, file(200, 4 * BLOCK - 1, MODIFIED, false), null, CODE), "not full");
    assertNull(RaidedFile.of(SOURCE, file(200, 4 * BLOCK, MODIFIED, true), null, CODE), "open");
    assertNull(RaidedFile.of(file(100, 0, MODIFIED, false), PARITY, null, CODE), "empty");
    assertNull(RaidedFile.of(file(300, 4 * BLOCK + 40, MODIFIED, false), PARITY, null, CODE), "written later");
  }

  @Test
  void aStripeHasNameHoldersAndLoss() throws IOException {
    RaidedFile file = RaidedFile.of(SOURCE, PARITY, null, CODE);
    LocatedBlock lost = block(4, 104, 40);
    RaidStripe stripe = file.stripeWithout(lost, node -> node.equals(node(3)));
    assertEquals("raid_103_1203", stripe.name());
    assertEquals(1, file.index(lost));
    // Parity blocks 2 and 3 are on the third and fourth DataNode; the third does not answer.
    assertTrue(stripe.whereabouts().endsWith("[10.0.0.4:9866, null, null, 10.0.0.4:9866]"), stripe.whereabouts());
    assertNotEquals(stripe.whereabouts(), file.stripeWithout(lost, node -> false).whereabouts());
  }

  @Test
  void aBlockWithAnotherStampIsNotProtected() {
    RaidedFile file = RaidedFile.of(SOURCE, PARITY, null, CODE);
    assertEquals(104, file.listed(block(4, 104, 40)).getBlock().getBlockId());
    LocatedBlock rewritten = block(4, 104, 40);
    rewritten.getBlock().setGenerationStamp(9);
    assertNull(file.listed(rewritten));
    assertNull(file.listed(block(4, 105, 40)));
    assertNull(file.listed(block(5, 105, 40)));
  }

  @Test
  void aCorruptBlockHasNoHolder() {
    LocatedBlock block = block(0, 100, BLOCK);
    assertEquals(node(1), RaidedFile.holder(block, node -> false));
    block.setCorrupt(true);
    assertNull(RaidedFile.holder(block, node -> false));
  }

  @Test
  void decodingNeedsEnoughBlocks() throws IOException {
    RaidedFile file = RaidedFile.of(SOURCE, PARITY, null, CODE);
    LocatedBlock lost = block(4, 104, 40);
    // Block 3 and parity block 3 are on the fourth DataNode, and parity block 2 is on the third.
    Decoding decoding = file.decoding(lost, node -> false);
    assertEquals(List.of(103L, 202L), List.of(number(decoding, 0), number(decoding, 1)));
    assertThrows(IOException.class, () -> file.decoding(lost, node -> node.equals(node(4))));
  }

  private static long number(Decoding decoding, int at) {
    return decoding.source(at).getBlock().getBlockId();
  }

  @Test
  void aNoteNamesTheBlocksOfBothFiles() {
    String note = "1 16390 3 d1e5ed8ff0d71c74 72cacae67da5dec3";
    HdfsLocatedFileStatus touched = file(100, 4 * BLOCK + 40, MODIFIED + 1, false);
    assertNotNull(RaidedFile.of(touched, PARITY, note, CODE), "the time does not matter");
    assertNull(RaidedFile.of(file(101, 4 * BLOCK + 40, MODIFIED, false), PARITY, note, CODE), "another block");
    assertNull(RaidedFile.of(SOURCE, file(201, 4 * BLOCK, MODIFIED, false), note, CODE), "another parity");
    assertNull(RaidedFile.of(SOURCE, PARITY, note.replace("16390", "16391"), CODE), "another inode");
    for (String other : List.of("", "16390", note + " 1", "2" + note.substring(1), note.replace("16390", "x"))) {
      assertNull(RaidedFile.of(SOURCE, PARITY, other, CODE), other);
    }
  }

  /** An operator has changed the code of a parity root to another one with as many data and parity blocks. */
  @Test
  void aNoteNamesTheCode() {
    String blocks = " 16390 3 d1e5ed8ff0d71c74 72cacae67da5dec3";
    StripeCode other = StripeCode.parse("rs-5-3");
    String note = "2" + blocks + " " + Long.toHexString(CODE.fingerprint());
    assertNotNull(RaidedFile.of(SOURCE, PARITY, note, CODE));
    assertNull(RaidedFile.of(SOURCE, PARITY, note, other));
    assertNull(RaidedFile.of(SOURCE, PARITY, note + "x", CODE));
    assertNotNull(RaidedFile.of(SOURCE, PARITY, "1" + blocks, other), "a note of version 1 does not name it");
    ParityRecord record = ParityRecord.parse(RECORD);
    String prints = Long.toHexString(record.fingerprint())
        + " " + Long.toHexString(ParityNote.fingerprint(PARITY.getLocatedBlocks().getLocatedBlocks()));
    ParityNote ofFolder = ParityNote.parse("2 16385 3 " + prints + " " + Long.toHexString(CODE.fingerprint()));
    assertNotNull(RaidedFile.ofFolder(16_385, List.of(), PARITY, ofFolder, record, CODE));
    assertNull(RaidedFile.ofFolder(16_385, List.of(), PARITY, ofFolder, record, other));
  }

  /** The test of {@code note.rs} in the crate hdfs-raid expects the same text. */
  @Test
  void codesHaveTheFingerprintsOfTheirNames() {
    assertEquals("a2dc04161bef2759", Long.toHexString(StripeCode.parse("rs-14-10-hdfs-raid").fingerprint()));
    assertEquals("3ec1e4df1e9cc2d7", Long.toHexString(StripeCode.parse("xor-11-10").fingerprint()));
  }

  /** Four files of a folder with one block each, then one file that was deleted. The stripes have three data blocks. */
  private static final String RECORD = "1 100.1100.512,..,..,..40,..512";

  private static RaidedFile folder(List<LocatedBlock> blocks, String record) {
    ParityRecord parsed = ParityRecord.parse(record);
    long parity = ParityNote.fingerprint(PARITY.getLocatedBlocks().getLocatedBlocks());
    ParityNote note = ParityNote.parse("1 16385 3 " + Long.toHexString(parsed.fingerprint()) + " " + Long.toHexString(parity));
    return RaidedFile.ofFolder(16_385, blocks, PARITY, note, parsed, CODE);
  }

  /** Each block is the only one of its file. */
  private static LocatedBlock alone(int at, long bytes) {
    LocatedBlock block = block(at, 100 + at, bytes);
    block.setStartOffset(0);
    return block;
  }

  @Test
  void blocksOfAFolderAreFoundWhateverTheirFilesAreCalled() throws IOException {
    LocatedBlock lost = alone(3, 40);
    RaidedFile file = folder(List.of(lost, alone(4, BLOCK), alone(2, BLOCK), alone(0, BLOCK), alone(1, BLOCK)), RECORD);
    assertEquals("raid_103_1203", file.stripeWithout(lost, node -> false).name());
    assertEquals(List.of(0, 2), List.of(file.index(lost), file.index(alone(2, BLOCK))));
    assertNull(file.listed(alone(5, BLOCK)), "a new file");
    assertNull(folder(List.of(), RECORD).listed(lost), "a deleted file");
  }

  /** The parity knows what was in the deleted file, so a parity block has to take its place. */
  @Test
  void aStripeWithoutADeletedFileIsStillDecoded() throws IOException {
    LocatedBlock lost = alone(2, BLOCK);
    RaidedFile file = folder(List.of(alone(0, BLOCK), lost), RECORD);
    RaidStripe stripe = file.stripeWithout(lost, node -> false);
    assertEquals("raid_100_1201_" + Fingerprints.of(List.of(alone(0, BLOCK), lost)), stripe.name());
    assertEquals(1, file.index(lost));
    assertTrue(stripe.whereabouts().endsWith("[10.0.0.1:9866, null, 10.0.0.1:9866, 10.0.0.2:9866]"), stripe.whereabouts());
    Decoding decoding = file.decoding(lost, node -> false);
    assertEquals(List.of(100L, 200L, 201L), List.of(number(decoding, 0), number(decoding, 1), number(decoding, 2)));
    // Two blocks are gone, as many as there are parity blocks.
    RaidedFile more = folder(List.of(lost), RECORD);
    assertThrows(IOException.class, () -> more.stripeWithout(lost, node -> false));
  }

  @Test
  void aRecordThatTheNoteDoesNotNameIsNotUsed() {
    ParityRecord record = ParityRecord.parse(RECORD);
    long parity = ParityNote.fingerprint(PARITY.getLocatedBlocks().getLocatedBlocks());
    String prints = Long.toHexString(record.fingerprint()) + " " + Long.toHexString(parity);
    for (String note : List.of("1 16386 3 " + prints, "1 16385 3 0 " + Long.toHexString(parity))) {
      assertNull(RaidedFile.ofFolder(16_385, List.of(), PARITY, ParityNote.parse(note), record, CODE), note);
    }
  }

  @Test
  void parityOfAnEarlierVersionBelongsToTheFile() {
    assertTrue(ParityFiles.isOf(SOURCE, MODIFIED + 1, "1 16390 3 0 0"), "the inode decides");
    assertFalse(ParityFiles.isOf(SOURCE, MODIFIED, "1 16391 3 0 0"));
    assertTrue(ParityFiles.isOf(SOURCE, MODIFIED, null));
    assertFalse(ParityFiles.isOf(SOURCE, MODIFIED + 1, null));
    assertFalse(ParityFiles.isOf(SOURCE, MODIFIED, "unknown"));
  }

  /** The value is the one in catalogues of CRCs. */
  @Test
  void checksumsAreCrc64Nvme() {
    assertEquals(0xae8b14860a799888L, ParityNote.checksum("123456789".getBytes(StandardCharsets.US_ASCII)));
  }

  @Test
  void foldersOfParityAreConfigured() {
    Configuration conf = new Configuration(false);
    List<ParityRoot> roots = ParityRoot.of(conf);
    assertEquals(List.of("/raidrs", "/raid"), List.of(roots.get(0).folder(), roots.get(1).folder()));
    assertEquals(List.of("/dir-raidrs", "/dir-raid"), List.of(roots.get(2).folder(), roots.get(3).folder()));
    assertEquals(List.of(false, true), List.of(roots.get(1).isOverFolders(), roots.get(3).isOverFolders()));
    assertEquals(List.of(10, 1), List.of(roots.get(0).code().data(), roots.get(1).code().parity()));
    conf.set(MendSettings.PARITY_KEY, "/p=rs-9-6");
    assertEquals("/p/a", ParityRoot.of(conf).get(0).parity("/a"));
    conf.set(MendSettings.PARITY_KEY, "");
    assertEquals(0, ParityRoot.of(conf).size());
  }

  @Test
  void pathsOfParity() {
    ParityRoot root = ParityRoot.parse("/raid=rs/=rs-14-10-hdfs-raid");
    assertEquals("/raid=rs/a/b", root.parity("/a/b"));
    assertTrue(root.contains("/raid=rs/a") && root.contains("/raid=rs"));
    assertFalse(root.contains("/raid=rsx"));
    assertTrue(ParityRoot.parse("/dir=folder:xor-3-2").isOverFolders());
    for (String setting : List.of("/raid", "/raid=files:xor-3-2", "raid=xor-3-2", "=xor-3-2", "/=xor-3-2", "/raid=lrc-4-2-1")) {
      assertThrows(IllegalArgumentException.class, () -> ParityRoot.parse(setting), setting);
    }
  }
}
