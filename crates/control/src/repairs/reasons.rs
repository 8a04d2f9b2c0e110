//! Reasons why stripes were not repaired, grouped by text.

use std::collections::BTreeMap;

use crate::repairs::repair::Item;
use ::views::RepairReason;

/// The maximum number of reasons that are listed. The remaining reasons are counted together.
const TOLD: usize = 5;
/// The maximum number of blocks that are named per reason.
const NAMED: usize = 5;

/// Stripes by reason and next step.
#[derive(Default)]
pub(crate) struct Reasons(BTreeMap<(String, Option<String>), Failed>);

#[derive(Default)]
struct Failed {
    stripes: u64,
    blocks: Vec<String>,
}

impl Reasons {
    pub(crate) fn add(&mut self, item: &Item) {
        let reason =
            item.reason.clone().unwrap_or_else(|| "unknown reason (see the coordinator's log)".to_owned());
        let failed = self.0.entry((reason, item.next_step.clone())).or_default();
        failed.stripes += 1;
        let missing = item.blocks.iter().filter(|block| !item.rebuilt.contains_key(*block));
        let room = NAMED.saturating_sub(failed.blocks.len());
        failed.blocks.extend(missing.take(room).map(ToString::to_string));
    }

    /// Adds the reason for blocks that are left on a node although no stripe of its drain failed.
    pub(super) fn add_left(&mut self, blocks: u64) {
        let reason =
            "some blocks arrived during the drain, are moved by another drain, or belong to files that are still \
             being stored"
                .to_owned();
        let failed = Failed { stripes: blocks, blocks: Vec::new() };
        self.0.insert(
            (reason, Some("no action is needed: these blocks are moved automatically".to_owned())),
            failed,
        );
    }

    /// Returns the reasons, the most frequent first.
    pub(super) fn into_views(self) -> Vec<RepairReason> {
        let view = |((reason, next_step), Failed { stripes, blocks })| RepairReason {
            reason,
            next_step,
            stripes,
            blocks,
        };
        let mut views: Vec<RepairReason> = self.0.into_iter().map(view).collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.stripes));
        if views.len() > TOLD {
            let rest: u64 = views.drain(TOLD - 1..).map(|view| view.stripes).sum();
            let reason = "other reasons; mend watch with --verbose lists them".to_owned();
            views.push(RepairReason { reason, next_step: None, stripes: rest, blocks: Vec::new() });
        }
        views
    }
}
