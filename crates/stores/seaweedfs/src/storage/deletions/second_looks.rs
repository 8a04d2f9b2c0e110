//! Collects the deletions of a volume once more, some time after one of its shards was put into service.
//!
//! SeaweedFS's servers cache the places of shards for up to 37 minutes. A server whose cache lacks the shard, or has its
//! former place, records deletions of the shard's needles on other servers, while servers that know the new place find
//! the needles there. So Mend looks again once the caches have expired. Until then, such needles may be readable.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use store_api::CatalogError;

use super::{Late, Record, State};
use crate::listing::ServerId;

/// Prefix of the keys under which second looks are recorded.
const PREFIX: &str = "seaweedfs/second-look/";
/// The time until a second look, in seconds: 37 minutes, and some time for clocks that differ.
const LOOK_AFTER_S: u64 = 40 * 60;

/// Shards on servers for which deletions are collected once more, with the earliest time for it, in seconds since 1970.
#[derive(Default)]
pub(super) struct SecondLooks(BTreeMap<Late, u64>);

/// Returns the time in seconds since 1970.
pub(in crate::storage) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn key(it: &Late) -> String {
    format!("{PREFIX}{}/{}", it.block, it.server)
}

fn record(it: &Late, from_s: u64) -> Record {
    (key(it), Some(serde_json::to_value((it, from_s)).expect("plain text and a number")))
}

/// Records that a shard was put into service on a server at this time.
pub(super) fn plan(state: &mut State, it: &Late, now_s: u64) {
    let from_s = now_s.saturating_add(LOOK_AFTER_S);
    state.keep_records([record(it, from_s)]);
    state.late_deletions.second_looks.0.insert(it.clone(), from_s);
}

/// Continues the second looks at a server that is listed under another ID now.
pub(super) fn rename(state: &mut State, former: &ServerId, server: &ServerId) {
    let planned = &mut state.late_deletions.second_looks.0;
    let renamed: Vec<(Late, u64)> = planned.extract_if(.., |it, _| it.server == former.0).collect();
    let records: Vec<Record> =
        renamed.iter().flat_map(|(it, from_s)| [(key(it), None), record(&it.at(server), *from_s)]).collect();
    state.keep_records(records);
    let planned = &mut state.late_deletions.second_looks.0;
    planned.extend(renamed.into_iter().map(|(it, from_s)| (it.at(server), from_s)));
}

/// Adds the shards whose second look is due at this time to the late deletions, which the inspections make.
pub(in crate::storage) fn begin_due(state: &mut State, now_s: u64) {
    let planned = &mut state.late_deletions.second_looks.0;
    let due: Vec<Late> = planned.extract_if(.., |_, from_s| *from_s <= now_s).map(|(it, _)| it).collect();
    for it in due {
        if !state.late_deletions.entries.contains_key(&it) {
            state.note_late(&it, String::new());
        }
        state.keep_records([(key(&it), None)]);
    }
}

/// Forgets the second looks at volumes that no longer exist.
pub(super) fn forget_those_of_gone_volumes(state: &mut State) {
    let volumes = state.view.volumes();
    let is_gone = |it: &Late| it.volume().is_none_or(|volume| !volumes.may_exist(volume));
    let planned = &mut state.late_deletions.second_looks.0;
    let gone: Vec<_> = planned.extract_if(.., |it, _| is_gone(it)).map(|(it, _)| (key(&it), None)).collect();
    if !gone.is_empty() {
        state.keep_records(gone);
    }
}

/// Loads the second looks that earlier coordinators have planned.
///
/// # Errors
/// [`CatalogError`].
pub(super) fn recall(state: &mut State) -> Result<(), CatalogError> {
    let records = state.ledger.list(PREFIX)?.into_iter();
    let planned = records.filter_map(|(_, value)| serde_json::from_value(value).ok());
    state.late_deletions.second_looks.0 = planned.collect();
    Ok(())
}
