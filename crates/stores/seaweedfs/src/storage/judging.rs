//! Finds volumes that need an operator: volumes whose state is unknown, and volumes that also have mounted
//! shards of an outdated encoding. Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use repair::StripeId;
use store_api::Unjudged;

use super::encoding_files::EncodingFiles;
use crate::address::BadAddress;
use crate::blocks::{EncodedVolume, Encoding, ShardName, VolumeName};
use crate::listing::{Server, ServerId};
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
    let mut recorded: BTreeMap<u32, Vec<(Encoding, &Kept)>> = BTreeMap::new();
    for (id, encoding, kept) in volumes.out_of_sight() {
        recorded.entry(id).or_default().push((encoding, kept));
    }
    listed.chain(recorded.into_iter().filter_map(|(id, recorded)| unseen(id, &recorded))).collect()
}

/// Describes a volume that was known before the coordinator's start, in these encodings, and that no server lists now.
fn unseen(id: u32, recorded: &[(Encoding, &Kept)]) -> Option<Unjudged> {
    let (_, first) = recorded.first()?;
    let name = VolumeName::new(&first.collection, id)?;
    let homes = || recorded.iter().flat_map(|(_, kept)| &kept.homes);
    let servers: BTreeSet<String> = homes().map(|(_, home)| home.server.0.clone()).collect();
    let names = servers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let shards: BTreeSet<u8> = homes().map(|(&shard, _)| shard).collect();
    let blocks = shards.into_iter().map(|shard| ShardName { volume: name.clone(), shard }.block_id());
    let encodings = recorded.iter().map(|&(encoding, _)| encoding);
    Some(Unjudged {
        stripe: StripeId(name.to_string()),
        blocks: blocks.collect(),
        why: format!("no server lists it since the coordinator started; its shards were on {names}"),
        servers,
        next_step: format!("{UNSEEN_NEXT}; {}", abandon(&name, encodings)),
    })
}

fn puzzle(volumes: &Volumes, files: &EncodingFiles, id: u32, volume: &Volume) -> Option<Unjudged> {
    let name = VolumeName::new(&volume.collection, id)?;
    let (why, next_step) = match volume.standing() {
        Standing::Mixed(_) => (mixed(volume), mixed_next(volumes, &name, volume)),
        Standing::Known { encoding, .. } if volumes.is_both(id) => {
            let shards = listed(&volume.generations[&encoding]);
            // Listed shards count also if the encoding is abandoned, so an entry would not help.
            let (shards, next_step) = match shards.is_empty() {
                true => ("none".to_owned(), format!("{BOTH_NEXT}; {}", abandon(&name, [encoding]))),
                false => (shards, BOTH_NEXT.to_owned()),
            };
            let why = format!("it is an ordinary volume as well, and too few shards are listed ({shards})");
            (why, next_step)
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

/// Returns one line for each abandoned encoding of which servers list shards. Listed shards count, so the entry of an
/// encoding in use would only have Mend forget the places of its shards at each start.
pub(super) fn returned(volumes: &Volumes, abandoned: &BTreeSet<EncodedVolume>) -> Vec<String> {
    let line = |it: &EncodedVolume| {
        let volume =
            volumes.get(it.volume.id()).filter(|volume| volume.collection == it.volume.collection())?;
        let shards = listed(volume.generations.get(&it.encoding)?);
        let is_current = volume.current().is_some_and(|(encoding, _)| encoding == it.encoding);
        let next = match is_current {
            true => "they are the volume's current ones: keep them, and remove the entry",
            false => MIXED_NEXT,
        };
        (!shards.is_empty()).then(|| {
            format!(
                "{it} is in abandoned_encodings of mend.toml, but servers list {shards}, so these shards count; {next}"
            )
        })
    };
    abandoned.iter().filter_map(line).collect()
}

/// Returns one line for each connected server that Mend cannot call, because its listed address is malformed.
pub(super) fn misaddressed(volumes: &Volumes) -> Vec<String> {
    let line = |(id, server): (&ServerId, &Server)| {
        let BadAddress(text) = server.address.parsed().err()?;
        Some(format!(
            "the master lists volume server {id} with the malformed address `{text}`, so Mend cannot call it; its {} \
             shards count as the master lists them, but Mend repairs nothing there; correct -ip, -port and \
             -port.grpc of the volume server, and restart it",
            volumes.shards_at(id)
        ))
    };
    volumes.servers().iter().filter_map(line).collect()
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

/// Returns the next steps for a volume with several encodings: the servers to start, the encodings that the operator
/// can abandon, and which files to move if several encodings have listed shards.
fn mixed_next(volumes: &Volumes, name: &VolumeName, volume: &Volume) -> String {
    let all = volume.generations.iter();
    let waits = all.clone().filter(|(_, it)| !it.former.is_empty());
    let waits: Vec<(Encoding, &Generation)> = waits.map(|(&encoding, it)| (encoding, it)).collect();
    let last = waits.iter().flat_map(|(_, it)| it.former.values()).map(|home| &home.server);
    let down: BTreeSet<&str> = last
        .filter(|server| !volumes.servers().contains_key(*server))
        .map(|server| server.0.as_str())
        .collect();
    let mut steps = Vec::new();
    if !down.is_empty() {
        let names = down.into_iter().collect::<Vec<_>>().join(", ");
        steps.push(format!("start the volume servers that are down ({names})"));
    }
    if !waits.is_empty() {
        steps.push(abandon(name, waits.iter().map(|&(encoding, _)| encoding)));
    }
    if all.filter(|(_, it)| !it.homes.is_empty()).count() > 1 {
        steps.push(MIXED_NEXT.to_owned());
    }
    steps.join("; ")
}

/// Returns how the operator tells Mend not to wait for the unlisted shards of one of these encodings.
fn abandon(name: &VolumeName, encodings: impl IntoIterator<Item = Encoding>) -> String {
    let named = |encoding| EncodedVolume { volume: name.clone(), encoding };
    let entries: Vec<String> =
        encodings.into_iter().map(|encoding| format!("\"{}\"", named(encoding))).collect();
    format!(
        "if the unlisted shards of an encoding will not return, or are outdated, add the encoding ({}) to \
         abandoned_encodings in [store] of the coordinator's mend.toml, and restart the coordinator",
        entries.join(" or ")
    )
}

/// Lists the shards of each server, and the last servers of shards that are not listed.
fn places(generation: &Generation) -> String {
    let servers: BTreeSet<&str> = generation.former.values().map(|home| home.server.0.as_str()).collect();
    let servers = servers.into_iter().collect::<Vec<_>>().join(", ");
    match (generation.homes.is_empty(), generation.former.len()) {
        (true, _) => format!("none listed, last on {servers}"),
        (false, 0) => listed(generation),
        (false, several) => format!("{}; {several} not listed, last on {servers}", listed(generation)),
    }
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
