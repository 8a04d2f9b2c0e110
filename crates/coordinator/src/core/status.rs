//! "Am I safe?": stripes by what they can still lose, helpers, files.

use std::collections::BTreeMap;

use super::Core;
use super::nodes::PeerKind;
use super::puts::file_view;
use crate::error::RequestError;
use crate::layout;
use views::{Census, FileLayout, FileStripe, NodeView, Redundancy, Status};

/// Unreadable stripes that are named.
const UNREADABLE_NAMED: usize = 100;
impl Core {
    pub(super) fn status(&mut self) -> Result<Status, RequestError> {
        let stripes = self.census()?;
        let (files, file_bytes) = self.picture.files().in_all();
        let nodes_up: Vec<String> = self.live_helpers().map(|node| self.name(node)).collect();
        let nodes_down = self.down_helpers();
        Ok(Status {
            healthy: stripes.intact == stripes.stripes && !self.is_behind(),
            summary: self.first_line(&stripes, &nodes_up, &nodes_down),
            settling: !self.settled,
            stripes,
            files,
            file_bytes,
            nodes_up,
            nodes_down,
            leaving: self.leaving_views(),
            jobs: self.job_views(),
            repairs: self.open_repairs(),
            orphans: self.orphan_views(),
            newer: self.newer_views(),
            last_scrub: self.last_scrub(),
            lost_lately: self.lost_lately.iter().cloned().collect(),
        })
    }

    fn first_line(&self, census: &Census, up: &[String], down: &[String]) -> String {
        let line = summary(census, up, down);
        if let Err(behind) = self.check_not_behind() {
            return format!("STOPPED: {behind}; {}", behind.next_step());
        }
        if self.settled { line } else { format!("starting, helpers are still registering; so far: {line}") }
    }

    /// From the counts that the picture keeps; what a kind of stripe survives is known from the last time.
    fn census(&mut self) -> Result<Census, RequestError> {
        let mut census = Census::default();
        let mut by_survives: BTreeMap<u32, Redundancy> = BTreeMap::new();
        for kind in self.picture.kinds() {
            let (lost, code) = (kind.lost.len() as u64, self.codes.get(kind.code)?);
            census.stripes += kind.stripes;
            census.intact += if lost == 0 { kind.stripes } else { 0 };
            census.blocks_lost += lost * kind.stripes;
            census.bytes_lost += lost * kind.block_bytes;
            let Some(survives) = self.risks.survives(&*code, &kind.lost) else {
                census.unreadable += kind.stripes;
                let room = UNREADABLE_NAMED - census.unreadable_stripes.len();
                let named = kind.slots.iter().take(room).map(|&slot| self.picture.name_of(slot));
                census.unreadable_stripes.extend(named);
                continue;
            };
            let empty = Redundancy { survives, stripes: 0, degraded: 0 };
            let class = by_survives.entry(survives).or_insert(empty);
            class.stripes += kind.stripes;
            class.degraded += if lost == 0 { 0 } else { kind.stripes };
        }
        census.redundancy = by_survives.into_values().collect();
        Ok(census)
    }

    pub(super) fn node_views(&self) -> Result<Vec<NodeView>, RequestError> {
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
                    address: self.picture.nodes().get(&node).and_then(|record| record.address.clone()),
                    rack: view.and_then(|view| view.rack.clone()),
                    bandwidth_bytes_per_s: bandwidth,
                    free_bytes: up.map(|view| view.free_bytes),
                    tasks: up.map(|view| view.load),
                    blocks: self.picture.block_count(node) as u64,
                    orphans,
                    leaving: self.leaving.contains(&node),
                    to_remove: self.picture.files().discard_count(node) as u64,
                })
            })
            .collect()
    }

    pub(super) fn file_layout(&mut self, name: &str) -> Result<FileLayout, RequestError> {
        let file = self.picture.files().get(name).cloned();
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
