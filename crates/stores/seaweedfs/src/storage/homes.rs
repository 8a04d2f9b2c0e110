//! Records the location of every shard, so that a shard that was lost while the coordinator was down can be
//! rebuilt on its former server.
//!
//! There is one record per volume, rewritten when a location changes. A record applies only to the encoding
//! that it names, and only to shards that no server lists. Until the volume is listed, it makes no stripe,
//! since the volume may have been deleted meanwhile. But if the servers of most of its shards are down, the
//! state of the volume is reported as unknown.

use std::collections::BTreeMap;

use crate::blocks::Encoding;
use serde::{Deserialize, Serialize};
use store_api::CatalogError;

use super::state::{Knowledge, State};
use super::unwritten;
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

/// The records of all volumes, including those that are still to be written.
#[derive(Default)]
pub(super) struct Homes {
    recorded: BTreeMap<u32, Record>,
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
    /// Records the locations of the shards of changed volumes.
    pub(super) fn keep_homes(&mut self, volumes: impl IntoIterator<Item = u32>) {
        let changed: Vec<_> = volumes.into_iter().filter_map(|id| self.changed_home(id)).collect();
        self.keep_records(changed);
    }

    /// Returns the new record of a volume, if it differs from the last one.
    fn changed_home(&mut self, id: u32) -> Option<unwritten::Record> {
        let key = format!("{PREFIX}{id}");
        let Some(volume) = self.view.volumes().get(id) else {
            return self.homes.recorded.remove(&id).map(|_| (key, None));
        };
        // If it is unknown which encoding is current, the record stays.
        let (encoding, generation) = volume.current()?;
        let record = Record::of(&volume.collection, encoding, generation);
        if self.homes.recorded.get(&id) == Some(&record) {
            return None;
        }
        let value = serde_json::to_value(&record).expect("plain numbers and text");
        self.homes.recorded.insert(id, record);
        Some((key, Some(value)))
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
