//! Rebuilds a catalog from the labels of blocks.
//!
//! Every block's label, length and digest are known. It is unknown whether a put was committed and whether a
//! file was removed. Of several puts of the same name, the newest readable one therefore becomes the file;
//! the blocks of the other puts stay on the helpers as orphans. An empty file has no blocks and cannot be
//! recovered.
//!
//! A helper may return false labels, so the rebuild counts helpers, not blocks. Each stripe of a put is
//! stored on some number of helpers; the smallest of these numbers is the put's number of *witnesses*. A
//! helper that does not answer (a silent helper) might confirm a put. The rebuild therefore also considers
//! how many witnesses a put would have if all silent helpers confirmed it. If a file of the same name still
//! has more witnesses, the put does not replace the file, but is stored under another name. Numbers and times
//! that only one helper reports barely affect the [counters](super::counters).
//!
//! The report names everything that did not become a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use redb::Database;
use repair::wire::control::Description;
use repair::{BlockId, FilePart, NodeId, StripeId, StripeLabel};
use store_api::names::Key;
use store_api::{
    BlockRecord, BlockSize, BlockState, Eras, FileRecord, Inventory, NodeRecord, OpenError, Replaced,
    StripeRecord, stripe_count,
};

use super::copies::{check_unused, draft_beside, install, mark_unproven};
use super::counters::{last_begun, next_number};
use super::eras::ERAS;
use super::open::{open_fault, write_empty};
use super::puts::{LAST_BEGUN, MAX_NAME_BYTES, NEXT_PUT, unix_ms};
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, FILES, META, NODE_NAMES, NODES, STRIPES, guard};
use super::{DirCatalog, block_index};

/// Bytes reserved for the suffix `.rival-N` of a file name.
const RIVAL_BYTES: usize = 32;

/// The result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The names of the readable files.
    pub files: Vec<String>,
    /// The names of the unreadable files: too many of their blocks are missing. The missing blocks may be on
    /// helpers that did not answer.
    pub unreadable: Vec<String>,
    /// Readable puts that claim the name of a file, and became files under other names.
    pub rivals: Vec<Rival>,
    /// Puts that did not become a file, because they are incomplete or older than the file: for each put, the
    /// name that it claims and the number of its blocks.
    pub left: Vec<(String, usize)>,
    /// Readable files that only one helper reports; the helper may have invented them.
    pub unconfirmed: Vec<Unconfirmed>,
    /// Blocks that became part of no stripe: blocks without a label, blocks from another cluster, and blocks
    /// with a label or bytes that contradict other blocks of the stripe.
    pub strangers: Vec<Stranger>,
    /// The path to which the previous catalog was moved.
    pub replaced: Option<PathBuf>,
}

/// A readable put that claims the name of a file but may not replace it. Either too few helpers hold its
/// blocks, or it is older than the file, and only one helper reports the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The claimed name.
    pub name: String,
    /// The name of the file that was created from the put.
    pub kept_as: String,
    /// The helpers that hold the put's blocks.
    pub helpers: Vec<String>,
}

/// A file that only one helper reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The file's name.
    pub name: String,
    /// The helper.
    pub helper: String,
}

/// A block that became part of no stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The block's name.
    pub block: BlockId,
    /// The helper that holds the block.
    pub helper: String,
    /// The file that the label names; `None` without a label of this cluster.
    pub file: Option<String>,
}

impl Rebuilt {
    /// Returns the file names in labels of this cluster for which no file was rebuilt.
    pub fn without_file(&self) -> BTreeSet<&str> {
        let left = self.left.iter().map(|(name, _)| name.as_str());
        let mentioned = left.chain(self.strangers.iter().filter_map(|stranger| stranger.file.as_deref()));
        let files: BTreeSet<&str> = self.files.iter().chain(&self.unreadable).map(String::as_str).collect();
        mentioned.filter(|name| !files.contains(name)).collect()
    }

    /// Whether every file name in a label has a readable file that several helpers report, and no other put
    /// or block contradicts these files.
    pub fn is_clear(&self) -> bool {
        self.unreadable.is_empty()
            && self.rivals.is_empty()
            && self.unconfirmed.is_empty()
            && self.without_file().is_empty()
            && self.strangers.iter().all(|stranger| stranger.file.is_none())
    }
}

