//! The part of HDFS's data transfer protocol that is needed to write a block to a DataNode.
//!
//! A connection begins with one operation. Numbers outside protobuf messages are big-endian:
//!
//! ```text
//! 0  u16     version, 28
//! 2  u8      80: write a block, 81: read one
//! 3  varint  bytes of the message that follows, OpWriteBlockProto or OpReadBlockProto
//! ```
//!
//! For a write, the bytes of the block follow in packets. The last packet is empty and marked as the last:
//!
//! ```text
//! 0  u32     bytes of the packet without its header: these four, checksums, bytes
//! 4  u16     bytes of the header
//! 6          PacketHeaderProto, a checksum for each chunk, the bytes of the chunks
//! ```
//!
//! The answer is a varint and a BlockOpResponseProto. When a helper writes, the DataNode takes it for another
//! DataNode. A DataNode that refuses a block from another DataNode closes the connection without an answer.
//! Mend therefore first sends a request to read the block: unlike a refused write, a refused read is usually
//! answered with an error message.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prost::Message;
use repair::Permit;
use store_api::{BlockError, BlockReader};

use super::meta::ChecksumFormat;
use super::name::ReplicaName;

const VERSION: u16 = 28;
const WRITE_BLOCK: u8 = 80;
const READ_BLOCK: u8 = 81;
/// The stage that a write announces for a complete block: the DataNode finalizes and reports the block once
/// all bytes have arrived.
const TRANSFER_FINALIZED: i32 = 8;
const SUCCESS: i32 = 0;
const ERROR_ACCESS_TOKEN: i32 = 5;
/// The client's name in the DataNode's log. With an empty name, Mend would be taken for another DataNode.
const READER: &str = "mend";
/// Bytes per packet; HDFS's own senders use the same size.
const PACKET_BYTES: u64 = 64 << 10;
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// Length of the longest varint.
const MAX_VARINT_BYTES: usize = 10;

#[derive(Clone, PartialEq, Message)]
struct ExtendedBlock {
    #[prost(string, required, tag = "1")]
    pool: String,
    #[prost(uint64, required, tag = "2")]
    block: u64,
    #[prost(uint64, required, tag = "3")]
    stamp: u64,
    #[prost(uint64, optional, tag = "4")]
    bytes: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct BaseHeader {
    #[prost(message, required, tag = "1")]
    block: ExtendedBlock,
    /// A TokenProto, already encoded by the NameNode's client.
    #[prost(bytes = "vec", optional, tag = "2")]
    token: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct OperationHeader {
    #[prost(message, required, tag = "1")]
    base: BaseHeader,
    #[prost(string, required, tag = "2")]
    client: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Checksum {
    #[prost(int32, required, tag = "1")]
    kind: i32,
    #[prost(uint32, required, tag = "2")]
    chunk_bytes: u32,
}

#[derive(Clone, PartialEq, Message)]
struct WriteBlock {
    #[prost(message, required, tag = "1")]
    header: OperationHeader,
    #[prost(int32, required, tag = "4")]
    stage: i32,
    #[prost(uint32, required, tag = "5")]
    pipeline: u32,
    #[prost(uint64, required, tag = "6")]
    least_received: u64,
    #[prost(uint64, required, tag = "7")]
    most_received: u64,
    #[prost(uint64, required, tag = "8")]
    latest_stamp: u64,
    #[prost(message, required, tag = "9")]
    checksum: Checksum,
}

#[derive(Clone, PartialEq, Message)]
struct ReadBlock {
    #[prost(message, required, tag = "1")]
    header: OperationHeader,
    #[prost(uint64, required, tag = "2")]
    offset: u64,
    #[prost(uint64, required, tag = "3")]
    bytes: u64,
}

/// All fields are required, so that the encoding has a constant length.
#[derive(Clone, Copy, PartialEq, Message)]
struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    offset: i64,
    #[prost(sfixed64, required, tag = "2")]
    number: i64,
    #[prost(bool, required, tag = "3")]
    is_last: bool,
    #[prost(sfixed32, required, tag = "4")]
    bytes: i32,
    #[prost(bool, required, tag = "5")]
    sync: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, optional, tag = "1")]
    status: Option<i32>,
    #[prost(string, optional, tag = "5")]
    message: Option<String>,
}

