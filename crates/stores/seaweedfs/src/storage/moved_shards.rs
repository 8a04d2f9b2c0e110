//! Finds the copies of corrupt shards that SeaweedFS has made, for example to move shards with `ec.balance` or
//! `volumeServer.evacuate`. It copies the bytes as they are, so these copies are corrupt too. Pure: this module calls
//! no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::BlockState;

use super::marks::Marks;
use super::server_nodes::ServerNodes;
use super::view::Lost;
use crate::blocks::{Encoding, VolumeName};
use crate::listing::ServerId;
use crate::volumes::{Change, Generation, Home, Volumes};

/// A copy of a shard: its volume, encoding, number and node.
pub(super) type Copied = (StripeId, Encoding, BlockIndex, NodeId);

/// Shards that Mend unmounts on a server for a moment, by volume and server. When they are listed there again, they
/// are the copies that the server had before.
#[derive(Default)]
pub(super) struct BriefUnmounts(BTreeMap<(u32, ServerId), BriefUnmount>);

struct BriefUnmount {
    shards: BTreeSet<u8>,
    /// Whether Mend has tried to mount the shards again. The master may list them later.
    is_over: bool,
}

impl BriefUnmounts {
    /// Records that Mend begins to unmount these shards.
    pub fn begin(&mut self, volume: u32, server: &ServerId, shards: &[u8]) {
        let key = (volume, server.clone());
        let none = || BriefUnmount { shards: BTreeSet::new(), is_over: false };
        let unmount = self.0.entry(key).or_insert_with(none);
        unmount.is_over = false;
        unmount.shards.extend(shards);
    }

    /// Records that Mend has mounted a server's shards again, except those that `failed`. If these are listed later, they
    /// may be other copies.
    pub fn end<T>(&mut self, volume: u32, server: &ServerId, failed: &BTreeMap<u8, T>) {
        if let Some(unmount) = self.0.get_mut(&(volume, server.clone())) {
            unmount.shards.retain(|shard| !failed.contains_key(shard));
            unmount.is_over = true;
        }
    }

    /// Forgets shards that are mounted and listed again, and volumes that do not exist any more.
    pub fn forget_listed(&mut self, volumes: &Volumes) {
        self.0.retain(|(volume, server), unmount| {
            if unmount.is_over {
                unmount.shards.retain(|&shard| volumes.encodings_at(*volume, shard, server).is_empty());
            }
            !unmount.shards.is_empty() && volumes.may_exist(*volume)
        });
    }

    fn contains(&self, volume: u32, shard: u8, server: &ServerId) -> bool {
        self.0.get(&(volume, server.clone())).is_some_and(|unmount| unmount.shards.contains(&shard))
    }
}

/// The changes of a listing, by shard and server.
#[derive(Default)]
struct News<'c> {
    came: BTreeSet<(Lost, &'c ServerId)>,
    went: BTreeMap<Lost, Vec<&'c ServerId>>,
    connected: BTreeSet<&'c ServerId>,
}

impl<'c> News<'c> {
    fn of(changes: &'c [Change]) -> Self {
        let mut news = Self::default();
        for change in changes {
            match change {
                Change::ServerCame(server) => drop(news.connected.insert(server)),
                Change::ServerWent(_) => {}
                Change::ShardCame { volume, encoding, shard, home } => {
                    news.came.insert(((*volume, *encoding, *shard), &home.server));
                }
                Change::ShardWent { volume, encoding, shard, home, .. } => {
                    news.went.entry((*volume, *encoding, *shard)).or_default().push(&home.server);
                }
            }
        }
        news
    }

    /// Returns the servers that were listed with a shard before.
    fn before<'s>(&'s self, generation: &'s Generation, shard: Lost) -> BTreeSet<&'s ServerId> {
        let listed = generation.homes.get(&shard.2).into_iter().flatten().map(|home: &Home| &home.server);
        let stayed = listed.filter(|server| !self.came.contains(&(shard, *server)));
        stayed.chain(self.went.get(&shard).into_iter().flatten().copied()).collect()
    }

    /// Whether a server may have had its copy of a shard for longer than it is listed, because the server returns. A
    /// master may list the server before its shards.
    fn may_return(&self, generation: &Generation, shard: u8, server: &ServerId) -> bool {
        self.connected.contains(server) || generation.origins.get(&shard) == Some(server)
    }
}

/// Returns the copies of a shard that an earlier coordinator has recorded on `from`, and that is listed only on other
/// servers now, if the recorded copy was corrupt. If `from` is not connected, its node is unknown, and any corrupt copy
/// on a server without the shard may have been the recorded one.
pub(super) fn copies_of_recorded(
    volumes: &Volumes,
    nodes: &ServerNodes,
    marks: &Marks,
    (volume, encoding, shard): Lost,
    from: &ServerId,
) -> Vec<Copied> {
    let homes = || {
        let known = volumes.get(volume)?;
        let homes = known.generations.get(&encoding)?.homes.get(&shard)?;
        Some((VolumeName::new(&known.collection, volume)?, homes))
    };
    let Some((name, homes)) = homes() else { return Vec::new() };
    let (stripe, index) = (StripeId(name.to_string()), BlockIndex(shard.into()));
    let holders: BTreeSet<NodeId> = homes.iter().filter_map(|home| nodes.node(&home.server)).collect();
    let may_be_recorded = |node: NodeId| nodes.node(from).is_none_or(|recorded| recorded == node);
    let corrupt = marks.corrupt_nodes(&stripe, encoding, index);
    if !corrupt.difference(&holders).any(|&node| may_be_recorded(node)) {
        return Vec::new();
    }
    holders.into_iter().map(|node| (stripe.clone(), encoding, index, node)).collect()
}

/// Returns the new copies of shards that had only corrupt copies before. `volumes` are those after the
/// changes.
pub(super) fn copies_of_corrupt(
    volumes: &Volumes,
    nodes: &ServerNodes,
    marks: &Marks,
    unmounts: &BriefUnmounts,
    changes: &[Change],
) -> Vec<Copied> {
    if marks.is_empty() {
        return Vec::new();
    }
    let news = News::of(changes);
    let new = |&(lost, server): &(Lost, &ServerId)| {
        let (volume, encoding, shard) = lost;
        let known = volumes.get(volume)?;
        let generation = known.generations.get(&encoding)?;
        let stripe = StripeId(VolumeName::new(&known.collection, volume)?.to_string());
        let (index, node) = (BlockIndex(shard.into()), nodes.node(server)?);
        let is_corrupt = |server: &&ServerId| {
            let state = |node| marks.state(&stripe, encoding, index, node);
            nodes.node(server).map(state) == Some(BlockState::Corrupt)
        };
        let before = news.before(generation, lost);
        let is_copy = !before.is_empty() && !before.contains(server) && before.iter().all(is_corrupt);
        let may_return =
            news.may_return(generation, shard, server) || unmounts.contains(volume, shard, server);
        (is_copy && !may_return).then_some((stripe, encoding, index, node))
    };
    news.came.iter().filter_map(new).collect()
}
