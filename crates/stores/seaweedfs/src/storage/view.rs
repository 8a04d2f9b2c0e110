//! Maps volumes to stripes, from the master's listing, the volumes' own files, and the copies that were found
//! missing or corrupt.
//!
//! Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use attached::{CopyId, CopyState};
use codes::{BlockIndex, CodeSpec, RsFamily};
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, OtherData, Replica, StoreChange, StripeRecord};

use super::encoding_files::{Doubted, EncodingFiles, Known};
use super::marks::{self, Marks};
use super::moved_shards::{BriefUnmounts, copies_of_corrupt, copies_of_recorded};
use super::parity_verdicts;
use super::server_nodes::ServerNodes;
use super::unlisted_shards::UnlistedShards;
use crate::blocks::{Encoding, Ratio, ShardName, VolumeName};
use crate::listing::{Listing, ServerId};
use crate::volumes::{Change, Generation, Home, Kept, Standing, Volumes};

/// The model that maps volumes to stripes; see the module's documentation.
#[derive(Default)]
pub(super) struct ClusterView {
    volumes: Volumes,
    files: EncodingFiles,
    nodes: ServerNodes,
    /// Copies that were found corrupt or missing.
    marks: Marks,
    /// Copies that Mend is putting into service. They are rebuilt or were found, so they are no copies of corrupt ones.
    publishing: BTreeSet<CopyId>,
    /// Shards that Mend unmounts for a moment, so they are no copies of corrupt ones either.
    unmounts: BriefUnmounts,
    /// Lost shards whose last server has confirmed the loss.
    confirmed: BTreeSet<Lost>,
    /// Lost shards whose last server is connected and has not confirmed the loss.
    pub unlisted: UnlistedShards,
    told: BTreeMap<u32, Told>,
    /// Stripes that were encoded again since an earlier coordinator; reported to the first listener.
    encoded_again: BTreeSet<StripeId>,
    has_listener: bool,
}

/// A shard that no server lists: its volume, encoding and number.
pub(super) type Lost = (u32, Encoding, u8);

/// A stripe as last reported, or as an earlier coordinator knew it.
struct Told {
    stripe: StripeId,
    encoding: Encoding,
    /// Whether the stripe was reported, and not reported as gone since.
    is_listed: bool,
}

/// The facts that a server must report about a mounted shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub encoding: Encoding,
    pub ratio: Ratio,
    pub shard_bytes: u64,
}

impl ClusterView {
    /// Returns the volumes as the master lists them.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Returns the parsed `.vif` and `.ecsum` files of the encodings.
    pub fn files(&self) -> &EncodingFiles {
        &self.files
    }

    /// Returns the node numbers of servers.
    pub fn nodes(&self) -> &ServerNodes {
        &self.nodes
    }

    /// Loads the encoding in which an earlier coordinator last reported a volume, also if its locations are not
    /// loaded: what is recorded of the stripe is of this encoding.
    pub fn recall_told(&mut self, volume: u32, encoding: Encoding, collection: &str) {
        if let Some(name) = VolumeName::new(collection, volume) {
            let stripe = StripeId(name.to_string());
            self.told.insert(volume, Told { stripe, encoding, is_listed: false });
        }
    }

    /// Loads recorded locations of an encoding's shards.
    pub fn recall(&mut self, volume: u32, encoding: Encoding, kept: Kept) {
        self.volumes.recall(volume, encoding, kept);
    }

    /// Loads a recorded state of a copy.
    pub fn recall_mark(&mut self, (name, index, node, state): CopyState) {
        let Some((volume, encoding)) = marks::parse(&name) else { return };
        // A record without an encoding is of the encoding that was known when it was written.
        let recorded = || self.told.get(&volume.id()).map(|told| told.encoding);
        let Some(encoding) = encoding.or_else(recorded) else { return };
        self.marks.set(&StripeId(volume.to_string()), encoding, index, node, state);
    }

    /// Applies a listing. The caller must assign IDs to [`unnumbered`](Self::unnumbered) servers before it
    /// calls [`tell`](Self::tell).
    pub fn list(&mut self, listing: Listing) -> Vec<Change> {
        let changes = self.volumes.apply(listing);
        self.forget_found();
        self.follow_moves(&changes);
        changes
    }

