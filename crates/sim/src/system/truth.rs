//! The truth: what every file may hold, and the bytes of every block.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use repair::{BlockId, StripeId};

/// The bytes of a file.
pub(crate) type Bytes = Rc<Vec<u8>>;

/// The contents that a file may have; `None` stands for no file.
///
/// A change that was never answered may have happened or not. A reader that overlaps with a change may see
/// either content.
#[derive(Clone, Debug)]
pub(crate) struct FileTruth {
    pub(crate) possible: Vec<Option<Bytes>>,
    /// Everything that it may have held at some time.
    pub(crate) ever: Vec<Option<Bytes>>,
    /// Changes in flight.
    pub(crate) writers: u32,
    /// The catalog was once put back to before a change: what it says of the file may be neither there nor
    /// whole.
    pub(crate) is_forgotten: bool,
    /// The same happened during the change in flight: its answer tells nothing of the file any more.
    forgets_change: bool,
    /// Counts changes: a reader compares the counts before and after.
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

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) files: BTreeMap<String, FileTruth>,
    /// All blocks of every stripe that was ever stored.
    pub(crate) stripes: BTreeMap<StripeId, Rc<Vec<Vec<u8>>>>,
    /// Stripes that have a block with other bytes, with which its checksums agree.
    pub(crate) forged: BTreeSet<StripeId>,
}

impl Truth {
    /// A client begins to change a file; `false` if another one is at it already.
    pub(crate) fn begin(&mut self, file: &str) -> bool {
        let file = self.files.entry(file.to_owned()).or_default();
        let is_free = file.writers == 0;
        file.writers += u32::from(is_free);
        is_free
    }

    /// From now on a file may be this as well.
    pub(crate) fn may_be(&mut self, file: &str, bytes: Option<Bytes>) {
        let file = self.files.get_mut(file).expect("its change has begun");
        file.changes += 1;
        for held in [&mut file.possible, &mut file.ever] {
            if !held.contains(&bytes) {
                held.push(bytes.clone());
            }
        }
    }

    /// A change is over; with `is`, that is what the file holds.
    pub(crate) fn end(&mut self, file: &str, is: Option<Option<Bytes>>) {
        let file = self.files.get_mut(file).expect("its change has begun");
        file.writers -= 1;
        file.changes += 1;
        let was_forgotten = std::mem::take(&mut file.forgets_change);
        if let Some(bytes) = is.filter(|_| !was_forgotten) {
            file.possible = vec![bytes];
        }
    }

    /// Whether these are a block's bytes, but for zeros at its end.
    pub(crate) fn is_block(&self, block: &BlockId, bytes: &[u8]) -> bool {
        self.block(block).is_some_and(|truth| {
            truth.get(..bytes.len()) == Some(bytes) && truth[bytes.len()..].iter().all(|&byte| byte == 0)
        })
    }

    /// The catalog is that of an earlier time, when files had been changed so often.
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

    /// The bytes of a block.
    pub(crate) fn block(&self, block: &BlockId) -> Option<&[u8]> {
        let (stripe, index) = block.0.rsplit_once('.')?;
        let blocks = self.stripes.get(&StripeId(stripe.to_owned()))?;
        blocks.get(index.parse::<usize>().ok()?).map(Vec::as_slice)
    }
}
