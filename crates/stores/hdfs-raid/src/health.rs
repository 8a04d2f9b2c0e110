//! The missing blocks of encoded files, and the places of the others.

use std::collections::BTreeMap;

use codes::{BlockIndex, Code};

use crate::stripe_codes::BuiltCode;
use crate::{Block, Crowding, File, Judge, Layout, Listing, Member, NodeIndex, Policies, Scope, Unit};

/// The missing blocks of a unit, and the stripes whose blocks stand too close together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// For each number of blocks without an intact replica, the number of stripes that lack as many. Empty without
    /// valid parity.
    pub stripes: BTreeMap<usize, usize>,
    /// Stripes that have lost more than their code can rebuild, or for which Mend has no code.
    pub unrecoverable: usize,
    /// Stripes with two blocks on a DataNode.
    pub crowded_nodes: usize,
    /// Stripes with more blocks in a rack than their code may lose, although there are racks enough.
    pub crowded_racks: usize,
    /// Stripes of which the loss of one DataNode could cost data: it has the only replicas of several blocks.
    pub exposed: usize,
    /// Data blocks that have no intact replica and no valid parity.
    pub unprotected: usize,
    /// Data blocks of changed folders that have no intact replica, and that the former parity suffices to rebuild.
    pub still_protected: usize,
    /// Files with one replica of each block and no valid parity. If there is stale parity, one block with one replica
    /// suffices: HDFS has not made the replicas yet that were asked for when the file was changed.
    pub single: usize,
    /// Blocks of files with stale parity that have a replica, but fewer than the file's replication.
    pub lacking: usize,
}

/// A stripe of an encoded file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHealth<'a> {
    /// The stripe's position in its unit.
    pub stripe: usize,
    /// The data blocks; `file` is a position in [`Unit::files`].
    pub members: Vec<Member>,
    /// The blocks: data blocks, then parity blocks.
    pub blocks: Vec<&'a Block>,
    /// Number of blocks without an intact replica.
    pub missing: usize,
    /// Whether Mend can rebuild the missing blocks from the others.
    pub is_decodable: bool,
    /// How blocks stand too close together.
    pub crowding: Option<Crowding>,
    /// Whether the loss of one DataNode could cost data, because it has the only replicas of several blocks.
    pub is_exposed: bool,
}

impl Health {
    /// Returns the health of these stripes.
    pub fn of(stripes: &[StripeHealth<'_>]) -> Self {
        let mut health = Self::default();
        for stripe in stripes {
            *health.stripes.entry(stripe.missing).or_default() += 1;
            health.unrecoverable += usize::from(!stripe.is_decodable);
            health.crowded_nodes += usize::from(stripe.crowding == Some(Crowding::DataNode));
            health.crowded_racks += usize::from(stripe.crowding == Some(Crowding::Rack));
            health.exposed += usize::from(stripe.is_exposed);
        }
        health
    }

    /// Returns the health of files without valid parity.
    pub(crate) fn without_parity(files: &[&File]) -> Self {
        let blocks = files.iter().flat_map(|file| &file.blocks);
        let single = files.iter().filter(|file| file.replication <= 1 && !file.blocks.is_empty());
        Self {
            unprotected: blocks.filter(|block| block.replicas.is_empty()).count(),
            single: single.count(),
            ..Self::default()
        }
    }

    /// Returns the health of files with stale parity.
    pub(crate) fn behind_stale_parity(files: &[&File]) -> Self {
        let lacking = |file: &File| {
            let wanted = usize::from(file.replication);
            file.blocks.iter().filter(|block| (1..wanted).contains(&block.replicas.len())).count()
        };
        let is_single = |file: &&&File| file.blocks.iter().any(|block| block.replicas.len() <= 1);
        Self {
            single: files.iter().filter(is_single).count(),
            lacking: files.iter().map(|file| lacking(file)).sum(),
            ..Self::without_parity(files)
        }
    }

    /// Adds another unit's numbers.
    pub(crate) fn add(&mut self, other: &Self) {
        for (&missing, &stripes) in &other.stripes {
            *self.stripes.entry(missing).or_default() += stripes;
        }
        self.unrecoverable += other.unrecoverable;
        self.crowded_nodes += other.crowded_nodes;
        self.crowded_racks += other.crowded_racks;
        self.exposed += other.exposed;
        self.unprotected += other.unprotected;
        self.still_protected += other.still_protected;
        self.single += other.single;
        self.lacking += other.lacking;
    }

    /// Counts lost blocks that the former parity of a changed folder suffices to rebuild.
    pub(crate) fn with_still_protected(self, blocks: usize) -> Self {
        let still_protected = blocks.min(self.unprotected);
        Self { unprotected: self.unprotected - still_protected, still_protected, ..self }
    }

    /// Returns the number of stripes that lack blocks.
    pub fn incomplete(&self) -> usize {
        self.stripes.range(1..).map(|(_, &stripes)| stripes).sum()
    }
}

impl StripeHealth<'_> {
    /// Returns for each block the DataNodes with an intact replica.
    pub fn replicas(&self) -> Vec<Vec<NodeIndex>> {
        self.blocks.iter().map(|block| block.replicas.clone()).collect()
    }
}

