//! [`HelperParity`]: parity that the helpers make, each block at the DataNode where it stays.
//!
//! The parity of a stripe is a repair of blocks that never existed (`docs/decisions/0069`):
//!
//! | step | by | left over if everything stops after it |
//! |---|---|---|
//! | reserve a file and a block for each parity block | the JVM | open files in the draft; the next look deletes them |
//! | describe the stripe: data where it is, parity lost | the coordinator | a description that is forgotten |
//! | one repair: rebuild the first parity block, then the others | helpers | blocks of open files; deleted with the files |
//! | complete the files | the JVM | parity in the draft; the next run continues with it |
//!
//! When the others are rebuilt, there is a survivor to spare, so their parity check relates all blocks of the
//! stripe. Such a stripe needs no further proof, which lasts as long as this object. If helpers cannot make
//! the parity of a stripe, the JVM does.
//!
//! While the data blocks have other replicas, no data depends on the parity, so its repair comes after those
//! of lost blocks. If this process is killed, its repairs end with their leases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use attached::{Kind as _, KindError};
use cluster::Cluster;
use codes::{BlockIndex, CodeSpec};
use hdfs_raid::{
    Block, Extent, Facts, Fingerprint, Layout, MarkedFile, Member, NewBlock, Note, Refusal, Trouble,
};
use repair::StripeId;
use store_api::{DescribedBlock, DescribedStripe, LateRebuilder, Rebuild, RebuildError, Rebuilder, Rebuilt};
use tokio::time::Instant;

use super::changes::{layout, refused, source};
use super::drafts::{Drafts, Held};
use super::driving::{ParityMaker, Pending};
use super::proofs::Proofs;
use super::{RaidFile, RaidNameNode};
use crate::Hdfs;
use crate::blocks::ReplicaName;
use crate::config::{Adopt, HdfsHelper};
use crate::listing::{FileRef, Range, Reservation};

/// The number of attempts to have helpers make the parity of a stripe. The second one uses other replicas, if a helper
/// has gone meanwhile.
const ATTEMPTS: usize = 2;
/// The longest wait for the repair of a stripe. It ends before the hard limit of HDFS's leases (20 min).
const REPAIR_LIMIT: Duration = Duration::from_secs(1000);
/// The coordinator cancels a repair after this time without a request for its state.
const LEASE: Duration = Duration::from_secs(60);
/// The interval between checks whether all helpers of a repair are still connected.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Takes news about a file: its path, and the news.
type Teller = dyn Fn(&str, &dyn fmt::Display) + Send + Sync;

/// Has the helpers make parity, and the JVM where they cannot; see the module's documentation.
pub struct HelperParity {
    jvm: RaidNameNode,
    rebuilder: LateRebuilder,
    tell: Box<Teller>,
    /// The helpers' names, keyed by the address of the DataNode on the same machine.
    names: BTreeMap<String, String>,
    /// Whether some helper pushes blocks to its DataNode, which may require block tokens.
    pushes: bool,
    scheme: Option<String>,
    is_required: bool,
    proven: Mutex<Proofs>,
}

impl fmt::Debug for HelperParity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperParity").field("rebuilder", &self.rebuilder).finish_non_exhaustive()
    }
}

impl HelperParity {
    /// Creates a maker for a cluster. `tell` gets the reason whenever the JVM makes the parity of a stripe.
    ///
    /// # Errors
    /// [`KindError`] if the helpers' settings in `mend.toml` are invalid.
    pub fn of(
        cluster: &Cluster,
        jvm: RaidNameNode,
        rebuilder: Arc<dyn Rebuilder>,
        tell: impl Fn(&str, &dyn fmt::Display) + Send + Sync + 'static,
    ) -> Result<Self, KindError> {
        let helpers = cluster.helper_settings::<HdfsHelper>()?;
        let pushes = helpers.values().any(|helper| helper.adopt == Adopt::Push);
        let names = Hdfs.servers(cluster)?;
        Ok(Self::new(jvm, Arc::new(OnceLock::from(rebuilder)), Box::new(tell), names, pushes))
    }

