//! A catalog made anew from what blocks say of themselves.
//!
//! What is known: every block's label, length and digest. What is not: whether a put was committed, and what was
//! removed. So of several puts of one name the newest counts of which everything can be read; the others stay on the
//! helpers as blocks that no stripe knows. A file of no bytes has no blocks, and does not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use redb::Database;
use repair::wire::control::Description;
use repair::{FilePart, NodeId, StripeId, StripeLabel};

use super::copies::{check_unused, draft_beside, install};
use super::names::{Key, MAX_COUNT};
use super::open::{open_fault, write_empty};
use super::puts::NEXT_PUT;
use super::records::stripe_count;
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, FILES, META, NODE_NAMES, NODES, STRIPES, guard};
use super::{DirCatalog, FileRecord, NodeRecord, OpenError, block_index};
use crate::{BlockRecord, BlockSize, BlockState, StripeRecord};

/// What a helper holds, as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The helper's name.
    pub node: String,
    /// Where it was reached.
    pub address: String,
    /// Its blocks.
    pub blocks: Vec<Description>,
}

/// What came of a rebuilding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The names of the files that can be read.
    pub files: Vec<String>,
    /// The names of files that some helper lacks too much of, among those that did not answer perhaps.
    pub unreadable: Vec<String>,
    /// Names of puts that no file was made of: older ones, and ones that were never complete; with their blocks.
    pub left: Vec<(String, usize)>,
    /// Blocks that say nothing of a stripe, or contradict the others of theirs, or are of another cluster.
    pub strangers: usize,
    /// Where the catalog is that was there before.
    pub replaced: Option<PathBuf>,
}

/// The blocks that were found of a stripe.
struct Found {
    label: StripeLabel,
    blocks: BTreeMap<BlockIndex, BlockRecord>,
}

/// The stripes of one put, by position.
type Stripes = BTreeMap<u32, (Key, StripeRecord)>;

impl DirCatalog {
    /// Makes the catalog at `path` anew. One that is there keeps its bytes under another name. No coordinator may use
    /// it. `complete` says whether all helpers of the cluster are among the inventories.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn rebuild(
        path: &Path,
        cluster_id: &str,
        inventories: &[Inventory],
        complete: bool,
    ) -> Result<Rebuilt, OpenError> {
        check_unused(path)?;
        let mut rebuilt = Rebuilt::default();
        let nodes = (1..).map(NodeId).zip(inventories).collect::<Vec<_>>();
        let found = gather(cluster_id, &nodes, &mut rebuilt.strangers);
        let highest = found.keys().map(|key| key.count()).max().unwrap_or(0);
        let puts = by_put(found, &mut rebuilt.strangers);
        let begun = puts.values().map(|(part, _)| part.begun_unix_ms).max().unwrap_or(0);
        let put_count = |part: &FilePart| Some(Key::of(&StripeId(part.put.clone()))?.count());
        let counts = puts.values().filter_map(|(part, _)| put_count(part));
        let highest_put = counts.filter(|&count| count < MAX_COUNT / 2).max();
        let files = choose(puts, complete, &mut rebuilt);

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
    let mut stripes: BTreeMap<(Key, String), Found> = BTreeMap::new();
    let mut disputed: BTreeSet<(Key, String, BlockIndex)> = BTreeSet::new();
    for &(node, inventory) in nodes {
        for block in &inventory.blocks {
            let Some((key, index, label)) = placed(cluster, block) else {
                *strangers += 1;
                continue;
            };
            let new = || Found { label: label.clone(), blocks: BTreeMap::new() };
            let told = as_text(label);
            let stripe = stripes.entry((key, told.clone())).or_insert_with(new);
            let record = BlockRecord {
                id: block.id.clone(),
                bytes: block.bytes,
                node: Some(node),
                state: BlockState::Healthy,
                replicas: Vec::new(),
                digest: block.digest,
            };
            let first = stripe.blocks.entry(index).or_insert(record);
            if first.digest != block.digest {
                disputed.insert((key, told, index));
            }
        }
    }
    // Two copies that differ: nobody can tell which of them is the block, and the others of the stripe can.
    for (key, label, index) in disputed {
        *strangers += 1;
        let block = stripes.get_mut(&(key, label)).and_then(|found| found.blocks.get_mut(&index));
        let block = block.expect("it was found");
        (block.node, block.digest, block.state) = (None, None, BlockState::Corrupt);
    }
    most_told(stripes, strangers)
}

/// Of several tales of a stripe, the one that most of its blocks tell.
fn most_told(stripes: BTreeMap<(Key, String), Found>, strangers: &mut usize) -> BTreeMap<Key, Found> {
    let mut best: BTreeMap<Key, Found> = BTreeMap::new();
    for ((key, _), found) in stripes {
        let other = match best.get(&key) {
            Some(known) if known.blocks.len() >= found.blocks.len() => Some(found),
            _ => best.insert(key, found),
        };
        *strangers += other.map_or(0, |other| other.blocks.len());
    }
    best
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
        let blocks = found.blocks.len();
        let told = as_text(&FilePart { position: 0, ..part.clone() });
        let (_, stripes) = puts.entry(told).or_insert_with(|| (part.clone(), Stripes::new()));
        if stripes.contains_key(&part.position) {
            *strangers += blocks;
            continue;
        }
        stripes.insert(part.position, (key, record(key, found)));
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

/// The put of each name that is its file.
fn choose(
    puts: BTreeMap<String, (FilePart, Stripes)>,
    complete: bool,
    rebuilt: &mut Rebuilt,
) -> Vec<(FileRecord, Stripes)> {
    let mut names: BTreeMap<String, Vec<(FilePart, Stripes)>> = BTreeMap::new();
    for (part, stripes) in puts.into_values() {
        names.entry(part.name.clone()).or_default().push((part, stripes));
    }
    let mut files = Vec::new();
    for (name, mut puts) in names {
        puts.sort_by(|(a, _), (b, _)| (b.begun_unix_ms, &b.put).cmp(&(a.begun_unix_ms, &a.put)));
        let whole = puts.iter().position(|(part, stripes)| is_whole(part, stripes, is_readable));
        // What cannot be read may be waiting for a helper that did not answer. If all did, it is a put that ended early.
        let waiting =
            || puts.iter().position(|(part, stripes)| !complete && is_whole(part, stripes, |_| true));
        let chosen = whole.or_else(waiting).map(|at| puts.remove(at));
        for (_, stripes) in &puts {
            let held =
                |stripe: &StripeRecord| stripe.blocks.iter().filter(|block| block.node.is_some()).count();
            rebuilt.left.push((name.clone(), stripes.values().map(|(_, stripe)| held(stripe)).sum()));
        }
        let Some((part, stripes)) = chosen else { continue };
        if whole.is_some() { &mut rebuilt.files } else { &mut rebuilt.unreadable }.push(name);
        files.push((file(part, &stripes), stripes));
    }
    files
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
