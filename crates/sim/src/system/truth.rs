//! The truth: the possible contents of every file, and the bytes of every block.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use repair::{BlockId, StripeId};

/// The bytes of a file.
pub(crate) type Bytes = Rc<Vec<u8>>;

/// The possible contents of a file; `None` stands for no file.
///
/// A change without an answer may have happened or not. A reader that overlaps with a change may see either
/// content.
#[derive(Clone, Debug)]
pub(crate) struct FileTruth {
    pub(crate) possible: Vec<Option<Bytes>>,
    /// All contents that the file may have had at any time.
    pub(crate) ever: Vec<Option<Bytes>>,
    /// Number of changes in flight.
    pub(crate) writers: u32,
    /// Whether the catalog was restored to a state before a change of this file, and no change has succeeded since.
    /// The file may then be missing or incomplete.
    pub(crate) is_forgotten: bool,
    /// Whether an older catalog was restored during the change that is in flight. The answer to that change
    /// then proves nothing.
    forgets_change: bool,
    /// Number of changes so far. A reader compares the numbers before and after its read.
    pub(crate) changes: u64,
}

impl Default for FileTruth {
    fn default() -> Self {
        Self {
            possible: vec![None],
            ever: vec![None],
            writers: 0,
            is_forgotten: false,
            forgets_change: false,
            changes: 0,
        }
    }
}

/// The truth about all files and blocks.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) files: BTreeMap<String, FileTruth>,
    /// All blocks of every stripe that was ever stored.
    pub(crate) stripes: BTreeMap<StripeId, Rc<Vec<Vec<u8>>>>,
    /// Stripes with a block that was corrupted silently: its checksums match the wrong bytes.
    pub(crate) forged: BTreeSet<StripeId>,
}

impl Truth {
    /// Begins a change of a file. Returns `false` if another change is in flight.
    pub(crate) fn begin(&mut self, file: &str) -> bool {
        let file = self.files.entry(file.to_owned()).or_default();
        let is_free = file.writers == 0;
        file.writers += u32::from(is_free);
        is_free
    }

    /// Records that a file may have these contents from now on.
    pub(crate) fn may_be(&mut self, file: &str, bytes: Option<Bytes>) {
        let file = self.files.get_mut(file).expect("its change has begun");
        file.changes += 1;
        for held in [&mut file.possible, &mut file.ever] {
            if !held.contains(&bytes) {
                held.push(bytes.clone());
            }
        }
    }

    /// Ends a change of a file. `is` contains the contents of the file if they are known.
    pub(crate) fn end(&mut self, file: &str, is: Option<Option<Bytes>>) {
        let file = self.files.get_mut(file).expect("its change has begun");
        file.writers -= 1;
        file.changes += 1;
        let was_forgotten = std::mem::take(&mut file.forgets_change);
        if let Some(bytes) = is.filter(|_| !was_forgotten) {
            (file.possible, file.is_forgotten) = (vec![bytes], false);
        }
    }

    /// Whether `bytes` are the true bytes of a block. Zeros at the end of the block may be missing.
    pub(crate) fn is_block(&self, block: &BlockId, bytes: &[u8]) -> bool {
        self.block(block).is_some_and(|truth| {
            truth.get(..bytes.len()) == Some(bytes) && truth[bytes.len()..].iter().all(|&byte| byte == 0)
        })
    }

    /// Handles the restore of an older catalog. `changes` has the number of changes of each file at that
    /// time.
    pub(crate) fn forget_since(&mut self, changes: &BTreeMap<String, u64>) {
        for (name, file) in &mut self.files {
            if changes.get(name) != Some(&file.changes) || file.writers > 0 {
                file.possible.clone_from(&file.ever);
                (file.is_forgotten, file.changes) = (true, file.changes + 1);
                file.forgets_change = file.writers > 0;
            }
        }
    }

    pub(crate) fn file(&self, file: &str) -> FileTruth {
        self.files.get(file).cloned().unwrap_or_default()
    }

    /// Returns the true bytes of a block.
    pub(crate) fn block(&self, block: &BlockId) -> Option<&[u8]> {
        let (stripe, index) = block.0.rsplit_once('.')?;
        let blocks = self.stripes.get(&StripeId(stripe.to_owned()))?;
        blocks.get(index.parse::<usize>().ok()?).map(Vec::as_slice)
    }
}