/// Finds the stripes of surveyed units.
#[derive(Debug)]
pub struct Inspector<'a> {
    listing: &'a Listing,
    policies: &'a Policies,
    files: BTreeMap<&'a str, &'a File>,
    judge: Judge,
    codes: BTreeMap<&'a str, BuiltCode>,
}

impl<'a> Inspector<'a> {
    /// Creates an inspector for the listing that was surveyed with these policies.
    pub fn new(listing: &'a Listing, policies: &'a Policies) -> Self {
        let files = listing.files.iter().map(|file| (file.path.as_str(), file)).collect();
        Self { listing, policies, files, judge: Judge::of(listing), codes: BuiltCode::all(policies) }
    }

    /// Returns the listed file with this path.
    pub fn file(&self, path: &str) -> Option<&'a File> {
        self.files.get(path).copied()
    }

    /// Returns the stripes of a unit. There are none unless the unit has valid parity.
    pub fn stripes(&self, unit: &Unit) -> Vec<StripeHealth<'a>> {
        self.find(unit).unwrap_or_default()
    }

    fn find(&self, unit: &Unit) -> Option<Vec<StripeHealth<'a>>> {
        let protection = unit.protection.as_ref().filter(|protection| protection.state.is_valid())?;
        let parity = self.file(&protection.path)?;
        let codec = self.policies.codec(unit.codec.as_ref()?)?;
        let files: Vec<&'a File> = unit.files.iter().map(|path| self.file(path)).collect::<Option<_>>()?;
        let layout = match codec.scope {
            Scope::File => Layout::of_file(files[0], codec),
            Scope::Folder => Layout::of_folder(&files, self.listing.notes.members(&parity.path), codec),
        };
        Some(encoded_stripes(&files, &layout.ok()?, parity, &self.codes[codec.name.as_str()], &self.judge))
    }
}

/// Returns the stripes of a source with valid parity.
pub(crate) fn encoded_stripes<'a>(
    files: &[&'a File],
    layout: &Layout,
    parity: &'a File,
    built: &BuiltCode,
    judge: &Judge,
) -> Vec<StripeHealth<'a>> {
    let stripe = |(stripe, members): (usize, &[Member])| {
        let data = members.iter().map(|member| &files[member.file].blocks[member.block]);
        let blocks: Vec<&Block> = data.chain(&parity.blocks[layout.parity_positions(stripe)]).collect();
        let replicas: Vec<Vec<NodeIndex>> = blocks.iter().map(|block| block.replicas.clone()).collect();
        let missing = replicas.iter().filter(|nodes| nodes.is_empty()).count();
        let is_repairable = || built.check(blocks.iter().copied(), members.len(), &[]).is_ok();
        let is_decodable = || is_decodable(built.code.as_ref(), members.len(), &replicas);
        StripeHealth {
            stripe,
            members: members.to_vec(),
            missing,
            is_decodable: missing == 0 || (is_repairable() && is_decodable()),
            crowding: judge.crowding(&replicas, built.tolerated),
            is_exposed: judge.is_exposed(&replicas, built.tolerated),
            blocks,
        }
    };
    layout.stripes().enumerate().map(stripe).collect()
}

/// Whether the missing blocks of a stripe with this number of data blocks can be rebuilt.
pub(crate) fn is_decodable(code: &dyn Code, data: usize, replicas: &[Vec<NodeIndex>]) -> bool {
    // Data blocks that a short stripe lacks are zeros, which are always available.
    let absent = code.data_blocks() - data;
    let index = |at: usize| BlockIndex((if at < data { at } else { at + absent }) as u16);
    let lost: Vec<BlockIndex> =
        (0..replicas.len()).filter(|&at| replicas[at].is_empty()).map(index).collect();
    let others = (0..code.blocks() as u16).map(BlockIndex).filter(|block| !lost.contains(block));
    lost.is_empty() || code.repair(&lost, &others.collect::<Vec<_>>()).is_ok()
}
