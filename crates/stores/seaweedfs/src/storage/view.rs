//! Volumes as stripes: what is told of each, from what the master lists, what the volumes' files say and what was found bad.
//!
//! Pure: no master is asked here, and nothing is stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocks::{Encoding, Ratio, ShardName, VolumeName};
use codes::{BlockIndex, CodeSpec, RsFamily};
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StoreChange, StripeRecord, Unjudged};

use crate::listing::{Listing, ServerId};
use crate::volumes::{Change, Generation, Home, Kept, Standing, Volume, Volumes};

/// What the files of an encoding say: `.vif`, and `.ecsum` if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ratio: Ratio,
    pub shard_bytes: u64,
    /// Of each shard; empty for a volume without `.ecsum`.
    pub digests: Vec<Digest>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct View {
    volumes: Volumes,
    known: BTreeMap<(u32, Encoding), Known>,
    /// The numbers of the helpers beside servers, and of servers without one.
    nodes: BTreeMap<ServerId, NodeId>,
    /// Servers that were connected when last told.
    serving: BTreeSet<NodeId>,
    /// Copies that are not what they should be.
    bad: BTreeMap<StripeId, BTreeMap<(u16, NodeId), BlockState>>,
    /// Shards that are listed nowhere, of which the server that had them said that it has them no more.
    confirmed: BTreeSet<(u32, Encoding, u8)>,
    told: BTreeMap<u32, StripeId>,
    /// Marks of copies of stripes that are there no more.
    pointless: Vec<(StripeId, u16, NodeId)>,
    /// Encodings whose files could not be read, and why.
    unread: BTreeMap<(u32, Encoding), String>,
}

/// What a server that has mounted a shard should say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub encoding: Encoding,
    pub ratio: Ratio,
    pub shard_bytes: u64,
}

impl View {
    /// Remembers where the shards of an encoding were.
    pub fn recall(&mut self, volume: u32, encoding: Encoding, kept: Kept) {
        self.volumes.recall(volume, encoding, kept);
    }

    /// Takes in a listing. Servers that have no number are to get one before anything is told.
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

    /// What the files of encodings say that are there no more.
    fn forget_files(&mut self) {
        let volumes = &self.volumes;
        let is_there = |(volume, encoding): &(u32, Encoding)| {
            volumes.get(*volume).is_some_and(|volume| volume.generations.contains_key(encoding))
        };
        self.known.retain(|key, _| is_there(key));
        self.unread.retain(|key, _| is_there(key));
    }

    /// Marks of copies of stripes that were told and are there no more.
    pub fn pointless_marks(&mut self) -> Vec<(StripeId, u16, NodeId)> {
        std::mem::take(&mut self.pointless)
    }

    /// Takes in a listing of some volumes alone.
    pub fn list_some(&mut self, volumes: &[u32], part: Listing) -> Vec<Change> {
        let whole = self.volumes.with(volumes, part);
        self.list(whole)
    }

    /// Servers that are connected and have no number.
    pub fn unnumbered(&self) -> Vec<ServerId> {
        self.volumes.servers().keys().filter(|id| !self.nodes.contains_key(*id)).cloned().collect()
    }

