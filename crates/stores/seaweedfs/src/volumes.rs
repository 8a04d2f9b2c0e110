//! A model of all volumes, built from a sequence of listings.
//!
//! Pure: listings come in, changes go out. A listing contains only the shards that exist now. The model also
//! remembers the last location of a lost shard, so that a rebuilt shard can return there. Shards of two
//! encodings of a volume are never counted together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::blocks::{Encoding, Ratio};

use crate::listing::{Holding, Listing, Server, ServerId};

/// The location of a shard, current or former.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    /// The volume server.
    pub server: ServerId,
    /// The server's disk.
    pub disk: u32,
    /// The shard's length in bytes, as listed.
    pub bytes: u64,
}

/// A difference between two listings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A server connected.
    ServerCame(ServerId),
    /// A server disconnected.
    ServerWent(ServerId),
    /// A shard is listed at a new location, or with another length.
    ShardCame {
        /// The volume.
        volume: u32,
        /// The shard's encoding.
        encoding: Encoding,
        /// The shard's number.
        shard: u8,
        /// The shard's new location.
        home: Home,
    },
    /// A shard is no longer listed at a location, or not with this length.
    ShardWent {
        /// The volume.
        volume: u32,
        /// The shard's encoding.
        encoding: Encoding,
        /// The shard's number.
        shard: u8,
        /// The shard's former location.
        home: Home,
        /// Whether the server of the former location is still connected.
        server_is_up: bool,
    },
}

impl Change {
    /// Returns the volume that a change belongs to; `None` for changes of servers.
    pub fn volume(&self) -> Option<u32> {
        match self {
            Self::ServerCame(_) | Self::ServerWent(_) => None,
            Self::ShardCame { volume, .. } | Self::ShardWent { volume, .. } => Some(*volume),
        }
    }
}

/// One encoding of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Locations of each shard; several if there are duplicates.
    pub homes: BTreeMap<u8, Vec<Home>>,
    /// Last location of each shard that is listed nowhere.
    pub former: BTreeMap<u8, Home>,
    /// Original server of each shard that was rebuilt elsewhere. Other servers may still look for the shard
    /// on that server.
    pub origins: BTreeMap<u8, ServerId>,
    /// The numbers of data and parity shards, once read from a `.vif`, now or by an earlier coordinator.
    pub ratio: Option<Ratio>,
    /// Whether an earlier coordinator recorded locations of these shards.
    pub(crate) recalled: bool,
}

/// A volume with all its encodings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// The volume's collection.
    pub collection: String,
    /// The volume's encodings. There are several only while the volume is being encoded again, or if shards
    /// of an old encoding were left behind.
    pub generations: BTreeMap<Encoding, Generation>,
}

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There are several encodings, and the current one cannot be determined: either none is readable, or
    /// more than one may be. No repair starts until an operator decides which encoding to keep, or which one
    /// Mend need not wait for (`abandoned_encodings`).
    Mixed(Vec<Encoding>),
    /// The numbers of data and parity shards have not been read yet.
    RatioUnknown(Encoding),
    /// The current encoding and its ratio are known.
    Known {
        /// The current encoding.
        encoding: Encoding,
        /// The numbers of data and parity shards.
        ratio: Ratio,
        /// Shards that are listed nowhere.
        missing: Vec<u8>,
        /// Shards that are listed in several places.
        surplus: Vec<u8>,
        /// Other encodings that have shards left.
        foreign: Vec<Encoding>,
        /// The number of further losses that the volume tolerates; below 0 if data is lost.
        spare: i16,
    },
}

/// Recorded locations of the shards of an encoding that is not listed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub collection: String,
    pub homes: BTreeMap<u8, Home>,
    pub origins: BTreeMap<u8, ServerId>,
    /// `None` in records of earlier versions, or if no `.vif` was read.
    pub ratio: Option<Ratio>,
}

/// All volumes, according to the last listing.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    listed: Listing,
    volumes: BTreeMap<u32, Volume>,
    /// Locations that an earlier coordinator recorded; kept here until the volume is listed.
    kept: BTreeMap<(u32, Encoding), Kept>,
    /// Shards that have moved since an earlier coordinator recorded their servers; see
    /// [`take_unseen_moves`](Self::take_unseen_moves).
    unseen_moves: Vec<(u32, Encoding, u8, ServerId)>,
}

