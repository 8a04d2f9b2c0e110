//! Records that the catalog has refused, for example because its disk is full. Mend writes them again until that
//! succeeds, and the status names the problem meanwhile.

use std::collections::BTreeMap;

use serde_json::Value;
use store_api::{RecordWrite, StoreError};

use super::state::State;

/// A record's key, and its new value; `None` removes the record.
pub(super) type Record = (String, Option<Value>);

/// The records that are not written yet.
#[derive(Default)]
pub(super) struct Unwritten {
    records: BTreeMap<String, Option<Value>>,
    /// Why the last attempt has failed.
    why: Option<String>,
}

impl Unwritten {
    /// Describes the problem as a sentence, if there is one.
    pub fn line(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(format!(
            "{} of the coordinator's records about SeaweedFS cannot be written: {why}; if the coordinator \
             restarts before they are, it forgets unfinished work and the places of shards; Mend tries again",
            self.records.len()
        ))
    }

    fn refuse(&mut self, (key, value): Record, error: &StoreError) {
        // Before its term begins, a coordinator may not write. That is no problem.
        if !matches!(error, StoreError::Fenced { .. }) {
            self.why = Some(error.to_string());
        }
        self.records.insert(key, value);
    }
}

impl State {
    /// Writes records. Those that the catalog refuses are kept, and written by a later call.
    pub fn keep_records(&mut self, records: impl IntoIterator<Item = Record>) {
        self.unwritten.records.extend(records);
        self.unwritten.why = None;
        let records = std::mem::take(&mut self.unwritten.records);
        if records.is_empty() {
            return;
        }
        let write = |(key, value): (&String, &Option<Value>)| match value {
            Some(value) => RecordWrite::Put(key.clone(), value.clone()),
            None => RecordWrite::Remove(key.clone()),
        };
        let writes: Vec<RecordWrite> = records.iter().map(write).collect();
        let term = self.ledger.term();
        for (record, done) in records.into_iter().zip(self.ledger.write_all(term, &writes)) {
            if let Err(error) = done {
                self.unwritten.refuse(record, &error);
            }
        }
    }
}
