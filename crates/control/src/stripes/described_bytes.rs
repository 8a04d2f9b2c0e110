//! Limits on the memory for descriptions of stripes: per plug-in and in total.

use std::collections::BTreeMap;

use repair::StripeId;
use store_api::{BlockRecord, StripeRecord};

use crate::error::{DescriptionError, RequestError};

/// The limit per plug-in. A stripe of 14 blocks needs about 3 KiB, so 20,000 of them fit.
const MOST_OF_ONE: u64 = 64 << 20;
/// The limit for all plug-ins together.
const MOST_OF_ALL: u64 = 192 << 20;

/// The memory that descriptions of stripes use, by owner.
#[derive(Default)]
pub(crate) struct DescribedBytes {
    all: u64,
    by_owner: BTreeMap<String, u64>,
    of: BTreeMap<StripeId, (String, u64)>,
}

impl DescribedBytes {
    /// Reserves the memory of a stripe that `owner` describes, and releases the memory of an earlier
    /// description of the stripe.
    pub(crate) fn take(&mut self, record: &StripeRecord, owner: &str) -> Result<(), RequestError> {
        let bytes = bytes_of(record);
        let before = self.free(&record.id);
        let mine = self.by_owner.get(owner).copied().unwrap_or(0);
        let over = match () {
            () if mine + bytes > MOST_OF_ONE => Some((owner.to_owned(), MOST_OF_ONE)),
            () if self.all + bytes > MOST_OF_ALL => Some(("all plug-ins".to_owned(), MOST_OF_ALL)),
            () => None,
        };
        if let Some((whose, most)) = over {
            if let Some((owner, bytes)) = before {
                self.add(&record.id, owner, bytes);
            }
            return Err(DescriptionError::DescribedBytes { whose, most }.into());
        }
        self.add(&record.id, owner.to_owned(), bytes);
        Ok(())
    }

    /// Reserves the memory of a stripe regardless of the limits.
    pub(crate) fn force(&mut self, record: &StripeRecord, owner: &str) {
        self.free(&record.id);
        self.add(&record.id, owner.to_owned(), bytes_of(record));
    }

    /// Releases the memory of a stripe. Returns its owner and the number of bytes.
    pub(crate) fn free(&mut self, stripe: &StripeId) -> Option<(String, u64)> {
        let (owner, bytes) = self.of.remove(stripe)?;
        self.all -= bytes;
        let mine = self.by_owner.get_mut(&owner).expect("reserved memory has an owner");
        *mine -= bytes;
        if *mine == 0 {
            self.by_owner.remove(&owner);
        }
        Some((owner, bytes))
    }

    pub(crate) fn add(&mut self, stripe: &StripeId, owner: String, bytes: u64) {
        self.all += bytes;
        *self.by_owner.entry(owner.clone()).or_default() += bytes;
        self.of.insert(stripe.clone(), (owner, bytes));
    }
}

/// Returns the memory of the description of a stripe. The stripe's name counts four times: in the record, and
/// as a key in three maps.
fn bytes_of(record: &StripeRecord) -> u64 {
    const KEYS: usize = 4;
    let name = |name: &str| name.len() + size_of::<String>();
    let block = |block: &BlockRecord| size_of::<BlockRecord>() + name(&block.id.0);
    let blocks: usize = record.blocks.iter().map(block).sum();
    (size_of::<StripeRecord>() + KEYS * name(&record.id.0) + blocks) as u64
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;
    use repair::BlockId;
    use store_api::BlockState;

    use super::*;

    fn stripe(name: u32) -> StripeRecord {
        let block = |at: usize| BlockRecord {
            id: BlockId(format!("{at}-{}", "x".repeat(200))),
            bytes: 1,
            node: None,
            state: BlockState::Missing,
            replicas: Vec::new(),
            digest: None,
        };
        StripeRecord {
            id: StripeId(name.to_string()),
            code: CodeSpec::reed_solomon(255, 200),
            block_bytes: 1,
            chunk_bytes: None,
            blocks: (0..255).map(block).collect(),
            file: None,
        }
    }

    /// Describes stripes until one is refused. Returns how many were accepted, and the error.
    fn fill(bytes: &mut DescribedBytes, first: u32, owner: &str) -> (u32, String) {
        for name in first.. {
            if let Err(error) = bytes.take(&stripe(name), owner) {
                return (name - first, error.to_string());
            }
        }
        unreachable!("there is a bound")
    }

    #[test]
    fn memory_is_limited_per_plug_in_and_in_total() {
        let mut bytes = DescribedBytes::default();
        let (of_one, error) = fill(&mut bytes, 0, "plug-in a");
        assert!((100..2_000).contains(&of_one), "{of_one}");
        assert!(error.contains("plug-in a") && error.contains("64MiB"), "{error}");
        bytes.take(&stripe(0), "plug-in a").expect("described anew, it takes no more");
        assert_eq!(fill(&mut bytes, 10_000, "plug-in b").0, of_one);
        fill(&mut bytes, 20_000, "plug-in c");
        let (left, error) = fill(&mut bytes, 30_000, "plug-in d");
        assert!(left <= 1 && error.contains("all plug-ins"), "{left}: {error}");
        bytes.free(&StripeId("10000".into())).unwrap();
        bytes.take(&stripe(30_500), "plug-in d").expect("there is room again");
        bytes.force(&stripe(30_501), "the records");
        for name in (0..40_000).map(|name| StripeId(name.to_string())) {
            bytes.free(&name);
        }
        assert_eq!((bytes.all, bytes.by_owner.len()), (0, 0));
    }
}