    pub fn number(&mut self, server: ServerId, node: NodeId) {
        self.nodes.insert(server, node);
    }

    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.retain(|_, other| *other != node);
    }

    /// The server with this number.
    pub fn server(&self, node: NodeId) -> Option<&ServerId> {
        self.nodes.iter().find(|(_, other)| **other == node).map(|(server, _)| server)
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Encodings of which nobody has read the files.
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

    /// Takes in what the files of an encoding say.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.volumes.tell_ratio(volume, encoding, known.ratio);
        self.unread.remove(&(volume, encoding));
        self.known.insert((volume, encoding), known);
    }

    /// Notes why the files of an encoding cannot be read; whether that is news.
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.unread.insert((volume, encoding), why.clone()).is_none_or(|before| before != why)
    }

    /// What a server should say of a shard of a volume that it has mounted.
    pub fn expected(&self, volume: u32) -> Option<Expected> {
        let Standing::Known { encoding, ratio, .. } = self.volumes.get(volume)?.standing() else {
            return None;
        };
        let shard_bytes = self.known.get(&(volume, encoding))?.shard_bytes;
        Some(Expected { encoding, ratio, shard_bytes })
    }

    /// The encodings of which a server is listed with a shard.
    pub fn listed(&self, volume: u32, shard: u8, server: &ServerId) -> Vec<Encoding> {
        let generations = self.volumes.get(volume).into_iter().flat_map(|volume| &volume.generations);
        let lists = |generation: &Generation| {
            generation.homes.get(&shard).is_some_and(|homes| homes.iter().any(|home| home.server == *server))
        };
        generations.filter(|(_, generation)| lists(generation)).map(|(&encoding, _)| encoding).collect()
    }

    /// The name of a volume that is known, and what servers should say of its shards.
    pub fn named(&self, volume: u32) -> Option<(VolumeName, Expected)> {
        let collection = &self.volumes.get(volume)?.collection;
        Some((VolumeName::new(collection, volume)?, self.expected(volume)?))
    }

    /// The number of a server.
    pub fn node(&self, server: &ServerId) -> Option<NodeId> {
        self.nodes.get(server).copied()
    }

    /// The connected servers that have shards of the encoding that counts.
    pub fn holders_of(&self, volume: u32) -> Vec<ServerId> {
        let Some(generation) = self.volumes.get(volume).and_then(current) else { return Vec::new() };
        let servers: BTreeSet<&ServerId> =
            generation.homes.values().flatten().map(|home| &home.server).collect();
        let connected = servers.into_iter().filter(|server| self.volumes.servers().contains_key(*server));
        connected.cloned().collect()
    }

    /// Whether a volume can be read without what a server has of it, or has of one shard.
    pub fn can_spare(&self, volume: u32, shard: Option<u8>, server: &ServerId) -> bool {
        let Some(Standing::Known { encoding, ratio, .. }) = self.volumes.get(volume).map(Volume::standing)
        else {
            return false;
        };
        let homes = &self.volumes.get(volume).expect("it stands").generations[&encoding].homes;
        let elsewhere = homes.iter().filter(|&(&other, homes)| {
            let goes = shard.is_none_or(|shard| shard == other);
            !goes || homes.iter().any(|home| home.server != *server)
        });
        elsewhere.count() >= usize::from(ratio.data())
    }

    /// The number of the volume that a stripe is.
    pub fn volume_of(&self, stripe: &StripeId) -> Option<u32> {
        let name: VolumeName = stripe.0.parse().ok()?;
        let there = self.volumes.get(name.id())?;
        (there.collection == name.collection()).then_some(name.id())
    }

    /// Notes how a copy is.
    pub fn set_bad(&mut self, stripe: &StripeId, index: u16, node: NodeId, state: BlockState) {
        self.bad.entry(stripe.clone()).or_default().insert((index, node), state);
    }

    /// A copy is good, as far as is known; whether it was bad.
    pub fn clear_bad(&mut self, stripe: &StripeId, index: u16, node: NodeId) -> bool {
        let Some(of) = self.bad.get_mut(stripe) else { return false };
        let was = of.remove(&(index, node)).is_some();
        if of.is_empty() {
            self.bad.remove(stripe);
        }
        was
    }

    /// A volume as a stripe; `None` while it is not known what should be there.
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

    /// Who has a shard; first of several the one to keep it: the server that had it before it was made elsewhere, as others
    /// look for it there, or else the one that has fewest of the volume.
    ///
    /// One that nobody has is said to be where it was, and missing there only when its server says so: a server that comes
    /// back is listed a moment before its shards are.
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
        homes.dedup_by_key(|home| &home.server); // Two disks of one server are one node's.
        let bad = self.bad.get(stripe);
        let holder = |home: &Home| {
            let node = *self.nodes.get(&home.server)?;
            let found = bad.and_then(|bad| bad.get(&(shard.into(), node))).copied();
            // Older masters list no lengths.
            let is_short = home.bytes != 0 && home.bytes != known.shard_bytes;
            let listed = if is_short { BlockState::Corrupt } else { BlockState::Healthy };
            Some(Replica { node, state: found.unwrap_or(listed) })
        };
        let mut holders: Vec<Replica> = homes.into_iter().filter_map(holder).collect();
        holders.sort_by_key(|holder| holder.state != BlockState::Healthy); // Stable: good ones first.
        holders
    }

    /// Shards that nobody has, with the connected servers that had them, which have not been asked about them.
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

    /// Servers that had these shards do not have them. An encoding of which nothing is left is forgotten.
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

    /// How these volumes are now.
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

    /// Servers that came and went since that was last told.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> =
            self.volumes.servers().keys().filter_map(|id| self.nodes.get(id).copied()).collect();
        let came = now.difference(&self.serving).map(|&node| StoreChange::Service(node, true));
        let went = self.serving.difference(&now).map(|&node| StoreChange::Service(node, false));
        let changes = came.chain(went).collect();
        self.serving = now;
        changes
    }

    /// All that there is, for somebody who knows nothing.
    pub fn everything(&mut self) -> Vec<StoreChange> {
        self.serving.clear();
        let ids: Vec<u32> = self.volumes.iter().map(|(id, _)| id).collect();
        let mut changes = self.tell(ids);
        changes.extend(self.tell_service());
        changes
    }

    /// Where a shard is listed; empty if nowhere.
    pub fn homes(&self, volume: u32, shard: u8) -> Vec<Home> {
        let current = self.volumes.get(volume).and_then(current);
        current.and_then(|generation| generation.homes.get(&shard).cloned()).unwrap_or_default()
    }

    /// Whether every shard of a volume is listed.
    pub fn is_whole(&self, volume: u32) -> bool {
        let standing = self.volumes.get(volume).map(Volume::standing);
        matches!(standing, Some(Standing::Known { missing, .. }) if missing.is_empty())
    }

    /// Whether a server has a shard, or had it last.
    pub fn is_home(&self, volume: u32, shard: u8, server: &ServerId) -> bool {
        let Some(generation) = self.volumes.get(volume).and_then(current) else { return false };
        let mut homes =
            generation.homes.get(&shard).into_iter().flatten().chain(generation.former.get(&shard));
        homes.any(|home| home.server == *server)
    }

    /// Whether a server has shards of a volume mounted, of whatever encoding.
    pub fn serves(&self, volume: u32, server: &ServerId) -> bool {
        let generations = self.volumes.get(volume).into_iter().flat_map(|volume| volume.generations.values());
        generations
            .flat_map(|generation| generation.homes.values().flatten())
            .any(|home| home.server == *server)
    }

    /// How many shards of all volumes each connected server has.
    pub fn shards_at(&self, server: &ServerId) -> usize {
        let generations = self.volumes.iter().flat_map(|(_, volume)| volume.generations.values());
        generations
            .flat_map(|generation| generation.homes.values().flatten())
            .filter(|home| home.server == *server)
            .count()
    }

    /// Volumes that are not told, since it is not known how they stand.
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
                // What has just come is read a moment later.
                (self.unread.get(&(id, encoding))?.clone(), UNREAD_NEXT.to_owned())
            }
        };
        let shards: BTreeSet<u8> =
            volume.generations.values().flat_map(|generation| generation.homes.keys().copied()).collect();
        let blocks = shards.into_iter().map(|shard| ShardName { volume: name.clone(), shard }.block_id());
        Some(Unjudged { stripe: StripeId(name.to_string()), blocks: blocks.collect(), why, next_step })
    }

    /// Volumes that are told, beside which shards of other encodings are served, a line for each.
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
                "beside volume {name}, shards of another encoding are served: {}; {LEFT_OVER_NEXT}",
                found.join("; ")
            );
            (!found.is_empty()).then_some(line)
        };
        self.volumes.iter().filter_map(of).collect()
    }
}

