//! The list of a block's checksums, and the format of the `.crc` file that stores it together with the
//! block's label.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest};

use super::label::{Label, MAX_LABEL_BYTES};

/// Number of block bytes per checksum; the last chunk may be shorter.
pub(super) const CHUNK_BYTES: usize = 4096;
/// The greatest length of a block in bytes. The limit ensures that a block's list of checksums fits into
/// memory.
pub(super) const MAX_BLOCK_BYTES: u64 = 256 << 30;
/// The greatest length of a checksum file in bytes.
pub(super) const MAX_ENCODED_BYTES: u64 = encoded_bytes(MAX_BLOCK_BYTES, MAX_LABEL_BYTES);

const MAGIC: &[u8; 8] = b"MENDCRC\n";
const VERSION: u32 = 2;
/// The digest kind of blocks whose labels contain no digest.
pub(super) const LIST_KIND: &str = "crc32c-list";
const HEADER_BYTES: usize = 24;

/// Returns the CRC32C (Castagnoli) of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

fn narrow(crc: u64) -> u32 {
    u32::try_from(crc).expect("CRC32C has 32 bits")
}

/// The CRC32C of each chunk of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksums {
    block_bytes: u64,
    chunks: Vec<u32>,
    label: Label,
}

/// Why a checksum file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChecksumsError {
    #[error("its checksum file does not match its own checksum")]
    Damaged,
    #[error(
        "its checksum file has version {0}, but this program reads version {VERSION}: run the version of \
         mend that wrote it"
    )]
    OtherVersion(u32),
    #[error(
        "its checksum file has {found} bytes, but one for a block of {block_bytes} bytes has at least {least}"
    )]
    Length { found: usize, block_bytes: u64, least: u64 },
    #[error("its checksum file has an unreadable label")]
    Label,
}

impl Checksums {
    /// Creates a list whose checksums are still unknown; the caller sets them.
    pub(super) fn unknown(block_bytes: u64, label: Label) -> Self {
        let chunks = usize::try_from(chunk_count(block_bytes)).expect("blocks are bounded");
        Self { block_bytes, chunks: vec![0; chunks], label }
    }

    /// Returns the block's label.
    pub(super) fn label(&self) -> &Label {
        &self.label
    }

    /// Returns the length of the block in bytes.
    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the number of chunks.
    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the byte range of a chunk in the block.
    pub(super) fn chunk(&self, index: usize) -> Range<u64> {
        let start = (index * CHUNK_BYTES) as u64;
        start..self.block_bytes.min(start + CHUNK_BYTES as u64)
    }

    /// Sets the checksum of a chunk from its bytes.
    pub(super) fn set(&mut self, index: usize, chunk: &[u8]) {
        self.chunks[index] = crc32c(chunk);
    }

    /// Whether the bytes of a chunk match its checksum.
    pub(super) fn agrees(&self, index: usize, chunk: &[u8]) -> bool {
        self.chunks[index] == crc32c(chunk)
    }

    /// Returns the checksums of a range of chunks.
    pub(super) fn of(&self, chunks: Range<usize>) -> &[u32] {
        &self.chunks[chunks]
    }

    /// Returns the CRC32C over the block's length and the list of checksums.
    pub(super) fn digest(&self) -> u32 {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.block_bytes.to_be_bytes());
        digest.update(&self.list_bytes());
        narrow(digest.finalize())
    }

    /// Returns the digest that the catalog records for the block: the digest in the label. The labels of
    /// blocks of old versions contain no digest; for these blocks, returns the digest of the
    /// [list](Self::digest).
    pub(super) fn block_digest(&self) -> repair::Digest {
        self.label.digest.unwrap_or_else(|| repair::Digest::of_u32(LIST_KIND, self.digest()))
    }

    /// Sets the digest of the block's bytes.
    pub(super) fn set_digest(&mut self, digest: repair::Digest) {
        self.label.digest = Some(digest);
    }

    fn list_bytes(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|crc| crc.to_be_bytes()).collect()
    }

    /// Encodes the checksum file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let label = self.label.encode();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 4 * self.chunks.len() + 4 + label.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&(CHUNK_BYTES as u32).to_be_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_be_bytes());
        bytes.extend_from_slice(&self.list_bytes());
        bytes.extend_from_slice(&(label.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&label);
        bytes.extend_from_slice(&crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes a checksum file.
    ///
    /// Checks the file's own checksum first, so that a flipped bit is not misread as another version or
    /// length.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ChecksumsError> {
        let (body, own) = bytes.split_last_chunk::<4>().ok_or(ChecksumsError::Damaged)?;
        if crc32c(body) != u32::from_be_bytes(*own) {
            return Err(ChecksumsError::Damaged);
        }
        let (header, rest) = body.split_first_chunk::<HEADER_BYTES>().ok_or(ChecksumsError::Damaged)?;
        let block_bytes = decode_header(header)?;
        let least = encoded_bytes(block_bytes, 0);
        if (bytes.len() as u64) < least {
            return Err(ChecksumsError::Length { found: bytes.len(), block_bytes, least });
        }
        let (list, label) = rest.split_at(4 * chunk_count(block_bytes) as usize);
        let label = decode_label(label).ok_or(ChecksumsError::Label)?;
        let (crcs, _) = list.as_chunks::<4>();
        let chunks = crcs.iter().map(|crc| u32::from_be_bytes(*crc)).collect();
        Ok(Self { block_bytes, chunks, label })
    }
}

