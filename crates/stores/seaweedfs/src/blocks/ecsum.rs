//! The `.ecsum` file of a volume: CRC32C of every block of every shard, computed when the volume was encoded.
//!
//! A big-endian header of 14 bytes precedes a protobuf message:
//!
//! ```text
//! "ECSU"  version u16 = 1  payload length u32  CRC32C of the payload u32   payload
//! ```
//!
//! Each server keeps its own copy beside the shards. The file contains the volume's ratio, but not its
//! [`Encoding`]. If the file is left over from an earlier encoding, it contradicts more shards than the volume
//! has parity shards.

use std::ops::Range;

use crc_fast::CrcAlgorithm;
use prost::Message;

use super::vif::{Encoding, Ratio};

const MAGIC: &[u8; 4] = b"ECSU";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 14;
/// Upper limit for the file's length: 32 shards of 1 TiB in blocks of 1 MiB take 128 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 20;
const MIN_BLOCK_BYTES: u32 = 1 << 20;
const MAX_BLOCK_BYTES: u32 = 64 << 20;
const CRC32C_ALGORITHM: i32 = 1;
/// A file that was modified longer than this before an encoding is from an earlier one: SeaweedFS writes it
/// only seconds before the time that it records for the encoding. A clock may be wrong by some hours.
const EARLIER_NS: i64 = 24 * 60 * 60 * 1_000_000_000;
/// The kind of digests that are computed from `.ecsum`.
const DIGEST_KIND: &str = "ecsum";

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(int32, tag = "1")]
    algorithm: i32,
    #[prost(uint32, tag = "2")]
    block_size: u32,
    #[prost(uint32, tag = "3")]
    generation: u32,
    #[prost(message, optional, tag = "4")]
    config: Option<Config>,
    #[prost(message, repeated, tag = "5")]
    shards: Vec<Shard>,
    #[prost(bytes = "vec", tag = "6")]
    encode_uuid: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Config {
    #[prost(uint32, tag = "1")]
    data_shards: u32,
    #[prost(uint32, tag = "2")]
    parity_shards: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Shard {
    #[prost(uint32, tag = "1")]
    shard_id: u32,
    #[prost(int64, tag = "2")]
    covered_size: i64,
    #[prost(bytes = "vec", tag = "3")]
    block_crc32c: Vec<u8>,
}

/// Why an `.ecsum` file cannot be used. The shards may still be intact.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum EcsumError {
    /// The file does not start with the magic bytes.
    #[error("it does not begin with `ECSU`")]
    Magic,
    /// This program does not support the file's version.
    #[error("it has version {0}, but this program supports version {VERSION}: run a newer mend")]
    OtherVersion(u16),
    /// The payload's length differs from the header.
    #[error("its header announces {said} bytes, but {found} follow")]
    Length {
        /// The length in the header.
        said: usize,
        /// The actual length.
        found: usize,
    },
    /// The payload does not match its checksum.
    #[error("it does not match its own checksum")]
    Checksum,
    /// The payload is intact but contains impossible values.
    #[error("{0}")]
    Content(String),
}

/// The content of an `.ecsum` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ecsum {
    ratio: Ratio,
    generation: u32,
    encode_uuid: Vec<u8>,
    shards: Vec<ShardSums>,
}

/// The checksums of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSums {
    bytes: u64,
    block_bytes: u32,
    blocks: Vec<u32>,
}

impl Ecsum {
    /// Decodes the bytes of an `.ecsum` file.
    ///
    /// # Errors
    /// [`EcsumError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, EcsumError> {
        let payload = Payload::decode(payload(bytes)?);
        let payload = payload.map_err(|error| EcsumError::Content(error.to_string()))?;
        check_head(&payload)?;
        let config = payload.config.unwrap_or_default();
        let ratio = Ratio::new(config.data_shards, config.parity_shards).ok_or_else(|| {
            content(format!(
                "it describes {} data and {} parity shards",
                config.data_shards, config.parity_shards
            ))
        })?;
        let shards = shards(&payload, ratio)?;
        Ok(Self { ratio, generation: payload.generation, encode_uuid: payload.encode_uuid, shards })
    }

    /// Returns the volume's numbers of data and parity shards.
    pub fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// Returns the generation number: 0 for files made by `ec.encode`; only SeaweedFS's paid edition uses
    /// higher numbers.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns a random ID of the run that made the file.
    pub fn encode_uuid(&self) -> &[u8] {
        &self.encode_uuid
    }

    /// Returns the length of each shard in bytes; `None` if the shards have different lengths.
    pub fn shard_bytes(&self) -> Option<u64> {
        let bytes = self.shards.first()?.bytes;
        self.shards.iter().all(|sums| sums.bytes == bytes).then_some(bytes)
    }

    /// Returns the digests of all shards.
    pub fn digests(&self) -> Vec<repair::Digest> {
        self.shards.iter().map(ShardSums::digest).collect()
    }

    /// Returns the checksums of a shard; `None` if the volume has no such shard.
    pub fn shard(&self, shard: u8) -> Option<&ShardSums> {
        self.shards.get(usize::from(shard))
    }
}

