//! Unreadable parts of files, and the helpers whose return would make them readable.

use codes::{BlockIndex, Code};
use repair::NodeId;
use store_api::{BlockState, StripeRecord};
use views::{FileRange, UnreadablePart};

use crate::facts::{Facts, unheard};
use crate::stripes::indices::indexed;
use crate::stripes::layout;

/// Returns the unreadable parts of files in these stripes.
pub(crate) fn unreadable_parts(facts: Facts<'_>, stripes: &[String]) -> Vec<UnreadablePart> {
    stripes.iter().filter_map(|stripe| unreadable_part(facts, stripe)).collect()
}

fn unreadable_part(facts: Facts<'_>, stripe: &str) -> Option<UnreadablePart> {
    let record = facts.stripes.picture.stripe(&repair::StripeId(stripe.to_owned())).ok()?;
    let code = facts.stripes.codes.get(&record.code).ok()?;
    let lost = facts.lost_blocks(&record);
    let (any_of, together) = rescuers(facts, &record, &*code, &lost);
    Some(UnreadablePart {
        file: record.file.as_ref().map(|part| part.name.clone()),
        stripe: stripe.to_owned(),
        ranges: ranges(&record, &*code, &lost),
        perhaps: if any_of.is_empty() && together.is_empty() { unheard::names(facts) } else { Vec::new() },
        any_of,
        together,
    })
}

/// Returns the absent helpers with healthy blocks of the stripe, in two lists. A helper also counts as absent
/// if the store reports its server as out of service. The first list has each
/// helper whose return alone would make the stripe readable. If there is none, the second list is a
/// minimal set of helpers whose return together would.
fn rescuers(
    facts: Facts<'_>,
    record: &StripeRecord,
    code: &dyn Code,
    lost: &[BlockIndex],
) -> (Vec<String>, Vec<String>) {
    let (base, picture) = (facts.base, &facts.stripes.picture);
    let is_out = |node: &NodeId| base.store.reports_service() && !picture.is_up(*node);
    let is_absent = |node: &NodeId| !facts.nodes.is_connected(*node) || is_out(node);
    let waits = indexed(record).filter(|(_, block)| block.state == BlockState::Healthy);
    let mut back: Vec<(BlockIndex, String)> = waits
        .filter_map(|(index, block)| Some((index, block.node?)))
        .filter(|(_, node)| is_absent(node))
        .map(|(index, node)| (index, facts.nodes.name(node)))
        .collect();
    back.sort_by(|a, b| views::natural(&a.1, &b.1));
    let enough = |back: &[&(BlockIndex, String)]| {
        let still = lost.iter().copied().filter(|index| !back.iter().any(|(other, _)| other == index));
        facts.stripes.codes.survives(code, &still.collect::<Vec<_>>()).is_some()
    };
    let alone: Vec<String> = back.iter().filter(|one| enough(&[one])).map(|(_, name)| name.clone()).collect();
    if !alone.is_empty() {
        return (alone, Vec::new());
    }
    let mut together: Vec<&(BlockIndex, String)> = back.iter().collect();
    if !enough(&together) {
        return (Vec::new(), Vec::new());
    }
    for one in &back {
        let without: Vec<_> = together.iter().copied().filter(|other| other.0 != one.0).collect();
        if enough(&without) {
            together = without;
        }
    }
    (Vec::new(), together.into_iter().map(|(_, name)| name.clone()).collect())
}

/// Returns the byte ranges of the file in these blocks. Adjacent blocks are merged.
fn ranges(record: &StripeRecord, code: &dyn Code, lost: &[BlockIndex]) -> Vec<FileRange> {
    let Some(part) = &record.file else { return Vec::new() };
    let size = store_api::BlockSize { block_bytes: part.block_bytes, chunk_bytes: part.chunk_bytes };
    let extent = layout::extent(code, part.bytes, size, u64::from(part.position));
    let end = extent.file_offset + extent.data_bytes;
    let mut ranges: Vec<FileRange> = Vec::new();
    for index in lost.iter().filter(|index| usize::from(index.0) < code.data_blocks()) {
        let first = extent.file_offset + u64::from(index.0) * record.block_bytes;
        if first >= end {
            continue; // The block contains only padding.
        }
        let last = (first + record.block_bytes).min(end) - 1;
        match ranges.last_mut() {
            Some(before) if before.last + 1 == first => before.last = last,
            _ => ranges.push(FileRange { first, last }),
        }
    }
    ranges
}
