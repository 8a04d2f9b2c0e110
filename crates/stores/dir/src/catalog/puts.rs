//! Files, and the puts that create them. A put is begun, its stripes are allocated and published one by one,
//! and the commit makes the file visible atomically.

use std::time::{SystemTime, UNIX_EPOCH};

use codes::CodeSpec;
use repair::{NodeId, StripeId};
use store_api::names::{Era, Key};
use store_api::{
    BlockSize, BlockState, CatalogError, Eras, FileRecord, PutError, PutId, PutRecord, StoreChange,
    StripeRecord,
};

use super::super::checksums::MAX_BLOCK_BYTES;
use super::DirCatalog;
use super::counters::bounded;
use super::eras::ERAS;
use super::stripes::{NEXT_STRIPE, discard, move_block, new_stripe, store, stored};
use super::tables::{Change, FILES, META, PUT_STRIPES, PUTS, STRIPES};

/// The key of the counter of puts.
pub(super) const NEXT_PUT: &str = "next-put";

/// The key of the time of the newest put.
pub(super) const LAST_BEGUN: &str = "last-begun";

/// The largest length of a file name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 1024;

impl DirCatalog {
    /// Returns the file with this name.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn file(&self, name: &str) -> Result<Option<FileRecord>, CatalogError> {
        self.look(|view| view.get(FILES, name))
    }

    /// Returns the files whose names begin with `prefix`, sorted by name.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn files(&self, prefix: &str) -> Result<Vec<FileRecord>, CatalogError> {
        let mut files = Vec::new();
        self.look(|view| view.each_with_prefix(FILES, prefix, |_, file| files.push(file)))?;
        Ok(files)
    }

    /// Removes a file and marks its blocks for removal. Returns `None` if there is no file of this name.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn remove_file(&mut self, name: &str) -> Result<Option<FileRecord>, CatalogError> {
        let Some(file) = self.file(name)? else { return Ok(None) };
        self.change(|change| take_file(change, &file))?;
        Ok(Some(file))
    }

    /// Begins a put of `bytes` bytes. With `replace`, the commit removes an existing file of this name.
    ///
    /// # Errors
    /// [`PutError`] if the name, the code or the size is invalid, or the name is taken.
    pub fn begin_put(
        &mut self,
        name: &str,
        bytes: u64,
        code: CodeSpec,
        size: BlockSize,
        replace: bool,
    ) -> Result<PutId, PutError> {
        check_name(name)?;
        code.check()?;
        check_size(size, &code, MAX_BLOCK_BYTES)?;
        if !replace && self.file(name)?.is_some() {
            return Err(PutError::Exists { name: name.to_owned() });
        }
        let mut put = PutRecord::new(PutId(0), name, bytes, &code, size, replace);
        if put.stripes() > u64::from(u32::MAX) {
            return Err(PutError::TooManyStripes { stripes: put.stripes() });
        }
        let (era, now) = (self.era, (self.clock)());
        self.change(|change| {
            put.id = PutId(change.count(NEXT_PUT, 1)?);
            put.name_of_put = Key::counted(put.id.0, era)?.stripe().0;
            put.begun_unix_ms = change.later(LAST_BEGUN, now)?;
            change.put(PUTS, put.id.0, &put)?;
            change.tell(StoreChange::Put(put.clone()));
            Ok(put.id)
        })
    }

    /// Returns the open puts, oldest first.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn puts(&self) -> Result<Vec<PutRecord>, CatalogError> {
        let mut puts = Vec::new();
        self.look(|view| view.each(PUTS, 0.., |_, put| puts.push(put)))?;
        Ok(puts)
    }

    /// Returns the record of an open put.
    ///
    /// # Errors
    /// [`PutError::NoSuchPut`].
    pub fn put(&self, put: PutId) -> Result<PutRecord, PutError> {
        self.look(|view| view.get(PUTS, put.0))?.ok_or(PutError::NoSuchPut(put))
    }

    /// Allocates the stripe at `position` of a put, with blocks of this size. Block `i` is placed on
    /// `nodes[i]`.
    ///
    /// A repeated call for the same position returns the same stripe with its blocks moved to `nodes`. All blocks must
    /// be published again, because the client may store other bytes this time.
    ///
    /// # Errors
    /// [`PutError`] if the put, the position, the number of nodes or the size is wrong.
    pub fn allocate_stripe(
        &mut self,
        put: PutId,
        position: u32,
        size: BlockSize,
        nodes: &[NodeId],
    ) -> Result<StripeRecord, PutError> {
        let record = self.put(put)?;
        check_allocation(&record, position, size, nodes)?;
        let era = self.era;
        self.change(|change| match change.get(PUT_STRIPES, (put.0, position))? {
            Some(key) => move_stripe(change, key, size, nodes),
            None => add_stripe(change, &record, position, size, nodes, era),
        })
    }

    /// Makes a put's file visible, atomically.
    ///
    /// # Errors
    /// [`PutError`] if a stripe or block is missing, or the name has been taken meanwhile; the put stays
    /// open.
    pub fn commit_put(&mut self, put: PutId) -> Result<FileRecord, PutError> {
        let (record, now) = (self.put(put)?, (self.clock)());
        self.change(|change| {
            let stripes = take_stripes(change, &record)?;
            replace_file(change, &record)?;
            let file = record.into_file(stripes, now);
            change.put(FILES, &file.name, &file)?;
            change.tell(StoreChange::File(file.clone()));
            end_put(change, put)?;
            Ok(file)
        })
    }

    /// Aborts a put and marks its stored blocks for removal.
    ///
    /// # Errors
    /// [`PutError::NoSuchPut`].
    pub fn abort_put(&mut self, put: PutId) -> Result<(), PutError> {
        self.put(put)?;
        self.change(|change| {
            for (position, key) in stripes_of(change, put)? {
                change.remove(PUT_STRIPES, (put.0, position))?;
                take_stripe(change, key)?;
            }
            Ok(end_put(change, put)?)
        })
    }

    /// Ends a put that an earlier coordinator left open. The put's blocks become orphans that only an
    /// operator removes, because this catalog may be an older copy of a catalog in which the put was
    /// committed.
    ///
    /// # Errors
    /// [`PutError::NoSuchPut`].
    pub fn leave_put(&mut self, put: PutId) -> Result<(), PutError> {
        self.put(put)?;
        self.change(|change| {
            let mut eras: Eras = change.get(META, ERAS)?.unwrap_or_default();
            for (position, key) in stripes_of(change, put)? {
                change.remove(PUT_STRIPES, (put.0, position))?;
                change.remove(STRIPES, key.0)?;
                change.tell(StoreChange::StripeGone(key.stripe()));
                eras.leave(key);
            }
            change.put(META, ERAS, &eras)?;
            change.tell(StoreChange::Eras(eras));
            Ok(end_put(change, put)?)
        })
    }
}