/// The blocks that became part of no stripe, with the names of the helpers.
struct Strangers<'a> {
    names: &'a BTreeMap<NodeId, String>,
    found: Vec<Stranger>,
}

impl Strangers<'_> {
    fn add(&mut self, block: &BlockId, node: NodeId, file: Option<&FilePart>) {
        let (block, helper) = (block.clone(), self.names[&node].clone());
        self.found.push(Stranger { block, helper, file: file.map(|part| part.name.clone()) });
    }

    /// Adds the blocks of a stripe, except those that no helper holds.
    fn add_all<'b>(&mut self, blocks: impl IntoIterator<Item = &'b BlockRecord>, file: Option<&FilePart>) {
        for block in blocks {
            if let Some(node) = block.node {
                self.add(&block.id, node, file);
            }
        }
    }
}

/// A stripe with all copies of its blocks that helpers reported.
struct Heard {
    label: StripeLabel,
    names: Names,
    copies: BTreeMap<BlockIndex, Vec<BlockRecord>>,
}

/// A stripe with one record per block that was found.
struct Found {
    label: StripeLabel,
    names: Names,
    blocks: BTreeMap<BlockIndex, BlockRecord>,
}

/// The stripes of one put, by position.
type Stripes = BTreeMap<u32, (Key, StripeRecord)>;

/// For each file name, the helpers that hold a block with this name in its label. Helpers are counted and not
/// blocks, because one helper can invent any number of blocks.
type Names = BTreeMap<String, BTreeSet<NodeId>>;

/// The stripes of one put, and the file names in the labels of their blocks.
struct Put {
    part: FilePart,
    names: Names,
    stripes: Stripes,
}

/// A put that may become the file with the name that the put claims.
struct Candidate {
    part: FilePart,
    stripes: Stripes,
    /// The smallest number of helpers that hold blocks of one stripe, over all stripes of the put.
    witnesses: usize,
    /// The number of witnesses that the put would have if silent helpers (those that did not answer)
    /// confirmed it, but at most the number of blocks of a stripe. For a put with a single witness, equal to
    /// `witnesses`.
    reach: usize,
    readable: bool,
    whole: bool,
}

impl DirCatalog {
    /// Creates the catalog at `path` from inventories. An existing catalog is kept under another name. No
    /// coordinator may have it open. `silent` are the helpers of the cluster without an inventory. They are
    /// registered without an address, because they may hold blocks.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn rebuild(
        path: &Path,
        cluster_id: &str,
        inventories: &[Inventory],
        silent: &BTreeSet<String>,
    ) -> Result<Rebuilt, OpenError> {
        check_unused(path)?;
        let mut rebuilt = Rebuilt::default();
        let nodes = (1..).map(NodeId).zip(inventories).collect::<Vec<_>>();
        let names = nodes.iter().map(|&(id, inventory)| (id, inventory.node.clone())).collect();
        let mut strangers = Strangers { names: &names, found: Vec::new() };
        let puts = by_put(gather(cluster_id, &nodes, &mut strangers), &mut strangers);
        rebuilt.strangers = strangers.found;
        let next_stripe = next_number(puts.values().flat_map(|(_, stripes)| stripe_numbers(stripes)));
        let next_put = next_number(puts.values().filter_map(put_number));
        let now = unix_ms();
        let begun = last_begun(puts.values().map(|put| (put.0.begun_unix_ms, fewest_witnesses(&put.1))), now);
        let files = choose(puts, (silent.len(), now), &names, &mut rebuilt);
        let told = nodes.iter().map(|(_, inventory)| (&inventory.node, Some(&inventory.address)));
        let helpers = told.chain(silent.iter().map(|name| (name, None)));

        let draft = draft_beside(path)?;
        write_empty(&draft, path, cluster_id)?;
        guard(path, || {
            let database = Database::open(draft.path()).map_err(|error| open_fault(path, error))?;
            let change = Change::of(&database, path)?;
            change.put(META, NEXT_STRIPE, &next_stripe)?;
            change.put(META, NEXT_PUT, &next_put)?;
            change.put(META, LAST_BEGUN, &begun)?;
            change.put(META, "next-node", &((nodes.len() + silent.len()) as u64 + 1))?;
            for (id, (name, address)) in (1..).map(NodeId).zip(helpers) {
                change.put(NODE_NAMES, name.as_str(), &id)?;
                change.put(NODES, id.0, &NodeRecord { id, name: name.clone(), address: address.cloned() })?;
            }
            for (file, stripes) in &files {
                change.put(FILES, file.name.as_str(), file)?;
                stripes.values().try_for_each(|(key, stripe)| change.put(STRIPES, key.0, stripe))?;
            }
            let heard = inventories.iter().flat_map(|inventory| &inventory.blocks);
            let heard = heard.filter_map(|block| Some(Key::of_block(&block.id)?.0));
            change.put(META, ERAS, &Eras::of_rebuild(heard))?;
            mark_unproven(&change, Replaced::Rebuilt)?;
            change.commit()?;
            Ok::<_, OpenError>(())
        })?;
        rebuilt.replaced = install(draft, path)?;
        Ok(rebuilt)
    }
}