/// Why an operation on a DataNode failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransferError {
    /// The DataNode cannot be reached, or a step timed out.
    #[error("{0}")]
    Io(io::Error),
    /// The DataNode closed the connection without an answer.
    #[error("it closed the connection without an answer")]
    Closed,
    /// The DataNode requires a block token, but there is none for this block.
    #[error(
        "it requires a block token (dfs.block.access.token.enable), but the coordinator sent none: add \
         [store.namenode] and this helper's `adopt = \"push\"` to the coordinator's mend.toml, or use the \
         plug-in, which needs no tokens"
    )]
    TokenWanted,
    /// The DataNode refuses the block token.
    #[error(
        "it rejects the coordinator's block token: the token has expired (dfs.block.access.token.lifetime), \
         the clocks differ, or the DataNode lacks the NameNode's new keys; the DataNode's log has the \
         reason. The next attempt uses a new token"
    )]
    TokenRefused,
    /// The DataNode refuses the operation.
    #[error("it answered: {message} (status {status})")]
    Refused {
        /// The status code.
        status: i32,
        /// The DataNode's error message.
        message: String,
    },
    /// The answer cannot be parsed.
    #[error("its answer is not valid in HDFS's data transfer protocol: {0}")]
    NotAnAnswer(String),
    /// The replica to be pushed cannot be read.
    #[error(transparent)]
    Source(BlockError),
}

/// Treats a reset as a closed connection. A DataNode that closes a connection with unread input causes a
/// reset.
impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// The replica that an operation concerns.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) pool: String,
    pub(super) name: ReplicaName,
    pub(super) bytes: u64,
    /// A block token; `None` if HDFS does not use block tokens.
    pub(super) permit: Option<Permit>,
}

impl Wanted {
    fn header(&self, client: &str) -> OperationHeader {
        let block = ExtendedBlock {
            pool: self.pool.clone(),
            block: self.name.block().cast_unsigned(),
            stamp: self.name.stamp(),
            bytes: Some(self.bytes),
        };
        let token = self.permit.as_ref().map(|permit| permit.bytes().to_vec());
        OperationHeader { base: BaseHeader { block, token }, client: client.to_owned() }
    }
}

/// A connection to a DataNode, for one operation.
pub(super) struct Transfer<S>(S);

impl Transfer<TcpStream> {
    /// Connects to a DataNode. `patience` is the timeout for connecting and for each later read or write.
    pub(super) fn open(address: SocketAddr, patience: Duration) -> Result<Self, TransferError> {
        let stream = TcpStream::connect_timeout(&address, patience).map_err(TransferError::Io)?;
        let bounded = stream.set_read_timeout(Some(patience));
        bounded.and_then(|()| stream.set_write_timeout(Some(patience))).map_err(TransferError::Io)?;
        stream.set_nodelay(true).map_err(TransferError::Io)?;
        Ok(Self(stream))
    }
}

/// Whether the bytes begin with a valid answer of a DataNode, positive or negative.
#[cfg(feature = "fuzzing")]
pub fn is_answer(bytes: &[u8]) -> bool {
    use TransferError::{Refused, TokenWanted};
    matches!(Transfer(bytes).answer(), Ok(()) | Err(TokenWanted | Refused { .. }))
}

impl<S: Read + Write> Transfer<S> {
    /// Requests the last byte of a replica. Returns `Ok` if the DataNode agrees to send the byte, which is
    /// then not read. If the DataNode lists the replica but its files are missing, the request makes the
    /// DataNode notice that, forget the replica and notify the NameNode.
    pub(super) fn read_last_byte(mut self, wanted: &Wanted) -> Result<(), TransferError> {
        let offset = wanted.bytes.saturating_sub(1);
        let message = ReadBlock { header: wanted.header(READER), offset, bytes: wanted.bytes - offset };
        self.0.write_all(&operation(READ_BLOCK, &message))?;
        match self.answer() {
            Err(TransferError::TokenWanted) if wanted.permit.is_some() => Err(TransferError::TokenRefused),
            answered => answered,
        }
    }

