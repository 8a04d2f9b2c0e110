//! The checksum file of a block: a header of seven bytes, then a CRC of four bytes for each chunk of the
//! block.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crc_fast::CrcAlgorithm;
use repair::Digest;

/// Length of the header.
pub(super) const HEADER_BYTES: u64 = 7;
/// Length of a checksum.
pub(super) const SUM_BYTES: usize = 4;
/// The greatest accepted length of a chunk in bytes. The limit bounds memory. Real clusters stay far below
/// it, because HDFS sends chunks in packets of 64 KiB.
const MAX_CHUNK_BYTES: u32 = 1 << 20;
const VERSION: u16 = 1;

/// The CRC that a cluster uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// CRC-32 as in zip, `dfs.checksum.type` CRC32.
    Crc32,
    /// CRC-32C (Castagnoli), the default.
    Crc32c,
}

/// The format of a block's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumFormat {
    kind: ChecksumKind,
    chunk_bytes: u32,
}

/// Why a checksum file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// The header is not one that HDFS writes.
    #[error("its header is not one that HDFS writes")]
    Header,
    /// HDFS was configured to store no checksums.
    #[error("it was written with dfs.checksum.type NULL, so its bytes cannot be verified")]
    NoChecksums,
}

impl ChecksumKind {
    fn algorithm(self) -> CrcAlgorithm {
        match self {
            Self::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
            Self::Crc32c => CrcAlgorithm::Crc32Iscsi,
        }
    }

    /// Returns the code by which checksum files and messages identify the CRC.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Crc32 => 1,
            Self::Crc32c => 2,
        }
    }

    /// Returns the digest's name. HDFS calls the CRC of all bytes of a block its composite CRC.
    fn digest_kind(self) -> &'static str {
        match self {
            Self::Crc32 => "composite-crc32",
            Self::Crc32c => "composite-crc32c",
        }
    }

    /// Returns the CRC of `bytes`.
    pub(super) fn sum(self, bytes: &[u8]) -> u32 {
        narrow(crc_fast::checksum(self.algorithm(), bytes))
    }

    /// Combines the CRCs of two pieces into the CRC of their concatenation; the second piece has `bytes`
    /// bytes.
    fn joined(self, first: u32, second: u32, bytes: u64) -> u32 {
        narrow(crc_fast::checksum_combine(self.algorithm(), first.into(), second.into(), bytes))
    }
}

fn narrow(crc: u64) -> u32 {
    u32::try_from(crc).expect("both CRCs have 32 bits")
}

/// A text that names no checksum format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no checksum format: write the type and the bytes per checksum (dfs.checksum.type and \
     dfs.bytes-per-checksum), such as crc32c/512 or crc32/1024"
)]
pub struct NoChecksumFormat(String);

/// The type and the bytes per checksum, such as `crc32c/512`.
impl fmt::Display for ChecksumFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ChecksumKind::Crc32 => "crc32",
            ChecksumKind::Crc32c => "crc32c",
        };
        write!(f, "{kind}/{}", self.chunk_bytes)
    }
}

impl FromStr for ChecksumFormat {
    type Err = NoChecksumFormat;

    /// Parses the type, in upper or lower case, and the bytes per checksum.
    fn from_str(text: &str) -> Result<Self, NoChecksumFormat> {
        let parse = || {
            let (kind, bytes) = text.split_once('/')?;
            let kind = match kind.to_ascii_lowercase().as_str() {
                "crc32" => ChecksumKind::Crc32,
                "crc32c" => ChecksumKind::Crc32c,
                _ => return None,
            };
            Self::new(kind, bytes.parse().ok()?)
        };
        parse().ok_or_else(|| NoChecksumFormat(text.to_owned()))
    }
}

/// HDFS's default: CRC-32C of each 512 bytes.
impl Default for ChecksumFormat {
    fn default() -> Self {
        Self { kind: ChecksumKind::Crc32c, chunk_bytes: 512 }
    }
}

