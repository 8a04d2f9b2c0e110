//! Maps volumes to stripes, from the master's listing, the volumes' own files, and the copies that were found
//! bad.
//!
//! Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocks::{Encoding, Ratio, ShardName, VolumeName};
use codes::{BlockIndex, CodeSpec, RsFamily};
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StoreChange, StripeRecord, Unjudged};

use crate::listing::{Listing, ServerId};
use crate::volumes::{Change, Generation, Home, Kept, Standing, Volume, Volumes};

/// Facts from an encoding's `.vif` file, and from its `.ecsum` file if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ratio: Ratio,
    pub shard_bytes: u64,
    /// One digest per shard; empty for a volume without `.ecsum`.
    pub digests: Vec<Digest>,
}

/// The model that maps volumes to stripes; see the module's documentation.
#[derive(Default)]
pub(super) struct View {
    volumes: Volumes,
    known: BTreeMap<(u32, Encoding), Known>,
    /// Node IDs of volume servers, with or without a helper.
    nodes: BTreeMap<ServerId, NodeId>,
    /// The nodes last reported as connected.
    serving: BTreeSet<NodeId>,
    /// Copies that are corrupt or missing.
    bad: BTreeMap<StripeId, BTreeMap<(u16, NodeId), BlockState>>,
    /// Lost shards whose last server has confirmed the loss.
    confirmed: BTreeSet<(u32, Encoding, u8)>,
    told: BTreeMap<u32, StripeId>,
    /// Bad copies of stripes that no longer exist.
    pointless: Vec<(StripeId, u16, NodeId)>,
    /// Encodings whose files could not be read, with the error.
    unread: BTreeMap<(u32, Encoding), String>,
}

/// The facts that a server must report about a mounted shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub encoding: Encoding,
    pub ratio: Ratio,
    pub shard_bytes: u64,
}

impl View {
    /// Loads recorded locations of an encoding's shards.
    pub fn recall(&mut self, volume: u32, encoding: Encoding, kept: Kept) {
        self.volumes.recall(volume, encoding, kept);
    }

    /// Applies a listing. The caller must assign IDs to [`unnumbered`](Self::unnumbered) servers before it
    /// calls [`tell`](Self::tell).
    pub fn list(&mut self, listing: Listing) -> Vec<Change> {
        let changes = self.volumes.apply(listing);
        let volumes = &self.volumes;
        self.confirmed.retain(|(volume, encoding, shard)| {
            let generation = volumes.get(*volume).and_then(|volume| volume.generations.get(encoding));
            generation.is_some_and(|generation| generation.former.contains_key(shard))
        });
        self.forget_files();
        changes
    }

    /// Drops file contents and read errors of encodings that no longer exist.
    fn forget_files(&mut self) {
        let volumes = &self.volumes;
        let is_there = |(volume, encoding): &(u32, Encoding)| {
            volumes.get(*volume).is_some_and(|volume| volume.generations.contains_key(encoding))
        };
        self.known.retain(|key, _| is_there(key));
        self.unread.retain(|key, _| is_there(key));
    }

    /// Takes the bad copies of stripes that were reported and no longer exist.
    pub fn pointless_marks(&mut self) -> Vec<(StripeId, u16, NodeId)> {
        std::mem::take(&mut self.pointless)
    }

    /// Applies a listing of some volumes only.
    pub fn list_some(&mut self, volumes: &[u32], part: Listing) -> Vec<Change> {
        let whole = self.volumes.with(volumes, part);
        self.list(whole)
    }

    /// Connected servers without a node ID.
    pub fn unnumbered(&self) -> Vec<ServerId> {
        self.volumes.servers().keys().filter(|id| !self.nodes.contains_key(*id)).cloned().collect()
    }

