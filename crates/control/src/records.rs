//! The coordinator's own records, as an earlier coordinator left them.

use serde_json::Value;

/// Iterates over the records with this key prefix and returns the rest of each key. The value is `None` if
/// the record cannot be decoded.
pub(crate) fn recall<'r, T: serde::de::DeserializeOwned>(
    records: &'r [(String, Value)],
    prefix: &'r str,
) -> impl Iterator<Item = (&'r str, Option<T>)> {
    records.iter().filter_map(move |(key, record)| {
        let rest = key.strip_prefix(prefix)?;
        let read = serde_json::from_value(record.clone());
        if read.is_err() {
            tracing::warn!(key, "dropping an unreadable record");
        }
        Some((rest, read.ok()))
    })
}