type Key = (u32, Encoding, u8, ServerId, u32);

impl Volumes {
    /// Applies a full listing, and returns the differences from the previous one.
    pub fn apply(&mut self, listing: Listing) -> Vec<Change> {
        let volumes = self.volumes.keys().chain(listing.volumes.keys()).copied().collect();
        let changes = changes(&self.listed, &listing);
        self.take_homes(&volumes, &listing.volumes);
        self.listed = listing;
        changes
    }

    /// Applies a partial listing of all servers and of these volumes, and returns the differences from the previous
    /// listing. Takes time for these volumes only: in a large cluster, each repair lists its volume several times.
    pub(crate) fn apply_part(&mut self, volumes: &BTreeSet<u32>, mut part: Listing) -> Vec<Change> {
        part.volumes.retain(|volume, _| volumes.contains(volume));
        self.add_other_plain_volumes(volumes, &mut part);
        let of = |id: &u32| Some((*id, self.listed.volumes.remove(id)?));
        let before = Listing {
            volumes: volumes.iter().filter_map(of).collect(),
            servers: std::mem::take(&mut self.listed.servers),
            ..Listing::default()
        };
        let changes = changes(&before, &part);
        self.take_homes(volumes, &part.volumes);
        self.listed.servers = part.servers;
        self.listed.partial = part.partial;
        self.listed.volumes.extend(part.volumes);
        changes
    }

    /// Adds the ordinary volumes that a partial listing leaves out, as they were listed before: a master filters these
    /// volumes too.
    fn add_other_plain_volumes(&self, volumes: &BTreeSet<u32>, part: &mut Listing) {
        let (before, none) = (&self.listed, BTreeSet::new());
        for (id, server) in &mut part.servers {
            let others = before.servers.get(id).map_or(&none, |server| &server.plain_volumes);
            server.set_other_plain_volumes(volumes, others);
        }
        let is_partial = |id: &&ServerId| before.partial.contains(*id) || !before.servers.contains_key(*id);
        part.partial = part.servers.keys().filter(is_partial).cloned().collect();
    }

    /// Replaces the parts of a listing that were listed again since it was requested: all servers, with the shards on
    /// servers that have left, and these volumes. Other ordinary volumes stay, because the later listings lack them.
    pub(crate) fn bring_up_to_date(&self, listing: &mut Listing, newer: &BTreeSet<u32>) {
        listing.volumes.retain(|volume, _| !newer.contains(volume));
        let listed =
            newer.iter().filter_map(|volume| Some((*volume, self.listed.volumes.get(volume)?.clone())));
        listing.volumes.extend(listed);
        let own = std::mem::replace(&mut listing.servers, self.listed.servers.clone());
        for (id, server) in &mut listing.servers {
            if let Some(own) = own.get(id) {
                server.set_other_plain_volumes(newer, &own.plain_volumes);
            }
        }
        let partial = self.listed.partial.iter().filter(|id| !own.contains_key(*id));
        listing.partial = partial.cloned().collect();
        let servers = &listing.servers;
        listing
            .volumes
            .values_mut()
            .for_each(|holdings| holdings.retain(|it| servers.contains_key(&it.server)));
        listing.volumes.retain(|_, holdings| !holdings.is_empty());
    }

    /// Stores the recorded locations of an encoding's shards until the encoding is listed.
    pub(crate) fn recall(&mut self, volume: u32, encoding: Encoding, kept: Kept) {
        self.kept.insert((volume, encoding), kept);
    }

    /// Returns the recorded encodings of volumes that no server has listed since the coordinator's start, and that
    /// may still exist: [`drop_deleted`](Self::drop_deleted) has not dropped them.
    pub(crate) fn out_of_sight(&self) -> impl Iterator<Item = (u32, Encoding, &Kept)> {
        self.kept
            .iter()
            .filter(|((id, _), _)| !self.volumes.contains_key(id))
            .map(|(&(id, encoding), kept)| (id, encoding, kept))
    }