    pub fn number(&mut self, server: ServerId, node: NodeId) {
        self.nodes.insert(server, node);
    }

    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.retain(|_, other| *other != node);
    }

    /// The server with this node ID.
    pub fn server(&self, node: NodeId) -> Option<&ServerId> {
        self.nodes.iter().find(|(_, other)| **other == node).map(|(server, _)| server)
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Listed encodings whose files have not been read.
    pub fn unknown(&self) -> Vec<(u32, Encoding)> {
        let all = self.volumes.iter().flat_map(|(id, volume)| {
            volume
                .generations
                .iter()
                .filter(|(_, generation)| !generation.homes.is_empty())
                .map(move |(&encoding, _)| (id, encoding))
        });
        all.filter(|key| !self.known.contains_key(key)).collect()
    }

    /// Stores the facts read from an encoding's files.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.volumes.tell_ratio(volume, encoding, known.ratio);
        self.unread.remove(&(volume, encoding));
        self.known.insert((volume, encoding), known);
    }

    /// Notes why the files of an encoding cannot be read. Returns whether the reason is new.
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.unread.insert((volume, encoding), why.clone()).is_none_or(|before| before != why)
    }

    /// The facts that a server must report about a mounted shard of this volume.
    pub fn expected(&self, volume: u32) -> Option<Expected> {
        let Standing::Known { encoding, ratio, .. } = self.volumes.get(volume)?.standing() else {
            return None;
        };
        let shard_bytes = self.known.get(&(volume, encoding))?.shard_bytes;
        Some(Expected { encoding, ratio, shard_bytes })
    }

    /// The encodings under which a server is listed with this shard.
    pub fn listed(&self, volume: u32, shard: u8, server: &ServerId) -> Vec<Encoding> {
        let generations = self.volumes.get(volume).into_iter().flat_map(|volume| &volume.generations);
        let lists = |generation: &Generation| {
            generation.homes.get(&shard).is_some_and(|homes| homes.iter().any(|home| home.server == *server))
        };
        generations.filter(|(_, generation)| lists(generation)).map(|(&encoding, _)| encoding).collect()
    }

    /// A volume's name and the facts that servers must report about its shards.
    pub fn named(&self, volume: u32) -> Option<(VolumeName, Expected)> {
        let collection = &self.volumes.get(volume)?.collection;
        Some((VolumeName::new(collection, volume)?, self.expected(volume)?))
    }

    /// The node ID of a server.
    pub fn node(&self, server: &ServerId) -> Option<NodeId> {
        self.nodes.get(server).copied()
    }

    /// Connected servers that hold shards of the current encoding.
    pub fn holders_of(&self, volume: u32) -> Vec<ServerId> {
        let Some(generation) = self.volumes.get(volume).and_then(current) else { return Vec::new() };
        let servers: BTreeSet<&ServerId> =
            generation.homes.values().flatten().map(|home| &home.server).collect();
        let connected = servers.into_iter().filter(|server| self.volumes.servers().contains_key(*server));
        connected.cloned().collect()
    }

    /// Whether a volume stays readable without a server's copy of one shard, or without all its copies.
    pub fn can_spare(&self, volume: u32, shard: Option<u8>, server: &ServerId) -> bool {
        let Some(Standing::Known { encoding, ratio, .. }) = self.volumes.get(volume).map(Volume::standing)
        else {
            return false;
        };
        let homes =
            &self.volumes.get(volume).expect("the volume was just found").generations[&encoding].homes;
        let elsewhere = homes.iter().filter(|&(&other, homes)| {
            let goes = shard.is_none_or(|shard| shard == other);
            !goes || homes.iter().any(|home| home.server != *server)
        });
        elsewhere.count() >= usize::from(ratio.data())
    }

    /// The volume ID of a stripe.
    pub fn volume_of(&self, stripe: &StripeId) -> Option<u32> {
        let name: VolumeName = stripe.0.parse().ok()?;
        let there = self.volumes.get(name.id())?;
        (there.collection == name.collection()).then_some(name.id())
    }

    /// Marks a copy as bad.
    pub fn set_bad(&mut self, stripe: &StripeId, index: u16, node: NodeId, state: BlockState) {
        self.bad.entry(stripe.clone()).or_default().insert((index, node), state);
    }

    /// Clears the mark of a bad copy. Returns whether the copy was marked.
    pub fn clear_bad(&mut self, stripe: &StripeId, index: u16, node: NodeId) -> bool {
        let Some(of) = self.bad.get_mut(stripe) else { return false };
        let was = of.remove(&(index, node)).is_some();
        if of.is_empty() {
            self.bad.remove(stripe);
        }
        was
    }

    /// A volume as a stripe; `None` if its current encoding, ratio or shard size is unknown.
    pub fn stripe(&self, id: u32) -> Option<StripeRecord> {
        let volume = self.volumes.get(id)?;
        let Standing::Known { encoding, ratio, .. } = volume.standing() else { return None };
        let known = self.known.get(&(id, encoding))?;
        let name = VolumeName::new(&volume.collection, id)?;
        let stripe = StripeId(name.to_string());
        let generation = &volume.generations[&encoding];
        let block = |shard: u8| {
            let confirmed = self.confirmed.contains(&(id, encoding, shard));
            let mut holders = self.holders(&stripe, generation, known, shard, confirmed).into_iter();
            let home = holders.next();
            BlockRecord {
                id: ShardName { volume: name.clone(), shard }.block_id(),
                bytes: known.shard_bytes,
                node: home.map(|home| home.node),
                state: home.map_or(BlockState::Missing, |home| home.state),
                replicas: holders.collect(),
                digest: known.digests.get(usize::from(shard)).copied(),
            }
        };
        let (n, k) = (usize::from(ratio.total()), usize::from(ratio.data()));
        Some(StripeRecord {
            code: CodeSpec::ReedSolomon { family: RsFamily::Vandermonde, n, k },
            block_bytes: known.shard_bytes,
            chunk_bytes: None,
            blocks: (0..ratio.total()).map(block).collect(),
            file: None,
            id: stripe.clone(),
        })
    }

    /// The holders of a shard. If there are several, the first is the one to keep: the shard's original
    /// server, since other servers look for the shard there, or otherwise the server with the fewest shards
    /// of the volume.
    ///
    /// A shard that is listed nowhere is attributed to its last server, and counts as missing only after that
    /// server has confirmed the loss: a returning server is listed a moment before its shards are.
    fn holders(
        &self,
        stripe: &StripeId,
        generation: &Generation,
        known: &Known,
        shard: u8,
        is_gone: bool,
    ) -> Vec<Replica> {
        let Some(homes) = generation.homes.get(&shard) else {
            let state = if is_gone { BlockState::Missing } else { BlockState::Healthy };
            let holder = |home: &Home| Some(Replica { node: *self.nodes.get(&home.server)?, state });
            return generation.former.get(&shard).and_then(holder).into_iter().collect();
        };
        let shards_at = |server: &ServerId| {
            generation.homes.values().filter(|homes| homes.iter().any(|home| home.server == *server)).count()
        };
        let is_origin = |server: &ServerId| generation.origins.get(&shard) == Some(server);
        let mut homes: Vec<&Home> = homes.iter().collect();
        homes
            .sort_by_key(|home| (!is_origin(&home.server), shards_at(&home.server), &home.server, home.disk));
        homes.dedup_by_key(|home| &home.server); // Copies on two disks of one server belong to one node.
        let bad = self.bad.get(stripe);
        let holder = |home: &Home| {
            let node = *self.nodes.get(&home.server)?;
            let found = bad.and_then(|bad| bad.get(&(shard.into(), node))).copied();
            // Older masters do not list lengths.
            let is_short = home.bytes != 0 && home.bytes != known.shard_bytes;
            let listed = if is_short { BlockState::Corrupt } else { BlockState::Healthy };
            Some(Replica { node, state: found.unwrap_or(listed) })
        };
        let mut holders: Vec<Replica> = homes.into_iter().filter_map(holder).collect();
        holders.sort_by_key(|holder| holder.state != BlockState::Healthy); // Stable: healthy copies first.
        holders
    }

    /// Lost shards whose last server is connected but has not confirmed the loss.
    pub fn unconfirmed(&self) -> Vec<(u32, Encoding, u8, ServerId)> {
        let mut found = Vec::new();
        for (id, volume) in self.volumes.iter() {
            for (&encoding, generation) in &volume.generations {
                let here = generation
                    .former
                    .iter()
                    .filter(|(_, home)| self.volumes.servers().contains_key(&home.server));
                let here = here.filter(|(shard, _)| !self.confirmed.contains(&(id, encoding, **shard)));
                found.extend(here.map(|(&shard, home)| (id, encoding, shard, home.server.clone())));
            }
        }
        found
    }

    /// Notes that the last servers of these shards no longer have them. Drops encodings without any shard
    /// left.
    pub fn confirm(&mut self, gone: impl IntoIterator<Item = (u32, Encoding, u8)>) {
        self.confirmed.extend(gone);
        let confirmed = &self.confirmed;
        self.volumes.drop_deleted(|volume, encoding, shard| confirmed.contains(&(volume, encoding, shard)));
        self.forget_files();
    }

    /// All stripes.
    pub fn stripes(&self) -> impl Iterator<Item = StripeRecord> + '_ {
        self.volumes.iter().filter_map(|(id, _)| self.stripe(id))
    }

    /// Reports the current state of these volumes.
    pub fn tell(&mut self, volumes: impl IntoIterator<Item = u32>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for id in volumes {
            let stripe = self.stripe(id);
            let before = self.told.remove(&id);
            if let Some(before) = before.filter(|before| stripe.as_ref().is_none_or(|now| now.id != *before))
            {
                let marks = self.bad.remove(&before).unwrap_or_default().into_keys();
                self.pointless.extend(marks.map(|(index, node)| (before.clone(), index, node)));
                changes.push(StoreChange::StripeGone(before));
            }
            if let Some(stripe) = stripe {
                self.told.insert(id, stripe.id.clone());
                changes.push(StoreChange::Stripe(stripe, false));
            }
        }
        changes
    }

    /// Reports servers that connected or disconnected since the last call.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> =
            self.volumes.servers().keys().filter_map(|id| self.nodes.get(id).copied()).collect();
        let came = now.difference(&self.serving).map(|&node| StoreChange::Service(node, true));
        let went = self.serving.difference(&now).map(|&node| StoreChange::Service(node, false));
        let changes = came.chain(went).collect();
        self.serving = now;
        changes
    }

    /// Reports everything, for a new listener.
    pub fn everything(&mut self) -> Vec<StoreChange> {
        self.serving.clear();
        let ids: Vec<u32> = self.volumes.iter().map(|(id, _)| id).collect();
        let mut changes = self.tell(ids);
        changes.extend(self.tell_service());
        changes
    }

    /// The locations where a shard of the current encoding is listed.
    pub fn homes(&self, volume: u32, shard: u8) -> Vec<Home> {
        let current = self.volumes.get(volume).and_then(current);
        current.and_then(|generation| generation.homes.get(&shard).cloned()).unwrap_or_default()
    }

    /// Whether every shard of a volume is listed.
    pub fn is_whole(&self, volume: u32) -> bool {
        let standing = self.volumes.get(volume).map(Volume::standing);
        matches!(standing, Some(Standing::Known { missing, .. }) if missing.is_empty())
    }

    /// Whether a server holds a shard, or was the last to hold it.
    pub fn is_home(&self, volume: u32, shard: u8, server: &ServerId) -> bool {
        let Some(generation) = self.volumes.get(volume).and_then(current) else { return false };
        let mut homes =
            generation.homes.get(&shard).into_iter().flatten().chain(generation.former.get(&shard));
        homes.any(|home| home.server == *server)
    }

    /// Whether a server has mounted shards of a volume, of any encoding.
    pub fn serves(&self, volume: u32, server: &ServerId) -> bool {
        let generations = self.volumes.get(volume).into_iter().flat_map(|volume| volume.generations.values());
        generations
            .flat_map(|generation| generation.homes.values().flatten())
            .any(|home| home.server == *server)
    }

    /// The number of shards that a server has, over all volumes.
    pub fn shards_at(&self, server: &ServerId) -> usize {
        let generations = self.volumes.iter().flat_map(|(_, volume)| volume.generations.values());
        generations
            .flat_map(|generation| generation.homes.values().flatten())
            .filter(|home| home.server == *server)
            .count()
    }

    /// Volumes that are not reported as stripes because their state cannot be determined.
    pub fn unjudged(&self) -> Vec<Unjudged> {
        self.volumes.iter().filter_map(|(id, volume)| self.puzzle(id, volume)).collect()
    }

    fn puzzle(&self, id: u32, volume: &Volume) -> Option<Unjudged> {
        let name = VolumeName::new(&volume.collection, id)?;
        let (why, next_step) = match volume.standing() {
            Standing::Mixed(_) => (mixed(volume), MIXED_NEXT.to_owned()),
            Standing::Known { encoding, .. } | Standing::RatioUnknown(encoding) => {
                if self.known.contains_key(&(id, encoding)) {
                    return None;
                }
                // A volume that has just appeared is read a moment later.
                (self.unread.get(&(id, encoding))?.clone(), UNREAD_NEXT.to_owned())
            }
        };
        let shards: BTreeSet<u8> =
            volume.generations.values().flat_map(|generation| generation.homes.keys().copied()).collect();
        let blocks = shards.into_iter().map(|shard| ShardName { volume: name.clone(), shard }.block_id());
        Some(Unjudged { stripe: StripeId(name.to_string()), blocks: blocks.collect(), why, next_step })
    }

    /// Volumes that also have mounted shards of an outdated encoding, one line each.
    pub fn left_overs(&self) -> Vec<String> {
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
        self.volumes.iter().filter_map(of).collect()
    }
}