    /// Creates a maker. `names` are those of the helpers, keyed by the addresses of their DataNodes; `pushes` is whether
    /// some helper pushes blocks.
    pub(crate) fn new(
        jvm: RaidNameNode,
        rebuilder: LateRebuilder,
        tell: Box<Teller>,
        names: BTreeMap<String, String>,
        pushes: bool,
    ) -> Self {
        let proven = Mutex::default();
        Self { jvm, rebuilder, tell, names, pushes, scheme: None, is_required: false, proven }
    }

    /// Sets the repair scheme. Without this, it is the cluster's default.
    #[must_use]
    pub fn with_scheme(self, scheme: Option<String>) -> Self {
        Self { scheme, ..self }
    }

    /// Has encoding fail where helpers cannot make the parity.
    #[must_use]
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    fn rebuilder(&self) -> Result<&Arc<dyn Rebuilder>, RebuildError> {
        let starting = || RebuildError::Unreachable("it is starting".to_owned());
        self.rebuilder.get().ok_or_else(starting)
    }

    /// Returns the name of the helper at a DataNode.
    fn helper<'a>(&'a self, address: &'a str) -> &'a str {
        self.names.get(address).map_or(address, String::as_str)
    }

    fn proven(&self) -> MutexGuard<'_, Proofs> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParityMaker for HelperParity {
    fn encode<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        stripe: usize,
        blocks: &'a [NewBlock],
    ) -> Pending<'a, Result<(), Trouble>> {
        Box::pin(async move {
            let Err(why) = self.make(&self.jvm.namenode, file, facts, stripe, blocks).await? else {
                return Ok(());
            };
            if self.is_required {
                return Err(refused(Refusal::Other, why));
            }
            (self.tell)(&file.path, &format!("the JVM makes the parity of stripe {stripe}: {why}"));
            self.jvm.encode(file, facts, stripe, blocks).await
        })
    }

    fn prove<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        note: Note,
        parity: &'a [String],
    ) -> Pending<'a, Result<bool, Trouble>> {
        if self.take_proof(file, facts, parity) {
            (self.tell)(&file.path, &"the helpers have checked the parity");
            return Box::pin(std::future::ready(Ok(true)));
        }
        self.jvm.prove(file, facts, note, parity)
    }

    fn has_proof(&self, file: &RaidFile, facts: &Facts, parity: &[String]) -> bool {
        prints(file, facts, parity).is_some_and(|prints| self.proven().contain(&prints))
    }
}

/// Why nothing was reserved for the parity of a stripe.
enum Obstacle {
    /// HDFS does not answer, or the file has changed.
    Hdfs(Trouble),
    /// The helpers cannot make the parity.
    Helpers(String),
}

/// The helpers from which the existing blocks of a stripe are read, by index.
type Sources = BTreeMap<BlockIndex, String>;

