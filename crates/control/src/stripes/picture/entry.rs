//! A compact representation of a stripe.

use std::collections::BTreeMap;
use std::sync::Arc;

use codes::CodeSpec;
use repair::{BlockId, Digest, FilePart, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StripeRecord};

/// The index of a stripe in memory.
pub(crate) type Slot = u32;

/// The number that stands for no node.
const NOBODY: u32 = u32::MAX;
/// The number that stands for a kind of digest that is stored with the digest itself. Helpers choose the kinds, so
/// there may be more than a byte can number.
const RARE_KIND: u8 = u8::MAX;

/// Data that many stripes share.
#[derive(Default)]
pub(crate) struct Shared {
    codes: Vec<CodeSpec>,
    /// The first kinds of digests, numbered from 1 to less than [`RARE_KIND`].
    kinds: Vec<String>,
    /// Chunk sizes, numbered from 1.
    chunks: Vec<u64>,
    /// The data about a file that all stripes of a put share, by the put's name. The stripe's position is not
    /// part of this data.
    parts: BTreeMap<String, Arc<FilePart>>,
}

impl Shared {
    fn code(&mut self, code: &CodeSpec) -> u32 {
        number(&mut self.codes, |known| known == code, || code.clone()) as u32
    }

    pub(crate) fn code_of(&self, number: u32) -> &CodeSpec {
        &self.codes[number as usize]
    }

    fn kind(&mut self, kind: &str) -> u8 {
        let known = self.kinds.iter().position(|known| known == kind);
        let number = known.unwrap_or(self.kinds.len()) + 1;
        if number >= RARE_KIND.into() {
            return RARE_KIND;
        }
        if known.is_none() {
            self.kinds.push(kind.to_owned());
        }
        number as u8
    }

    fn pack(&mut self, digest: Option<Digest>, packed: &mut Vec<u8>) {
        let Some(digest) = digest else { return packed.push(0) };
        let kind = self.kind(digest.kind());
        packed.push(kind);
        if kind == RARE_KIND {
            pack_bytes(digest.kind().as_bytes(), packed);
        }
        pack_bytes(digest.bytes(), packed);
    }

    fn unpack(&self, packed: &mut &[u8]) -> Option<Digest> {
        let (&kind, rest) = packed.split_first().expect("each block has a digest's kind");
        *packed = rest;
        let kind = match kind {
            0 => return None,
            RARE_KIND => str::from_utf8(unpack_bytes(packed)).expect("a stored kind is text"),
            known => &self.kinds[usize::from(known) - 1],
        };
        Some(Digest::new(kind, unpack_bytes(packed)).expect("a stored digest is valid"))
    }

    fn chunks(&mut self, bytes: u64) -> u32 {
        number(&mut self.chunks, |&known| known == bytes, || bytes) as u32 + 1
    }

    fn part(&mut self, part: &FilePart) -> Arc<FilePart> {
        let whole = FilePart { position: 0, ..part.clone() };
        let kept = self.parts.entry(part.put.clone()).or_insert_with(|| Arc::new(whole.clone()));
        if **kept == whole { kept.clone() } else { Arc::new(whole) }
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Drops the data about a removed stripe's file if no other stripe shares it.
    pub(crate) fn forget(&mut self, entry: &Entry) {
        // Two references are left: this stripe's, and the one in the map.
        if let Some((part, _)) = &entry.file
            && Arc::strong_count(part) <= 2
        {
            self.parts.remove(&part.put);
        }
    }
}

/// Appends at most 255 bytes, after their number.
fn pack_bytes(bytes: &[u8], packed: &mut Vec<u8>) {
    packed.push(bytes.len() as u8);
    packed.extend(bytes);
}

fn unpack_bytes<'a>(packed: &mut &'a [u8]) -> &'a [u8] {
    let (bytes, rest) = packed[1..].split_at(packed[0].into());
    *packed = rest;
    bytes
}

/// Returns the index of a matching element, which is added if there is none.
fn number<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

/// The location and state of a block.
#[derive(Clone, Copy)]
struct PackedReplica {
    node: u32,
    state: BlockState,
}

impl PackedReplica {
    fn of(holder: Replica) -> Self {
        Self { node: holder.node.0, state: holder.state }
    }

    fn holder(self) -> Replica {
        Replica { node: NodeId(self.node), state: self.state }
    }
}

/// The scheme of block names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The stripe's name, a dot and the index.
    Index,
    /// The stripe's name, `.ec` and the index with two digits.
    Shard,
    /// Any other names, which are stored one by one.
    Listed,
}

