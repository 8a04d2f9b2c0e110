//! "Am I safe?": stripes by what they can still lose, helpers, files.

use std::collections::BTreeMap;

use codes::{BlockIndex, Code, CodeSpec};
use repair::NodeId;
use stores::Catalog;

use super::Core;
use super::nodes::PeerKind;
use super::puts::file_view;
use crate::error::RequestError;
use crate::layout;
use views::{Census, FileLayout, FileStripe, NodeView, Redundancy, Status};

/// Unreadable stripes that are named.
const UNREADABLE_NAMED: usize = 100;
/// Sets of further losses that are tried for a code that is not MDS.
const SETS_TRIED: usize = 5_000;

/// How many further blocks stripes can surely lose, remembered by code and losses.
#[derive(Default)]
pub(super) struct Risks {
    known: BTreeMap<(String, Vec<BlockIndex>), Option<u32>>,
}

impl Risks {
    /// How many further blocks, whichever they are, a stripe can lose with these lost; `None` if it cannot be
    /// read any more.
    pub(super) fn survives(&mut self, code: &dyn Code, lost: &[BlockIndex]) -> Option<u32> {
        let spare = (code.blocks() - code.data_blocks()).checked_sub(lost.len())? as u32;
        if code.spec().is_mds() {
            return Some(spare);
        }
        let key = (code.spec().to_string(), lost.to_vec());
        *self.known.entry(key).or_insert_with(|| try_losses(code, lost, spare))
    }
}

/// Tries all sets of one further loss, then of two, and so on.
fn try_losses(code: &dyn Code, lost: &[BlockIndex], spare: u32) -> Option<u32> {
    if !decodes(code, lost) {
        return None;
    }
    let left: Vec<BlockIndex> =
        (0..code.blocks() as u16).map(BlockIndex).filter(|block| !lost.contains(block)).collect();
    let mut tried = 0;
    for further in 1..=spare {
        let mut set: Vec<usize> = (0..further as usize).collect();
        loop {
            tried += 1;
            let all: Vec<BlockIndex> = lost.iter().copied().chain(set.iter().map(|&at| left[at])).collect();
            if tried > SETS_TRIED || !decodes(code, &all) {
                return Some(further - 1);
            }
            if !next_set(&mut set, left.len()) {
                break;
            }
        }
    }
    Some(spare)
}

fn decodes(code: &dyn Code, lost: &[BlockIndex]) -> bool {
    let all = (0..code.blocks() as u16).map(BlockIndex);
    let available: Vec<BlockIndex> = all.filter(|block| !lost.contains(block)).collect();
    code.repair(lost, &available).is_ok()
}

/// The next set of as many numbers below `end`, in lexicographic order; `false` after the last.
fn next_set(set: &mut [usize], end: usize) -> bool {
    let size = set.len();
    for at in (0..size).rev() {
        if set[at] < end - (size - at) {
            set[at] += 1;
            for next in at + 1..size {
                set[next] = set[next - 1] + 1;
            }
            return true;
        }
    }
    false
}

impl Core {
    pub(super) fn status(&mut self) -> Result<Status, RequestError> {
        let stripes = self.census()?;
        let (files, file_bytes) = self.files_in_all();
        let nodes_up: Vec<String> = self.live_helpers().map(|node| self.name(node)).collect();
        let nodes_down = self.down_helpers();
        Ok(Status {
            healthy: stripes.intact == stripes.stripes,
            summary: self.first_line(&stripes, &nodes_up, &nodes_down),
            settling: !self.settled,
            stripes,
            files,
            file_bytes,
            nodes_up,
            nodes_down,
            jobs: self.job_views(),
            repairs: self.open_repairs(),
            orphans: self.orphan_views(),
            last_scrub: self.last_scrub(),
            lost_lately: self.lost_lately.iter().cloned().collect(),
        })
    }

    fn first_line(&self, census: &Census, up: &[String], down: &[String]) -> String {
        let line = summary(census, up, down);
        if self.settled { line } else { format!("starting, helpers are still registering; so far: {line}") }
    }

