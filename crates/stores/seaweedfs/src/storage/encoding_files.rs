//! The parsed `.vif` and `.ecsum` files of the encodings. Pure: this module calls no server and stores
//! nothing.

use std::collections::BTreeMap;

use repair::Digest;

use crate::blocks::{Encoding, Ratio};
use crate::volumes::Volumes;

/// Facts from an encoding's `.vif` file, and from its `.ecsum` file if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ratio: Ratio,
    pub shard_bytes: u64,
    /// One digest per shard; empty for a volume without `.ecsum`.
    pub digests: Vec<Digest>,
}

/// The facts from the `.vif` and `.ecsum` files of all encodings.
#[derive(Default)]
pub(super) struct EncodingFiles {
    known: BTreeMap<(u32, Encoding), Known>,
    /// Encodings whose files could not be read, with the error.
    unread: BTreeMap<(u32, Encoding), String>,
}

impl EncodingFiles {
    /// Returns the facts from the files of an encoding, if they were read.
    pub fn get(&self, volume: u32, encoding: Encoding) -> Option<&Known> {
        self.known.get(&(volume, encoding))
    }

    /// Returns why the files of an encoding cannot be read.
    pub fn why_unread(&self, volume: u32, encoding: Encoding) -> Option<&str> {
        self.unread.get(&(volume, encoding)).map(String::as_str)
    }

    /// Stores the facts read from an encoding's files.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.unread.remove(&(volume, encoding));
        self.known.insert((volume, encoding), known);
    }

    /// Records why the files of an encoding cannot be read; returns whether the reason is new.
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.unread.insert((volume, encoding), why.clone()).is_none_or(|before| before != why)
    }

    /// Returns the listed encodings whose files were not read yet.
    pub fn unknown(&self, volumes: &Volumes) -> Vec<(u32, Encoding)> {
        let all = volumes.iter().flat_map(|(id, volume)| {
            let listed = volume.generations.iter().filter(|(_, generation)| !generation.homes.is_empty());
            listed.map(move |(&encoding, _)| (id, encoding))
        });
        all.filter(|key| !self.known.contains_key(key)).collect()
    }

    /// Forgets encodings that no longer exist.
    pub fn retain_listed(&mut self, volumes: &Volumes) {
        let exists = |(volume, encoding): &(u32, Encoding)| {
            volumes.get(*volume).is_some_and(|volume| volume.generations.contains_key(encoding))
        };
        self.known.retain(|key, _| exists(key));
        self.unread.retain(|key, _| exists(key));
    }
}