    /// Applies a partial listing, which contains only these volumes.
    pub fn list_some(&mut self, volumes: &[u32], part: Listing) -> Vec<Change> {
        let changes = self.volumes.apply_part(&volumes.iter().copied().collect(), part);
        self.forget_found();
        self.follow_moves(&changes);
        changes
    }

    /// Marks the copies that SeaweedFS, and not Mend, has made of corrupt shards.
    fn follow_moves(&mut self, changes: &[Change]) {
        let copies = copies_of_corrupt(&self.volumes, &self.nodes, &self.marks, &self.unmounts, changes);
        for (stripe, encoding, index, node) in copies {
            let copy = (stripe, index, node);
            if !self.publishing.contains(&copy) {
                self.marks.infer_corrupt(&copy.0, encoding, index, node);
            }
        }
        self.unmounts.forget_listed(&self.volumes);
    }

    /// Records that Mend begins to put a copy of a shard into service.
    pub fn begin_publication(&mut self, copy: CopyId) {
        self.publishing.insert(copy);
    }

    /// Records that the publication of a copy has ended, with success or not.
    pub fn end_publication(&mut self, copy: &CopyId) {
        self.publishing.remove(copy);
    }

    /// Records that Mend begins to unmount shards of a server for a moment.
    pub fn begin_unmount(&mut self, volume: u32, server: &ServerId, shards: &[u8]) {
        self.unmounts.begin(volume, server, shards);
    }

    /// Records that Mend has mounted a server's shards again, except those that `failed`. The master may list them later.
    pub fn end_unmount<T>(&mut self, volume: u32, server: &ServerId, failed: &BTreeMap<u8, T>) {
        self.unmounts.end(volume, server, failed);
    }

    /// Forgets what was known of lost shards that are listed again, and of encodings that no longer exist.
    fn forget_found(&mut self) {
        let unlisted: BTreeSet<Lost> =
            self.volumes.unlisted().map(|(volume, encoding, shard, _)| (volume, encoding, shard)).collect();
        self.confirmed.retain(|shard| unlisted.contains(shard));
        self.unlisted.forget_found(&unlisted);
        self.forget_replaced();
    }

    /// Forgets what belongs to encodings that no longer exist.
    fn forget_replaced(&mut self) {
        self.files.retain_listed(&self.volumes);
        let volumes = &self.volumes;
        self.marks.forget(|volume, encoding| volumes.is_replaced(volume, encoding));
        // While none of a volume's servers are connected, its checksums stay doubted.
        self.files.forget_doubts(|volume, encoding| volumes.is_replaced(volume, encoding));
    }

    /// Returns the connected servers without a node ID.
    pub fn unnumbered(&self) -> Vec<ServerId> {
        self.nodes.unnumbered(self.volumes.servers())
    }

    /// Records the node number of a server. A server that was restarted with another `-id` keeps its node, and is asked
    /// for the shards that were listed under its former ID.
    pub fn number(&mut self, server: ServerId, node: NodeId) {
        for former in self.nodes.number(server.clone(), node) {
            self.volumes.rename_server(&former, &server);
        }
    }

    /// See [`Volumes::rename_server`].
    pub fn rename_server(&mut self, former: &ServerId, server: &ServerId) {
        self.volumes.rename_server(former, server);
    }

    /// Marks the copies that SeaweedFS has made of corrupt shards while no coordinator ran. The servers of the listing
    /// must have been numbered.
    pub fn follow_unseen_moves(&mut self) {
        for (volume, encoding, shard, from) in self.volumes.take_unseen_moves() {
            let lost = (volume, encoding, shard);
            let copies = copies_of_recorded(&self.volumes, &self.nodes, &self.marks, lost, &from);
            for (stripe, encoding, index, node) in copies {
                self.marks.infer_corrupt(&stripe, encoding, index, node);
            }
        }
    }