    /// Returns the last known location of every shard that no server lists.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = (u32, Encoding, u8, &Home)> {
        let known = self.volumes.iter().flat_map(|(&id, volume)| {
            volume.generations.iter().map(move |(&encoding, generation)| (id, encoding, &generation.former))
        });
        let unseen = self.kept.iter().filter(|((id, _), _)| !self.volumes.contains_key(id));
        let unseen = unseen.map(|(&(id, encoding), kept)| (id, encoding, &kept.homes));
        known.chain(unseen).flat_map(|(id, encoding, homes)| {
            homes.iter().map(move |(&shard, home)| (id, encoding, shard, home))
        })
    }

    /// Records that a server is listed under another ID than before: the shards that it had, and that no server lists,
    /// are sought under the new ID.
    pub(crate) fn rename_server(&mut self, former: &ServerId, server: &ServerId) {
        for generation in self.volumes.values_mut().flat_map(|volume| volume.generations.values_mut()) {
            rename((former, server), &mut generation.former, &mut generation.origins);
        }
        for kept in self.kept.values_mut() {
            rename((former, server), &mut kept.homes, &mut kept.origins);
        }
        for (.., from) in self.unseen_moves.iter_mut().filter(|(.., from)| from == former) {
            from.clone_from(server);
        }
    }

    /// Returns the shards that were first listed on other servers than the recorded one since the last call, each with
    /// the recorded server.
    pub(crate) fn take_unseen_moves(&mut self) -> Vec<(u32, Encoding, u8, ServerId)> {
        std::mem::take(&mut self.unseen_moves)
    }

    /// Sets the ratio of an encoding, as read from a `.vif`.
    pub fn tell_ratio(&mut self, volume: u32, encoding: Encoding, ratio: Ratio) {
        let volume = self.volumes.get_mut(&volume);
        if let Some(generation) = volume.and_then(|volume| volume.generations.get_mut(&encoding)) {
            generation.ratio = Some(ratio);
        }
    }

    /// Returns the connected servers.
    pub fn servers(&self) -> &BTreeMap<ServerId, Server> {
        &self.listed.servers
    }

    /// Returns the connected servers whose ordinary volumes are known in part.
    pub(crate) fn partly_listed(&self) -> &BTreeSet<ServerId> {
        &self.listed.partial
    }

    /// Returns all volumes in the order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Volume)> {
        self.volumes.iter().map(|(&id, volume)| (id, volume))
    }

    /// Returns the volume with this ID.
    pub fn get(&self, volume: u32) -> Option<&Volume> {
        self.volumes.get(&volume)
    }

    /// Returns the current encoding of a volume, with its ratio and shards; `None` if encoding or ratio is
    /// unknown.
    pub(crate) fn known(&self, volume: u32) -> Option<(Encoding, Ratio, &Generation)> {
        let volume = self.get(volume)?;
        let Standing::Known { encoding, ratio, .. } = volume.standing() else { return None };
        Some((encoding, ratio, &volume.generations[&encoding]))
    }

    /// Returns the encodings under which a server is listed for a shard.
    pub(crate) fn encodings_at(&self, volume: u32, shard: u8, server: &ServerId) -> Vec<Encoding> {
        let generations = self.get(volume).into_iter().flat_map(|volume| &volume.generations);
        let at_server = generations.filter(|(_, generation)| generation.is_at(shard, server));
        at_server.map(|(&encoding, _)| encoding).collect()
    }

    /// Returns the connected servers that hold shards of the current encoding.
    pub(crate) fn holders_of(&self, volume: u32) -> Vec<ServerId> {
        let Some((_, _, generation)) = self.known(volume) else { return Vec::new() };
        let servers: BTreeSet<&ServerId> = generation.all_homes().map(|home| &home.server).collect();
        servers.into_iter().filter(|server| self.servers().contains_key(*server)).cloned().collect()
    }

    /// Returns how many shards a volume can lose and stay readable; below 0 if it is unreadable, `None` if its
    /// encoding or ratio is unknown. Only listed copies count for which `counts` returns true.
    pub(crate) fn spare(&self, volume: u32, counts: impl Fn(u8, &Home) -> bool) -> Option<i16> {
        let (_, ratio, generation) = self.known(volume)?;
        // A server may list a shard number that the ratio does not have, such as a file left from another one.
        let real = generation.homes.iter().filter(|&(&shard, _)| shard < ratio.total());
        let there = real.filter(|&(&shard, homes)| homes.iter().any(|home| counts(shard, home))).count();
        Some(there as i16 - i16::from(ratio.data()))
    }

    /// Returns the locations where a shard of the current encoding is listed.
    pub(crate) fn homes(&self, volume: u32, shard: u8) -> Vec<Home> {
        let known = self.known(volume);
        known.and_then(|(_, _, generation)| generation.homes.get(&shard).cloned()).unwrap_or_default()
    }

    /// Whether a server has a volume as an ordinary volume, and too few shards of its last encoding are listed to read
    /// it. Either the shards are left over from before the volume was decoded, or the ordinary volume is left over
    /// from before it was encoded.
    pub(crate) fn is_both(&self, volume: u32) -> bool {
        let standing = self.get(volume).map(Volume::standing);
        matches!(standing, Some(Standing::Known { spare, .. }) if spare < 0)
            && self.servers().values().any(|server| server.plain_volumes.contains(&volume))
    }

    /// Returns the volumes that are ordinary volumes as well; see [`is_both`](Self::is_both).
    pub(crate) fn both(&self) -> BTreeSet<u32> {
        let plain = self.servers().values().flat_map(|server| &server.plain_volumes);
        let known: BTreeSet<u32> = plain.copied().filter(|id| self.volumes.contains_key(id)).collect();
        known.into_iter().filter(|&id| self.is_both(id)).collect()
    }

    /// Whether every shard of a volume is listed.
    pub(crate) fn is_whole(&self, volume: u32) -> bool {
        let standing = self.get(volume).map(Volume::standing);
        matches!(standing, Some(Standing::Known { missing, .. }) if missing.is_empty())
    }

    /// Whether a server holds a shard, or was the last to hold it.
    pub(crate) fn is_home(&self, volume: u32, shard: u8, server: &ServerId) -> bool {
        let Some((_, _, generation)) = self.known(volume) else { return false };
        let was_there = || generation.former.get(&shard).is_some_and(|home| home.server == *server);
        generation.is_at(shard, server) || was_there()
    }

    /// Returns the shards of the current encoding that a server has mounted, by disk.
    pub(crate) fn shards_by_disk(&self, volume: u32, server: &ServerId) -> BTreeMap<u32, Vec<u8>> {
        let mut disks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let generation = self.known(volume).map(|(_, _, generation)| generation);
        for (&shard, homes) in generation.into_iter().flat_map(|generation| &generation.homes) {
            for home in homes.iter().filter(|home| home.server == *server) {
                disks.entry(home.disk).or_default().push(shard);
            }
        }
        disks
    }

    /// Whether a connected server has several disks.
    pub(crate) fn has_several_disks(&self, server: &ServerId) -> bool {
        self.servers().get(server).is_some_and(|server| server.disks.len() > 1)
    }

    /// Whether a volume is known or was recorded: it may exist although no server lists it.
    pub(crate) fn may_exist(&self, volume: u32) -> bool {
        self.volumes.contains_key(&volume) || self.kept.keys().any(|&(id, _)| id == volume)
    }

    /// Whether a server has mounted shards of a volume, of any encoding.
    pub(crate) fn serves(&self, volume: u32, server: &ServerId) -> bool {
        self.get(volume).is_some_and(|volume| volume.all_homes().any(|home| home.server == *server))
    }

    /// Whether a server has mounted shards of an encoding of a volume other than the current one.
    pub(crate) fn serves_another_encoding(&self, volume: u32, server: &ServerId) -> bool {
        let Some(volume) = self.get(volume) else { return false };
        let current = volume.current().map(|(encoding, _)| encoding);
        let mut others = volume.generations.iter().filter(|(encoding, _)| Some(**encoding) != current);
        others.any(|(_, generation)| generation.all_homes().any(|home| home.server == *server))
    }

    /// Whether a server serves shards of the current encoding only, and has a disk without shards of the volume. It may
    /// return metadata files that another encoding has left on that disk, instead of those beside its shards.
    pub(crate) fn has_idle_disk(&self, volume: u32, server: &ServerId) -> bool {
        let used = self.shards_by_disk(volume, server).len();
        let disks = self.servers().get(server).map_or(0, |server| server.disks.len());
        used > 0 && used < disks && !self.serves_another_encoding(volume, server)
    }

    /// Returns the volumes of which a server has shards of any encoding.
    pub(crate) fn volumes_at(&self, server: &ServerId) -> impl Iterator<Item = u32> {
        let all = self.iter();
        all.filter(move |(_, volume)| volume.all_homes().any(|home| home.server == *server)).map(|(id, _)| id)
    }

    /// Whether a volume exists but no longer in this encoding.
    pub(crate) fn is_replaced(&self, volume: u32, encoding: Encoding) -> bool {
        self.get(volume).is_some_and(|it| !it.generations.contains_key(&encoding))
            && !self.kept.contains_key(&(volume, encoding))
    }

    /// Returns the connected servers that have or had shards of the current encoding.
    pub(crate) fn witnesses_of(&self, volume: u32) -> BTreeSet<ServerId> {
        let Some((_, _, generation)) = self.known(volume) else { return BTreeSet::new() };
        let homes = generation.all_homes().chain(generation.former.values()).map(|home| &home.server);
        let all = homes.chain(generation.origins.values());
        all.filter(|server| self.servers().contains_key(*server)).cloned().collect()
    }

    /// Returns the number of shards of all volumes on a server.
    pub(crate) fn shards_at(&self, server: &ServerId) -> usize {
        let homes = self.volumes.values().flat_map(Volume::all_homes);
        homes.filter(|home| home.server == *server).count()
    }

    /// Moves the shards of these volumes to the locations at which they are listed now.
    fn take_homes(&mut self, volumes: &BTreeSet<u32>, listed: &BTreeMap<u32, Vec<Holding>>) {
        let mut before = BTreeMap::new();
        for &id in volumes {
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            for (&encoding, generation) in &mut volume.generations {
                let gone = std::mem::take(&mut generation.homes);
                let listed: BTreeSet<u8> = gone.keys().copied().collect();
                let last =
                    gone.into_iter().filter_map(|(shard, homes)| Some((shard, homes.into_iter().next()?)));
                generation.former.extend(last);
                before.insert((id, encoding), (generation.former.clone(), listed));
            }
        }
        for (&id, holdings) in listed {
            let volume = self.volumes.entry(id).or_default();
            holdings.iter().for_each(|holding| volume.take(holding));
            for (&encoding, generation) in &mut volume.generations {
                let (before, listed) = before.remove(&(id, encoding)).unwrap_or_default();
                generation.note_moves(before, &listed);
            }
            // Another encoding than the listed ones may be the current one, too: its servers may be down.
            for ((_, encoding), kept) in self.kept.extract_if(kept_of(id), |_, _| true) {
                if volume.generations.contains_key(&encoding) || !kept.homes.is_empty() {
                    let generation = volume.generations.entry(encoding).or_default();
                    let moved = generation.moved_since(&kept);
                    self.unseen_moves.extend(moved.map(|(shard, from)| (id, encoding, shard, from)));
                    generation.recall(kept);
                }
            }
        }
    }

    /// Drops encodings without any listed shard, also recorded ones. An encoding is dropped only if the last servers
    /// of most of its shards are connected, `is_gone` returns true for every shard whose last server is connected, and
    /// the other shards are too few to read it. This confirmation is needed because a restarted server or master lists
    /// shards with a delay, and because after the election of a master, servers connect one after another.
    pub(crate) fn drop_deleted(&mut self, is_gone: impl Fn(u32, Encoding, u8) -> bool) {
        let servers = &self.listed.servers;
        let is_deleted = |id: u32, encoding: Encoding, last: &BTreeMap<u8, Home>, ratio: Option<Ratio>| {
            let connected = last.iter().filter(|(_, home)| servers.contains_key(&home.server));
            let told: Vec<bool> = connected.map(|(&shard, _)| is_gone(id, encoding, shard)).collect();
            let silent = last.len() - told.len();
            told.len() > silent && silent < needed(ratio) && told.into_iter().all(|gone| gone)
        };
        for (&id, volume) in &mut self.volumes {
            volume.generations.retain(|&encoding, generation| {
                !(generation.homes.is_empty()
                    && is_deleted(id, encoding, &generation.former, generation.ratio))
            });
        }
        self.volumes.retain(|_, volume| !volume.generations.is_empty());
        let volumes = &self.volumes;
        self.kept.retain(|&(id, encoding), kept| {
            volumes.contains_key(&id) || !is_deleted(id, encoding, &kept.homes, kept.ratio)
        });
    }
}

