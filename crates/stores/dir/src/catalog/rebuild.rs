//! A catalog made anew from what blocks say of themselves.
//!
//! What is known: every block's label, length and digest. What is not: whether a put was committed, and what was
//! removed. So of several puts of one name the newest counts of which everything can be read; the others stay on the
//! helpers as blocks that no stripe knows. A file of no bytes has no blocks, and does not come back.
//!
//! A helper says what it likes, so that helpers count and not blocks. The *witnesses* of a put are the fewest helpers that
//! hold blocks of any of its stripes. A put never takes the name of a file that has more witnesses than the put and the helpers
//! that are silent: it is kept apart, under a name of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use redb::Database;
use repair::wire::control::Description;
use repair::{FilePart, NodeId, StripeId, StripeLabel};
use store_api::names::{Key, MAX_COUNT};
use store_api::{
    BlockRecord, BlockSize, BlockState, FileRecord, Inventory, NodeRecord, OpenError, StripeRecord,
    stripe_count,
};

use super::copies::{check_unused, draft_beside, install};
use super::open::{open_fault, write_empty};
use super::puts::{MAX_NAME_BYTES, NEXT_PUT};
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, FILES, META, NODE_NAMES, NODES, STRIPES, guard};
use super::{DirCatalog, block_index};

/// Room for what is added to the name of a rival.
const RIVAL_BYTES: usize = 32;

/// What came of a rebuilding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The names of the files that can be read.
    pub files: Vec<String>,
    /// The names of files that some helper lacks too much of, among those that did not answer perhaps.
    pub unreadable: Vec<String>,
    /// Puts that claim the name of a file and have too few witnesses for it.
    pub rivals: Vec<Rival>,
    /// Names of puts that no file was made of: older ones, and ones that were never complete; with their blocks.
    pub left: Vec<(String, usize)>,
    /// Blocks that say nothing of a stripe, or contradict the others of theirs, or are of another cluster.
    pub strangers: usize,
    /// Where the catalog is that was there before.
    pub replaced: Option<PathBuf>,
}

/// A put that can be read and claims the name of a file that more helpers vouch for, or as few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The name that it claims.
    pub name: String,
    /// The name of the file that was made of it.
    pub kept_as: String,
    /// The helpers that hold its blocks.
    pub helpers: Vec<String>,
}

/// All copies of blocks that were found of a stripe.
struct Heard {
    label: StripeLabel,
    copies: BTreeMap<BlockIndex, Vec<BlockRecord>>,
}

/// The blocks that were found of a stripe.
struct Found {
    label: StripeLabel,
    blocks: BTreeMap<BlockIndex, BlockRecord>,
}

/// The stripes of one put, by position.
type Stripes = BTreeMap<u32, (Key, StripeRecord)>;

/// A put that may be the file of its name.
struct Candidate {
    part: FilePart,
    stripes: Stripes,
    /// The fewest helpers that hold blocks of any of its stripes.
    witnesses: usize,
    /// The most that it could have if silent helpers vouched for it. A single witness is nobody's confirmation.
    reach: usize,
    readable: bool,
    whole: bool,
}

impl DirCatalog {
    /// Makes the catalog at `path` anew. One that is there keeps its bytes under another name. No coordinator may use
    /// it. `silent` helpers of the cluster are not among the inventories.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn rebuild(
        path: &Path,
        cluster_id: &str,
        inventories: &[Inventory],
        silent: usize,
    ) -> Result<Rebuilt, OpenError> {
        check_unused(path)?;
        let mut rebuilt = Rebuilt::default();
        let nodes = (1..).map(NodeId).zip(inventories).collect::<Vec<_>>();
        let found = gather(cluster_id, &nodes, &mut rebuilt.strangers);
        let highest = found.keys().map(|key| key.count()).max().unwrap_or(0);
        let puts = by_put(found, &mut rebuilt.strangers);
        let put_count = |part: &FilePart| Some(Key::of(&StripeId(part.put.clone()))?.count());
        let counts = puts.values().filter_map(|(part, _)| put_count(part));
        let highest_put = counts.filter(|&count| count < MAX_COUNT / 2).max();
        let names = nodes.iter().map(|&(id, inventory)| (id, inventory.node.clone())).collect();
        let files = choose(puts, silent, &names, &mut rebuilt);
        // The time in a rival's label is not believed.
        let chosen =
            files.iter().filter(|(file, _)| rebuilt.rivals.iter().all(|rival| rival.kept_as != file.name));
        let begun = chosen.map(|(file, _)| file.created_unix_ms).max().unwrap_or(0);

        let draft = draft_beside(path)?;
        write_empty(&draft, path, cluster_id)?;
        guard(path, || {
            let database = Database::open(draft.path()).map_err(|error| open_fault(path, error))?;
            let change = Change::of(&database, path)?;
            change.put(META, NEXT_STRIPE, &(highest + 1))?;
            change.put(META, NEXT_PUT, &(highest_put.unwrap_or(0) + 1))?;
            change.put(META, "last-begun", &begun)?;
            change.put(META, "next-node", &(nodes.len() as u64 + 1))?;
            for &(id, inventory) in &nodes {
                let (name, address) = (inventory.node.clone(), Some(inventory.address.clone()));
                change.put(NODE_NAMES, name.as_str(), &id)?;
                change.put(NODES, id.0, &NodeRecord { id, name, address })?;
            }
            for (file, stripes) in &files {
                change.put(FILES, file.name.as_str(), file)?;
                stripes.values().try_for_each(|(key, stripe)| change.put(STRIPES, key.0, stripe))?;
            }
            change.commit()?;
            Ok::<_, OpenError>(())
        })?;
        rebuilt.replaced = install(draft, path)?;
        Ok(rebuilt)
    }
}

