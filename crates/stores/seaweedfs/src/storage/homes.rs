//! Records the location of every shard, so that a shard that was lost while the coordinator was down can be
//! rebuilt on its former server.
//!
//! There is one record per volume, rewritten when a location changes. A record applies only to the encoding
//! that it names, and only to shards that no server lists. Until the volume is listed, it makes no stripe,
//! since the volume may have been deleted meanwhile. But if the servers of most of its shards are down, the
//! state of the volume is reported as unknown.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocks::Encoding;
use serde::{Deserialize, Serialize};
use store_api::{CatalogError, RecordWrite};

use super::state::{Knowledge, State};
use crate::listing::ServerId;
use crate::volumes::{Generation, Home, Kept};

/// Prefix of the record keys; the volume ID follows.
const PREFIX: &str = "seaweedfs/homes/";

/// The recorded locations of a volume's shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    encoding: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    collection: String,
    /// By shard: server, disk, and the shard's length in bytes.
    homes: BTreeMap<u8, (String, u32, u64)>,
    /// The original server of each shard that was rebuilt on another server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    origins: BTreeMap<u8, String>,
}

/// The records of all volumes.
#[derive(Default)]
pub(super) struct Homes {
    /// The records as last written.
    recorded: BTreeMap<u32, Record>,
    /// Volumes whose records could not be written.
    unwritten: BTreeSet<u32>,
}

impl Record {
    fn of(collection: &str, encoding: Encoding, generation: &Generation) -> Self {
        let listed = generation.homes.iter().filter_map(|(&shard, homes)| Some((shard, homes.first()?)));
        let homes = listed.chain(generation.former.iter().map(|(&shard, home)| (shard, home)));
        let origins = generation.origins.iter().map(|(&shard, server)| (shard, server.0.clone()));
        Self {
            encoding: encoding.0,
            collection: collection.to_owned(),
            homes: homes
                .map(|(shard, home)| (shard, (home.server.0.clone(), home.disk, home.bytes)))
                .collect(),
            origins: origins.collect(),
        }
    }

    fn kept(&self) -> Kept {
        let home = |(server, disk, bytes): &(String, u32, u64)| Home {
            server: ServerId(server.clone()),
            disk: *disk,
            bytes: *bytes,
        };
        Kept {
            collection: self.collection.clone(),
            homes: self.homes.iter().map(|(&shard, at)| (shard, home(at))).collect(),
            origins: self.origins.iter().map(|(&shard, server)| (shard, ServerId(server.clone()))).collect(),
        }
    }
}

impl State {
    /// Records the locations of the shards of changed volumes, and of those whose records could not be written before.
    pub(super) fn keep_homes(&mut self, volumes: impl IntoIterator<Item = u32>) {
        let changed: BTreeSet<u32> =
            volumes.into_iter().chain(std::mem::take(&mut self.homes.unwritten)).collect();
        let (mut writes, mut records) = (Vec::new(), Vec::new());
        for id in changed {
            let key = format!("{PREFIX}{id}");
            let volume = self.view.volumes().get(id);
            match volume.map(|volume| (&volume.collection, volume.current())) {
                Some((collection, Some((encoding, generation)))) => {
                    let record = Record::of(collection, encoding, generation);
                    if self.homes.recorded.get(&id) != Some(&record) {
                        let value = serde_json::to_value(&record).expect("plain numbers and text");
                        writes.push(RecordWrite::Put(key, value));
                        records.push((id, Some(record)));
                    }
                }
                Some((_, None)) => {} // It is unknown which encoding is current, so the record stays.
                None if self.homes.recorded.contains_key(&id) => {
                    writes.push(RecordWrite::Remove(key));
                    records.push((id, None));
                }
                None => {}
            }
        }
        if writes.is_empty() {
            return;
        }
        let term = self.ledger.term();
        let done = self.ledger.write_all(term, &writes);
        for ((id, record), done) in records.into_iter().zip(done) {
            match (done, record) {
                (Err(error), _) => {
                    tracing::error!(volume = id, %error, "cannot record the locations of a volume's shards; trying again");
                    self.homes.unwritten.insert(id);
                }
                (Ok(_), Some(record)) => drop(self.homes.recorded.insert(id, record)),
                (Ok(_), None) => drop(self.homes.recorded.remove(&id)),
            }
        }
    }
}

impl Knowledge {
    /// Loads the locations that an earlier coordinator recorded.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_homes(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?;
        for (key, value) in records {
            let id = key.strip_prefix(PREFIX).and_then(|id| id.parse::<u32>().ok());
            let Some((id, record)) = id.zip(serde_json::from_value::<Record>(value).ok()) else { continue };
            state.view.recall(id, Encoding(record.encoding), record.kept());
            state.homes.recorded.insert(id, record);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "homes/tests.rs"]
mod tests;
