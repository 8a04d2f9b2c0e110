//! The data plane: greetings, slice frames and credits, all integers big-endian.

use crate::{EdgeKey, Epoch, JobId};

/// The first bytes of a greeting: the protocol's name and version.
pub const MAGIC: [u8; 5] = *b"MEND\x01";

/// The length of a greeting in bytes.
pub const GREETING_BYTES: usize = 40;

/// The length of a frame header in bytes.
pub const HEADER_BYTES: usize = 24;

/// The length of a credit in bytes.
pub const CREDIT_BYTES: usize = 12;

/// Why bytes from another node are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeError {
    /// The first bytes are not Mend's, or belong to another version.
    #[error("not a greeting of this protocol version")]
    BadMagic,
    /// The kind of a frame or a credit is unknown.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A frame header announces more bytes than a slice may have.
    #[error("a frame of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The length in the header.
        bytes: u32,
        /// The receiver's limit.
        limit: u32,
    },
    /// The checksum over header and payload does not match.
    #[error("the checksum is {found:08x} instead of {expected:08x}")]
    BadChecksum {
        /// The checksum computed from the received bytes.
        found: u32,
        /// The checksum in the header.
        expected: u32,
    },
}

/// The first message on an edge, sent by the dialling end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Whether the dialling end will receive slices or send them.
    pub direction: Direction,
    /// The job that the edge belongs to.
    pub job: JobId,
    /// The epoch of the plan.
    pub epoch: Epoch,
    /// The edge's key, which also identifies the edge.
    pub key: EdgeKey,
}

/// The direction of slices on a dialled connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The dialling end receives; this is the rule between helpers.
    Receive = 1,
    /// The dialling end sends; used by a client that puts a file.
    Send = 2,
}

impl Greeting {
    /// Encodes the greeting for the wire.
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = self.direction as u8;
        bytes[8..16].copy_from_slice(&self.job.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.0.to_be_bytes());
        bytes[20..36].copy_from_slice(&self.key.0);
        let checksum = crc32c(&[&bytes[..36]]);
        bytes[36..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes a greeting.
    ///
    /// # Errors
    /// [`EdgeError`] if the bytes are not a valid greeting.
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Self, EdgeError> {
        if bytes[..5] != MAGIC {
            return Err(EdgeError::BadMagic);
        }
        check(crc32c(&[&bytes[..36]]), be_u32(&bytes[36..]))?;
        let direction = match bytes[5] {
            1 => Direction::Receive,
            2 => Direction::Send,
            other => return Err(EdgeError::UnknownKind(other)),
        };
        Ok(Self {
            direction,
            job: JobId(u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes"))),
            epoch: Epoch(be_u32(&bytes[16..])),
            key: EdgeKey(bytes[20..36].try_into().expect("sixteen bytes")),
        })
    }
}

/// The first byte of a frame that carries one slice of one stream, the only kind of frame so far.
const SLICE_FRAME: u8 = 1;

/// The header before every frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The lane.
    pub lane: u16,
    /// The number of the stream among those of this edge in this lane.
    pub stream: u16,
    /// The slice.
    pub slice: u32,
    /// Bytes of payload that follow.
    pub bytes: u32,
    checksum: u32,
}

impl FrameHeader {
    /// Creates the header of a frame that carries `payload`.
    pub fn slice(lane: u16, stream: u16, slice: u32, payload: &[u8]) -> Self {
        let bytes = payload.len() as u32;
        let header = Self { lane, stream, slice, bytes, checksum: 0 };
        Self { checksum: header.checksum_of(payload), ..header }
    }

    /// Encodes the header for the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(&self.covered());
        bytes[16..20].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }

    /// Decodes a header whose payload may have at most `limit` bytes.
    ///
    /// # Errors
    /// [`EdgeError`] if the header is invalid. The checksum is compared with the payload later, by
    /// [`verify`](Self::verify).
    pub fn decode(bytes: &[u8; HEADER_BYTES], limit: u32) -> Result<Self, EdgeError> {
        if bytes[0] != SLICE_FRAME {
            return Err(EdgeError::UnknownKind(bytes[0]));
        }
        let header = Self {
            lane: u16::from_be_bytes([bytes[4], bytes[5]]),
            stream: u16::from_be_bytes([bytes[6], bytes[7]]),
            slice: be_u32(&bytes[8..]),
            bytes: be_u32(&bytes[12..]),
            checksum: be_u32(&bytes[16..]),
        };
        if header.bytes > limit {
            return Err(EdgeError::TooLarge { bytes: header.bytes, limit });
        }
        Ok(header)
    }