    /// Counted again only if something has changed.
    fn census(&mut self) -> Result<Census, RequestError> {
        if let Some(census) = &self.census {
            return Ok(census.clone());
        }
        let census = self.count()?;
        self.census = Some(census.clone());
        Ok(census)
    }

    fn count(&mut self) -> Result<Census, RequestError> {
        // By code and losses, of which there are few kinds; stripes are not kept.
        let mut census = Census::default();
        let mut lost_stripes = Vec::new();
        let mut kinds: BTreeMap<(String, Vec<BlockIndex>), (CodeSpec, u64)> = BTreeMap::new();
        self.catalog.each_stripe(&mut |record| {
            let lost = self.lost_blocks(&record);
            census.stripes += 1;
            census.intact += u64::from(lost.is_empty());
            census.blocks_lost += lost.len() as u64;
            census.bytes_lost += lost.len() as u64 * record.block_bytes;
            let key = (record.code.to_string(), lost);
            kinds.entry(key.clone()).or_insert((record.code, 0)).1 += 1;
            if !key.1.is_empty() {
                lost_stripes.push((record.id, key));
            }
        })?;
        let mut by_survives: BTreeMap<u32, Redundancy> = BTreeMap::new();
        for ((_, lost), (spec, stripes)) in &kinds {
            let code = self.codes.get(spec)?;
            match self.risks.survives(&*code, lost) {
                None => census.unreadable += stripes,
                Some(survives) => {
                    let empty = Redundancy { survives, stripes: 0, degraded: 0 };
                    let class = by_survives.entry(survives).or_insert(empty);
                    class.stripes += stripes;
                    class.degraded += if lost.is_empty() { 0 } else { *stripes };
                }
            }
        }
        for (stripe, (code, lost)) in lost_stripes {
            let code = self.codes.get(&kinds[&(code, lost.clone())].0)?;
            if self.risks.survives(&*code, &lost).is_none()
                && census.unreadable_stripes.len() < UNREADABLE_NAMED
            {
                census.unreadable_stripes.push(stripe.to_string());
            }
        }
        census.redundancy = by_survives.into_values().collect();
        Ok(census)
    }

    pub(super) fn node_views(&self) -> Result<Vec<NodeView>, RequestError> {
        let addresses: BTreeMap<NodeId, Option<String>> =
            self.catalog.nodes()?.into_iter().map(|record| (record.id, record.address)).collect();
        self.names
            .iter()
            .map(|(&node, name)| {
                let peer = self.peers.get(&node);
                let (bandwidth, orphans) = match peer.map(|peer| &peer.kind) {
                    Some(PeerKind::Helper { bandwidth, orphans, .. }) => (*bandwidth, orphans.len() as u64),
                    _ => (None, 0),
                };
                let view = self.topology.get(node);
                let up = peer.and(view);
                Ok(NodeView {
                    node: node.0,
                    name: name.clone(),
                    up: peer.is_some(),
                    address: addresses.get(&node).cloned().flatten(),
                    rack: view.and_then(|view| view.rack.clone()),
                    bandwidth_bytes_per_s: bandwidth,
                    free_bytes: up.map(|view| view.free_bytes),
                    tasks: up.map(|view| view.load),
                    blocks: self.catalog.blocks_of(node).len() as u64,
                    orphans,
                    to_remove: self.catalog.discards(node)?.len() as u64,
                })
            })
            .collect()
    }

    pub(super) fn file_layout(&mut self, name: &str) -> Result<FileLayout, RequestError> {
        let file = self.catalog.file(name)?;
        let file = file.ok_or_else(|| RequestError::NoSuchFile(name.to_owned()))?;
        let code = self.codes.get(&file.code)?;
        let mut stripes = Vec::with_capacity(file.stripes.len());
        for (id, position) in file.stripes.iter().zip(0..) {
            let record = self.stripe_record(id)?;
            let extent = layout::extent(&*code, file.bytes, file.block_bytes, position);
            stripes.push(FileStripe {
                position,
                file_offset: extent.file_offset,
                data_bytes: extent.data_bytes,
                stripe: self.stripe_view(&record)?,
            });
        }
        Ok(FileLayout {
            file: file_view(&file),
            data_blocks: code.data_blocks(),
            sub_blocks: code.sub_blocks(),
            layout: stripes,
        })
    }
}