impl ShardSums {
    /// Creates the list of checksums that were computed from a shard's bytes.
    pub(super) fn new(bytes: u64, block_bytes: u32, blocks: Vec<u32>) -> Self {
        debug_assert_eq!(blocks.len() as u64, bytes.div_ceil(u64::from(block_bytes)), "one for each block");
        Self { bytes, block_bytes, blocks }
    }

    /// Returns the length of the shard in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the size of the block that each checksum covers; the last block may be shorter.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.into()
    }

    /// Returns the CRC32C of each block.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Returns the byte range in the shard that a checksum covers.
    pub fn range(&self, block: usize) -> Range<u64> {
        let start = block as u64 * self.block_bytes();
        start..(start + self.block_bytes()).min(self.bytes)
    }

    /// Returns a digest of the shard's content: CRC32C over the shard's length, the block size and the
    /// checksums.
    pub fn digest(&self) -> repair::Digest {
        let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.bytes.to_be_bytes());
        digest.update(&self.block_bytes.to_be_bytes());
        self.blocks.iter().for_each(|crc| digest.update(&crc.to_be_bytes()));
        repair::Digest::of_u32(DIGEST_KIND, narrow(digest.finalize()))
    }
}

/// Whether an earlier encoding has left a file that was modified at this time, in nanoseconds since 1970. A time
/// of 0 is unknown.
pub(crate) fn predates(modified_ns: i64, encoding: Encoding) -> bool {
    modified_ns > 0 && encoding.is_known() && modified_ns < encoding.0.saturating_sub(EARLIER_NS)
}

/// Returns the CRC32C of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// Returns the CRC32C of a concatenation, computed from the checksums of both parts and the length of the
/// second.
pub(super) fn crc32c_joined(first: u32, second: u32, bytes: u64) -> u32 {
    narrow(crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, first.into(), second.into(), bytes))
}

fn narrow(crc: u64) -> u32 {
    u32::try_from(crc).expect("CRC32C has 32 bits")
}

fn content(text: String) -> EcsumError {
    EcsumError::Content(text)
}

/// Checks the header and returns the payload.
fn payload(bytes: &[u8]) -> Result<&[u8], EcsumError> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES).ok_or(EcsumError::Magic)?;
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if !header.starts_with(MAGIC) {
        return Err(EcsumError::Magic);
    }
    let version = u16::from_be_bytes(header[4..6].try_into().expect("two bytes"));
    if version != VERSION {
        return Err(EcsumError::OtherVersion(version));
    }
    let said = number(6) as usize;
    if said != payload.len() {
        return Err(EcsumError::Length { said, found: payload.len() });
    }
    if number(10) != crc32c(payload) {
        return Err(EcsumError::Checksum);
    }
    Ok(payload)
}

fn check_head(payload: &Payload) -> Result<(), EcsumError> {
    if payload.algorithm != CRC32C_ALGORITHM {
        return Err(content(format!("its checksums are of kind {}, not CRC32C", payload.algorithm)));
    }
    let size = payload.block_size;
    if !size.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&size) {
        return Err(content(format!("its blocks have {size} bytes, which SeaweedFS does not use")));
    }
    Ok(())
}

/// Returns the checksums of all shards in order. Each shard must be present exactly once.
fn shards(payload: &Payload, ratio: Ratio) -> Result<Vec<ShardSums>, EcsumError> {
    let mut shards = vec![None; usize::from(ratio.total())];
    for shard in &payload.shards {
        let id = shard.shard_id;
        let slot = shards.get_mut(id as usize);
        let slot =
            slot.ok_or_else(|| content(format!("it names shard {id}, which the volume does not have")))?;
        if slot.replace(sums(shard, payload.block_size)?).is_some() {
            return Err(content(format!("it names shard {id} twice")));
        }
    }
    let named = |(id, sums): (usize, Option<ShardSums>)| {
        sums.ok_or_else(|| content(format!("it does not name shard {id}")))
    };
    shards.into_iter().enumerate().map(named).collect()
}

fn sums(shard: &Shard, block_bytes: u32) -> Result<ShardSums, EcsumError> {
    let id = shard.shard_id;
    let bytes = u64::try_from(shard.covered_size).ok().filter(|&bytes| bytes > 0);
    let bytes =
        bytes.ok_or_else(|| content(format!("it lists shard {id} with {} bytes", shard.covered_size)))?;
    let expected = bytes.div_ceil(block_bytes.into()).checked_mul(4);
    if expected != Some(shard.block_crc32c.len() as u64) {
        return Err(content(format!(
            "shard {id} of {bytes} bytes has {} bytes of checksums",
            shard.block_crc32c.len()
        )));
    }
    let blocks = shard.block_crc32c.chunks_exact(4);
    let blocks = blocks.map(|crc| u32::from_le_bytes(crc.try_into().expect("four bytes"))).collect();
    Ok(ShardSums::new(bytes, block_bytes, blocks))
}