impl Naming {
    fn of(stripe: &StripeRecord) -> Self {
        let is = |naming: &Self| {
            let mut blocks = stripe.blocks.iter().enumerate();
            blocks.all(|(at, block)| naming.name(&stripe.id.0, at).is_some_and(|name| name == block.id))
        };
        [Self::Index, Self::Shard].into_iter().find(is).unwrap_or(Self::Listed)
    }

    fn name(self, stripe: &str, index: usize) -> Option<BlockId> {
        match self {
            Self::Index => Some(BlockId([stripe, ".", &index.to_string()].concat())),
            Self::Shard => Some(BlockId(format!("{stripe}.ec{index:02}"))),
            Self::Listed => None,
        }
    }
}

/// Returns the stripe and index that a block's name contains. The block need not exist.
pub(crate) fn parse_name(block: &BlockId) -> Option<(StripeId, u16)> {
    let (stripe, text) = block.0.rsplit_once('.')?;
    let index: u16 = text.strip_prefix("ec").unwrap_or(text).parse().ok()?;
    let is = |naming: Naming| naming.name(stripe, index.into()).as_ref() == Some(block);
    [Naming::Index, Naming::Shard].into_iter().any(is).then(|| (StripeId(stripe.to_owned()), index))
}

/// Deviations from the normal case, where each block has the stripe's length, a derived name and one
/// location.
#[derive(Default)]
struct Odd {
    /// Block names; empty if they can be derived.
    names: Vec<BlockId>,
    /// Block lengths; empty if all blocks have the stripe's length.
    bytes: Vec<u64>,
    /// The further copies of blocks: the block's index and the location of the copy.
    replicas: Vec<(u16, PackedReplica)>,
}

/// A stripe in its compact form.
pub(crate) struct Entry {
    name: Arc<str>,
    pub code: u32,
    pub pending: bool,
    naming: Naming,
    /// The number of the stripe's chunk size in [`Shared`], from 1; 0 if the stripe has no chunk size.
    chunks: u32,
    pub block_bytes: u64,
    places: Box<[PackedReplica]>,
    /// For each block: the number of the digest's kind, the kind itself if it has no number, the digest's length
    /// and its bytes; or a single zero if the block has no digest.
    digests: Box<[u8]>,
    file: Option<(Arc<FilePart>, u32)>,
    odd: Option<Box<Odd>>,
}