impl HelperParity {
    /// Has helpers make parity blocks of a stripe. Returns why they cannot; no file of these blocks is left then.
    async fn make<D: Drafts>(
        &self,
        drafts: &D,
        file: &RaidFile,
        facts: &Facts,
        stripe: usize,
        blocks: &[NewBlock],
    ) -> Result<Result<(), String>, Trouble> {
        let task = match Task::new(file, facts, stripe, blocks)? {
            Ok(task) => task,
            Err(why) => return Ok(Err(why)),
        };
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            let sources = match self.sources(drafts, &task).await {
                Ok(sources) => sources,
                Err(Obstacle::Hdfs(trouble)) => return Err(trouble),
                Err(Obstacle::Helpers(why)) => {
                    let both = if failure.is_empty() { why } else { format!("{failure}; then {why}") };
                    return Ok(Err(both));
                }
            };
            match self.deliver(drafts, &task, &sources).await {
                Ok(()) => return Ok(Ok(())),
                Err(why) => failure = why,
            }
            drafts.discard(blocks).await?;
        }
        Ok(Err(failure))
    }

    /// Chooses the helpers that are read. All of them, and those that receive parity, are connected.
    async fn sources<D: Drafts>(&self, drafts: &D, task: &Task<'_>) -> Result<Sources, Obstacle> {
        let failed = |error: RebuildError| Obstacle::Helpers(error.to_string());
        let up = self.rebuilder().map_err(failed)?.helpers_up().await.map_err(failed)?;
        let targets = self.targets(task);
        if let Some(missing) = targets.values().find(|name| !up.contains(*name)) {
            return Err(Obstacle::Helpers(format!("no helper {missing} is connected, where a block is due")));
        }
        let held = drafts.holders(&task.ranges()).await.map_err(Obstacle::Hdfs)?;
        if !held.iter().map(print_of).eq(task.existing().map(|(_, block)| block_print(block))) {
            let changed = refused(Refusal::Changed, "the blocks of the file or of its parity have changed");
            return Err(Obstacle::Hdfs(changed));
        }
        let targets: BTreeSet<&String> = targets.values().collect();
        let candidates: Vec<Vec<String>> = held
            .iter()
            .map(|held| {
                let names = held.at.iter().map(|address| self.helper(address).to_owned());
                without(names.filter(|name| up.contains(name)).collect(), &targets)
            })
            .collect();
        if let Some(at) = candidates.iter().position(Vec::is_empty) {
            let number = held[at].number;
            return Err(Obstacle::Helpers(format!("no connected helper holds block blk_{number}")));
        }
        Ok(task.existing().map(|(index, _)| index).zip(apart(&candidates)).collect())
    }

    /// Returns the helpers that receive parity, by the block's index.
    fn targets(&self, task: &Task<'_>) -> BTreeMap<BlockIndex, String> {
        let home = |block: &NewBlock| (task.index(block.parity), self.helper(&block.datanode).to_owned());
        task.blocks.iter().map(home).collect()
    }

    /// Reserves the blocks, has them delivered, and completes their files.
    async fn deliver<D: Drafts>(&self, drafts: &D, task: &Task<'_>, sources: &Sources) -> Result<(), String> {
        let reserved = drafts.reserve(task.block_bytes, task.blocks).await.map_err(text)?;
        if self.pushes && reserved.iter().any(|block| block.needs_token) {
            return Err(
                "DataNodes require block tokens, so helpers need the plug-in to make parity".to_owned()
            );
        }
        let stripe = task.describe(sources, &reserved)?;
        self.rebuilder().map_err(text)?.describe(&stripe).await.map_err(text)?;
        let rebuild = Rebuild {
            stripe: stripe.stripe.clone(),
            homes: self.targets(task),
            scheme: self.scheme.clone(),
            is_background: task.has_replicas,
            lease: LEASE,
            one_first: task.makes_one_first(),
        };
        let rebuilt = self.rebuild(&stripe, &rebuild).await?;
        drafts.complete(task.block_bytes, &reserved).await.map_err(text)?;
        if rebuilt.is_checked && task.is_proven_by_check() {
            self.proven().insert(task.print_with(&reserved));
        }
        Ok(())
    }

    /// Waits for a repair. Cancels it if it takes too long, or if one of the helpers is gone: the repair would wait for
    /// the helper to return.
    async fn rebuild(&self, stripe: &DescribedStripe, rebuild: &Rebuild) -> Result<Rebuilt, String> {
        let held = stripe.blocks.iter().filter_map(|block| block.node.clone());
        let needed: BTreeSet<String> = held.chain(rebuild.homes.values().cloned()).collect();
        let rebuilder = self.rebuilder().map_err(text)?;
        let repair = rebuilder.begin(rebuild).await.map_err(text)?;
        let until = Instant::now() + REPAIR_LIMIT;
        let why = loop {
            match rebuilder.await_end(repair, LOOK_EVERY).await {
                Ok(Some(rebuilt)) => return Ok(rebuilt),
                Ok(None) => {}
                Err(error) => break error.to_string(),
            }
            match rebuilder.helpers_up().await {
                Ok(up) => {
                    if let Some(gone) = needed.iter().find(|name| !up.contains(*name)) {
                        break format!("the connection of helper {gone} has ended");
                    }
                }
                Err(error) => break error.to_string(),
            }
            if Instant::now() >= until {
                break format!("the helpers have not made the parity in {} s", REPAIR_LIMIT.as_secs());
            }
        };
        rebuilder.cancel(repair).await;
        Err(why)
    }

    /// Whether all stripes of a file are proven, with the parity in these files of a draft. A proof is used once.
    fn take_proof(&self, file: &RaidFile, facts: &Facts, parity: &[String]) -> bool {
        prints(file, facts, parity).is_some_and(|prints| self.proven().take(&prints))
    }
}