impl Volume {
    fn take(&mut self, holding: &Holding) {
        self.collection.clone_from(&holding.collection);
        let generation = self.generations.entry(holding.encoding).or_default();
        for (&shard, &bytes) in &holding.shards {
            let home = Home { server: holding.server.clone(), disk: holding.disk, bytes };
            generation.homes.entry(shard).or_default().push(home);
            generation.former.remove(&shard);
        }
    }

    /// Returns the locations of all shards of all encodings.
    fn all_homes(&self) -> impl Iterator<Item = &Home> {
        self.generations.values().flat_map(Generation::all_homes)
    }

    /// Returns the volume's state.
    pub fn standing(&self) -> Standing {
        let Some((encoding, generation)) = self.current() else {
            return Standing::Mixed(self.generations.keys().copied().collect());
        };
        let Some(ratio) = generation.ratio else { return Standing::RatioUnknown(encoding) };
        let missing: Vec<u8> =
            (0..ratio.total()).filter(|shard| !generation.homes.contains_key(shard)).collect();
        let several = |(&shard, homes): (&u8, &Vec<Home>)| (homes.len() > 1).then_some(shard);
        Standing::Known {
            encoding,
            ratio,
            surplus: generation.homes.iter().filter_map(several).collect(),
            foreign: self.generations.keys().copied().filter(|&other| other != encoding).collect(),
            spare: i16::from(ratio.parity()) - missing.len() as i16,
            missing,
        }
    }

