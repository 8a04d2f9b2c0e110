//! Counts as text for people.

/// Formats a number with its noun, such as `1 block` or `2 blocks`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
