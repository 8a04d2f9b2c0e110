//! Compares the status with the disks. The status may be too pessimistic, because good blocks are verified
//! gradually, but never too optimistic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;

use crate::clients::{self, Fate};
use crate::cluster::within;
use crate::disk::blocks_in;
use crate::helpers::Process;
use crate::report::Section;
use crate::rounds::{SETTLED, Thrash};

/// How long the coordinator may take to notice that a helper is dead, and that a stopped helper does not
/// answer.
const NOTICED_DEAD: Duration = Duration::from_secs(5);
const NOTICED_STOPPED: Duration = Duration::from_secs(20);
/// The number of comparisons in a row that must fail before the run reports an error. A single comparison
/// may fail because a block moves meanwhile.
const LOOKS: usize = 6;
const PAUSE: Duration = Duration::from_secs(1);
/// The number of files to compare with the disks after a round.
const FILES: usize = 3;

/// The block files of the helpers that are not known to be gone.
struct Disks {
    /// For each helper, the paths of its block files by block name.
    blocks: BTreeMap<String, BTreeMap<String, PathBuf>>,
    /// Helpers whose blocks may be bad or missing without the coordinator having noticed.
    damaged: BTreeSet<String>,
}

impl Thrash {
    /// Compares the status with the known state of the helpers, and compares the stripes of some files with
    /// the disks.
    pub(crate) fn check_status(&self, rng: &mut Rng) {
        let mut names = self.model.present();
        rng.shuffle(&mut names);
        names.truncate(FILES);
        self.hold_against_truth(&names, &[]);
    }

    /// Checks that every block that is reported healthy is on the disk of its helper, for all files.
    pub(crate) fn check_status_of_all(&self) {
        let names = self.model.present();
        self.hold_against_truth(&names, &[]);
    }

    /// Waits until the coordinator must have noticed which daemons are dead, then compares all files with the
    /// disks of the other helpers.
    pub(crate) fn check_status_of_dead(&self) {
        thread::sleep(NOTICED_DEAD);
        // A coordinator that has just restarted waits for helpers. The comparison must wait as well.
        let settled = || {
            let status = self.said(&["status", "--output", "json"]);
            status.is_none_or(|status| status["settling"] == false)
        };
        if !within(SETTLED, settled) {
            self.fail("the coordinator still settles");
        }
        let dead = self.cluster.helpers().into_iter().filter(|name| !self.cluster.is_started(name));
        self.hold_against_truth(&self.model.present(), &dead.collect::<Vec<_>>());
    }

    /// Compares the status with the disks, and ends the run with an error if the status stays too optimistic.
    /// `dead` lists helpers that are dead although the run has not recorded it yet.
    fn hold_against_truth(&self, names: &[String], dead: &[String]) {
        let mut lie = None;
        for look in 0..LOOKS {
            if look > 0 {
                thread::sleep(PAUSE);
            }
            lie = self.lie(names, dead);
            match &lie {
                None => return,
                Some(lie) => self.report.log(&format!("  perhaps better than the truth: {lie}")),
            }
        }
        self.fail(&format!("STATUS BETTER THAN THE TRUTH: {}", lie.unwrap_or_default()));
    }

    /// Returns a claim of the status that is too optimistic, or `None` if there is none.
    fn lie(&self, names: &[String], dead: &[String]) -> Option<String> {
        let status = self.said(&["status", "--output", "json"])?;
        if status["settling"] != false {
            return None;
        }
        let up: BTreeSet<&str> = strings(&status["nodes_up"]).collect();
        let mut gone = self.helpers.which(|health| {
            let limit = if health.process == Process::Down { NOTICED_DEAD } else { NOTICED_STOPPED };
            health.gone_since.is_some_and(|since| since.elapsed() > limit)
        });
        gone.extend(dead.iter().filter(|name| !gone.contains(name)).cloned().collect::<Vec<_>>());
        if let Some(name) = gone.iter().find(|name| up.contains(name.as_str())) {
            return Some(format!(
                "{name} is said to be up, and has been away for {NOTICED_DEAD:?} or longer"
            ));
        }
        let disks = self.disks(&gone);
        let classes = status["stripes"]["redundancy"].as_array()?.iter();
        let weakest = classes.filter_map(|class| class["helpers"].as_u64()).min();
        names.iter().find_map(|name| {
            let layout = self.said(&["stat", name, "--output", "json"])?;
            let data_blocks = layout["data_blocks"].as_u64()? as usize;
            layout["layout"].as_array()?.iter().find_map(|stripe| {
                self.report.count(Section::Operations, "stripe held against the disks");
                disks.lie_about(stripe, data_blocks).or_else(|| {
                    let truth = disks.survivable(stripe, data_blocks)?;
                    let is_lie = status["stripes"]["unreadable"] == 0 && weakest? > truth as u64;
                    is_lie.then(|| {
                        format!(
                            "all stripes are said to be able to lose {weakest:?} helpers, {} {truth}",
                            stripe["stripe"]
                        )
                    })
                })
            })
        })
    }

