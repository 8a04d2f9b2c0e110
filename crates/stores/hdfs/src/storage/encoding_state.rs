//! [`EncodingState`]: what encoding by policies waits for, and the raided files that have changed. Pure.
//!
//! Encoding is background work, so it waits while stripes are being repaired, and while a repair is paused: whoever paused it
//! wants an idle cluster.

use std::collections::BTreeSet;

use attached::Ledger;
use repair::StripeId;
use serde_json::Value;
use store_api::{CatalogError, FileBacklog, RecordWrite, StoreChange, StoreError};

use super::state::{HdfsSystem, State};
use crate::raid::schedule::Hold;

/// The prefix of the keys under which the coordinator records its repairs; the repair's number follows.
const REPAIRS: &str = "repair/";
/// The most paths that are recorded one by one.
const MOST_CHANGED: usize = 1000;

/// The state that encoding by policies needs; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct EncodingState {
    /// The stripes that the coordinator has claimed for repairs and moves.
    claimed: BTreeSet<StripeId>,
    /// The keys of the repairs that are paused.
    paused: BTreeSet<String>,
    changed: Changed,
    /// The files to encode, and those that are encoded; `None` if policies are not evaluated.
    backlog: Option<FileBacklog>,
}

/// Files and folders that the edit log has named, and whose parity may have become invalid.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// The paths.
    pub paths: BTreeSet<String>,
    /// Whether there are too many, or they are unknown: everything has to be listed.
    pub everything: bool,
}

impl EncodingState {
    /// Loads the repairs that are paused.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn recall(&mut self, ledger: &Ledger) -> Result<(), CatalogError> {
        let paused = ledger.list(REPAIRS)?.into_iter().filter(|(_, record)| is_paused(record));
        self.paused = paused.map(|(key, _)| key).collect();
        Ok(())
    }

    /// Records that a stripe was claimed for a repair or a move.
    pub fn note_claim(&mut self, stripe: StripeId) {
        self.claimed.insert(stripe);
    }

    /// Records that the claim has ended.
    pub fn note_release(&mut self, stripe: &StripeId) {
        self.claimed.remove(stripe);
    }

    /// Takes a write of the coordinator's records.
    pub fn heed(&mut self, write: &RecordWrite) {
        match write {
            RecordWrite::Put(key, record) if key.starts_with(REPAIRS) && is_paused(record) => {
                self.paused.insert(key.clone());
            }
            RecordWrite::Put(key, _) | RecordWrite::Remove(key) => {
                self.paused.remove(key);
            }
            _ => {}
        }
    }

    /// Records that the parity of these files and folders may have become invalid.
    pub fn note_changed(&mut self, paths: &BTreeSet<String>) {
        let Changed { paths: known, everything } = &mut self.changed;
        known.extend(paths.iter().cloned());
        if known.len() > MOST_CHANGED || known.contains("/") {
            known.clear();
            *everything = true;
        }
    }

    /// Returns the changes so far, without those of files on which work is in progress.
    pub fn take_changed(&mut self, is_running: impl Fn(&str) -> bool) -> Changed {
        let Changed { paths, everything } = std::mem::take(&mut self.changed);
        let (later, paths) = paths.into_iter().partition(|path| is_running(path));
        self.changed.paths = later;
        Changed { paths, everything }
    }

    /// Takes the files to encode, and those that are encoded. Returns whether they have changed.
    pub fn note_backlog(&mut self, backlog: FileBacklog) -> bool {
        let backlog = Some(backlog);
        let has_changed = self.backlog != backlog;
        self.backlog = backlog;
        has_changed
    }

    /// Returns the files to encode as a report, if policies are evaluated.
    pub fn told(&self) -> Option<StoreChange> {
        self.backlog.clone().map(StoreChange::FileBacklog)
    }

    /// Returns why background work has to wait.
    fn background(&self) -> Option<String> {
        let stripes = self.claimed.len();
        match stripes {
            0 => None,
            1 => Some("1 stripe is being repaired or moved".to_owned()),
            _ => Some(format!("{stripes} stripes are being repaired or moved")),
        }
    }

    /// Returns the pause that an operator has asked for.
    fn pause(&self) -> Option<String> {
        let number = self.paused.first()?.trim_start_matches(REPAIRS).trim_start_matches('0');
        Some(format!("repair {number} is paused (mend resume {number})"))
    }
}

fn is_paused(record: &Value) -> bool {
    record.get("paused").and_then(Value::as_bool) == Some(true)
}

impl HdfsSystem {
    /// Returns whether encoding by policies has to wait.
    pub(super) fn hold(&self) -> Hold {
        let state = self.state();
        let all = out_of_office(&state).or_else(|| {
            let unlisted = state.contact.unlisted().map(str::to_owned);
            unlisted.or_else(|| state.first_query_trouble().cloned()).or_else(|| state.encoding.pause())
        });
        match (all, state.encoding.background()) {
            (Some(why), _) => Hold::All(why),
            (None, Some(why)) => Hold::Background(why),
            (None, None) => Hold::None,
        }
    }
}

/// Returns why this coordinator must not change HDFS, if another one may.
fn out_of_office(state: &State) -> Option<String> {
    match state.ledger.check_term() {
        Ok(true) => None,
        Ok(false) => Some("the coordinator has not started yet".to_owned()),
        Err(StoreError::Fenced { .. }) => Some("another coordinator has taken over".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn work_waits_for_repairs_and_pauses() {
        let mut state = EncodingState::default();
        let stripe = StripeId("raid_1_2".to_owned());
        state.note_claim(stripe.clone());
        assert_eq!(state.background().as_deref(), Some("1 stripe is being repaired or moved"));
        state.note_release(&stripe);
        assert_eq!(state.background(), None);
        let key = "repair/00000000000000000070".to_owned();
        state.heed(&RecordWrite::Put(key.clone(), json!({ "paused": false })));
        state.heed(&RecordWrite::Put("scrub".to_owned(), json!({ "paused": true })));
        assert_eq!(state.pause(), None);
        state.heed(&RecordWrite::Put(key.clone(), json!({ "paused": true })));
        assert_eq!(state.pause().as_deref(), Some("repair 70 is paused (mend resume 70)"));
        state.heed(&RecordWrite::Put(key.clone(), json!({ "paused": false })));
        assert_eq!(state.pause(), None);
        state.heed(&RecordWrite::Put(key.clone(), json!({ "paused": true })));
        state.heed(&RecordWrite::Remove(key));
        assert_eq!(state.pause(), None);
    }

    #[test]
    fn changes_of_files_in_progress_are_kept_for_later() {
        let mut state = EncodingState::default();
        state.note_changed(&paths(&["/a", "/b"]));
        let changed = state.take_changed(|path| path == "/a");
        assert_eq!(changed, Changed { paths: paths(&["/b"]), everything: false });
        assert_eq!(state.take_changed(|_| false).paths, paths(&["/a"]));
        assert_eq!(state.take_changed(|_| false), Changed::default());
    }

    #[test]
    fn too_many_changes_are_a_change_of_everything() {
        let everything = Changed { paths: BTreeSet::new(), everything: true };
        let mut state = EncodingState::default();
        state.note_changed(&(0..=MOST_CHANGED).map(|at| format!("/{at}")).collect());
        assert_eq!(state.take_changed(|_| false), everything);
        state.note_changed(&paths(&["/", "/a"]));
        assert_eq!(state.take_changed(|_| false), everything);
    }
}
