//! Finds volumes that need an operator: volumes whose state is unknown, and volumes that also have mounted
//! shards of an outdated encoding. Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use repair::StripeId;
use store_api::Unjudged;

use super::encoding_files::EncodingFiles;
use crate::blocks::{ShardName, VolumeName};
use crate::listing::ServerId;
use crate::volumes::{Generation, Kept, Standing, Volume, Volumes};

const MIXED_NEXT: &str = "find out which encoding has the current data (encodeTsNs in the .vif next to the \
    shards is the time of the encoding), move the files of the other encoding out of the servers' folders, and \
    restart these servers";
const BOTH_NEXT: &str = "start the volume servers that are down; if the volume was decoded and its files are right \
    without the servers of these shards, move the shards out of their folders and restart the servers";
const UNREAD_NEXT: &str = "check the .vif of the volume on the servers that have its shards";
const UNREAD_YET: &str = "its .vif has not been read since the coordinator started";
const UNSEEN_NEXT: &str = "start the volume servers that are down";
const LEFT_OVER_NEXT: &str = "if these servers lack the current .vif next to the shards, restart them once \
    it is there; otherwise move these shards out of their folders and restart the servers";

/// Returns the volumes that are not reported as stripes, because their state is unknown.
pub(super) fn unjudged(volumes: &Volumes, files: &EncodingFiles) -> Vec<Unjudged> {
    let listed = volumes.iter().filter_map(|(id, volume)| puzzle(volumes, files, id, volume));
    listed.chain(volumes.out_of_sight().filter_map(|(id, kept)| unseen(id, kept))).collect()
}

/// Describes a volume that was known before the coordinator's start and that no server lists now.
fn unseen(id: u32, kept: &Kept) -> Option<Unjudged> {
    let name = VolumeName::new(&kept.collection, id)?;
    let servers: BTreeSet<String> = kept.homes.values().map(|home| home.server.0.to_string()).collect();
    let names = servers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let blocks = kept.homes.keys().map(|&shard| ShardName { volume: name.clone(), shard }.block_id());
    Some(Unjudged {
        stripe: StripeId(name.to_string()),
        blocks: blocks.collect(),
        why: format!("no server lists it since the coordinator started; its shards were on {names}"),
        servers,
        next_step: UNSEEN_NEXT.to_owned(),
    })
}

fn puzzle(volumes: &Volumes, files: &EncodingFiles, id: u32, volume: &Volume) -> Option<Unjudged> {
    let name = VolumeName::new(&volume.collection, id)?;
    let (why, next_step) = match volume.standing() {
        Standing::Mixed(_) => (mixed(volume), MIXED_NEXT.to_owned()),
        Standing::Known { encoding, .. } if volumes.is_both(id) => {
            let shards = listed(&volume.generations[&encoding]);
            let shards = if shards.is_empty() { "none".to_owned() } else { shards };
            let why = format!("it is an ordinary volume as well, and too few shards are listed ({shards})");
            (why, BOTH_NEXT.to_owned())
        }
        Standing::Known { encoding, .. } | Standing::RatioUnknown(encoding) => {
            if files.get(id, encoding).is_some() {
                return None;
            }
            // If the files of a new volume have not been read yet, there is nothing to report.
            let unread = volume.generations[&encoding].recalled.then_some(UNREAD_YET);
            (files.why_unread(id, encoding).or(unread)?.to_owned(), UNREAD_NEXT.to_owned())
        }
    };
    let shards: BTreeSet<u8> =
        volume.generations.values().flat_map(|generation| generation.homes.keys().copied()).collect();
    let blocks = shards.into_iter().map(|shard| ShardName { volume: name.clone(), shard }.block_id());
    let homes = |generation: &Generation| {
        let listed = generation.homes.values().flatten();
        listed.chain(generation.former.values()).map(|home| home.server.0.to_string()).collect::<Vec<_>>()
    };
    let servers = volume.generations.values().flat_map(homes).collect();
    Some(Unjudged { stripe: StripeId(name.to_string()), blocks: blocks.collect(), servers, why, next_step })
}

/// Returns one line for each volume that also has mounted shards of an outdated encoding.
pub(super) fn left_overs(volumes: &Volumes) -> Vec<String> {
    let of = |(id, volume): (u32, &Volume)| {
        let Standing::Known { foreign, .. } = volume.standing() else { return None };
        let found: Vec<String> = foreign
            .iter()
            .filter(|encoding| !volume.generations[*encoding].homes.is_empty())
            .map(|encoding| listed(&volume.generations[encoding]))
            .collect();
        let name = VolumeName::new(&volume.collection, id)?;
        let line = format!(
            "servers also serve outdated shards of another encoding of volume {name}: {}; \
                 {LEFT_OVER_NEXT}",
            found.join("; ")
        );
        (!found.is_empty()).then_some(line)
    };
    volumes.iter().filter_map(of).collect()
}

/// Describes the encodings of a volume, and where their shards are.
fn mixed(volume: &Volume) -> String {
    let generations = volume.generations.iter();
    let found: Vec<String> =
        generations.map(|(encoding, it)| format!("encodeTsNs {}: {}", encoding.0, places(it))).collect();
    format!(
        "it has shards of several encodings, and not exactly one of them is readable ({})",
        found.join("; ")
    )
}

/// Lists the shards of each server or, if no shard is listed, the last servers of the shards.
fn places(generation: &Generation) -> String {
    if !generation.homes.is_empty() {
        return listed(generation);
    }
    let servers: BTreeSet<&str> = generation.former.values().map(|home| home.server.0.as_str()).collect();
    format!("none listed, last on {}", servers.into_iter().collect::<Vec<_>>().join(", "))
}

/// Lists the shards of each server, as in `shards 0, 3 on 10.0.0.1:8080`.
fn listed(generation: &Generation) -> String {
    let mut servers: BTreeMap<&ServerId, Vec<String>> = BTreeMap::new();
    for (shard, homes) in &generation.homes {
        homes.iter().for_each(|home| servers.entry(&home.server).or_default().push(shard.to_string()));
    }
    let of = |(server, shards): (&ServerId, Vec<String>)| format!("shards {} on {server}", shards.join(", "));
    servers.into_iter().map(of).collect::<Vec<_>>().join(", ")
}