    fn disks(&self, gone: &[String]) -> Disks {
        let reachable = self.cluster.helpers().into_iter().filter(|helper| !gone.contains(helper));
        let blocks = reachable.map(|helper| {
            let named = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
            let blocks = blocks_in(&self.cluster.blocks(&helper)).into_iter().filter_map(named).collect();
            (helper, blocks)
        });
        let damaged = self.helpers.which(|health| health.damaged).into_iter().collect();
        Disks { blocks: blocks.collect(), damaged }
    }

    fn said(&self, arguments: &[&str]) -> Option<Value> {
        clients::run(&self.cluster, "truth", arguments, Fate::Spared).json()
    }
}

impl Disks {
    /// Returns how many nodes a stripe can lose according to the good blocks on the disks, or `None` if the
    /// stripe is unreadable.
    fn survivable(&self, stripe: &Value, data_blocks: usize) -> Option<usize> {
        let mut on: BTreeMap<&str, usize> = BTreeMap::new();
        let there = stripe["blocks"]
            .as_array()?
            .iter()
            .filter(|block| block["state"] == "healthy" && self.wrong_block(block).is_none());
        there.filter_map(|block| block["node"].as_str()).for_each(|node| *on.entry(node).or_default() += 1);
        on.retain(|node, _| self.blocks.contains_key(*node));
        survivable(on.into_values().collect(), data_blocks)
    }

    /// Returns a claim about a stripe that is too optimistic according to the disks, or `None` if there is
    /// none.
    fn lie_about(&self, stripe: &Value, data_blocks: usize) -> Option<String> {
        let blocks = stripe["blocks"].as_array()?;
        let wrong: Vec<String> = blocks.iter().filter_map(|block| self.wrong_block(block)).collect();
        let truth = self.survivable(stripe, data_blocks);
        let (readable, survives) = (stripe["readable"] == true, stripe["helpers"].as_u64()? as usize);
        let is_lie = match truth {
            None => readable,
            Some(nodes) => survives > nodes,
        };
        // A single wrong block on a helper without faults also makes the status wrong.
        (is_lie || !wrong.is_empty()).then(|| {
            let said =
                if readable { format!("able to lose {survives} helpers") } else { "unreadable".to_owned() };
            format!(
                "stripe {} is said to be {said}, the disks say {truth:?} nodes; wrong: {wrong:?}",
                stripe["stripe"]
            )
        })
    }

    /// Returns the name and helper of a block that is reported healthy although it is missing or has other
    /// bytes. Returns `None` if the block is good or its helper's disk was damaged.
    fn wrong_block(&self, block: &Value) -> Option<String> {
        let (name, node) = (block["block"].as_str()?, block["node"].as_str()?);
        let is_known = block["state"] == "healthy" && !self.damaged.contains(node);
        let held = self.blocks.get(node).filter(|_| is_known)?;
        let is_good = held.get(name).is_some_and(|path| digest(path).as_deref() == block["digest"].as_str());
        (!is_good).then(|| format!("{name} on {node}"))
    }
}