/// The first line of `mend status`.
fn summary(census: &Census, up: &[String], down: &[String]) -> String {
    let helpers = match down {
        [] => format!("all {} helpers up", up.len()),
        down => format!("{} helpers up, down: {}", up.len(), down.join(", ")),
    };
    if census.stripes == 0 {
        return format!("nothing is stored; {helpers}");
    }
    if census.unreadable > 0 {
        let examples = census.unreadable_stripes.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        return format!(
            "NOT SAFE: {} of {} stripes cannot be read ({examples}); {helpers}",
            census.unreadable, census.stripes
        );
    }
    let weakest = &census.redundancy[0];
    if census.intact == census.stripes {
        return format!(
            "safe: all {} stripes are whole and survive {} more losses; {helpers}",
            census.stripes, weakest.survives
        );
    }
    let degraded = census.stripes - census.intact;
    match weakest.survives {
        0 => format!(
            "AT RISK: {} of {} stripes cannot lose another block, {degraded} lack blocks; run mend repair --all; \
             {helpers}",
            weakest.degraded, census.stripes
        ),
        survives => format!(
            "degraded: {degraded} of {} stripes lack blocks, the weakest {} survive {survives} more losses; run \
             mend repair --all; {helpers}",
            census.stripes, weakest.stripes
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives(code: &str, lost: &[u16]) -> Option<u32> {
        let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
        let lost: Vec<BlockIndex> = lost.iter().copied().map(BlockIndex).collect();
        Risks::default().survives(&*code, &lost)
    }

    #[test]
    fn an_mds_code_survives_what_is_left_of_its_parity() {
        assert_eq!(survives("rs-14-10", &[]), Some(4));
        assert_eq!(survives("rs-14-10", &[0, 1, 2]), Some(1));
        assert_eq!(survives("rs-14-10", &[0, 1, 2, 3]), Some(0));
        assert_eq!(survives("rs-14-10", &[0, 1, 2, 3, 4]), None);
    }

    #[test]
    fn a_local_code_survives_only_what_every_set_does() {
        assert_eq!(survives("lrc-6-2-2", &[]), Some(3));
        // Four losses can be too many for this code or not: it depends which.
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 2]), Some(0));
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 2, 6]), None);
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 3, 4]), Some(0));
    }

    #[test]
    fn sets_are_walked_through() {
        let mut set = vec![0, 1];
        let mut count = 1;
        while next_set(&mut set, 5) {
            count += 1;
        }
        assert_eq!((count, set), (10, vec![3, 4]));
    }

    #[test]
    fn the_first_line_answers_the_question() {
        let class = |survives, stripes, degraded| Redundancy { survives, stripes, degraded };
        let up = vec!["h1".to_owned()];
        let census = |intact, redundancy: Vec<Redundancy>, unreadable| Census {
            stripes: 10,
            intact,
            redundancy,
            unreadable,
            unreadable_stripes: vec!["7".into(); unreadable as usize],
            ..Census::default()
        };
        let line = |census: &Census| summary(census, &up, &[]);
        assert!(line(&Census::default()).starts_with("nothing is stored"));
        assert!(line(&census(10, vec![class(4, 10, 0)], 0)).starts_with("safe: all 10 stripes"));
        assert!(line(&census(8, vec![class(3, 2, 2), class(4, 8, 0)], 0)).starts_with("degraded: 2 of 10"));
        assert!(line(&census(8, vec![class(0, 2, 2), class(4, 8, 0)], 0)).starts_with("AT RISK: 2 of 10"));
        assert!(line(&census(8, vec![class(4, 9, 0)], 1)).starts_with("NOT SAFE: 1 of 10"));
    }
}
