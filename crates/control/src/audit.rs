//! The audit: the last requests that changed something, recorded across restarts.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use store_api::{RecordWrite, Write};
use views::{AuditEntry, AuditedRequest};

use crate::out::Out;
use crate::records::recall;
use crate::storing::then::Then;

/// The maximum number of entries that are kept.
const KEPT: usize = 10_000;
/// The prefix of the record keys of entries; the entry's number follows.
const PREFIX: &str = "audit/";

/// The entries of the audit, the oldest first.
#[derive(Default)]
pub(crate) struct Audit(VecDeque<AuditEntry>);

impl Audit {
    /// Restores the entries that earlier coordinators recorded.
    pub(crate) fn recall(&mut self, records: &[(String, Value)], out: &mut Out) {
        let mut entries = Vec::new();
        for (number, entry) in recall::<AuditEntry>(records, PREFIX) {
            match entry {
                Some(entry) => entries.push(entry),
                None => out.forget_record(format!("{PREFIX}{number}")),
            }
        }
        entries.sort_by_key(|entry| entry.number);
        self.0 = entries.into();
    }

    /// Records a request and its result, and then continues with `then`.
    pub(crate) fn note(&mut self, request: AuditedRequest, at_unix_ms: u64, then: Then, out: &mut Out) {
        let number = self.0.back().map_or(1, |last| last.number + 1);
        let entry = AuditEntry { number, at_unix_ms, request };
        let record = serde_json::to_value(&entry).expect("entries have string keys");
        out.store(Write::Records(RecordWrite::Put(key(number), record)), then);
        self.0.push_back(entry);
        while self.0.len() > KEPT {
            let oldest = self.0.pop_front().expect("the queue is not empty");
            out.forget_record(key(oldest.number));
        }
    }

    /// Records that a member uses a new certificate.
    pub(crate) fn note_certificate(
        &mut self,
        member: String,
        expires: SystemTime,
        at_unix_ms: u64,
        out: &mut Out,
    ) {
        let expires_unix_ms = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let request = AuditedRequest {
            member,
            address: "-".to_owned(),
            request: "new certificate".to_owned(),
            arguments: serde_json::json!({ "expires_unix_ms": expires_unix_ms }),
            status: 200,
            error: None,
        };
        self.note(request, at_unix_ms, Then::Nothing, out);
    }

    /// Returns the last `most` entries since this time, the oldest first.
    pub(crate) fn entries(&self, since_unix_ms: u64, most: usize) -> Vec<AuditEntry> {
        let recent: Vec<&AuditEntry> =
            self.0.iter().filter(|entry| entry.at_unix_ms >= since_unix_ms).collect();
        recent[recent.len().saturating_sub(most)..].iter().map(|&entry| entry.clone()).collect()
    }
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}
