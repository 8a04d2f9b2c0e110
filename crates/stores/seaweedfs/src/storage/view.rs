//! Volumes as stripes: what is told of each, from what the master lists, what the volumes' files say and what was found bad.
//!
//! Pure: no master is asked here, and nothing is stored.

use std::collections::{BTreeMap, BTreeSet};

use attached::{BadCopies, CopyId};
use codes::{BlockIndex, CodeSpec, RsFamily};
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StoreChange, StripeRecord};

use super::encoding_files::{EncodingFiles, Known};
use super::server_nodes::ServerNodes;
use crate::blocks::{Encoding, Ratio, ShardName, VolumeName};
use crate::listing::{Listing, ServerId};
use crate::volumes::{Change, Generation, Home, Kept, Standing, Volumes};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct View {
    volumes: Volumes,
    files: EncodingFiles,
    nodes: ServerNodes,
    /// Copies that are not what they should be.
    bad: BadCopies,
    /// Shards that are listed nowhere, of which the server that had them said that it has them no more.
    confirmed: BTreeSet<(u32, Encoding, u8)>,
    told: BTreeMap<u32, StripeId>,
}

/// What a server that has mounted a shard should say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub encoding: Encoding,
    pub ratio: Ratio,
    pub shard_bytes: u64,
}

impl View {
    /// The volumes as they are listed.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// What the files of encodings say.
    pub fn files(&self) -> &EncodingFiles {
        &self.files
    }

    /// The numbers of servers.
    pub fn nodes(&self) -> &ServerNodes {
        &self.nodes
    }

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
        self.files.retain_listed(&self.volumes);
        changes
    }

    /// Takes in a listing of some volumes alone.
    pub fn list_some(&mut self, volumes: &[u32], part: Listing) -> Vec<Change> {
        let whole = self.volumes.with(volumes, part);
        self.list(whole)
    }

    /// Servers that are connected and have no number.
    pub fn unnumbered(&self) -> Vec<ServerId> {
        self.nodes.unnumbered(self.volumes.servers())
    }

    /// See [`ServerNodes::number`].
    pub fn number(&mut self, server: ServerId, node: NodeId) {
        self.nodes.number(server, node);
    }

    /// See [`ServerNodes::forget`].
    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.forget(node);
    }

    /// Takes in what the files of an encoding say.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.volumes.tell_ratio(volume, encoding, known.ratio);
        self.files.learn(volume, encoding, known);
    }

    /// See [`EncodingFiles::note_unread`].
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.files.note_unread(volume, encoding, why)
    }

    /// What a server should say of a shard of a volume that it has mounted.
    pub fn expected(&self, volume: u32) -> Option<Expected> {
        let (encoding, ratio, _) = self.volumes.known(volume)?;
        let shard_bytes = self.files.get(volume, encoding)?.shard_bytes;
        Some(Expected { encoding, ratio, shard_bytes })
    }

    /// The name of a volume that is known, and what servers should say of its shards.
    pub fn named(&self, volume: u32) -> Option<(VolumeName, Expected)> {
        let collection = &self.volumes.get(volume)?.collection;
        Some((VolumeName::new(collection, volume)?, self.expected(volume)?))
    }

    /// The number of the volume that a stripe is.
    pub fn volume_of(&self, stripe: &StripeId) -> Option<u32> {
        let name: VolumeName = stripe.0.parse().ok()?;
        let there = self.volumes.get(name.id())?;
        (there.collection == name.collection()).then_some(name.id())
    }

    /// Notes how a copy is.
    pub fn set_state(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId, state: BlockState) {
        self.bad.set(stripe, index, node, state);
    }

    /// See [`BadCopies::take_gone`].
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        self.bad.take_gone()
    }

    /// A volume as a stripe; `None` while it is not known what should be there.
    pub fn stripe(&self, id: u32) -> Option<StripeRecord> {
        let volume = self.volumes.get(id)?;
        let Standing::Known { encoding, ratio, .. } = volume.standing() else { return None };
        let known = self.files.get(id, encoding)?;
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
            let holder = |home: &Home| Some(Replica { node: self.nodes.node(&home.server)?, state });
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
        let holder = |home: &Home| {
            let node = self.nodes.node(&home.server)?;
            let found = self.bad.state(stripe, BlockIndex(shard.into()), node);
            // Older masters list no lengths.
            let is_short = home.bytes != 0 && home.bytes != known.shard_bytes;
            let listed = if is_short { BlockState::Corrupt } else { BlockState::Healthy };
            Some(Replica { node, state: if found == BlockState::Healthy { listed } else { found } })
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
        self.files.retain_listed(&self.volumes);
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
                self.bad.remove_stripe(&before);
                changes.push(StoreChange::StripeGone(before));
            }
            if let Some(stripe) = stripe {
                self.told.insert(id, stripe.id.clone());
                changes.push(StoreChange::Stripe(stripe, false));
            }
        }
        changes
    }

    /// See [`ServerNodes::tell_service`].
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        self.nodes.tell_service(self.volumes.servers())
    }

    /// All that there is, for somebody who knows nothing.
    pub fn everything(&mut self) -> Vec<StoreChange> {
        self.nodes.reset_service();
        let ids: Vec<u32> = self.volumes.iter().map(|(id, _)| id).collect();
        let mut changes = self.tell(ids);
        changes.extend(self.tell_service());
        changes
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