    /// Returns the current encoding: the only one or, if there are several, the readable one. Returns `None`
    /// if none of several is readable, or if another one might be readable too once its unlisted shards are
    /// listed again.
    pub(crate) fn current(&self) -> Option<(Encoding, &Generation)> {
        if self.generations.len() == 1 {
            return self.generations.first_key_value().map(|(&encoding, generation)| (encoding, generation));
        }
        let found = self.generations.iter().find(|(_, generation)| generation.is_readable());
        let current = found.map(|(&encoding, generation)| (encoding, generation))?;
        let mut rivals = self.generations.iter().filter(|&(&other, _)| other != current.0);
        rivals.all(|(&other, rival)| !rival.may_be_readable(other, current)).then_some(current)
    }
}

impl Generation {
    /// Returns the locations of all shards.
    fn all_homes(&self) -> impl Iterator<Item = &Home> {
        self.homes.values().flatten()
    }

    /// Whether a server is listed with a shard.
    fn is_at(&self, shard: u8, server: &ServerId) -> bool {
        self.homes.get(&shard).is_some_and(|homes| homes.iter().any(|home| home.server == *server))
    }

    /// Records the original servers of shards that now exist only on other servers. One listing may contain both a
    /// shard that was rebuilt elsewhere and the return of its server; that server is recorded too, unless another
    /// one is. `listed` are the shards that were listed before.
    fn note_moves(&mut self, before: BTreeMap<u8, Home>, listed: &BTreeSet<u8>) {
        for (shard, home) in before {
            let Some(homes) = self.homes.get(&shard) else { continue };
            if homes.iter().all(|other| other.server != home.server) {
                self.origins.insert(shard, home.server);
            } else if !listed.contains(&shard) && homes.iter().any(|other| other.server != home.server) {
                self.origins.entry(shard).or_insert(home.server);
            }
        }
    }