/// Groups all blocks of this cluster into stripes.
fn gather(
    cluster: &str,
    nodes: &[(NodeId, &Inventory)],
    strangers: &mut Strangers<'_>,
) -> BTreeMap<Key, Found> {
    // The key includes the label, because blocks may disagree about their stripe. But the label's file name
    // is left out: if a rival was kept under another name, its blocks that were repaired since then have this
    // name in their labels, and its other blocks still have the old name.
    let mut stripes: BTreeMap<(Key, String), Heard> = BTreeMap::new();
    for &(node, inventory) in nodes {
        for block in &inventory.blocks {
            let Some((key, index, label)) = placed(cluster, block) else {
                let label = block.label.as_ref().map(|(_, label)| label);
                let ours = label.filter(|label| label.cluster == cluster);
                strangers.add(&block.id, node, ours.map(|label| &label.file));
                continue;
            };
            let new = || Heard { label: label.clone(), names: Names::new(), copies: BTreeMap::new() };
            let nameless = StripeLabel { file: nameless(&label.file), ..label.clone() };
            let stripe = stripes.entry((key, as_text(&nameless))).or_insert_with(new);
            stripe.names.entry(label.file.name.clone()).or_default().insert(node);
            stripe.copies.entry(index).or_default().push(BlockRecord {
                id: block.id.clone(),
                bytes: block.bytes,
                node: Some(node),
                state: BlockState::Healthy,
                replicas: Vec::new(),
                digest: block.digest,
            });
        }
    }
    let settled = stripes.into_iter().map(|((key, _), heard)| (key, settle(heard, strangers))).collect();
    most_told(settled, strangers)
}

/// Chooses one copy of each block. A helper normally holds one block of a stripe, so a helper that reports
/// fewer blocks of the stripe is trusted more. If equally trusted copies differ, the block is recorded as
/// corrupt, so that it is repaired from the other blocks of the stripe.
fn settle(heard: Heard, strangers: &mut Strangers<'_>) -> Found {
    let Heard { mut label, names, copies } = heard;
    label.file.name = most_told_name(&names);
    let mut held: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
    copies.values().flatten().for_each(|copy| *held.entry(copy.node).or_default() += 1);
    let mut blocks = BTreeMap::new();
    for (index, mut copies) in copies {
        copies.sort_by_key(|copy| (held[&copy.node], copy.node));
        let fewest = held[&copies[0].node];
        let rank = copies.iter().take_while(|copy| held[&copy.node] == fewest);
        let differ = rank.into_iter().any(|copy| copy.digest != copies[0].digest);
        let left_out = copies.iter().filter(|copy| differ || copy.digest != copies[0].digest);
        strangers.add_all(left_out, Some(&label.file));
        let mut block = copies.swap_remove(0);
        if differ {
            (block.node, block.digest, block.state) = (None, None, BlockState::Corrupt);
        }
        blocks.insert(index, block);
    }
    Found { label, names, blocks }
}

