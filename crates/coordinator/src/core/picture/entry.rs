//! A stripe in little memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use codes::CodeSpec;
use repair::{BlockId, Digest, FilePart, NodeId, StripeId};
use stores::{BlockRecord, BlockState, StripeRecord};

/// A node that nobody is.
const NOBODY: u32 = u32::MAX;

/// What many stripes have in common.
#[derive(Default)]
pub(super) struct Shared {
    codes: Vec<CodeSpec>,
    /// Kinds of digests; the first has number 1.
    kinds: Vec<String>,
    /// What stripes say of their files, by the name of the put; the position is each stripe's own.
    parts: BTreeMap<String, Arc<FilePart>>,
}

impl Shared {
    fn code(&mut self, code: &CodeSpec) -> u16 {
        number(&mut self.codes, |known| known == code, || code.clone()) as u16
    }

    pub(super) fn code_of(&self, number: u16) -> &CodeSpec {
        &self.codes[usize::from(number)]
    }

    fn part(&mut self, part: &FilePart) -> Arc<FilePart> {
        let whole = FilePart { position: 0, ..part.clone() };
        let kept = self.parts.entry(part.put.clone()).or_insert_with(|| Arc::new(whole.clone()));
        if **kept == whole { kept.clone() } else { Arc::new(whole) }
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// A stripe is no more: nor is what only it says of its file.
    pub(super) fn forget(&mut self, entry: &Entry) {
        // Two are left: this stripe's, and the one that is kept.
        if let Some((part, _)) = &entry.file
            && Arc::strong_count(part) <= 2
        {
            self.parts.remove(&part.put);
        }
    }
}

/// The place of what is like this, which is added if there is none.
fn number<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

/// A block of it.
#[derive(Clone, Copy)]
struct Place {
    node: u32,
    state: BlockState,
}

/// What differs from the usual: each block has the stripe's length, and the stripe's name, a point and its index.
struct Odd {
    names: Vec<BlockId>,
    bytes: Vec<u64>,
    /// Whether the names differ, and not just the lengths.
    named: bool,
}

/// A stripe.
pub(super) struct Entry {
    name: Arc<str>,
    pub code: u16,
    pub pending: bool,
    pub block_bytes: u64,
    places: Box<[Place]>,
    /// Of each block the number of the kind, the length, and the bytes; a zero if it has none.
    digests: Box<[u8]>,
    file: Option<(Arc<FilePart>, u32)>,
    odd: Option<Box<Odd>>,
}

impl Entry {
    pub(super) fn new(stripe: &StripeRecord, pending: bool, shared: &mut Shared) -> Self {
        let place = |block: &BlockRecord| Place {
            node: block.node.map_or(NOBODY, |node| node.0),
            state: block.state,
        };
        let mut digests = Vec::new();
        for block in &stripe.blocks {
            let Some(digest) = block.digest else {
                digests.push(0);
                continue;
            };
            let kind =
                number(&mut shared.kinds, |kind| kind == digest.kind(), || digest.kind().to_owned()) + 1;
            digests.extend([kind as u8, digest.bytes().len() as u8]);
            digests.extend(digest.bytes());
        }
        Self {
            name: stripe.id.0.as_str().into(),
            code: shared.code(&stripe.code),
            pending,
            block_bytes: stripe.block_bytes,
            places: stripe.blocks.iter().map(place).collect(),
            digests: digests.into(),
            file: stripe.file.as_ref().map(|part| (shared.part(part), part.position)),
            odd: odd(stripe),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn blocks(&self) -> usize {
        self.places.len()
    }

    /// Whether its blocks' names are not made of its own.
    pub(super) fn is_odd(&self) -> bool {
        self.odd.as_ref().is_some_and(|odd| odd.named)
    }

    /// The names of its blocks, if they are not made of its own.
    pub(super) fn odd_names(&self) -> impl Iterator<Item = &BlockId> {
        self.odd.iter().filter(|odd| odd.named).flat_map(|odd| &odd.names)
    }

    /// The blocks that some node is known to have got, and that node.
    pub(super) fn holders(&self) -> impl Iterator<Item = (u16, NodeId)> {
        let got = |place: &&Place| place.node != NOBODY && place.state != BlockState::NotStored;
        (0..)
            .zip(&self.places)
            .filter(move |(_, place)| got(place))
            .map(|(index, place)| (index, NodeId(place.node)))
    }

    /// The indices of the blocks that are not good on a node that is up.
    pub(super) fn lost(&self, is_up: impl Fn(NodeId) -> bool) -> Vec<u16> {
        let good = |place: &Place| place.state == BlockState::Healthy && is_up(NodeId(place.node));
        (0..).zip(&self.places).filter(|(_, place)| !good(place)).map(|(index, _)| index).collect()
    }

    /// All that was stored of it.
    pub(super) fn record(&self, shared: &Shared) -> StripeRecord {
        let mut digests = &*self.digests;
        let block = |(at, place): (usize, &Place)| BlockRecord {
            id: self.odd.as_ref().map_or_else(|| usual(&self.name, at), |odd| odd.names[at].clone()),
            bytes: self.odd.as_ref().map_or(self.block_bytes, |odd| odd.bytes[at]),
            node: (place.node != NOBODY).then_some(NodeId(place.node)),
            state: place.state,
            digest: next_digest(&mut digests, &shared.kinds),
        };
        let blocks = self.places.iter().enumerate().map(block).collect();
        let part =
            |(part, position): &(Arc<FilePart>, u32)| FilePart { position: *position, ..(**part).clone() };
        StripeRecord {
            id: StripeId(self.name.to_string()),
            code: shared.code_of(self.code).clone(),
            block_bytes: self.block_bytes,
            blocks,
            file: self.file.as_ref().map(part),
        }
    }
}

fn next_digest(packed: &mut &[u8], kinds: &[String]) -> Option<Digest> {
    let (&kind, rest) = packed.split_first().expect("one for each block");
    if kind == 0 {
        *packed = rest;
        return None;
    }
    let (bytes, rest) = rest[1..].split_at(rest[0].into());
    *packed = rest;
    Some(Digest::new(&kinds[usize::from(kind) - 1], bytes).expect("it was one"))
}

fn usual(stripe: &str, index: usize) -> BlockId {
    BlockId(format!("{stripe}.{index}"))
}

fn odd(stripe: &StripeRecord) -> Option<Box<Odd>> {
    let named = stripe.blocks.iter().enumerate().any(|(at, block)| block.id != usual(&stripe.id.0, at));
    let shorter = stripe.blocks.iter().any(|block| block.bytes != stripe.block_bytes);
    (named || shorter).then(|| {
        let names = stripe.blocks.iter().map(|block| block.id.clone()).collect();
        Box::new(Odd { names, bytes: stripe.blocks.iter().map(|block| block.bytes).collect(), named })
    })
}
