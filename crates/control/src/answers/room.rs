//! Whether a further failure could be repaired, and which helpers are full.

use repair::NodeId;
use views::FullNode;

use crate::answers::Answers;
use crate::counts::count;
use crate::repairs::fullness::NEARLY;
use crate::repairs::room::Room;

/// The maximum number of stripes for which the room for a lost block is checked. If there are more stripes,
/// an even sample is checked.
const LOOKED_AT: usize = 500;

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
                "no room to repair: if {} failed, the other helpers could not hold its blocks; free space on \
                 them, or add a helper (mend node add)",
                self.facts.nodes.name(fullest.0)
            )
        })
    }

    fn no_spare_text(self, room: Room) -> String {
        let which = match room.stuck == room.blocks {
            true => "any stripe".to_owned(),
            false => format!("{} of the {} examined", room.stuck, count(room.blocks, "stripe")),
        };
        let omitted = self.jobs.omitted(self.facts, room.stuck_bytes, None, &[]);
        format!(
            "no room to repair: if a helper failed, no other helper could take its block of {which} ({}): {}",
            omitted.why(),
            omitted.remedy()
        )
    }

    /// Returns the helpers with little or no room for further blocks.
    pub(crate) fn full_nodes(self) -> Vec<FullNode> {
        let block_bytes = self.facts.largest_block_bytes();
        let full = |node: NodeId| {
            let free_bytes = self.facts.nodes.topology.get(node)?.free_bytes;
            let (is_full, free) = (free_bytes < block_bytes, free_bytes as f64);
            let is_little = |held: u64| free < NEARLY * (free + held as f64);
            // Counting exact bytes takes time, so an upper bound rules out most helpers first.
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