/// Identifies the blocks of each stripe of a file, with the parity in these files of a draft.
fn prints(file: &RaidFile, facts: &Facts, parity: &[String]) -> Option<Vec<String>> {
    let (source, layout) = (source(file, facts).ok()?, layout(file, facts).ok()?);
    let drafts = drafts_of(facts);
    let parity = parity.iter().filter_map(|path| drafts.get(path.as_str()));
    let parity: Vec<&Block> = parity.flat_map(|it| &it.file.blocks).collect();
    let stripe = |(stripe, members): (usize, &[Member])| {
        let parity = parity.get(layout.parity_positions(stripe))?;
        let data = members.iter().map(|member| &source.blocks[member.block]);
        Some(Fingerprint::of(data.chain(parity.iter().copied())).to_string())
    };
    layout.stripes().enumerate().map(stripe).collect()
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Returns the files in all drafts, by path.
fn drafts_of(facts: &Facts) -> BTreeMap<&str, &MarkedFile> {
    let files = facts.drafts.iter().flat_map(|draft| &draft.files);
    files.map(|file| (file.file.path.as_str(), file)).collect()
}

fn print_of(held: &Held) -> (i64, u64, u64) {
    (held.number, held.stamp, held.bytes)
}

fn block_print(block: &Block) -> (i64, u64, u64) {
    (block.number, block.stamp, block.bytes)
}

/// Returns the holders of a block that receive no parity, if there are any.
fn without(holders: Vec<String>, targets: &BTreeSet<&String>) -> Vec<String> {
    let others: Vec<String> = holders.iter().filter(|holder| !targets.contains(holder)).cloned().collect();
    if others.is_empty() { holders } else { others }
}

/// Chooses a holder of each block, as many different ones as possible. Each block has a candidate.
fn apart(candidates: &[Vec<String>]) -> Vec<String> {
    let mut seats: BTreeMap<&str, usize> = BTreeMap::new();
    for block in 0..candidates.len() {
        seat(candidates, block, &mut seats, &mut BTreeSet::new());
    }
    let chosen: BTreeMap<usize, &str> = seats.into_iter().map(|(name, block)| (block, name)).collect();
    let holder = |(block, all): (usize, &Vec<String>)| {
        chosen.get(&block).map_or_else(|| all[0].clone(), |name| (*name).to_owned())
    };
    candidates.iter().enumerate().map(holder).collect()
}

/// Gives a block a holder of its own, and moves other blocks to other holders for this (an augmenting path).
fn seat<'a>(
    candidates: &'a [Vec<String>],
    block: usize,
    seats: &mut BTreeMap<&'a str, usize>,
    tried: &mut BTreeSet<&'a str>,
) -> bool {
    candidates[block].iter().any(|name| {
        let is_free = tried.insert(name)
            && match seats.get(name.as_str()).copied() {
                Some(other) => seat(candidates, other, seats, tried),
                None => true,
            };
        if is_free {
            seats.insert(name, block);
        }
        is_free
    })
}

