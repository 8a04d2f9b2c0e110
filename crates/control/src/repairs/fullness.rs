//! Helpers that are full, and whether what fails next could be rebuilt: told before it is needed.

use std::time::Duration;

use repair::NodeId;

use crate::answers::Answers;
use crate::answers::safety::count;
use crate::facts::Facts;
use crate::nodes::sorted;
use crate::repairs::room::Room;
use views::FullNode;

/// A helper is nearly full when less than this part of its room is left.
const NEARLY: f64 = 0.05;
/// Stripes that are looked at; of more, so many, taken evenly.
const LOOKED_AT: usize = 500;
/// How long a finding is used before stripes are looked at again.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// The latest finding.
#[derive(Default)]
pub(crate) struct Fullness {
    found: Option<(Duration, Option<String>)>,
}

impl Fullness {
    /// Whether it is to be looked at again.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.found.as_ref().is_none_or(|&(at, _)| now >= at + GOOD_FOR)
    }

    pub(crate) fn set(&mut self, advice: Option<String>, now: Duration) {
        self.found = Some((now, advice));
    }

    /// Says whether a helper that failed could not be rebuilt, why, and the remedy.
    pub(crate) fn advice(&self) -> Option<String> {
        self.found.as_ref().and_then(|(_, text)| text.clone())
    }
}

impl<'a> Answers<'a> {
    pub(crate) fn find_spare(self) -> Option<String> {
        let room = self.jobs.spare_room(self.facts, &self.facts.stripes.picture.sample(LOOKED_AT));
        if room.stuck > 0 {
            return Some(self.no_spare_text(room));
        }
        let fullest = self
            .jobs
            .takers(self.facts)
            .max_by_key(|&(node, _)| self.facts.stripes.picture.bytes_on(node))?;
        let held = self.facts.stripes.picture.bytes_on(fullest.0);
        let elsewhere: u64 =
            self.jobs.takers(self.facts).map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
        (held > elsewhere.saturating_sub(fullest.1)).then(|| {
            format!(
                "no room to repair: if {} failed, the other helpers could not take all that it holds: free space on them, or \
                 add a helper (mend node add)",
                self.facts.nodes.name(fullest.0)
            )
        })
    }

    fn no_spare_text(self, room: Room) -> String {
        let which = match room.stuck == room.blocks {
            true => "any stripe".to_owned(),
            false => format!("{} of {} looked at", room.stuck, count(room.blocks, "stripe")),
        };
        let omitted = self.jobs.omitted(self.facts, room.stuck_bytes, None);
        format!(
            "no room to repair: if a helper failed, no other could take its block of {which} ({}): {}",
            omitted.why(),
            omitted.remedy()
        )
    }
}

impl<'a> Answers<'a> {
    /// Helpers that have room for no further block, or for few.
    pub(crate) fn full_nodes(self) -> Vec<FullNode> {
        let block_bytes = self.facts.largest_block_bytes();
        let full = |node: NodeId| {
            let free_bytes = self.facts.nodes.topology.get(node)?.free_bytes;
            let (is_full, free) = (free_bytes < block_bytes, free_bytes as f64);
            let is_little = |held: u64| free < NEARLY * (free + held as f64);
            // Counting bytes takes time, and most helpers are far from full.
            let most = self.facts.stripes.picture.block_count(node) as u64 * block_bytes;
            let is_nearly = is_little(most) && is_little(self.facts.stripes.picture.bytes_on(node));
            (is_full || is_nearly).then(|| FullNode {
                node: self.facts.nodes.name(node),
                free_bytes,
                full: is_full,
            })
        };
        let mut nodes: Vec<FullNode> = self.facts.nodes.live_helpers().filter_map(full).collect();
        nodes.sort_by(|a, b| views::natural(&a.node, &b.node));
        nodes
    }
}

impl<'a> Facts<'a> {
    /// Bytes of a large block: of the kind of stripes that has the largest, or as new ones are made.
    fn largest_block_bytes(self) -> u64 {
        let stored = self.stripes.picture.kinds().map(|kind| kind.block_bytes / kind.stripes.max(1)).max();
        stored.unwrap_or(self.base.settings.block_bytes)
    }
}

/// `; full: h5; nearly full: h7`, for the first line of the status.
pub(crate) fn full_text(nodes: &[FullNode]) -> String {
    let named = |full: bool, what: &str| {
        let names = sorted(nodes.iter().filter(|node| node.full == full).map(|node| node.node.clone()));
        if names.is_empty() { String::new() } else { format!("; {what}: {}", names.join(", ")) }
    };
    named(true, "full") + &named(false, "nearly full")
}