const MIXED_NEXT: &str = "find out which encoding has the current data (encodeTsNs in the .vif next to the \
    shards is the time of the encoding), move the files of the other encoding out of the servers' folders, and \
    restart these servers";
const UNREAD_NEXT: &str = "check the .vif of the volume on the servers that have its shards";
const LEFT_OVER_NEXT: &str = "if these servers lack the current .vif next to the shards, restart them once \
    it is there; otherwise move these shards out of their folders and restart the servers";

/// Explains which encodings of a volume exist, and where.
fn mixed(volume: &Volume) -> String {
    let generations = volume.generations.iter().filter(|(_, generation)| !generation.homes.is_empty());
    let found: Vec<String> =
        generations.map(|(encoding, it)| format!("encodeTsNs {}: {}", encoding.0, listed(it))).collect();
    format!(
        "it has shards of several encodings, and not exactly one of them is readable ({})",
        found.join("; ")
    )
}

/// `shards 0, 3 on 10.0.0.1:8080`, server after server.
fn listed(generation: &Generation) -> String {
    let mut servers: BTreeMap<&ServerId, Vec<String>> = BTreeMap::new();
    for (shard, homes) in &generation.homes {
        homes.iter().for_each(|home| servers.entry(&home.server).or_default().push(shard.to_string()));
    }
    let of = |(server, shards): (&ServerId, Vec<String>)| format!("shards {} on {server}", shards.join(", "));
    servers.into_iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The current encoding.
fn current(volume: &Volume) -> Option<&Generation> {
    match volume.standing() {
        Standing::Known { encoding, .. } => volume.generations.get(&encoding),
        Standing::Mixed(_) | Standing::RatioUnknown(_) => None,
    }
}

/// Parses a block ID into volume and shard.
pub(super) fn shard_of(block: &BlockId) -> Option<ShardName> {
    block.0.parse().ok()
}

/// Converts a block index to SeaweedFS's shard number.
pub(super) fn shard_number(index: BlockIndex) -> u8 {
    u8::try_from(index.0).expect("SeaweedFS has at most 32 shards")
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