impl Entry {
    pub(crate) fn new(stripe: &StripeRecord, pending: bool, shared: &mut Shared) -> Self {
        let place = |block: &BlockRecord| PackedReplica {
            node: block.node.map_or(NOBODY, |node| node.0),
            state: block.state,
        };
        let mut digests = Vec::new();
        stripe.blocks.iter().for_each(|block| shared.pack(block.digest, &mut digests));
        Self {
            name: stripe.id.0.as_str().into(),
            code: shared.code(&stripe.code),
            pending,
            naming: Naming::of(stripe),
            chunks: stripe.chunk_bytes.map_or(0, |bytes| shared.chunks(bytes)),
            block_bytes: stripe.block_bytes,
            places: stripe.blocks.iter().map(place).collect(),
            digests: digests.into(),
            file: stripe.file.as_ref().map(|part| (shared.part(part), part.position)),
            odd: odd(stripe),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn blocks(&self) -> usize {
        self.places.len()
    }

    /// Whether the block names cannot be derived from the stripe's name.
    pub(crate) fn is_odd(&self) -> bool {
        self.naming == Naming::Listed
    }

    /// Whether the block at this index has this name, ignoring parts of the stripe's name that people omit.
    pub(crate) fn names_so(&self, block: &BlockId, index: u16) -> bool {
        let ending = |name: &BlockId| name.0.rsplit('.').next().map(str::to_owned);
        let own = self.naming.name(&self.name, index.into());
        own.is_some_and(|own| ending(&own) == ending(block))
    }

    /// Returns the names of the blocks, if they are stored one by one.
    pub(crate) fn odd_names(&self) -> impl Iterator<Item = &BlockId> {
        self.odd.iter().flat_map(|odd| &odd.names)
    }

    /// Whether any block of the stripe has copies on several nodes.
    pub(crate) fn has_replicas(&self) -> bool {
        !self.replicas().is_empty()
    }

    fn replicas(&self) -> &[(u16, PackedReplica)] {
        self.odd.as_ref().map_or(&[], |odd| &odd.replicas)
    }

    /// Returns the recorded places of the blocks, including those of missing and corrupt blocks.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (u16, NodeId)> {
        let got = |place: &PackedReplica| place.node != NOBODY && place.state != BlockState::NotStored;
        let replicas = self.replicas().iter().copied();
        (0..)
            .zip(self.places.iter().copied())
            .chain(replicas)
            .filter(move |(_, place)| got(place))
            .map(|(index, place)| (index, NodeId(place.node)))
    }

    /// Returns the recorded home of a block.
    pub(crate) fn home(&self, index: u16) -> Option<NodeId> {
        let place = self.places.get(usize::from(index))?;
        (place.node != NOBODY).then_some(NodeId(place.node))
    }

    /// Returns the indices of the lost blocks, which have no healthy copy for which `counts(index, node)` is
    /// true.
    pub(crate) fn lost(&self, counts: impl Fn(u16, NodeId) -> bool) -> Vec<u16> {
        let good = |index, place: &PackedReplica| {
            place.state == BlockState::Healthy && counts(index, NodeId(place.node))
        };
        let elsewhere =
            |index: u16| self.replicas().iter().any(|(of, place)| *of == index && good(index, place));
        let lost = (0..).zip(&self.places).filter(|&(index, place)| !good(index, place) && !elsewhere(index));
        lost.map(|(index, _)| index).collect()
    }

    /// Returns, for each readable block, the node from which it is read. Only healthy copies for which
    /// `counts(index, node)` is true are read.
    pub(crate) fn readers(&self, counts: impl Fn(u16, NodeId) -> bool) -> Vec<NodeId> {
        let good = |index, place: &PackedReplica| {
            place.state == BlockState::Healthy && counts(index, NodeId(place.node))
        };
        let elsewhere = |index: u16| {
            let mut others = self.replicas().iter().filter(move |(of, _)| *of == index);
            others.find(|(_, place)| good(index, place)).map(|(_, place)| place.node)
        };
        let reader = |(index, place): (u16, &PackedReplica)| match good(index, place) {
            true => Some(place.node),
            false => elsewhere(index),
        };
        (0..).zip(&self.places).filter_map(reader).map(NodeId).collect()
    }

    /// Returns the full record of the stripe.
    pub(crate) fn record(&self, shared: &Shared) -> StripeRecord {
        let mut digests = &*self.digests;
        let odd =
            |at: usize| self.odd.as_ref().expect("an irregular stripe lists its names").names[at].clone();
        let bytes = |at: usize| self.odd.as_ref().and_then(|odd| odd.bytes.get(at)).copied();
        let replicas = |at: usize| {
            let there = self.replicas().iter().filter(move |(of, _)| usize::from(*of) == at);
            there.map(|(_, place)| place.holder()).collect()
        };
        let block = |(at, place): (usize, &PackedReplica)| BlockRecord {
            id: self.naming.name(&self.name, at).unwrap_or_else(|| odd(at)),
            bytes: bytes(at).unwrap_or(self.block_bytes),
            node: (place.node != NOBODY).then_some(NodeId(place.node)),
            state: place.state,
            replicas: replicas(at),
            digest: shared.unpack(&mut digests),
        };
        let blocks = self.places.iter().enumerate().map(block).collect();
        let part =
            |(part, position): &(Arc<FilePart>, u32)| FilePart { position: *position, ..(**part).clone() };
        StripeRecord {
            id: StripeId(self.name.to_string()),
            code: shared.code_of(self.code).clone(),
            block_bytes: self.block_bytes,
            chunk_bytes: self.chunks.checked_sub(1).map(|number| shared.chunks[number as usize]),
            blocks,
            file: self.file.as_ref().map(part),
        }
    }
}

fn odd(stripe: &StripeRecord) -> Option<Box<Odd>> {
    let mut odd = Odd::default();
    if Naming::of(stripe) == Naming::Listed {
        odd.names = stripe.blocks.iter().map(|block| block.id.clone()).collect();
    }
    if stripe.blocks.iter().any(|block| block.bytes != stripe.block_bytes) {
        odd.bytes = stripe.blocks.iter().map(|block| block.bytes).collect();
    }
    let replicas = |(block, index): (&BlockRecord, u16)| {
        block.replicas.iter().map(move |&holder| (index, PackedReplica::of(holder))).collect::<Vec<_>>()
    };
    odd.replicas = stripe.blocks.iter().zip(0..).flat_map(replicas).collect();
    let is_usual = odd.names.is_empty() && odd.bytes.is_empty() && odd.replicas.is_empty();
    (!is_usual).then(|| Box::new(odd))
}
