//! Generates deterministic content for test objects.

/// Returns the bytes of an object, which depend only on its name and length, so that readers can verify them.
pub fn content(name: &str, bytes: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut content = Vec::with_capacity(bytes.next_multiple_of(8));
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(bytes);
    content
}
