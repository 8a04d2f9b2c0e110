//! The coordinator's own records, as an earlier coordinator left them.

use serde_json::Value;

/// The records whose keys begin so, by what follows in the key; `None` is one that cannot be read.
pub(crate) fn recall<'r, T: serde::de::DeserializeOwned>(
    records: &'r [(String, Value)],
    prefix: &'r str,
) -> impl Iterator<Item = (&'r str, Option<T>)> {
    records.iter().filter_map(move |(key, record)| {
        let rest = key.strip_prefix(prefix)?;
        let read = serde_json::from_value(record.clone());
        if read.is_err() {
            tracing::warn!(key, "a record that cannot be read is dropped");
        }
        Some((rest, read.ok()))
    })
}