/// Gives later puts later times than this one, unless it is in a far future.
///
/// # Errors
/// [`CatalogError::Storage`].
pub(super) fn begin_after(catalog: &mut DirCatalog, begun_unix_ms: u64) -> Result<(), CatalogError> {
    let begun = bounded(begun_unix_ms, (catalog.clock)());
    catalog.change(|change| {
        let last: u64 = change.get(META, LAST_BEGUN)?.unwrap_or_default();
        if begun > last {
            change.put(META, LAST_BEGUN, &begun)?;
        }
        Ok(())
    })
}

fn end_put(change: &Change<'_>, put: PutId) -> Result<(), CatalogError> {
    change.remove(PUTS, put.0)?;
    change.tell(StoreChange::PutGone(put));
    Ok(())
}

fn check_name(name: &str) -> Result<(), PutError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains('\0') {
        return Ok(());
    }
    Err(PutError::BadName { name: name.to_owned() })
}

fn check_size(size: BlockSize, code: &CodeSpec, most: u64) -> Result<(), PutError> {
    let block_bytes = size.block_bytes;
    if !(1..=most).contains(&block_bytes) {
        return Err(PutError::BlockBytes { block_bytes, most });
    }
    Ok(size.check(code)?)
}

fn check_allocation(
    put: &PutRecord,
    position: u32,
    size: BlockSize,
    nodes: &[NodeId],
) -> Result<(), PutError> {
    let stripes = put.stripes();
    if u64::from(position) >= stripes {
        return Err(PutError::NoSuchPosition { put: put.id, position, stripes });
    }
    if nodes.len() != put.code.blocks() {
        return Err(PutError::WrongNodes { code: put.code.clone(), given: nodes.len() });
    }
    check_size(size, &put.code, put.block_bytes)
}