/// If helpers describe a stripe differently, keeps the description that most helpers report.
fn most_told(stripes: Vec<(Key, Found)>, strangers: &mut Strangers<'_>) -> BTreeMap<Key, Found> {
    let weight = |found: &Found| (witnesses(found.blocks.values()), found.blocks.len());
    let mut best: BTreeMap<Key, Found> = BTreeMap::new();
    for (key, found) in stripes {
        let other = match best.get(&key) {
            Some(known) if weight(known) >= weight(&found) => Some(found),
            _ => best.insert(key, found),
        };
        if let Some(other) = other {
            strangers.add_all(other.blocks.values(), Some(&other.label.file));
        }
    }
    best
}

/// Returns the number of helpers that hold these blocks.
fn witnesses<'b>(blocks: impl Iterator<Item = &'b BlockRecord>) -> usize {
    blocks.filter_map(|block| block.node).collect::<BTreeSet<_>>().len()
}

/// Returns a copy of `part` without the file's name.
fn nameless(part: &FilePart) -> FilePart {
    FilePart { name: String::new(), ..part.clone() }
}

/// Returns the name that most helpers report. If several names are equal, returns the first of them.
fn most_told_name(names: &Names) -> String {
    let best = names.iter().rev().max_by_key(|(_, helpers)| helpers.len());
    best.map(|(name, _)| name.clone()).unwrap_or_default()
}

fn as_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("labels have string keys and go to memory")
}

/// Returns the stripe's key, the index and the label of a block, if the label agrees with the block's name
/// and length and with itself. A position beyond the end of the file is refused, because a stripe too many
/// would make the whole put unreadable.
fn placed<'b>(cluster: &str, block: &'b Description) -> Option<(Key, BlockIndex, &'b StripeLabel)> {
    let (index, label) = block.label.as_ref()?;
    let (key, named) = Key::of_block(&block.id)?;
    let size = BlockSize { block_bytes: label.block_bytes, chunk_bytes: label.chunk_bytes };
    let fits = label.cluster == cluster
        && key.stripe() == label.stripe
        && named == *index
        && usize::from(index.0) < label.code.blocks()
        && block.bytes == label.block_bytes
        && u64::from(label.file.position)
            < stripe_count(label.file.bytes, &label.code, label.file.block_bytes)
        && size.check(&label.code).is_ok();
    fits.then_some((key, *index, label))
}

/// Groups stripes by the put that their labels name, and by code: all stripes of a put have the same code, so
/// an invented stripe with another code is no part of the put.
fn by_put(
    found: BTreeMap<Key, Found>,
    strangers: &mut Strangers<'_>,
) -> BTreeMap<String, (FilePart, Stripes)> {
    let mut puts: BTreeMap<String, Put> = BTreeMap::new();
    for (key, found) in found {
        let part = found.label.file.clone();
        let told = as_text(&(&found.label.code, FilePart { position: 0, ..nameless(&part) }));
        let new = || Put { part: part.clone(), names: Names::new(), stripes: Stripes::new() };
        let put = puts.entry(told).or_insert_with(new);
        found.names.iter().for_each(|(name, told)| put.names.entry(name.clone()).or_default().extend(told));
        // Of two stripes for the same position, keeps the one that more helpers hold.
        let new = (key, record(key, found));
        let loser = match put.stripes.remove(&part.position) {
            Some(known) if witnesses(known.1.blocks.iter()) >= witnesses(new.1.blocks.iter()) => {
                put.stripes.insert(part.position, known);
                Some(new)
            }
            known => {
                put.stripes.insert(part.position, new);
                known
            }
        };
        if let Some((_, stripe)) = loser {
            strangers.add_all(&stripe.blocks, stripe.file.as_ref());
        }
    }
    puts.into_iter().map(|(told, put)| (told, put.named())).collect()
}

impl Put {
    /// Gives the put and all its stripes the name that most helpers report.
    fn named(self) -> (FilePart, Stripes) {
        let Self { part, names, mut stripes } = self;
        let name = most_told_name(&names);
        rename(&mut stripes, &name);
        (FilePart { name, ..part }, stripes)
    }
}

fn rename(stripes: &mut Stripes, name: &str) {
    for part in stripes.values_mut().filter_map(|(_, stripe)| stripe.file.as_mut()) {
        name.clone_into(&mut part.name);
    }
}