    /// Writes a whole replica. On return, the DataNode has finalized it on disk.
    pub(super) fn write(
        mut self,
        wanted: &Wanted,
        format: ChecksumFormat,
        source: &dyn BlockReader,
    ) -> Result<(), TransferError> {
        self.0.write_all(&operation(WRITE_BLOCK, &write_block(wanted, format)))?;
        // A packet contains whole chunks.
        let step = (PACKET_BYTES / format.chunk_bytes()).max(1) * format.chunk_bytes();
        let mut buffer = vec![0; step.min(wanted.bytes) as usize];
        let mut number = 0;
        for offset in (0..wanted.bytes).step_by(step as usize) {
            let bytes = &mut buffer[..step.min(wanted.bytes - offset) as usize];
            source.read_at(offset, bytes).map_err(TransferError::Source)?;
            self.0.write_all(&packet(number, offset, format, bytes))?;
            number += 1;
        }
        self.0.write_all(&packet(number, wanted.bytes, format, &[]))?;
        self.0.flush()?;
        self.answer()
    }
}

impl<S: Read> Transfer<S> {
    fn answer(&mut self) -> Result<(), TransferError> {
        let bytes = self.answer_bytes()?;
        let unreadable = |error: prost::DecodeError| TransferError::NotAnAnswer(error.to_string());
        let answer = Answer::decode(&bytes[..]).map_err(unreadable)?;
        match answer.status {
            Some(SUCCESS) => Ok(()),
            Some(ERROR_ACCESS_TOKEN) => Err(TransferError::TokenWanted),
            Some(status) => {
                Err(TransferError::Refused { status, message: answer.message.unwrap_or_default() })
            }
            None => Err(TransferError::NotAnAnswer("it has no status".to_owned())),
        }
    }

    fn answer_bytes(&mut self) -> Result<Vec<u8>, TransferError> {
        let mut length = Vec::with_capacity(MAX_VARINT_BYTES);
        while length.len() < MAX_VARINT_BYTES && length.last().is_none_or(|byte| byte & 0x80 != 0) {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            length.extend(byte);
        }
        let bytes = prost::decode_length_delimiter(&length[..]).ok();
        let Some(bytes) = bytes.filter(|&bytes| bytes as u64 <= MAX_ANSWER_BYTES) else {
            return Err(TransferError::NotAnAnswer(format!("it begins with {length:02x?}")));
        };
        let mut answer = vec![0; bytes];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }
}

fn operation(code: u8, message: &impl Message) -> Vec<u8> {
    let [v0, v1] = VERSION.to_be_bytes();
    let mut bytes = vec![v0, v1, code];
    bytes.extend(message.encode_length_delimited_to_vec());
    bytes
}

fn write_block(wanted: &Wanted, format: ChecksumFormat) -> WriteBlock {
    WriteBlock {
        header: wanted.header(""),
        stage: TRANSFER_FINALIZED,
        pipeline: 0,
        least_received: 0,
        most_received: 0,
        latest_stamp: 0,
        checksum: Checksum {
            kind: format.kind().code().into(),
            chunk_bytes: u32::try_from(format.chunk_bytes()).expect("the chunk size is stored as a u32"),
        },
    }
}

/// Encodes a packet with these bytes; an empty packet is the last. The last packet makes the DataNode sync
/// both files and their folder.
fn packet(number: i64, offset: u64, format: ChecksumFormat, bytes: &[u8]) -> Vec<u8> {
    let header = PacketHeader {
        offset: offset.cast_signed(),
        number,
        is_last: bytes.is_empty(),
        bytes: bytes.len() as i32,
        sync: bytes.is_empty(),
    };
    let (header, sums) = (header.encode_to_vec(), format.sums(bytes).flatten().collect::<Vec<_>>());
    let length = (size_of::<u32>() + sums.len() + bytes.len()) as u32;
    let header_length = (header.len() as u16).to_be_bytes();
    [&length.to_be_bytes()[..], &header_length, &header, &sums, bytes].concat()
}

#[cfg(test)]
mod tests;