impl ChecksumFormat {
    /// Creates a format with one checksum for each `chunk_bytes` bytes (`dfs.bytes-per-checksum`); `None` if
    /// HDFS could not use this size.
    pub fn new(kind: ChecksumKind, chunk_bytes: u32) -> Option<Self> {
        (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes).then_some(Self { kind, chunk_bytes })
    }

    /// Returns the kind of CRC.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Returns the number of bytes per checksum; the block's last chunk may be shorter.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.into()
    }

    /// Decodes the header of a checksum file of `file_bytes` bytes.
    ///
    /// # Errors
    /// [`MetaError`].
    pub(super) fn decode(header: &[u8; HEADER_BYTES as usize], file_bytes: u64) -> Result<Self, MetaError> {
        let [v0, v1, kind, c0, c1, c2, c3] = *header;
        let chunk_bytes = u32::from_be_bytes([c0, c1, c2, c3]);
        let kind = match (u16::from_be_bytes([v0, v1]), kind) {
            // The length is checked because a flipped bit can change the kind in the header, but cannot
            // remove the checksums.
            (VERSION, 0) if file_bytes == HEADER_BYTES => return Err(MetaError::NoChecksums),
            (VERSION, 1) => ChecksumKind::Crc32,
            (VERSION, 2) => ChecksumKind::Crc32c,
            _ => return Err(MetaError::Header),
        };
        Self::new(kind, chunk_bytes).ok_or(MetaError::Header)
    }

    /// Encodes the header.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let ([v0, v1], [c0, c1, c2, c3]) = (VERSION.to_be_bytes(), self.chunk_bytes.to_be_bytes());
        [v0, v1, self.kind.code(), c0, c1, c2, c3]
    }

    /// Returns the number of chunks of a block.
    pub(super) fn chunks(&self, block_bytes: u64) -> u64 {
        block_bytes.div_ceil(self.chunk_bytes())
    }

    /// Returns the length of a block's checksum file in bytes.
    pub(super) fn file_bytes(&self, block_bytes: u64) -> u64 {
        HEADER_BYTES + self.chunks(block_bytes) * SUM_BYTES as u64
    }

    /// Returns the offset of a chunk's checksum in the file.
    pub(super) fn sums_at(&self, first_chunk: u64) -> u64 {
        HEADER_BYTES + first_chunk * SUM_BYTES as u64
    }

    /// Returns the byte range of a chunk in a block of `block_bytes` bytes.
    pub(super) fn chunk(&self, index: u64, block_bytes: u64) -> Range<u64> {
        let start = index * self.chunk_bytes();
        start..(start + self.chunk_bytes()).min(block_bytes)
    }

    /// Computes the checksums of bytes that begin at the start of a chunk, encoded as in the file.
    pub(super) fn sums<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = [u8; SUM_BYTES]> + use<'a> {
        let kind = self.kind;
        bytes.chunks(self.chunk_bytes as usize).map(move |chunk| kind.sum(chunk).to_be_bytes())
    }
}

/// Computes the CRC of a whole block from the CRCs of its chunks. HDFS calls the result the composite CRC.
#[derive(Debug)]
pub(super) struct Composite {
    format: ChecksumFormat,
    block_bytes: u64,
    /// Lookup tables that extend a CRC by one whole chunk, one table per byte of the CRC. This works because
    /// combining CRCs is linear.
    shifted: Box<[[u32; 256]; SUM_BYTES]>,
    chunks: u64,
    sum: u32,
}

impl Composite {
    /// Starts the composite CRC of a block of `block_bytes` bytes; no chunk is added yet.
    pub(super) fn new(format: ChecksumFormat, block_bytes: u64) -> Self {
        let bits: [u32; 32] =
            std::array::from_fn(|bit| format.kind.joined(1 << bit, 0, format.chunk_bytes()));
        let mut shifted = Box::new([[0; 256]; SUM_BYTES]);
        for (at, row) in shifted.iter_mut().enumerate() {
            for (byte, shifted) in row.iter_mut().enumerate() {
                let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
                *shifted = set.fold(0, |sum, bit| sum ^ bits[8 * at + bit]);
            }
        }
        Self { format, block_bytes, shifted, chunks: 0, sum: format.kind.sum(&[]) }
    }