    /// See [`ServerNodes::forget`].
    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.forget(node);
    }

    /// See [`ServerNodes::recall_plain_volumes`].
    pub fn recall_plain_volumes(&mut self, nodes: BTreeMap<NodeId, OtherData>) {
        self.nodes.recall_plain_volumes(nodes);
    }

    /// Stores the facts read from an encoding's files.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.volumes.tell_ratio(volume, encoding, known.ratio);
        self.files.learn(volume, encoding, known);
    }

    /// Replaces the digests of an encoding's shards. Returns whether they have changed.
    pub fn set_digests(&mut self, volume: u32, encoding: Encoding, digests: Vec<Digest>) -> bool {
        self.files.set_digests(volume, encoding, digests)
    }

    /// Whether the checksums of a volume are implausible: they contradict more shards than the volume has
    /// parity shards, and enough shards are there for parity to tell. Copies that parity has shown to be
    /// wrong do not count.
    ///
    /// Any two encodings differ in more shards than there are parity shards, so checksums of another encoding
    /// are found sooner or later. Lost shards and shards of the wrong length say nothing about the checksums.
    pub fn contradicts_itself(&self, id: u32, wrong: &parity_verdicts::Copies) -> bool {
        let Some((encoding, stripe)) = self.encoded_stripe(id) else { return false };
        let needed = stripe.code.data_blocks();
        let bad = (0..).zip(&stripe.blocks).filter(|(_, block)| block.state == BlockState::Corrupt);
        let contradicted =
            bad.filter(|&(shard, _)| self.is_contradicted((id, encoding), &stripe.id, shard, wrong)).count();
        let healthy = stripe.blocks.iter().filter(|block| block.state == BlockState::Healthy).count();
        let is_told_by_parity = healthy + contradicted > needed;
        contradicted + needed > stripe.blocks.len()
            && is_told_by_parity
            && !self.files.is_doubted(id, encoding)
    }

    /// Whether a copy of a shard was found corrupt that has the right length, and that parity has not shown
    /// to be wrong.
    fn is_contradicted(
        &self,
        (id, encoding): (u32, Encoding),
        stripe: &StripeId,
        shard: u8,
        wrong: &parity_verdicts::Copies,
    ) -> bool {
        let Some(known) = self.files.get(id, encoding) else { return false };
        let index = BlockIndex(shard.into());
        let is_corrupt = |node: NodeId| {
            let found = self.marks.state(stripe, encoding, index, node);
            found == BlockState::Corrupt && !wrong.contains(&(id, index, node))
        };
        let homes = self.volumes.homes(id, shard);
        let mut whole = homes.iter().filter(|home| !has_other_length(home, known));
        whole.any(|home| self.nodes.node(&home.server).is_some_and(is_corrupt))
    }

    /// Whether checksums of a volume's shards are in use.
    pub fn uses_checksums(&self, id: u32) -> bool {
        let known = self.volumes.known(id).and_then(|(encoding, ..)| self.files.get(id, encoding));
        known.is_some_and(|known| !known.digests.is_empty())
    }

    /// Stops using the checksums of a volume, and forgets the copies that may have been found corrupt by
    /// them. Copies that are missing, or that parity has shown to be wrong, stay bad.
    pub fn doubt_checksums(&mut self, id: u32, wrong: &parity_verdicts::Copies) {
        let Some((encoding, ..)) = self.volumes.known(id) else { return };
        self.files.doubt(id, encoding);
        self.forget_contradicted(id, encoding, wrong);
    }

    /// Loads a doubt that an earlier coordinator recorded. That coordinator may have crashed before it forgot the
    /// copies that the checksums contradict.
    pub fn recall_doubt(
        &mut self,
        id: u32,
        encoding: Encoding,
        doubted: Doubted,
        wrong: &parity_verdicts::Copies,
    ) {
        self.files.recall_doubt(id, encoding, doubted);
        self.forget_contradicted(id, encoding, wrong);
    }

    fn forget_contradicted(&mut self, id: u32, encoding: Encoding, wrong: &parity_verdicts::Copies) {
        self.marks.forget_corrupt(id, encoding, |index, node| wrong.contains(&(id, index, node)));
    }

    /// Returns the copies of a volume's shards that are reported as corrupt.
    pub fn corrupt_copies(&self, id: u32) -> BTreeSet<CopyId> {
        let Some(stripe) = self.stripe(id) else { return BTreeSet::new() };
        let corrupt = (0..).zip(&stripe.blocks).flat_map(|(index, block)| {
            let holders = block.holders().filter(|holder| holder.state == BlockState::Corrupt);
            holders.map(move |holder| (BlockIndex(index), holder.node))
        });
        corrupt.map(|(index, node)| (stripe.id.clone(), index, node)).collect()
    }

    /// Returns the volumes whose checksums are doubted in their current encoding.
    fn doubted(&self) -> impl Iterator<Item = VolumeName> + '_ {
        let named =
            self.files.doubts().keys().filter_map(move |&(id, encoding)| Some((encoding, self.named(id)?)));
        named.filter(|(encoding, (_, expected))| *encoding == expected.encoding).map(|(_, (name, _))| name)
    }

    /// Returns the stripes whose checksums are doubted.
    pub fn doubted_stripes(&self) -> BTreeSet<StripeId> {
        self.doubted().map(|name| StripeId(name.to_string())).collect()
    }

    /// See [`EncodingFiles::end_doubt`].
    pub fn end_doubt(
        &mut self,
        volume: u32,
        encoding: Encoding,
        agreed: &[Digest],
        modified_ns: Option<(i64, i64)>,
    ) {
        self.files.end_doubt(volume, encoding, agreed, modified_ns);
    }

    /// Whether this state of a copy says something about the copy. While the checksums of a volume are doubted, a
    /// shard that contradicts them may be right, unless parity has shown it to be wrong.
    pub fn is_credible(
        &self,
        (stripe, index, node, state): &CopyState,
        wrong: &parity_verdicts::Copies,
    ) -> bool {
        let Some((encoding, id)) = self.encoding_of(stripe).zip(self.volume_of(stripe)) else { return true };
        *state != BlockState::Corrupt
            || !self.files.is_doubted(id, encoding)
            || wrong.contains(&(id, *index, *node))
    }

    /// Returns one line for each volume whose checksums are doubted.
    pub fn doubts(&self) -> Vec<String> {
        let line = |name: VolumeName| {
            format!(
                "{name}.ecsum contradicts more shards of volume {name} than it has parity shards, so an \
                 earlier encoding has probably left it, and Mend does not use it; check the volume with `mend \
                 scrub --parity`: if that finds nothing, remove {name}.ecsum from the folders of all servers; if \
                 its checksums are right after all, write it to all of them again"
            )
        };
        self.doubted().map(line).collect()
    }

    /// Records why the files of an encoding cannot be read. Returns whether the reason is new.
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.files.note_unread(volume, encoding, why)
    }

    /// Returns the facts that a server must report about a mounted shard of this volume.
    pub fn expected(&self, volume: u32) -> Option<Expected> {
        let (encoding, ratio, _) = self.volumes.known(volume)?;
        let shard_bytes = self.files.get(volume, encoding)?.shard_bytes;
        Some(Expected { encoding, ratio, shard_bytes })
    }

    /// Returns a volume's name and the facts that servers must report about its shards.
    pub fn named(&self, volume: u32) -> Option<(VolumeName, Expected)> {
        let collection = &self.volumes.get(volume)?.collection;
        Some((VolumeName::new(collection, volume)?, self.expected(volume)?))
    }

    /// Returns the volume ID of a stripe.
    pub fn volume_of(&self, stripe: &StripeId) -> Option<u32> {
        let name: VolumeName = stripe.0.parse().ok()?;
        let there = self.volumes.get(name.id())?;
        (there.collection == name.collection()).then_some(name.id())
    }

    /// Records the state in which a copy of a shard was found.
    pub fn set_state(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId, state: BlockState) {
        if let Some(encoding) = self.encoding_of(stripe) {
            self.marks.set(stripe, encoding, index, node, state);
        }
    }

    /// Returns the records with which the state of a copy is stored; none if the stripe's encoding is
    /// unknown.
    pub fn records_of(&self, (stripe, index, node, state): &CopyState) -> Vec<CopyState> {
        let Some(encoding) = self.encoding_of(stripe) else { return Vec::new() };
        marks::with_older((marks::marked(stripe, encoding), *index, *node, *state))
    }

    /// Returns the encoding in which a stripe was last reported. If it was not, returns the current one.
    fn encoding_of(&self, stripe: &StripeId) -> Option<Encoding> {
        let id = self.volume_of(stripe)?;
        let told = self.told.get(&id).filter(|told| told.is_listed && told.stripe == *stripe);
        told.map(|told| told.encoding).or_else(|| self.volumes.known(id).map(|(encoding, ..)| encoding))
    }

    /// See [`Marks::inferred`].
    pub fn inferred_marks(&self) -> Vec<CopyState> {
        self.marks.inferred()
    }

    /// See [`Marks::note_recorded`].
    pub fn note_recorded(&mut self) {
        self.marks.note_recorded();
    }

    /// See [`Marks::take_gone`].
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        self.marks.take_gone()
    }

    /// Returns a volume as a stripe; `None` if its current encoding, ratio or shard size is unknown, or if it is
    /// an ordinary volume as well.
    pub fn stripe(&self, id: u32) -> Option<StripeRecord> {
        self.encoded_stripe(id).map(|(_, stripe)| stripe)
    }

    /// Like [`stripe`](Self::stripe), with the encoding.
    fn encoded_stripe(&self, id: u32) -> Option<(Encoding, StripeRecord)> {
        let volume = self.volumes.get(id)?;
        let Standing::Known { encoding, ratio, .. } = volume.standing() else { return None };
        if self.volumes.is_both(id) {
            return None;
        }
        let known = self.files.get(id, encoding)?;
        let name = VolumeName::new(&volume.collection, id)?;
        let generation = &volume.generations[&encoding];
        let block = |shard: u8| {
            let mut holders = self.holders(&name, encoding, generation, known, shard).into_iter();
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
        let stripe = StripeRecord {
            code: CodeSpec::ReedSolomon { family: RsFamily::Vandermonde, n, k },
            block_bytes: known.shard_bytes,
            chunk_bytes: None,
            blocks: (0..ratio.total()).map(block).collect(),
            file: None,
            id: StripeId(name.to_string()),
        };
        Some((encoding, stripe))
    }

    /// Returns the holders of a shard. Healthy copies come first. The first healthy copy is the one to keep:
    /// the copy on the shard's original server, because other servers look for the shard there.
    /// If that server has none, the copy to keep is the one on the server with the fewest shards of the
    /// volume.
    ///
    /// If no server is listed for a shard, the result is the shard's last server. The shard is reported as
    /// missing only after that server has confirmed the loss, because the master lists a returning server a
    /// moment before that server's shards; or if that server is connected but has not answered for a while, or says for
    /// minutes that it has the shard although no master lists it.
    fn holders(
        &self,
        name: &VolumeName,
        encoding: Encoding,
        generation: &Generation,
        known: &Known,
        shard: u8,
    ) -> Vec<Replica> {
        let Some(homes) = generation.homes.get(&shard) else {
            let lost = (name.id(), encoding, shard);
            let is_gone = self.confirmed.contains(&lost) || self.unlisted.is_missing(&lost);
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
        homes.dedup_by_key(|home| &home.server); // Copies on two disks of one server belong to one node.
        let stripe = StripeId(name.to_string());
        let holder = |home: &Home| {
            let node = self.nodes.node(&home.server)?;
            Some(Replica { node, state: self.copy_state((&stripe, encoding), known, shard, home) })
        };
        let mut holders: Vec<Replica> = homes.into_iter().filter_map(holder).collect();
        holders.sort_by_key(|holder| holder.state != BlockState::Healthy); // Stable: healthy copies first.
        holders
    }

    /// Returns the state of a listed copy of a shard.
    fn copy_state(
        &self,
        (stripe, encoding): (&StripeId, Encoding),
        known: &Known,
        shard: u8,
        home: &Home,
    ) -> BlockState {
        let found = |node: NodeId| self.marks.state(stripe, encoding, BlockIndex(shard.into()), node);
        match self.nodes.node(&home.server).map_or(BlockState::Healthy, found) {
            BlockState::Healthy if has_other_length(home, known) => BlockState::Corrupt,
            state => state,
        }
    }

    /// Whether a volume stays readable if a server loses its copy of `shard` or, if `shard` is `None`, all
    /// its shards of the volume. Copies that are known to be bad do not count: no file may be removed in trust
    /// of them.
    pub fn can_spare(&self, id: u32, shard: Option<u8>, server: &ServerId) -> bool {
        let stays =
            |other: u8, home: &Home| home.server != *server || shard.is_some_and(|shard| shard != other);
        self.spare(id, stays).is_some_and(|spare| spare >= 0)
    }

    /// Whether a volume cannot lose another shard. Copies that are not listed, or known to be bad, do not count.
    pub fn is_at_risk(&self, id: u32) -> bool {
        self.spare(id, |_, _| true).is_some_and(|spare| spare <= 0)
    }

    /// Like [`Volumes::spare`], without the copies that are known to be bad.
    fn spare(&self, id: u32, counts: impl Fn(u8, &Home) -> bool) -> Option<i16> {
        let (name, Expected { encoding, .. }) = self.named(id)?;
        let known = self.files.get(id, encoding)?;
        let stripe = StripeId(name.to_string());
        self.volumes.spare(id, |shard, home| {
            counts(shard, home)
                && self.copy_state((&stripe, encoding), known, shard, home) == BlockState::Healthy
        })
    }

    /// Whether another server is listed with a copy of a shard that is not known to be bad.
    pub fn has_good_copy_elsewhere(&self, shard: &ShardName, server: &ServerId) -> bool {
        let id = shard.volume.id();
        let is_listed = self.volumes.homes(id, shard.shard).iter().any(|home| home.server != *server);
        let (stripe, own) = (self.stripe(id), self.nodes.node(server));
        let block = stripe.as_ref().and_then(|stripe| stripe.blocks.get(usize::from(shard.shard)));
        let is_good = |holder: Replica| Some(holder.node) != own && holder.state == BlockState::Healthy;
        is_listed && block.is_some_and(|block| block.holders().any(is_good))
    }

    /// Returns the lost shards whose last server is connected but has not confirmed the loss.
    pub fn unconfirmed(&self) -> Vec<(u32, Encoding, u8, ServerId)> {
        let connected =
            self.volumes.unlisted().filter(|(.., home)| self.volumes.servers().contains_key(&home.server));
        let open =
            connected.filter(|&(id, encoding, shard, _)| !self.confirmed.contains(&(id, encoding, shard)));
        open.map(|(id, encoding, shard, home)| (id, encoding, shard, home.server.clone())).collect()
    }

    /// Records that the last servers of these shards no longer have them. Drops encodings without any shard
    /// left.
    pub fn confirm(&mut self, gone: impl IntoIterator<Item = Lost>) {
        self.confirmed.extend(gone);
        let confirmed = &self.confirmed;
        self.volumes.drop_deleted(|volume, encoding, shard| confirmed.contains(&(volume, encoding, shard)));
        self.forget_replaced();
    }

    /// Returns all stripes.
    pub fn stripes(&self) -> impl Iterator<Item = StripeRecord> + '_ {
        self.volumes.iter().filter_map(|(id, _)| self.stripe(id))
    }

    /// Returns the changes that report the current state of these volumes. A stripe that was encoded again is
    /// first reported as gone, since nothing that is known of its former blocks is true of the new ones.
    pub fn tell(&mut self, volumes: impl IntoIterator<Item = u32>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for id in volumes {
            let now = self.encoded_stripe(id);
            changes.extend(self.retract(id, now.as_ref()).map(StoreChange::StripeGone));
            if let Some((encoding, stripe)) = now {
                self.told.insert(id, Told { stripe: stripe.id.clone(), encoding, is_listed: true });
                changes.push(StoreChange::Stripe(stripe, false));
            } else if !self.volumes.may_exist(id) {
                // While the state of the volume is only unknown, bad copies stay recorded.
                self.told.remove(&id);
                self.marks.forget(|volume, _| volume == id);
                self.files.forget_doubts(|volume, _| volume == id);
            }
        }
        changes
    }

    /// Returns the stripe as which a volume was last known, if that stripe must be reported as gone.
    fn retract(&mut self, id: u32, now: Option<&(Encoding, StripeRecord)>) -> Option<StripeId> {
        let told = self.told.get_mut(&id)?;
        let is_same =
            now.is_some_and(|(encoding, stripe)| (*encoding, &stripe.id) == (told.encoding, &told.stripe));
        if is_same || now.is_none() && !told.is_listed {
            return None;
        }
        told.is_listed = false;
        if now.is_some() && !self.has_listener {
            self.encoded_again.insert(told.stripe.clone());
        }
        Some(told.stripe.clone())
    }

    /// Returns the servers that connected or disconnected since the last call.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        self.nodes.tell_service(self.volumes.servers(), self.volumes.partly_listed())
    }

    /// Returns the complete current state, for a new listener.
    pub fn everything(&mut self) -> Vec<StoreChange> {
        self.nodes.reset_service();
        self.has_listener = true;
        let again = std::mem::take(&mut self.encoded_again);
        let mut changes: Vec<_> = again.into_iter().map(StoreChange::StripeGone).collect();
        let ids: Vec<u32> = self.volumes.iter().map(|(id, _)| id).collect();
        changes.extend(self.tell(ids));
        changes.extend(self.tell_service());
        changes
    }
}

/// Whether a shard is listed with another length than its encoding has. A length of 0 is unknown: older
/// masters list no lengths.
fn has_other_length(home: &Home, known: &Known) -> bool {
    home.bytes != 0 && home.bytes != known.shard_bytes
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