const MIXED_NEXT: &str = "find out which encoding has the data that counts (encodeTsNs in the .vif beside the shards is when \
    it was made), move the files of the other one out of the servers' folders, and restart these servers";
const UNREAD_NEXT: &str = "look at the .vif of the volume on the servers that have its shards";
const LEFT_OVER_NEXT: &str = "if these servers have no .vif of the volume that counts beside the shards, restart them once it is \
    there; otherwise move these shards out of their folders and restart the servers";

/// Which encodings of a volume are there, and where.
fn mixed(volume: &Volume) -> String {
    let generations = volume.generations.iter().filter(|(_, generation)| !generation.homes.is_empty());
    let found: Vec<String> =
        generations.map(|(encoding, it)| format!("encodeTsNs {}: {}", encoding.0, listed(it))).collect();
    format!(
        "it has shards of several encodings, and none of them, or more than one, can be read ({})",
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

/// The encoding that counts.
fn current(volume: &Volume) -> Option<&Generation> {
    match volume.standing() {
        Standing::Known { encoding, .. } => volume.generations.get(&encoding),
        Standing::Mixed(_) | Standing::RatioUnknown(_) => None,
    }
}

/// A block's volume and shard.
pub(super) fn shard_of(block: &BlockId) -> Option<ShardName> {
    block.0.parse().ok()
}

/// A block index as SeaweedFS numbers shards.
pub(super) fn shard_number(index: BlockIndex) -> u8 {
    u8::try_from(index.0).expect("SeaweedFS has at most 32 shards")
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
