//! Records the location of every shard, so that a shard that was lost while the coordinator was down can be
//! rebuilt on its former server.
//!
//! There is one record per volume, rewritten when a location changes. A record applies only to the encodings
//! that it names, and only to shards that no server lists. It names one encoding; if it is unknown which one is
//! current, it names all, because a restart must not decide between them. For the same reason it contains their
//! ratios: the `.vif` of an encoding cannot be read while its servers are down. Until the volume is listed, it makes no
//! stripe, since the volume may have been deleted meanwhile. But if the servers of most of its shards are down, the
//! state of the volume is reported as unknown, until an operator abandons the encoding.

use std::collections::BTreeMap;

use crate::blocks::{Encoding, Ratio};
use serde::{Deserialize, Serialize};
use store_api::CatalogError;

use super::state::{Knowledge, State};
use super::unwritten;
use crate::listing::ServerId;
use crate::volumes::{Generation, Home, Kept, Volume};

/// Prefix of the record keys; the volume ID follows.
const PREFIX: &str = "seaweedfs/homes/";

/// The recorded locations of a volume's shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    encoding: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    collection: String,
    homes: Places,
    /// The original server of each shard that was rebuilt on another server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    origins: BTreeMap<u8, String>,
    /// If it is unknown which encoding is current: the shards of the other encodings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    rivals: BTreeMap<i64, Places>,
    /// The numbers of data and parity shards of these encodings, if they are known. Earlier versions did not
    /// record them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ratios: BTreeMap<i64, (u8, u8)>,
}

/// By shard: server, disk, and the shard's length in bytes.
type Places = BTreeMap<u8, (String, u32, u64)>;

/// The records of all volumes, including those that are still to be written.
#[derive(Default)]
pub(super) struct Homes {
    recorded: BTreeMap<u32, Record>,
}

impl Record {
    /// Describes a volume, of which `main` is the current encoding or, if that is unknown, any encoding.
    fn of(volume: &Volume, main: Encoding, generation: &Generation) -> Self {
        let is_known = volume.current().is_some();
        let ratio = |it: &Generation| it.ratio.map(|ratio| (ratio.data(), ratio.parity()));
        let all = volume.generations.iter().filter(|&(&other, _)| other == main || !is_known);
        let ratios = all.clone().filter_map(|(encoding, it)| Some((encoding.0, ratio(it)?))).collect();
        let rivals = all.filter(|&(&other, _)| other != main);
        let origins = generation.origins.iter().map(|(&shard, server)| (shard, server.0.clone()));
        Self {
            encoding: main.0,
            collection: volume.collection.clone(),
            homes: places(generation),
            origins: origins.collect(),
            rivals: rivals.map(|(encoding, rival)| (encoding.0, places(rival))).collect(),
            ratios,
        }
    }

    /// Returns the recorded encodings.
    fn kept(&self) -> Vec<(Encoding, Kept)> {
        let kept = |(encoding, places): (i64, &Places)| {
            let homes = places.iter().map(|(&shard, place)| (shard, home(place))).collect();
            let ratio = self.ratios.get(&encoding);
            let ratio = ratio.and_then(|&(data, parity)| Ratio::new(data.into(), parity.into()));
            let (collection, origins) = (self.collection.clone(), BTreeMap::new());
            (Encoding(encoding), Kept { collection, homes, origins, ratio })
        };
        let rivals = self.rivals.iter().map(|(&encoding, places)| kept((encoding, places)));
        let origins = self.origins.iter().map(|(&shard, server)| (shard, ServerId(server.clone())));
        let (encoding, main) = kept((self.encoding, &self.homes));
        rivals.chain([(encoding, Kept { origins: origins.collect(), ..main })]).collect()
    }
}

/// Returns where each shard is, or was last.
fn places(generation: &Generation) -> Places {
    let listed = generation.homes.iter().filter_map(|(&shard, homes)| Some((shard, homes.first()?)));
    let homes = listed.chain(generation.former.iter().map(|(&shard, home)| (shard, home)));
    homes.map(|(shard, home)| (shard, (home.server.0.clone(), home.disk, home.bytes))).collect()
}

fn home((server, disk, bytes): &(String, u32, u64)) -> Home {
    Home { server: ServerId(server.clone()), disk: *disk, bytes: *bytes }
}

impl State {
    /// Records the locations of the shards of changed volumes.
    pub(super) fn keep_homes(&mut self, volumes: impl IntoIterator<Item = u32>) {
        let changed: Vec<_> = volumes.into_iter().filter_map(|id| self.changed_home(id)).collect();
        self.keep_records(changed);
    }

    /// Returns the new record of a volume, if it differs from the last one.
    fn changed_home(&mut self, id: u32) -> Option<unwritten::Record> {
        let key = format!("{PREFIX}{id}");
        let Some(volume) = self.view.volumes().get(id) else {
            if self.view.volumes().may_exist(id) {
                return None; // Not all of its servers have denied it.
            }
            return self.homes.recorded.remove(&id).map(|_| (key, None));
        };
        let recorded = self.homes.recorded.get(&id).map(|record| Encoding(record.encoding));
        let (encoding, generation) = current_or(volume, recorded)?;
        let record = Record::of(volume, encoding, generation);
        if self.homes.recorded.get(&id) == Some(&record) {
            return None;
        }
        let value = serde_json::to_value(&record).expect("plain numbers and text");
        self.homes.recorded.insert(id, record);
        Some((key, Some(value)))
    }
}

/// Returns the current encoding of a volume; if it is unknown, the recorded one, or any.
fn current_or(volume: &Volume, recorded: Option<Encoding>) -> Option<(Encoding, &Generation)> {
    let recorded = || Some((recorded?, volume.generations.get(&recorded?)?));
    let any = || volume.generations.first_key_value().map(|(&encoding, generation)| (encoding, generation));
    volume.current().or_else(recorded).or_else(any)
}

impl Knowledge {
    /// Loads the locations that an earlier coordinator recorded, except those of abandoned encodings.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_homes(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?;
        for (key, value) in records {
            let id = key.strip_prefix(PREFIX).and_then(|id| id.parse::<u32>().ok());
            let Some((id, record)) = id.zip(serde_json::from_value::<Record>(value).ok()) else { continue };
            state.view.recall_told(id, Encoding(record.encoding), &record.collection);
            let mut kept = record.kept();
            kept.retain(|(encoding, _)| !self.attachment.has_abandoned(id, *encoding, &record.collection));
            if kept.is_empty() {
                continue; // The record stays, in case the operator withdraws the entry.
            }
            kept.into_iter().for_each(|(encoding, kept)| state.view.recall(id, encoding, kept));
            state.homes.recorded.insert(id, record);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "homes/tests.rs"]
mod tests;
