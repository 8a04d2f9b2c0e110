//! Copies of shards that were found missing or corrupt. Pure: this module stores nothing.
//!
//! A mark belongs to one encoding of a volume: a volume that was decoded and encoded again has other shards
//! under the same names. So marks are recorded under the name of the volume together with the encoding.

use std::collections::{BTreeMap, BTreeSet};

use attached::{BadCopies, CopyId, CopyState};
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::BlockState;

use crate::blocks::{Encoding, VolumeName};

/// Separates volume and encoding in the name under which marks are recorded.
const SEPARATOR: char = '@';

/// The states of all copies that are not healthy.
#[derive(Default)]
pub(super) struct Marks {
    bad: BadCopies,
    /// Volume and encoding of each name with marks.
    encodings: BTreeMap<StripeId, (u32, Encoding)>,
    /// Copies whose marks are not recorded yet, because they follow from the marks of other copies.
    inferred: BTreeSet<CopyId>,
}

/// Returns the name under which marks of an encoding are recorded.
pub(super) fn marked(stripe: &StripeId, encoding: Encoding) -> StripeId {
    StripeId(format!("{stripe}{SEPARATOR}{}", encoding.0))
}

/// Returns the volume and the encoding to which a recorded name belongs. Earlier versions of Mend recorded no
/// encoding.
pub(super) fn parse(name: &StripeId) -> Option<(VolumeName, Option<Encoding>)> {
    let with_encoding = name.0.rsplit_once(SEPARATOR).and_then(|(volume, encoding)| {
        let encoding = encoding.parse().ok()?;
        Some((volume.parse::<VolumeName>().ok()?, Some(Encoding(encoding))))
    });
    with_encoding.or_else(|| Some((name.0.parse().ok()?, None)))
}

/// Returns the copies whose records are to be changed together with the record of this copy: if the copy is
/// healthy, also the record of an earlier version of Mend is removed.
pub(super) fn with_older((name, index, node, state): CopyState) -> Vec<CopyState> {
    let older = parse(&name).filter(|_| state == BlockState::Healthy);
    let older = older.map(|(volume, _)| (StripeId(volume.to_string()), index, node, state));
    [(name, index, node, state)].into_iter().chain(older).collect()
}

impl Marks {
    /// Sets the state of a copy. A healthy copy has no mark.
    pub fn set(
        &mut self,
        stripe: &StripeId,
        encoding: Encoding,
        index: BlockIndex,
        node: NodeId,
        state: BlockState,
    ) {
        let Ok(volume) = stripe.0.parse::<VolumeName>() else { return };
        let name = marked(stripe, encoding);
        self.bad.set(&name, index, node, state);
        if state != BlockState::Healthy {
            self.encodings.insert(name, (volume.id(), encoding));
        }
    }

    /// Whether no copy was ever marked.
    pub fn is_empty(&self) -> bool {
        self.encodings.is_empty()
    }

    /// Marks a copy as corrupt because it was made from corrupt ones.
    pub fn infer_corrupt(&mut self, stripe: &StripeId, encoding: Encoding, index: BlockIndex, node: NodeId) {
        self.set(stripe, encoding, index, node, BlockState::Corrupt);
        self.inferred.insert((marked(stripe, encoding), index, node));
    }

    /// Returns the records of marks that are not recorded yet.
    pub fn inferred(&self) -> Vec<CopyState> {
        let state =
            |(name, index, node): &CopyId| (name.clone(), *index, *node, self.bad.state(name, *index, *node));
        let still = self.inferred.iter().map(state).filter(|(.., state)| *state == BlockState::Corrupt);
        still.collect()
    }

    /// Records that all marks are recorded.
    pub fn note_recorded(&mut self) {
        self.inferred.clear();
    }

    /// Returns the state of a copy; a copy without a mark is healthy.
    pub fn state(
        &self,
        stripe: &StripeId,
        encoding: Encoding,
        index: BlockIndex,
        node: NodeId,
    ) -> BlockState {
        if self.encodings.is_empty() {
            return BlockState::Healthy;
        }
        self.bad.state(&marked(stripe, encoding), index, node)
    }

    /// Returns the nodes with corrupt copies of a shard.
    pub fn corrupt_nodes(
        &self,
        stripe: &StripeId,
        encoding: Encoding,
        index: BlockIndex,
    ) -> BTreeSet<NodeId> {
        let name = marked(stripe, encoding);
        let is_corrupt = |node: &NodeId| self.bad.state(&name, index, *node) == BlockState::Corrupt;
        self.bad.nodes(&name).filter(is_corrupt).collect()
    }

    /// Forgets the marks of encodings that no longer exist.
    pub fn forget(&mut self, is_gone: impl Fn(u32, Encoding) -> bool) {
        for (name, _) in self.encodings.extract_if(.., |_, &mut (volume, encoding)| is_gone(volume, encoding))
        {
            self.bad.remove_stripe(&name);
        }
    }

    /// Forgets the corrupt copies of an encoding, except those for which `stays` returns true.
    pub fn forget_corrupt(
        &mut self,
        volume: u32,
        encoding: Encoding,
        stays: impl Fn(BlockIndex, NodeId) -> bool,
    ) {
        for (name, _) in self.encodings.iter().filter(|(_, of)| **of == (volume, encoding)) {
            self.bad.forget_corrupt(name, &stays);
        }
    }

    /// Returns the copies forgotten since the last call, so that the caller can delete their records.
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        let gone = self.bad.take_gone().into_iter();
        let records =
            gone.flat_map(|(name, index, node)| with_older((name, index, node, BlockState::Healthy)));
        records.map(|(name, index, node, _)| (name, index, node)).collect()
    }
}