/// The blocks of all stripes of this cluster.
fn gather(cluster: &str, nodes: &[(NodeId, &Inventory)], strangers: &mut usize) -> BTreeMap<Key, Found> {
    // By what blocks say of the stripe, since some of them may say something else.
    let mut stripes: BTreeMap<(Key, String), Heard> = BTreeMap::new();
    for &(node, inventory) in nodes {
        for block in &inventory.blocks {
            let Some((key, index, label)) = placed(cluster, block) else {
                *strangers += 1;
                continue;
            };
            let new = || Heard { label: label.clone(), copies: BTreeMap::new() };
            let stripe = stripes.entry((key, as_text(label))).or_insert_with(new);
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

/// One copy of each block. A helper has one block of a stripe, so that one with fewer of them is believed before one with
/// more. Of copies that differ all the same nobody can tell which is the block, and the others of the stripe can.
fn settle(heard: Heard, strangers: &mut usize) -> Found {
    let Heard { label, copies } = heard;
    let mut held: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
    copies.values().flatten().for_each(|copy| *held.entry(copy.node).or_default() += 1);
    let mut blocks = BTreeMap::new();
    for (index, mut copies) in copies {
        copies.sort_by_key(|copy| (held[&copy.node], copy.node));
        let fewest = held[&copies[0].node];
        let rank = copies.iter().take_while(|copy| held[&copy.node] == fewest);
        let differ = rank.into_iter().any(|copy| copy.digest != copies[0].digest);
        *strangers += usize::from(copies.iter().any(|copy| copy.digest != copies[0].digest));
        let mut block = copies.swap_remove(0);
        if differ {
            (block.node, block.digest, block.state) = (None, None, BlockState::Corrupt);
        }
        blocks.insert(index, block);
    }
    Found { label, blocks }
}

/// Of several tales of a stripe, the one that most helpers tell.
fn most_told(stripes: Vec<(Key, Found)>, strangers: &mut usize) -> BTreeMap<Key, Found> {
    let weight = |found: &Found| (witnesses(found.blocks.values()), found.blocks.len());
    let mut best: BTreeMap<Key, Found> = BTreeMap::new();
    for (key, found) in stripes {
        let other = match best.get(&key) {
            Some(known) if weight(known) >= weight(&found) => Some(found),
            _ => best.insert(key, found),
        };
        *strangers += other.map_or(0, |other| other.blocks.len());
    }
    best
}

/// How many helpers hold these blocks.
fn witnesses<'b>(blocks: impl Iterator<Item = &'b BlockRecord>) -> usize {
    blocks.filter_map(|block| block.node).collect::<BTreeSet<_>>().len()
}

fn as_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("labels have string keys and go to memory")
}

/// Where a block belongs, if what it says of that agrees with its name and length.
fn placed<'b>(cluster: &str, block: &'b Description) -> Option<(Key, BlockIndex, &'b StripeLabel)> {
    let (index, label) = block.label.as_ref()?;
    let (key, named) = Key::of_block(&block.id)?;
    let size = BlockSize { block_bytes: label.block_bytes, chunk_bytes: label.chunk_bytes };
    let fits = label.cluster == cluster
        && key.stripe() == label.stripe
        && named == *index
        && key.count() < MAX_COUNT / 2 // Beyond that nobody counts, and we could not count on.
        && usize::from(index.0) < label.code.blocks()
        && block.bytes == label.block_bytes
        && size.check(&label.code).is_ok();
    fits.then_some((key, *index, label))
}