/// A stripe whose parity is to be made.
struct Task<'a> {
    code: CodeSpec,
    block_bytes: u64,
    /// The data blocks, with their ranges in files.
    data: Vec<&'a Block>,
    data_ranges: Vec<Range>,
    /// The parity blocks that a former run has made, by position, with the inodes of their files.
    present: BTreeMap<usize, (u64, &'a Block)>,
    /// The parity blocks to make.
    blocks: &'a [NewBlock],
    /// Whether HDFS keeps further replicas of the data blocks.
    has_replicas: bool,
}

impl<'a> Task<'a> {
    /// Returns a task, or why helpers cannot carry it out.
    ///
    /// # Errors
    /// [`Trouble`] if the file has no such stripe any more.
    fn new(
        file: &RaidFile,
        facts: &'a Facts,
        stripe: usize,
        blocks: &'a [NewBlock],
    ) -> Result<Result<Self, String>, Trouble> {
        let (source, layout) = (source(file, facts)?, layout(file, facts)?);
        let gone = || refused(Refusal::Changed, format!("{} has no stripe {stripe} any more", file.path));
        let members = layout.stripes().nth(stripe).ok_or_else(gone)?;
        let data: Vec<&Block> = members.iter().map(|member| &source.blocks[member.block]).collect();
        let code = match file.codec.shortened(data.len()) {
            Ok(code) => code,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let first = members.first().map_or(0, |member| member.block);
        let data_ranges = facts.extents(first..first + data.len()).iter().map(range).collect();
        let present = present(facts, &layout, stripe, blocks);
        let (block_bytes, has_replicas) = (layout.block_bytes(), source.replication > 1);
        let task = Self { code, block_bytes, data, data_ranges, present, blocks, has_replicas };
        Ok(task.check().map(|()| task))
    }

    /// Checks that each block of the stripe either exists or is to be made.
    fn check(&self) -> Result<(), String> {
        let parities = self.code.blocks() - self.data.len();
        let made = self.blocks.iter().map(|block| block.parity);
        let all: BTreeSet<usize> = self.present.keys().copied().chain(made).collect();
        if all.into_iter().eq(0..parities) && self.present.len() + self.blocks.len() == parities {
            return Ok(());
        }
        Err("other parity blocks of the stripe are not complete".to_owned())
    }

    /// Returns the index of a parity block in the stripe.
    fn index(&self, parity: usize) -> BlockIndex {
        BlockIndex((self.data.len() + parity) as u16)
    }

    /// Returns the blocks that exist, with their indices.
    fn existing(&self) -> impl Iterator<Item = (BlockIndex, &'a Block)> {
        let data = self.data.iter().zip(0..).map(|(block, at)| (BlockIndex(at), *block));
        data.chain(self.present.iter().map(move |(&parity, &(_, block))| (self.index(parity), block)))
    }

    /// Returns the ranges of files in which the existing blocks are, in the order of the blocks.
    fn ranges(&self) -> Vec<Range> {
        let whole = |&(inode, block): &(u64, &Block)| Range {
            file: FileRef { inode, held_at: None },
            start: 0,
            bytes: block.bytes,
        };
        self.data_ranges.iter().cloned().chain(self.present.values().map(whole)).collect()
    }

    /// Whether one parity block is made before the others: it is the survivor with which the check of the
    /// others relates all blocks.
    fn makes_one_first(&self) -> bool {
        self.code.is_mds() && self.present.is_empty() && self.blocks.len() > 1
    }

    /// Whether the check of the blocks that are made last relates all blocks of the stripe. A check takes
    /// exactly one survivor more than the code needs (`docs/decisions/0005`), so there must be no more, and
    /// the code must be MDS.
    fn is_proven_by_check(&self) -> bool {
        let last = self.blocks.len() - usize::from(self.makes_one_first());
        self.code.is_mds() && last > 0 && self.code.blocks() - last == self.data.len() + 1
    }

    /// Describes the stripe, with the reserved blocks as lost ones.
    fn describe(&self, sources: &Sources, reserved: &[Reservation]) -> Result<DescribedStripe, String> {
        let mut blocks: BTreeMap<BlockIndex, DescribedBlock> = BTreeMap::new();
        for (index, block) in self.existing() {
            let node = sources.get(&index).cloned();
            blocks.insert(index, described(block.number, block.stamp, block.bytes, node)?);
        }
        for (block, reserved) in self.blocks.iter().zip(reserved) {
            let lost = described(reserved.number, reserved.stamp, self.block_bytes, None)?;
            blocks.insert(self.index(block.parity), lost);
        }
        if blocks.len() != self.code.blocks() {
            return Err(format!("HDFS reserved {} blocks instead of {}", reserved.len(), self.blocks.len()));
        }
        // Generation stamps rise, so no other stripe ever has this name.
        let newest = reserved.iter().map(|block| block.stamp).max().unwrap_or_default();
        let first = self.data.first().map_or(0, |block| block.number);
        let stripe = StripeId(format!("encoding_{first}_{newest}"));
        let blocks = blocks.into_values().collect();
        Ok(DescribedStripe { stripe, code: self.code.clone(), block_bytes: self.block_bytes, blocks })
    }

    /// Identifies the blocks of the stripe once the reserved ones exist.
    fn print_with(&self, reserved: &[Reservation]) -> String {
        let made = |(block, reserved): (&NewBlock, &Reservation)| {
            let (number, stamp, bytes) = (reserved.number, reserved.stamp, self.block_bytes);
            (self.index(block.parity), Block { number, stamp, bytes, replicas: Vec::new() })
        };
        let mut blocks: BTreeMap<BlockIndex, Block> = self.blocks.iter().zip(reserved).map(made).collect();
        blocks.extend(self.existing().map(|(index, block)| (index, block.clone())));
        Fingerprint::of(blocks.values()).to_string()
    }
}

/// Returns the range of a file in which consecutive blocks are.
fn range(extent: &Extent<'_>) -> Range {
    let bytes = |blocks: &[Block]| blocks.iter().map(|block| block.bytes).sum::<u64>();
    let (before, rest) = extent.file.blocks.split_at(extent.first);
    let file = FileRef { inode: extent.file.inode, held_at: None };
    Range { file, start: bytes(before), bytes: bytes(&rest[..extent.blocks]) }
}

/// Returns the parity blocks of a stripe that exist in the draft of these blocks, by position.
fn present<'a>(
    facts: &'a Facts,
    layout: &Layout,
    stripe: usize,
    blocks: &[NewBlock],
) -> BTreeMap<usize, (u64, &'a Block)> {
    let Some((folder, _)) = blocks.first().and_then(|block| block.path.rsplit_once('/')) else {
        return BTreeMap::new();
    };
    let drafts = drafts_of(facts);
    let file = |parity: usize| {
        let file = &drafts.get(format!("{folder}/{stripe}-{parity}").as_str())?.file;
        Some((parity, (file.inode, file.blocks.first()?)))
    };
    (0..layout.parity_positions(stripe).len()).filter_map(file).collect()
}

fn described(number: i64, stamp: u64, bytes: u64, node: Option<String>) -> Result<DescribedBlock, String> {
    // Numbers of block groups are negative since Hadoop 3; helpers would take such a block for one of a group.
    let name = ReplicaName::new(number, stamp).filter(|_| number >= 0);
    let block = name.ok_or_else(|| format!("block {number} has a negative number"))?.block_id();
    Ok(DescribedBlock { block, bytes, node })
}

#[cfg(test)]
mod tests;