    /// Appends the checksums of the next chunks, encoded as in the file.
    pub(super) fn add(&mut self, sums: &[u8]) {
        for sum in sums.as_chunks::<SUM_BYTES>().0 {
            let range = self.format.chunk(self.chunks, self.block_bytes);
            let (sum, bytes) = (u32::from_be_bytes(*sum), range.end - range.start);
            self.sum = match bytes == self.format.chunk_bytes() {
                true => self.shift() ^ sum,
                false => self.format.kind.joined(self.sum, sum, bytes),
            };
            self.chunks += 1;
        }
    }

    fn shift(&self) -> u32 {
        let bytes = self.sum.to_le_bytes().into_iter().zip(self.shifted.iter());
        bytes.fold(0, |sum, (byte, row)| sum ^ row[usize::from(byte)])
    }

    /// Returns the digest of the block, after all chunks were added.
    pub(super) fn digest(&self) -> Digest {
        assert_eq!(self.chunks, self.format.chunks(self.block_bytes), "all chunks are known");
        Digest::of_u32(self.format.kind.digest_kind(), self.sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn formats() -> impl Strategy<Value = ChecksumFormat> {
        let kinds = prop_oneof![Just(ChecksumKind::Crc32), Just(ChecksumKind::Crc32c)];
        (kinds, 1u32..700).prop_map(|(kind, chunk)| ChecksumFormat::new(kind, chunk).expect("possible"))
    }

    #[test]
    fn the_header_matches_that_of_hdfs() {
        assert_eq!(ChecksumFormat::default().encode(), [0, 1, 2, 0, 0, 2, 0]);
        let sums: Vec<_> = ChecksumFormat::default().sums(b"123456789").collect();
        assert_eq!(sums, [[0xe3, 0x06, 0x92, 0x83]]); // The check values of the two CRCs.
        let zip = ChecksumFormat::new(ChecksumKind::Crc32, 512).expect("possible");
        assert_eq!(zip.sums(b"123456789").collect::<Vec<_>>(), [[0xcb, 0xf4, 0x39, 0x26]]);
    }

    #[test]
    fn no_flipped_bit_of_a_header_goes_unnoticed() {
        let format = ChecksumFormat::default();
        let block: Vec<u8> = (0..70_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        let (whole, sums) = (format.file_bytes(70_000), format.sums(&block).collect::<Vec<_>>());
        for bit in 0..8 * HEADER_BYTES as usize {
            let mut header = format.encode();
            header[bit / 8] ^= 1 << (bit % 8);
            match ChecksumFormat::decode(&header, whole) {
                Err(error) => assert_eq!(error, MetaError::Header),
                // If a changed header is still valid, the file has the wrong length for it, or the checksums
                // do not match the block.
                Ok(other) => {
                    assert!(other.file_bytes(70_000) != whole || other.sums(&block).ne(sums.clone()))
                }
            }
        }
        assert_eq!(ChecksumFormat::decode(&[0, 1, 0, 0, 0, 2, 0], 7), Err(MetaError::NoChecksums));
    }

    proptest! {
        #[test]
        fn a_header_reads_back(format in formats(), bytes in 0u64..5000) {
            let decoded = ChecksumFormat::decode(&format.encode(), format.file_bytes(bytes));
            prop_assert_eq!(decoded, Ok(format));
        }

        #[test]
        fn the_digest_is_the_sum_of_all_bytes(
            format in formats(),
            block in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let mut composite = Composite::new(format, block.len() as u64);
            format.sums(&block).for_each(|sum| composite.add(&sum));
            let expected = Digest::of_u32(format.kind.digest_kind(), format.kind.sum(&block));
            prop_assert_eq!(composite.digest(), expected);
        }
    }
}
