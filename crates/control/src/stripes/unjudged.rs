//! Stripes of which the store's answers do not tell how they stand.
//!
//! The picture has none of them, so they are counted apart: as long as there is one, nobody can say that
//! everything is safe; and their blocks are no orphans.

use std::collections::BTreeSet;

use repair::BlockId;
use store_api::Unjudged;
use views::UnjudgedStripe;

use crate::counts::count;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct UnjudgedStripes {
    stripes: Vec<Unjudged>,
    blocks: BTreeSet<BlockId>,
}

impl UnjudgedStripes {
    /// Takes in which stripes there are.
    pub fn set(&mut self, stripes: &[Unjudged]) {
        self.stripes = stripes.to_vec();
        self.blocks = stripes.iter().flat_map(|stripe| &stripe.blocks).cloned().collect();
    }

    pub fn is_empty(&self) -> bool {
        self.stripes.is_empty()
    }

    /// Whether a block is said to be of such a stripe.
    pub fn have(&self, block: &BlockId) -> bool {
        self.blocks.contains(block)
    }

    pub fn views(&self) -> Vec<UnjudgedStripe> {
        let view = |it: &Unjudged| UnjudgedStripe {
            stripe: it.stripe.to_string(),
            why: it.why.clone(),
            next_step: it.next_step.clone(),
        };
        self.stripes.iter().map(view).collect()
    }

    /// A sentence for each.
    pub fn advice(&self) -> impl Iterator<Item = String> + '_ {
        let line =
            |it: &Unjudged| format!("{} cannot be judged: {}; next: {}", it.stripe, it.why, it.next_step);
        self.stripes.iter().map(line)
    }

    /// The first line of the status, given that of all other stripes.
    pub fn first_line(&self, others: String) -> String {
        match self.stripes.len() as u64 {
            0 => others,
            stripes => {
                format!("NOT KNOWN  {} cannot be judged; all others: {others}", count(stripes, "stripe"))
            }
        }
    }
}