fn record(key: Key, mut found: Found) -> StripeRecord {
    let label = found.label;
    let unknown = |index| BlockRecord {
        id: key.block(index),
        bytes: label.block_bytes,
        node: None,
        state: BlockState::Missing,
        replicas: Vec::new(),
        digest: None,
    };
    let indices = (0..label.code.blocks()).map(block_index);
    let blocks = indices.map(|index| found.blocks.remove(&index).unwrap_or_else(|| unknown(index))).collect();
    let StripeLabel { stripe: id, code, block_bytes, chunk_bytes, file, .. } = label;
    StripeRecord { id, code, block_bytes, chunk_bytes, blocks, file: Some(file) }
}

/// Returns the number of blocks of a stripe that were found.
fn held(stripe: &StripeRecord) -> usize {
    stripe.blocks.iter().filter(|block| block.node.is_some()).count()
}

/// Returns the number in each stripe's name, with the number of helpers that report the stripe.
fn stripe_numbers(stripes: &Stripes) -> impl Iterator<Item = (u64, usize)> {
    stripes.values().map(|(key, stripe)| (key.count(), witnesses(stripe.blocks.iter())))
}

/// Returns the number in a put's name, and the put's number of witnesses (see the module's documentation).
fn put_number((part, stripes): &(FilePart, Stripes)) -> Option<(u64, usize)> {
    Some((Key::of(&StripeId(part.put.clone()))?.count(), fewest_witnesses(stripes)))
}

/// Returns the minimum, over these stripes, of the number of helpers that report blocks of the stripe.
fn fewest_witnesses(stripes: &Stripes) -> usize {
    stripe_numbers(stripes).map(|(_, witnesses)| witnesses).min().unwrap_or(0)
}

impl Candidate {
    fn new(part: FilePart, stripes: Stripes, silent: usize) -> Self {
        let witnesses = fewest_witnesses(&stripes);
        let blocks = stripes.values().map(|(_, stripe)| stripe.blocks.len()).min().unwrap_or(0);
        let confirmed = if witnesses > 1 { silent.min(blocks.saturating_sub(witnesses)) } else { 0 };
        let readable = is_whole(&part, &stripes, is_readable);
        let whole = is_whole(&part, &stripes, |_| true);
        Self { part, stripes, witnesses, reach: witnesses + confirmed, readable, whole }
    }

    fn blocks(&self) -> usize {
        self.stripes.values().map(|(_, stripe)| held(stripe)).sum()
    }

    fn helpers(&self, names: &BTreeMap<NodeId, String>) -> Vec<String> {
        let blocks = self.stripes.values().flat_map(|(_, stripe)| &stripe.blocks);
        let nodes: BTreeSet<NodeId> = blocks.filter_map(|block| block.node).collect();
        nodes.iter().map(|node| names[node].clone()).collect()
    }
}

/// Chooses for each name the put that becomes the file. Other puts that may be the right ones (rivals) become
/// files under other names. No file gets a creation time after `now`, even if its labels contain one.
fn choose(
    puts: BTreeMap<String, (FilePart, Stripes)>,
    (silent, now): (usize, u64),
    helpers: &BTreeMap<NodeId, String>,
    rebuilt: &mut Rebuilt,
) -> Vec<(FileRecord, Stripes)> {
    let mut names: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for (part, stripes) in puts.into_values() {
        names.entry(part.name.clone()).or_default().push(Candidate::new(part, stripes, silent));
    }
    let mut taken: BTreeSet<String> = names.keys().cloned().collect();
    let mut files = Vec::new();
    for (name, mut puts) in names {
        puts.sort_by_key(|put| std::cmp::Reverse((put.part.begun_unix_ms, put.part.put.clone())));
        let Some(at) = pick(&puts, silent > 0) else {
            rebuilt.left.extend(puts.iter().map(|put| (name.clone(), put.blocks())));
            continue;
        };
        let older = puts.split_off(at + 1);
        let chosen = puts.pop().expect("a put was picked");
        let disputed = chosen.witnesses < 2; // A file with one witness has no more support than older puts.
        for (put, is_rival) in
            puts.into_iter().map(|put| (put, true)).chain(older.into_iter().map(|put| (put, disputed)))
        {
            if !put.readable || !is_rival {
                rebuilt.left.push((name.clone(), put.blocks()));
                continue;
            }
            let kept_as = own_name(&put.part, &mut taken);
            rebuilt.rivals.push(Rival {
                name: name.clone(),
                kept_as: kept_as.clone(),
                helpers: put.helpers(helpers),
            });
            files.push(kept_apart(put, kept_as, now));
        }
        if disputed && chosen.readable {
            let helper = chosen.helpers(helpers).join(", ");
            rebuilt.unconfirmed.push(Unconfirmed { name: name.clone(), helper });
        }
        if chosen.readable { &mut rebuilt.files } else { &mut rebuilt.unreadable }.push(name);
        files.push((file(chosen.part, &chosen.stripes, now), chosen.stripes));
    }
    files
}

