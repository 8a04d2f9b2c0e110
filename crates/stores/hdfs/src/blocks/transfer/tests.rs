//! Compares requests to a DataNode byte by byte with HDFS's, and tests all kinds of answers.

use std::ops::Range;

use proptest::prelude::*;
use repair::Digest;

use super::super::meta::ChecksumKind;
use super::*;

/// A connection whose peer has already sent its whole answer.
struct Said {
    heard: Vec<u8>,
    says: io::Cursor<Vec<u8>>,
}

impl Read for &mut Said {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for &mut Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn said(bytes: &[u8]) -> Said {
    Said { heard: Vec::new(), says: io::Cursor::new(bytes.to_vec()) }
}

struct Block(&'static [u8]);

impl BlockReader for Block {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range: Range<usize> = offset as usize..offset as usize + buffer.len();
        buffer.copy_from_slice(&self.0[range]);
        Ok(())
    }

    fn digest(&self) -> Option<Digest> {
        None
    }
}

fn wanted(bytes: u64) -> Wanted {
    Wanted { pool: "BP".to_owned(), name: ReplicaName::new(-1, 5).expect("a name"), bytes, permit: None }
}

/// Returns the replica with the token `tok`. A DataNode parses only the fields of a token.
fn permitted(bytes: u64) -> Wanted {
    Wanted { permit: Some(Permit::new(b"tok".to_vec()).expect("short")), ..wanted(bytes) }
}

fn ask(says: &[u8]) -> Result<(), TransferError> {
    Transfer(&mut said(says)).read_last_byte(&wanted(3))
}

/// The encoded block of [`wanted`]. Its number is negative, so the varint has ten bytes.
const BLOCK: &[u8] = b"\x0a\x02BP\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x05\x20\x09";

#[test]
fn a_block_is_written_as_hdfs_writes_it() {
    let (mut other, format) = (said(b"\x02\x08\x00"), ChecksumFormat::default());
    Transfer(&mut other).write(&wanted(9), format, &Block(b"123456789")).expect("taken");
    let operation = [
        b"\x00\x1c\x50\x2c".as_slice(), // Version 28, write a block, 44 bytes
        b"\x0a\x19\x0a\x15\x0a\x13",
        BLOCK,
        b"\x12\x00",                                 // No client name
        b"\x20\x08\x28\x00\x30\x00\x38\x00\x40\x00", // Stage 8, all pipeline fields 0
        b"\x4a\x05\x08\x02\x10\x80\x04",             // CRC-32C of each 512 bytes
    ];
    let bytes = [
        b"\x00\x00\x00\x11\x00\x1b".as_slice(),
        b"\x09\x00\x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x18\x00\x25\x09\x00\x00\x00\x28\x00",
        b"\xe3\x06\x92\x83123456789",
    ];
    let end = [
        b"\x00\x00\x00\x04\x00\x1b".as_slice(),
        b"\x09\x09\x00\x00\x00\x00\x00\x00\x00\x11\x01\x00\x00\x00\x00\x00\x00\x00",
        b"\x18\x01\x25\x00\x00\x00\x00\x28\x01",
    ];
    let expected = [operation.concat(), bytes.concat(), end.concat()].concat();
    assert_eq!(other.heard, expected, "{:02x?}", other.heard);
}

/// The token is in the header of both operations, after the block.
#[test]
fn a_token_comes_with_the_block() {
    let header = [b"\x0a\x1a\x0a\x13", BLOCK, b"\x12\x03tok"].concat();
    let header =
        |client: &[u8]| [&[0x0a, header.len() as u8 + client.len() as u8], &header[..], client].concat();
    let mut other = said(b"\x02\x08\x00");
    Transfer(&mut other).read_last_byte(&permitted(9)).expect("it has it");
    let read = [b"\x00\x1c\x51\x28".as_slice(), &header(b"\x12\x04mend"), b"\x10\x08\x18\x01"].concat();
    assert_eq!(other.heard, read, "{:02x?}", other.heard);
    let mut other = said(b"\x02\x08\x00");
    let (block, format) = (Block(b"123456789"), ChecksumFormat::default());
    Transfer(&mut other).write(&permitted(9), format, &block).expect("taken");
    let write = [b"\x00\x1c\x50\x31".as_slice(), &header(b"\x12\x00"), b"\x20\x08"].concat();
    assert!(other.heard.starts_with(&write), "{:02x?}", other.heard);
}

#[test]
fn packets_end_where_chunks_do() {
    let block: &[u8] = Vec::leak((0..200_000u32).map(|at| (at * 7) as u8).collect());
    let format = ChecksumFormat::new(ChecksumKind::Crc32, 700).expect("possible");
    let mut other = said(b"\x02\x08\x00");
    Transfer(&mut other).write(&wanted(200_000), format, &Block(block)).expect("taken");
    let operation = 4 + usize::from(other.heard[3]);
    let (mut rest, mut bytes, mut sums) = (&other.heard[operation..], Vec::new(), Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize - size_of::<u32>();
        let header = PacketHeader::decode(&after[2..29]).expect("a header");
        assert_eq!(header.offset as usize, bytes.len());
        assert_eq!(header.is_last, header.bytes == 0);
        let (packet, after) = after[29..].split_at(length);
        let (packet_sums, packet_bytes) = packet.split_at(length - header.bytes as usize);
        sums.extend_from_slice(packet_sums);
        bytes.extend_from_slice(packet_bytes);
        rest = after;
    }
    assert!(bytes == block);
    assert_eq!(sums, format.sums(block).flatten().collect::<Vec<_>>());
}

#[test]
fn answers_of_a_datanode_are_parsed() {
    assert!(ask(b"\x02\x08\x00").is_ok());
    assert!(ask(b"\x02\x08\x00and bytes of the block").is_ok());
    assert!(matches!(ask(b""), Err(TransferError::Closed)));
    assert!(matches!(ask(b"\x02\x08"), Err(TransferError::Closed)));
    assert!(matches!(ask(b"\x02\x08\x05"), Err(TransferError::TokenWanted)));
    let refused = Transfer(&mut said(b"\x02\x08\x05")).read_last_byte(&permitted(3));
    assert!(matches!(refused, Err(TransferError::TokenRefused)));
    let refused = ask(b"\x06\x08\x01\x2a\x02no").expect_err("refused").to_string();
    assert_eq!(refused, "it answered: no (status 1)");
    // An answer without a status is no success, and an answer with an endless length is refused.
    for nonsense in
        [b"\x00".as_slice(), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff\xff\x7f", b"\x01\xff"]
    {
        assert!(matches!(ask(nonsense), Err(TransferError::NotAnAnswer(_))), "{nonsense:02x?}");
    }
}

proptest! {
    /// Hadoop decodes the token as a message; Mend forwards its bytes unchanged.
    #[test]
    fn a_token_is_passed_on_as_it_is(token in prop::collection::vec(any::<u8>(), 1..4097)) {
        let permit = Some(Permit::new(token.clone()).expect("as long as one may be"));
        let header = Wanted { permit, ..wanted(3) }.header(READER).encode_to_vec();
        let again = OperationHeader::decode(&header[..]).expect("a header");
        prop_assert_eq!(again.base.token, Some(token));
        prop_assert_eq!(again.base.block, wanted(3).header(READER).base.block);
    }

    #[test]
    fn an_answer_is_the_same_whatever_follows_it(
        says in prop::collection::vec(any::<u8>(), 0..40),
        more in prop::collection::vec(any::<u8>(), 1..10),
    ) {
        let alone = ask(&says);
        if !matches!(alone, Err(TransferError::Closed)) {
            let followed = ask(&[says, more].concat());
            prop_assert_eq!(format!("{alone:?}"), format!("{followed:?}"));
        }
    }
}
