//! The data plane: input that anyone can send to a data port.

use repair::wire::edge::{CREDIT_BYTES, Credit, FrameHeader, GREETING_BYTES, Greeting, HEADER_BYTES, crc32c};

/// The maximum payload size of a frame in bytes.
const LIMIT: u32 = 1 << 20;

pub(crate) fn greeting(bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.first_chunk::<GREETING_BYTES>() else { return false };
    let accepted = greet(bytes);
    // Decode again with a valid checksum, because mutations rarely produce one.
    let mut sealed = *bytes;
    let checksum = crc32c(&[&sealed[..GREETING_BYTES - 4]]);
    sealed[GREETING_BYTES - 4..].copy_from_slice(&checksum.to_be_bytes());
    greet(&sealed);
    accepted
}

fn greet(bytes: &[u8; GREETING_BYTES]) -> bool {
    let Ok(greeting) = Greeting::decode(bytes) else { return false };
    assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    true
}

pub(crate) fn credit(bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.first_chunk::<CREDIT_BYTES>() else { return false };
    let accepted = grant(bytes);
    // As for greetings, decode again with a valid checksum.
    let mut sealed = *bytes;
    let checksum = crc32c(&[&sealed[..CREDIT_BYTES - 4]]);
    sealed[CREDIT_BYTES - 4..].copy_from_slice(&checksum.to_be_bytes());
    grant(&sealed);
    accepted
}

fn grant(bytes: &[u8; CREDIT_BYTES]) -> bool {
    let Ok(credit) = Credit::decode(bytes) else { return false };
    assert_eq!(Credit::decode(&credit.encode()), Ok(credit));
    true
}

/// Decodes consecutive frames, like a reader of a connection.
pub(crate) fn frames(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut accepted = !rest.is_empty();
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = FrameHeader::decode(header, LIMIT) else { return false };
        assert!(header.bytes <= LIMIT);
        let Some((payload, after)) = after.split_at_checked(header.bytes as usize) else { return false };
        accepted &= header.verify(payload).is_ok();
        let ours = FrameHeader::slice(header.lane, header.stream, header.slice, payload);
        assert_eq!(FrameHeader::decode(&ours.encode(), LIMIT), Ok(ours));
        assert!(ours.verify(payload).is_ok());
        rest = after;
    }
    accepted && rest.is_empty()
}