/// Stripes by what they say of the put that they are of.
fn by_put(found: BTreeMap<Key, Found>, strangers: &mut usize) -> BTreeMap<String, (FilePart, Stripes)> {
    let mut puts: BTreeMap<String, (FilePart, Stripes)> = BTreeMap::new();
    for (key, found) in found {
        let part = found.label.file.clone();
        let told = as_text(&FilePart { position: 0, ..part.clone() });
        let (_, stripes) = puts.entry(told).or_insert_with(|| (part.clone(), Stripes::new()));
        // Of two stripes for one place, the one that more helpers hold.
        let new = (key, record(key, found));
        let loser = match stripes.remove(&part.position) {
            Some(known) if witnesses(known.1.blocks.iter()) >= witnesses(new.1.blocks.iter()) => {
                stripes.insert(part.position, known);
                Some(new)
            }
            known => {
                stripes.insert(part.position, new);
                known
            }
        };
        *strangers += loser.map_or(0, |(_, stripe)| held(&stripe));
    }
    puts
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

/// How many blocks of a stripe were found.
fn held(stripe: &StripeRecord) -> usize {
    stripe.blocks.iter().filter(|block| block.node.is_some()).count()
}

impl Candidate {
    fn new(part: FilePart, stripes: Stripes, silent: usize) -> Self {
        let of_stripe = |(_, stripe): &(Key, StripeRecord)| witnesses(stripe.blocks.iter());
        let witnesses = stripes.values().map(of_stripe).min().unwrap_or(0);
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

/// The put of each name that is its file, and its rivals under names of their own.
fn choose(
    puts: BTreeMap<String, (FilePart, Stripes)>,
    silent: usize,
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
        let chosen = puts.pop().expect("it was picked");
        let disputed = chosen.witnesses < 2; // Then nothing speaks for it that does not speak for the others.
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
            files.push(kept_apart(put, kept_as));
        }
        if chosen.readable { &mut rebuilt.files } else { &mut rebuilt.unreadable }.push(name);
        files.push((file(chosen.part, &chosen.stripes), chosen.stripes));
    }
    files
}

/// The newest put that enough helpers vouch for, of those that can be read if there are any. An unreadable one may be
/// waiting for a helper that did not answer; if all did, it is a put that ended early.
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

/// A name that no file has, for a put that may not have its own.
fn own_name(part: &FilePart, taken: &mut BTreeSet<String>) -> String {
    let mut most = MAX_NAME_BYTES - RIVAL_BYTES;
    while !part.name.is_char_boundary(most.min(part.name.len())) {
        most -= 1;
    }
    let stem = &part.name[..most.min(part.name.len())];
    let mut names = (1..).map(|number| format!("{stem}.rival-{number}"));
    let name = names.find(|name| !taken.contains(name)).expect("numbers do not end");
    taken.insert(name.clone());
    name
}

/// The file of a put under another name than it claims.
fn kept_apart(put: Candidate, name: String) -> (FileRecord, Stripes) {
    let mut stripes = put.stripes;
    for (_, stripe) in stripes.values_mut() {
        if let Some(part) = &mut stripe.file {
            part.name.clone_from(&name);
        }
    }
    (file(FilePart { name, ..put.part }, &stripes), stripes)
}

/// Whether a put has all its stripes, and all of them are `good`.
fn is_whole(part: &FilePart, stripes: &Stripes, good: impl Fn(&StripeRecord) -> bool) -> bool {
    let Some((_, (_, first))) = stripes.first_key_value() else { return false };
    let count = stripe_count(part.bytes, &first.code, part.block_bytes);
    let one_code = stripes.values().all(|(_, stripe)| stripe.code == first.code);
    one_code && stripes.len() as u64 == count && stripes.values().all(|(_, stripe)| good(stripe))
}

fn is_readable(stripe: &StripeRecord) -> bool {
    let (held, lost): (Vec<BlockIndex>, Vec<BlockIndex>) = (0..stripe.blocks.len())
        .map(block_index)
        .partition(|index| stripe.blocks[usize::from(index.0)].state == BlockState::Healthy);
    let code = stripe.code.build();
    lost.is_empty() || code.is_ok_and(|code| code.repair(&lost, &held).is_ok())
}

fn file(part: FilePart, stripes: &Stripes) -> FileRecord {
    let (_, (_, first)) = stripes.first_key_value().expect("a put that was found has stripes");
    FileRecord {
        name: part.name,
        bytes: part.bytes,
        code: first.code.clone(),
        block_bytes: part.block_bytes,
        chunk_bytes: part.chunk_bytes,
        stripes: stripes.values().map(|(_, stripe)| stripe.id.clone()).collect(),
        created_unix_ms: part.begun_unix_ms,
    }
}