/// Encodes `.ecsum` files as SeaweedFS does, for tests.
#[cfg(test)]
pub(crate) mod made {
    use super::*;

    /// Returns the `.ecsum` file of shards with these bytes.
    pub fn ecsum(ratio: Ratio, block_bytes: u32, shards: &[Vec<u8>]) -> Vec<u8> {
        let shards = shards.iter().enumerate().map(|(id, bytes)| Shard {
            shard_id: id as u32,
            covered_size: bytes.len() as i64,
            block_crc32c: bytes
                .chunks(block_bytes as usize)
                .flat_map(|block| crc32c(block).to_le_bytes())
                .collect(),
        });
        sealed(&Payload {
            algorithm: CRC32C_ALGORITHM,
            block_size: block_bytes,
            generation: 0,
            config: Some(Config { data_shards: ratio.data().into(), parity_shards: ratio.parity().into() }),
            shards: shards.collect(),
            encode_uuid: vec![7; 16],
        })
    }

    pub(super) fn sealed(payload: &Payload) -> Vec<u8> {
        let payload = payload.encode_to_vec();
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_be_bytes());
        file.extend((payload.len() as u32).to_be_bytes());
        file.extend(crc32c(&payload).to_be_bytes());
        file.extend(payload);
        file
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(data: u32, parity: u32) -> Ratio {
        Ratio::new(data, parity).expect("possible")
    }

    fn sample() -> Payload {
        let file = made::ecsum(ratio(2, 1), 1 << 20, &vec![vec![5; (1 << 20) + 9]; 3]);
        Payload::decode(&file[HEADER_BYTES..]).expect("just made")
    }

    /// A file that SeaweedFS 4.48 wrote for a volume of 3 MB.
    #[test]
    fn a_real_file_is_decoded() {
        let read = Ecsum::decode(include_bytes!("../../testdata/4.48.ecsum")).expect("as SeaweedFS wrote it");
        assert_eq!((read.ratio(), read.generation(), read.encode_uuid().len()), (Ratio::default(), 0, 16));
        let sums = read.shard(13).expect("all are there");
        assert_eq!(
            (sums.bytes(), sums.block_bytes(), sums.blocks()),
            (1 << 20, 16 << 20, &[0x6155_199f][..])
        );
        // 3 MB fill three of the ten data shards of 1 MiB; the other seven are empty.
        let zeros = crc32c(&vec![0; 1 << 20]);
        assert!((3..10).all(|shard| read.shard(shard).is_some_and(|sums| sums.blocks() == [zeros])));
    }

    #[test]
    fn only_files_from_long_before_the_encoding_predate_it() {
        let encoding = Encoding(1_795_322_287_727_440_871);
        for (days, found) in [(0, false), (1, false), (2, true), (400, true)] {
            assert_eq!(predates(encoding.0 - days * EARLIER_NS, encoding), found, "{days} days");
        }
        assert!(!predates(encoding.0 + 1, encoding) && !predates(0, encoding));
        assert!(!predates(1, Encoding(0)), "the time of the encoding is unknown");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = made::ecsum(ratio(2, 1), 1 << 20, &vec![vec![5; 99]; 3]);
        let read = Ecsum::decode(&file).expect("just made");
        assert_eq!(read.shard(2).map(|sums| (sums.bytes(), sums.blocks().len())), Some((99, 1)));
        assert_eq!(read.shard(3), None);
        for bit in 0..file.len() * 8 {
            let mut rotten = file.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert!(Ecsum::decode(&rotten).is_err(), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(Ecsum::decode(&file[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn impossible_content_with_a_valid_checksum_is_rejected() {
        let changes: [fn(&mut Payload); 10] = [
            |payload| payload.algorithm = 0,
            |payload| payload.block_size = 0,
            |payload| payload.block_size = 3 << 20,
            |payload| payload.block_size = 128 << 20,
            |payload| payload.config = None,
            |payload| payload.config = Some(Config { data_shards: 3, parity_shards: 1 }),
            |payload| payload.shards[1].shard_id = 0,
            |payload| payload.shards[1].shard_id = 31,
            |payload| payload.shards[0].covered_size = -1,
            |payload| payload.shards[0].block_crc32c.truncate(3),
        ];
        Ecsum::decode(&made::sealed(&sample())).expect("unchanged");
        for (at, change) in changes.iter().enumerate() {
            let mut payload = sample();
            change(&mut payload);
            let error = Ecsum::decode(&made::sealed(&payload)).expect_err("refused");
            assert!(matches!(error, EcsumError::Content(_)), "change {at}: {error}");
        }
    }

    proptest! {
        #[test]
        fn joined_is_the_checksum_of_the_whole(first: Vec<u8>, second: Vec<u8>) {
            let joined = crc32c_joined(crc32c(&first), crc32c(&second), second.len() as u64);
            prop_assert_eq!(joined, crc32c(&[first, second].concat()));
        }
    }
}