    /// Returns the shards that are listed, but not on their recorded servers, with these servers.
    fn moved_since(&self, kept: &Kept) -> impl Iterator<Item = (u8, ServerId)> {
        let homes = kept.homes.iter();
        let moved = homes
            .filter(|&(shard, home)| self.homes.contains_key(shard) && !self.is_at(*shard, &home.server));
        moved.map(|(&shard, home)| (shard, home.server.clone()))
    }

    /// Uses the recorded ratio until a `.vif` is read, and recorded locations for shards that no server lists.
    fn recall(&mut self, kept: Kept) {
        self.recalled = true;
        self.ratio = self.ratio.or(kept.ratio);
        for (shard, home) in kept.homes {
            if !self.homes.contains_key(&shard) {
                self.former.entry(shard).or_insert(home);
            }
        }
        for (shard, server) in kept.origins {
            self.origins.entry(shard).or_insert(server);
        }
    }

    /// Whether this encoding may have enough shards to be read, like the one that is `readable`. Shards that
    /// are not listed at the moment count. While the ratio is unknown, any shard may suffice. But the other
    /// encoding's ratio is assumed for shards that are probably left over:
    ///
    /// - Encoding 0 stands for shards without a `.vif`, so their ratio stays unknown.
    /// - A server may return with shards of an earlier encoding that was dropped. Otherwise, it would stop
    ///   repairs of the volume until its `.vif` is read, or for ever. This does not apply to encodings that
    ///   an earlier coordinator has recorded, because they may have been the current ones.
    fn may_be_readable(&self, encoding: Encoding, (readable, counts): (Encoding, &Self)) -> bool {
        let is_left_over = !encoding.is_known() || encoding < readable && !self.recalled;
        let ratio = self.ratio.or(counts.ratio.filter(|_| is_left_over));
        self.homes.len() + self.former.len() >= needed(ratio) // No shard is in both.
    }