/// Chooses the put that becomes the file; `puts` are sorted from new to old.
///
/// Let `most` be the highest number of witnesses of any readable put. The newest readable put whose `reach`
/// is at least `most` is chosen. If some helpers did not answer, their blocks may make an unreadable put
/// readable. In this case, the same rule is applied to the unreadable puts. The put that it selects is chosen
/// instead if it has more witnesses than the `reach` of the readable put, or if no put is readable. If all
/// helpers answered, an unreadable put is treated as unfinished.
fn pick(puts: &[Candidate], some_are_silent: bool) -> Option<usize> {
    let best = |fits: &dyn Fn(&Candidate) -> bool| {
        let most = puts.iter().filter(|put| fits(put)).map(|put| put.witnesses).max()?;
        puts.iter().position(|put| fits(put) && put.reach >= most)
    };
    let readable = best(&|put| put.readable);
    let waiting = if some_are_silent { best(&|put| put.whole && !put.readable) } else { None };
    match (readable, waiting) {
        (Some(readable), Some(waiting)) if puts[waiting].witnesses > puts[readable].reach => Some(waiting),
        (readable, waiting) => readable.or(waiting),
    }
}

/// Returns an unused file name for a put that may not have the name that it claims.
fn own_name(part: &FilePart, taken: &mut BTreeSet<String>) -> String {
    let mut most = MAX_NAME_BYTES - RIVAL_BYTES;
    while !part.name.is_char_boundary(most.min(part.name.len())) {
        most -= 1;
    }
    let stem = &part.name[..most.min(part.name.len())];
    let mut names = (1..).map(|number| format!("{stem}.rival-{number}"));
    let name = names.find(|name| !taken.contains(name)).expect("there are infinitely many numbers");
    taken.insert(name.clone());
    name
}

/// Converts a put into a file that is called `name` and not by the name that the put claims.
fn kept_apart(put: Candidate, name: String, now: u64) -> (FileRecord, Stripes) {
    let mut stripes = put.stripes;
    rename(&mut stripes, &name);
    (file(FilePart { name, ..put.part }, &stripes, now), stripes)
}

/// Whether a put has all its stripes, and all of them are `good`.
fn is_whole(part: &FilePart, stripes: &Stripes, good: impl Fn(&StripeRecord) -> bool) -> bool {
    let Some((_, (_, first))) = stripes.first_key_value() else { return false };
    let count = stripe_count(part.bytes, &first.code, part.block_bytes);
    stripes.len() as u64 == count && stripes.values().all(|(_, stripe)| good(stripe))
}

fn is_readable(stripe: &StripeRecord) -> bool {
    let (held, lost): (Vec<BlockIndex>, Vec<BlockIndex>) = (0..stripe.blocks.len())
        .map(block_index)
        .partition(|index| stripe.blocks[usize::from(index.0)].state == BlockState::Healthy);
    let code = stripe.code.build();
    lost.is_empty() || code.is_ok_and(|code| code.repair(&lost, &held).is_ok())
}

fn file(part: FilePart, stripes: &Stripes, now: u64) -> FileRecord {
    let (_, (_, first)) = stripes.first_key_value().expect("each put that was found has stripes");
    FileRecord {
        name: part.name,
        bytes: part.bytes,
        code: first.code.clone(),
        block_bytes: part.block_bytes,
        chunk_bytes: part.chunk_bytes,
        stripes: stripes.values().map(|(_, stripe)| stripe.id.clone()).collect(),
        created_unix_ms: part.begun_unix_ms.min(now),
    }
}