fn decode_label(bytes: &[u8]) -> Option<Label> {
    let (length, label) = bytes.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*length) as usize == label.len()).then(|| Label::decode(label))?
}

/// Checks the header. Returns the block's length.
fn decode_header(header: &[u8; HEADER_BYTES]) -> Result<u64, ChecksumsError> {
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if &header[..8] != MAGIC {
        return Err(ChecksumsError::Damaged);
    }
    let version = number(8);
    if version != VERSION {
        return Err(ChecksumsError::OtherVersion(version));
    }
    let block_bytes = u64::from_be_bytes(header[16..].try_into().expect("eight bytes"));
    if number(12) != CHUNK_BYTES as u32 || block_bytes > MAX_BLOCK_BYTES {
        return Err(ChecksumsError::Damaged); // No version used another chunk size.
    }
    Ok(block_bytes)
}

const fn chunk_count(block_bytes: u64) -> u64 {
    block_bytes.div_ceil(CHUNK_BYTES as u64)
}

/// Returns the length of a block's checksum file in bytes.
pub(super) const fn encoded_bytes(block_bytes: u64, label_bytes: usize) -> u64 {
    HEADER_BYTES as u64 + 4 * chunk_count(block_bytes) + 4 + label_bytes as u64 + 4
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use repair::BlockId;

    use super::*;

    fn label() -> Label {
        Label { id: BlockId("17.3".to_owned()), index: BlockIndex(3), digest: None, stripe: None }
    }

    fn of(block: &[u8]) -> Checksums {
        let mut checksums = Checksums::unknown(block.len() as u64, label());
        for (index, chunk) in block.chunks(CHUNK_BYTES).enumerate() {
            checksums.set(index, chunk);
        }
        checksums
    }

    #[test]
    fn the_checksum_file_has_the_documented_format() {
        let bytes = of(b"123456789").encode();
        let mut drawn = b"MENDCRC\n".to_vec();
        drawn.extend([0, 0, 0, 2, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        drawn.extend([0xe3, 0x06, 0x92, 0x83]); // CRC32C of the check string
        drawn.extend([0, 0, 0, 23]);
        drawn.extend(br#"{"id":"17.3","index":3}"#);
        drawn.extend(crc32c(&drawn).to_be_bytes());
        assert_eq!(bytes, drawn);
    }

    #[test]
    fn an_invalid_label_is_reported() {
        let mut bytes = of(b"x").encode();
        let at = bytes.len() - 10;
        bytes[at] = b'\n';
        let body = bytes.len() - 4;
        let own = crc32c(&bytes[..body]);
        bytes[body..].copy_from_slice(&own.to_be_bytes());
        assert_eq!(Checksums::decode(&bytes), Err(ChecksumsError::Label));
    }

    #[test]
    fn the_digest_covers_length_and_list() {
        assert_eq!(of(b"").digest(), crc32c(&[0; 8]));
        let block = b"123456789";
        let mut covered = 9u64.to_be_bytes().to_vec();
        covered.extend(crc32c(block).to_be_bytes());
        assert_eq!(of(block).digest(), crc32c(&covered));
    }

    #[test]
    fn checksum_files_round_trip_and_every_flipped_bit_is_detected() {
        for length in [0, 1, 4095, 4096, 4097, 9000] {
            let checksums = of(&vec![7; length]);
            let mut bytes = checksums.encode();
            assert_eq!(bytes.len() as u64, encoded_bytes(length as u64, label().encode().len()));
            assert_eq!(Checksums::decode(&bytes), Ok(checksums));
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Checksums::decode(&bytes), Err(ChecksumsError::Damaged));
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn truncated_and_extended_files_are_detected() {
        let bytes = of(&[7; 9000]).encode();
        for length in 0..bytes.len() {
            assert!(Checksums::decode(&bytes[..length]).is_err());
        }
        let mut grown = bytes[..bytes.len() - 4].to_vec();
        grown.extend([0; 4]);
        grown.extend(crc32c(&grown).to_be_bytes());
        assert_eq!(Checksums::decode(&grown), Err(ChecksumsError::Label));
        let mut cut = bytes[..30].to_vec();
        cut.extend(crc32c(&cut).to_be_bytes());
        let error = Checksums::decode(&cut).expect_err("too short");
        assert_eq!(error, ChecksumsError::Length { found: 34, block_bytes: 9000, least: 44 });
    }

    #[test]
    fn a_newer_checksum_file_version_is_reported() {
        let mut bytes = of(b"x").encode();
        bytes[11] = 3;
        let body = bytes.len() - 4;
        let own = crc32c(&bytes[..body]);
        bytes[body..].copy_from_slice(&own.to_be_bytes());
        assert_eq!(Checksums::decode(&bytes), Err(ChecksumsError::OtherVersion(3)));
    }
}