    /// Whether enough shards are listed to read all data.
    pub fn is_readable(&self) -> bool {
        self.ratio.is_some_and(|ratio| {
            let there = self.homes.keys().filter(|&&shard| shard < ratio.total()).count();
            there >= usize::from(ratio.data())
        })
    }
}

/// Returns the number of shards without which an encoding of this ratio cannot be read; the least possible number
/// if the ratio is unknown.
fn needed(ratio: Option<Ratio>) -> usize {
    ratio.map_or(1, |ratio| ratio.data().into())
}

/// Replaces the former ID of a server in the locations of unlisted shards.
fn rename(
    (former, server): (&ServerId, &ServerId),
    homes: &mut BTreeMap<u8, Home>,
    origins: &mut BTreeMap<u8, ServerId>,
) {
    let of_homes = homes.values_mut().map(|home| &mut home.server);
    for id in of_homes.chain(origins.values_mut()).filter(|id| *id == former) {
        id.clone_from(server);
    }
}

/// Returns the keys of a volume's recorded encodings.
fn kept_of(volume: u32) -> RangeInclusive<(u32, Encoding)> {
    (volume, Encoding(i64::MIN))..=(volume, Encoding(i64::MAX))
}

/// Returns the differences between two listings.
fn changes(old: &Listing, new: &Listing) -> Vec<Change> {
    let (before, after) = (shards(old), shards(new));
    let mut changes = server_changes(old, new);
    for (key, bytes) in after.iter().filter(|(key, bytes)| before.get(*key) != Some(*bytes)) {
        let (volume, encoding, shard, home) = placed(key, *bytes);
        changes.push(Change::ShardCame { volume, encoding, shard, home });
    }
    for (key, bytes) in before.iter().filter(|(key, bytes)| after.get(*key) != Some(*bytes)) {
        let (volume, encoding, shard, home) = placed(key, *bytes);
        let server_is_up = new.servers.contains_key(&home.server);
        changes.push(Change::ShardWent { volume, encoding, shard, home, server_is_up });
    }
    changes
}

fn server_changes(before: &Listing, after: &Listing) -> Vec<Change> {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) =
        (before.servers.keys().collect(), after.servers.keys().collect());
    let came = new.difference(&old).map(|&id| Change::ServerCame(id.clone()));
    let went = old.difference(&new).map(|&id| Change::ServerWent(id.clone()));
    came.chain(went).collect()
}

fn shards(listing: &Listing) -> BTreeMap<Key, u64> {
    let mut shards = BTreeMap::new();
    for (&volume, holdings) in &listing.volumes {
        for holding in holdings {
            for (&shard, &bytes) in &holding.shards {
                shards.insert((volume, holding.encoding, shard, holding.server.clone(), holding.disk), bytes);
            }
        }
    }
    shards
}

fn placed(key: &Key, bytes: u64) -> (u32, Encoding, u8, Home) {
    let (volume, encoding, shard, server, disk) = key.clone();
    (volume, encoding, shard, Home { server, disk, bytes })
}

#[cfg(test)]
#[path = "volumes/tests.rs"]
mod tests;