fn add_stripe(
    change: &Change<'_>,
    put: &PutRecord,
    position: u32,
    size: BlockSize,
    nodes: &[NodeId],
    era: Era,
) -> Result<StripeRecord, PutError> {
    let key = Key::counted(change.count(NEXT_STRIPE, 1)?, era)?;
    let stripe = new_stripe(key, put, position, size, nodes);
    store(change, key, stripe.clone(), true)?;
    change.tell(StoreChange::Counted(key.count() + 1));
    change.put(PUT_STRIPES, (put.id.0, position), &key)?;
    Ok(stripe)
}

fn move_stripe(
    change: &Change<'_>,
    key: Key,
    size: BlockSize,
    nodes: &[NodeId],
) -> Result<StripeRecord, PutError> {
    let old = stored(change, key)?;
    if old.size() != size {
        let (found, stripe) = (old.size(), old.id);
        return Err(PutError::OtherSize { stripe, found, asked: size });
    }
    let mut new = old;
    for (block, &node) in new.blocks.iter_mut().zip(nodes) {
        (block.state, block.digest) = (BlockState::NotStored, None);
        move_block(change, block, node)?;
    }
    store(change, key, new.clone(), true)?;
    Ok(new)
}

/// Returns the positions and keys of a put's stripes, sorted by position.
fn stripes_of(change: &Change<'_>, put: PutId) -> Result<Vec<(u32, Key)>, CatalogError> {
    let mut stripes = Vec::new();
    change.each(PUT_STRIPES, (put.0, 0)..=(put.0, u32::MAX), |(_, position), key| {
        stripes.push((position, key));
    })?;
    Ok(stripes)
}

/// Removes all stripes from a put's list and returns them, if all of them are allocated and published.
fn take_stripes(change: &Change<'_>, put: &PutRecord) -> Result<Vec<StripeId>, PutError> {
    let found = stripes_of(change, put.id)?;
    if (found.len() as u64) < put.stripes() {
        // Positions are sorted, so the first position that differs from its rank follows a gap.
        let missing = (0..).zip(&found).find(|(rank, (position, _))| rank != position);
        let position = missing.map_or(found.len() as u32, |(rank, _)| rank);
        return Err(PutError::MissingStripe { put: put.id, position });
    }
    let take = |(position, key)| take_put_stripe(change, put.id, position, key);
    found.into_iter().map(take).collect()
}

fn take_put_stripe(change: &Change<'_>, put: PutId, position: u32, key: Key) -> Result<StripeId, PutError> {
    let stripe = stored(change, key)?;
    if let Some(block) = stripe.blocks.iter().find(|block| block.state == BlockState::NotStored) {
        return Err(PutError::Unpublished { put, block: block.id.clone() });
    }
    change.remove(PUT_STRIPES, (put.0, position))?;
    let id = stripe.id.clone();
    change.tell(StoreChange::Stripe(stripe, false));
    Ok(id)
}

/// Removes an existing file with the put's name, if the put may replace it.
fn replace_file(change: &Change<'_>, put: &PutRecord) -> Result<(), PutError> {
    match change.get(FILES, put.name.as_str())? {
        None => Ok(()),
        Some(file) if put.replace => Ok(take_file(change, &file)?),
        Some(_) => Err(PutError::Exists { name: put.name.clone() }),
    }
}

/// Removes a file and its stripes.
fn take_file(change: &Change<'_>, file: &FileRecord) -> Result<(), CatalogError> {
    change.remove(FILES, file.name.as_str())?;
    change.tell(StoreChange::FileGone(file.name.clone()));
    let key = |id: &StripeId| Key::of(id).ok_or_else(|| CatalogError::NoSuchStripe(id.clone()));
    file.stripes.iter().try_for_each(|id| take_stripe(change, key(id)?))
}

/// Removes a stripe and marks its blocks for removal.
fn take_stripe(change: &Change<'_>, key: Key) -> Result<(), CatalogError> {
    let stripe = stored(change, key)?;
    stripe.blocks.iter().try_for_each(|block| discard(change, block))?;
    change.remove(STRIPES, key.0)?;
    change.tell(StoreChange::StripeGone(stripe.id));
    Ok(())
}

/// A clock that tells the time in milliseconds since 1970.
pub(super) type Clock = Box<dyn Fn() -> u64 + Send>;

/// Returns the time of the machine's clock in milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