/// Returns how many nodes a stripe can lose in the worst case, given the number of its blocks on each node.
/// Returns `None` if the stripe is already unreadable.
fn survivable(mut on_node: Vec<usize>, data_blocks: usize) -> Option<usize> {
    on_node.sort_unstable();
    let mut left: usize = on_node.iter().sum();
    let mut nodes = None;
    while left >= data_blocks {
        nodes = Some(nodes.map_or(0, |nodes| nodes + 1));
        match on_node.pop() {
            Some(blocks) => left -= blocks,
            None => break,
        }
    }
    nodes
}

fn digest(path: &Path) -> Option<String> {
    let mut hash = store_api::BlockHash::default();
    hash.update(&std::fs::read(path).ok()?);
    Some(hash.finish().to_string())
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn redundancy_counts_nodes_rather_than_blocks() {
    assert_eq!(survivable(vec![1; 6], 4), Some(2));
    assert_eq!(survivable(vec![2, 1, 1, 1, 1], 4), Some(1));
    assert_eq!(survivable(vec![2, 2, 2], 4), Some(1));
    assert_eq!(survivable(vec![3, 1, 1, 1], 4), Some(0));
    assert_eq!(survivable(vec![1; 3], 4), None);
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use dir::DirBlocks;
    use repair::{BlockId, Sink, SinkEnd};

    use super::*;

    /// Returns a stripe of two data blocks and one parity block of one byte each.
    fn stripe(survives: u64, nodes: [&str; 3]) -> Value {
        let block = |(index, node): (usize, &str)| {
            let mut hash = store_api::BlockHash::default();
            hash.update(&[index as u8]);
            serde_json::json!({
                "block": format!("1.{index}"), "node": node, "state": "healthy", "digest": hash.finish().to_string()
            })
        };
        let blocks: Vec<Value> = nodes.into_iter().enumerate().map(block).collect();
        serde_json::json!({ "stripe": "1", "helpers": survives, "readable": true, "blocks": blocks })
    }

    fn put(folder: &Path, index: u8) {
        let end = SinkEnd::Kept { label: None, permit: None };
        let id = BlockId(format!("1.{index}"));
        let sink = Sink { index: BlockIndex(index.into()), id, bytes: 1, digest: None, end };
        let mut writer = DirBlocks::open(folder).unwrap().create(&sink).unwrap();
        writer.write_at(0, &[index]).unwrap();
        writer.seal().unwrap();
        writer.commit().unwrap();
    }

    fn disks(root: &Path, damaged: &[&str]) -> Disks {
        let named = |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), path);
        let held = |node: &str| blocks_in(&root.join(node)).into_iter().map(named).collect();
        let blocks = ["a", "b", "c"].into_iter().filter(|node| root.join(node).exists());
        Disks {
            blocks: blocks.map(|node| (node.to_owned(), held(node))).collect(),
            damaged: damaged.iter().map(|&node| node.to_owned()).collect(),
        }
    }

    #[test]
    fn a_claim_that_is_too_optimistic_is_a_lie() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        ["a", "b", "c"].into_iter().zip(0..).for_each(|(node, index)| put(&root.join(node), index));
        let apart = ["a", "b", "c"];
        assert_eq!(disks(root, &[]).lie_about(&stripe(1, apart), 2), None);
        assert!(disks(root, &[]).lie_about(&stripe(2, apart), 2).is_some(), "it can lose one at most");
        assert_eq!(disks(root, &[]).lie_about(&stripe(0, apart), 2), None, "it may be said to be worse");
        put(&root.join("b"), 0);
        assert!(disks(root, &[]).lie_about(&stripe(1, ["b", "b", "c"]), 2).is_some(), "two are on one node");
        // The status may miss a changed byte only on a helper whose disk is known to be damaged.
        let block = blocks_in(&root.join("c")).remove(0);
        std::fs::write(block, [7]).unwrap();
        assert!(disks(root, &[]).lie_about(&stripe(1, apart), 2).is_some());
        assert_eq!(disks(root, &["c"]).lie_about(&stripe(1, apart), 2), None);
        std::fs::remove_dir_all(root.join("c")).unwrap();
        assert!(disks(root, &[]).lie_about(&stripe(1, apart), 2).is_some(), "a helper is gone");
        assert_eq!(disks(root, &[]).lie_about(&stripe(0, apart), 2), None);
    }
}
