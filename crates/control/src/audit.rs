//! The audit: the last requests that changed something, recorded across restarts.
//!
//! The size of all entries is limited. Each member may fill its own share of the audit, but cannot displace the entries of
//! members with fewer.

use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use store_api::{RecordWrite, Write};
use views::{AuditEntry, AuditedRequest};

use crate::out::Out;
use crate::records::recall;
use crate::storing::then::Then;

/// The maximum size of all entries together, in bytes of JSON.
const KEPT_BYTES: usize = 4 << 20;
/// The longest text of a refused request that is kept: of its path, its arguments or the reason.
const MOST_REFUSED_BYTES: usize = 256;
/// The prefix of the record keys of entries; the entry's number follows.
const PREFIX: &str = "audit/";
const NEW_CERTIFICATE: &str = "new certificate";

/// The entries of the audit, the oldest first.
#[derive(Default)]
pub(crate) struct Audit {
    entries: VecDeque<AuditEntry>,
    /// The bytes of the entries of each member.
    bytes: BTreeMap<String, usize>,
}

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
        entries.into_iter().for_each(|entry| self.add(entry));
        self.shorten(out);
    }

    /// Records a request and its result, and then continues with `then`.
    pub(crate) fn note(&mut self, request: AuditedRequest, at_unix_ms: u64, then: Then, out: &mut Out) {
        let number = self.entries.back().map_or(1, |last| last.number + 1);
        let request = if request.status < 400 { request } else { shortened(request) };
        let entry = AuditEntry { number, at_unix_ms, request };
        let record = serde_json::to_value(&entry).expect("entries have string keys");
        out.store(Write::Records(RecordWrite::Put(key(number), record)), then);
        self.add(entry);
        self.shorten(out);
    }

    /// Records that a member uses a new certificate, unless the audit has this already.
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
            request: NEW_CERTIFICATE.to_owned(),
            arguments: serde_json::json!({ "expires_unix_ms": expires_unix_ms }),
            status: 200,
            error: None,
        };
        if self.entries.iter().all(|entry| entry.request != request) {
            self.note(request, at_unix_ms, Then::Nothing, out);
        }
    }

    /// Returns the last `most` entries since this time, the oldest first.
    pub(crate) fn entries(&self, since_unix_ms: u64, most: usize) -> Vec<AuditEntry> {
        let recent: Vec<&AuditEntry> =
            self.entries.iter().filter(|entry| entry.at_unix_ms >= since_unix_ms).collect();
        recent[recent.len().saturating_sub(most)..].iter().map(|&entry| entry.clone()).collect()
    }

    fn add(&mut self, entry: AuditEntry) {
        *self.bytes.entry(entry.request.member.clone()).or_default() += size_of(&entry);
        self.entries.push_back(entry);
    }

    /// While the audit is too large, removes an entry of the member whose entries are the largest: the oldest refused
    /// request, so that no member can displace the changes that it made, or else the oldest change.
    fn shorten(&mut self, out: &mut Out) {
        while self.bytes.values().sum::<usize>() > KEPT_BYTES {
            let (largest, _) = self.bytes.iter().max_by_key(|(_, bytes)| **bytes).expect("it has entries");
            let mut of_it = self.entries.iter().enumerate().filter(|(_, it)| it.request.member == *largest);
            let first = of_it.clone().next();
            let oldest = of_it.find(|(_, it)| it.request.status >= 400).or(first).map(|(at, _)| at);
            let oldest = oldest.and_then(|at| self.entries.remove(at)).expect("its bytes are counted");
            let bytes = self.bytes.get_mut(&oldest.request.member).expect("its bytes are counted");
            *bytes -= size_of(&oldest);
            out.forget_record(key(oldest.number));
        }
    }
}

/// Shortens the texts of a refused request, which changed nothing.
fn shortened(mut request: AuditedRequest) -> AuditedRequest {
    let arguments = request.arguments.to_string();
    if arguments.len() > MOST_REFUSED_BYTES {
        request.arguments = Value::String(cut(arguments));
    }
    AuditedRequest { request: cut(request.request), error: request.error.map(cut), ..request }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_REFUSED_BYTES {
        text.truncate(text.floor_char_boundary(MOST_REFUSED_BYTES));
        text.push('…');
    }
    text
}

/// Returns the size of an entry's record.
fn size_of(entry: &AuditEntry) -> usize {
    serde_json::to_string(entry).expect("entries have string keys").len()
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn request(member: &str, path: String, status: u16) -> AuditedRequest {
        AuditedRequest {
            member: member.to_owned(),
            address: "10.0.0.1".to_owned(),
            request: path,
            arguments: Value::Null,
            status,
            error: (status >= 400).then(|| "there is no such file".repeat(100)),
        }
    }

    fn of(audit: &Audit, member: &str) -> usize {
        audit.entries(0, usize::MAX).iter().filter(|entry| entry.request.member == member).count()
    }

    #[test]
    fn a_member_displaces_only_its_own_entries() {
        let (mut audit, mut out) = (Audit::default(), Out::new(StdRng::seed_from_u64(1), 0..1));
        let mut note = |audit: &mut Audit, request| audit.note(request, 1, Then::Nothing, &mut out);
        for node in 0..1000 {
            note(&mut audit, request("admin ada", format!("DELETE /v1/nodes/h{node}"), 200));
        }
        note(&mut audit, request("client eve", "DELETE /v1/files/all".to_owned(), 200));
        for file in 0..10_000 {
            let path = format!("DELETE /v1/files/{file}{}", "x".repeat(4000));
            note(&mut audit, request("client eve", path, 404));
        }
        assert_eq!(of(&audit, "admin ada"), 1000);
        assert!(of(&audit, "client eve") > 1000, "{}", of(&audit, "client eve"));
        let made = audit.entries.iter().filter(|entry| entry.request.status < 400).count();
        assert_eq!(made, 1001, "no refused request displaces a change");
        let bytes: usize = audit.entries.iter().map(size_of).sum();
        assert!(bytes <= KEPT_BYTES && bytes == audit.bytes.values().sum::<usize>(), "{bytes}");
        let longest = audit.entries.iter().map(size_of).max().unwrap();
        assert!(longest < 3 * MOST_REFUSED_BYTES + 200, "{longest}");
    }

    #[test]
    fn each_certificate_is_recorded_once() {
        let (mut audit, mut out) = (Audit::default(), Out::new(StdRng::seed_from_u64(1), 0..1));
        let expires = [1, 2].map(|days| UNIX_EPOCH + Duration::from_secs(days * 86_400));
        for round in 0..10 {
            audit.note_certificate("operator olga".to_owned(), expires[round % 2], 1, &mut out);
        }
        assert_eq!(of(&audit, "operator olga"), 2);
    }
}