    /// Compares the checksum with the header and `payload`.
    ///
    /// # Errors
    /// [`EdgeError::BadChecksum`] if the checksum does not match.
    pub fn verify(&self, payload: &[u8]) -> Result<(), EdgeError> {
        check(self.checksum_of(payload), self.checksum)
    }

    fn covered(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = SLICE_FRAME;
        bytes[4..6].copy_from_slice(&self.lane.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.slice.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    fn checksum_of(&self, payload: &[u8]) -> u32 {
        crc32c(&[&self.covered(), payload])
    }
}

/// A message from the receiving to the sending end of an edge. Only edges of plans with
/// [`Pacing::Serial`](crate::Pacing::Serial) have credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// The receiver has finished all earlier slices; the sender may now send this slice.
    Ready {
        /// The slice.
        slice: u32,
    },
    /// The receiver has received the next frame of this slice.
    Received {
        /// The slice.
        slice: u32,
    },
}

/// The first bytes of the two kinds of credits.
const READY: u8 = 2;
const RECEIVED: u8 = 3;

impl Credit {
    /// Encodes the credit for the wire.
    pub fn encode(&self) -> [u8; CREDIT_BYTES] {
        let (kind, slice) = match *self {
            Self::Ready { slice } => (READY, slice),
            Self::Received { slice } => (RECEIVED, slice),
        };
        let mut bytes = [0; CREDIT_BYTES];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&slice.to_be_bytes());
        let checksum = crc32c(&[&bytes[..8]]);
        bytes[8..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes a credit.
    ///
    /// # Errors
    /// [`EdgeError`] if the bytes are not a valid credit.
    pub fn decode(bytes: &[u8; CREDIT_BYTES]) -> Result<Self, EdgeError> {
        check(crc32c(&[&bytes[..8]]), be_u32(&bytes[8..]))?;
        let slice = be_u32(&bytes[4..8]);
        match bytes[0] {
            READY => Ok(Self::Ready { slice }),
            RECEIVED => Ok(Self::Received { slice }),
            other => Err(EdgeError::UnknownKind(other)),
        }
    }
}

/// CRC32C (Castagnoli) of the concatenated parts.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

fn check(found: u32, expected: u32) -> Result<(), EdgeError> {
    if found == expected { Ok(()) } else { Err(EdgeError::BadChecksum { found, expected }) }
}

fn be_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crc32c_of_the_check_string() {
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn greetings_survive_the_wire(job: u64, epoch: u32, key: [u8; 16], receive: bool) {
            let direction = if receive { Direction::Receive } else { Direction::Send };
            let greeting = Greeting { direction, job: JobId(job), epoch: Epoch(epoch), key: EdgeKey(key) };
            prop_assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        }

        #[test]
        fn credits_survive_the_wire_and_flipped_bits_do_not(
            slice: u32, ready: bool, at in 0..CREDIT_BYTES, bit in 0..8u32,
        ) {
            let credit = if ready { Credit::Ready { slice } } else { Credit::Received { slice } };
            let mut bytes = credit.encode();
            prop_assert_eq!(Credit::decode(&bytes), Ok(credit));
            bytes[at] ^= 1 << bit;
            prop_assert!(Credit::decode(&bytes).is_err());
        }

        #[test]
        fn any_flipped_bit_is_detected(
            payload in prop::collection::vec(any::<u8>(), 0..300),
            lane: u16, stream: u16, slice: u32, at: prop::sample::Index, bit in 0..8u32,
        ) {
            let header = FrameHeader::slice(lane, stream, slice, &payload);
            let mut bytes = header.encode().to_vec();
            bytes.extend(&payload);
            let at = at.index(bytes.len());
            prop_assume!(!(1..4).contains(&at) && !(20..24).contains(&at)); // Reserved bytes are ignored.
            bytes[at] ^= 1 << bit;
            let head: &[u8; HEADER_BYTES] = bytes[..HEADER_BYTES].try_into().unwrap();
            let noticed = match FrameHeader::decode(head, 1 << 20) {
                Err(_) => true,
                Ok(read) => read.bytes as usize != payload.len() || read.verify(&bytes[HEADER_BYTES..]).is_err(),
            };
            prop_assert!(noticed);
        }

        #[test]
        fn decoders_survive_any_bytes(
            greeting: [u8; GREETING_BYTES], header: [u8; HEADER_BYTES], credit: [u8; CREDIT_BYTES],
        ) {
            let _ = (Greeting::decode(&greeting), Credit::decode(&credit));
            if let Ok(header) = FrameHeader::decode(&header, 4 << 20) {
                prop_assert!(header.bytes <= 4 << 20);
            }
        }
    }
}
