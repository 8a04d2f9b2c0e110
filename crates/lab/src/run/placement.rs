//! A placement of a stripe's blocks. The coordinator chooses it at random, so a scenario whose links differ measures
//! several.

use serde::{Deserialize, Serialize};

use super::stored::Stored;
use crate::topology::Topology;

/// A placement of the blocks of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The number of the placement, from 1.
    pub number: u32,
    /// The helper of each block.
    pub helpers: Vec<String>,
}

impl Placement {
    pub(super) fn of(number: u32, stored: &Stored) -> Self {
        Self { number, helpers: stored.blocks.iter().map(|at| at.node.clone()).collect() }
    }

    /// Returns the rack or place of each block's helper, from 0; nothing if the network has none.
    pub(crate) fn places(&self, topology: &Topology) -> impl Iterator<Item = u16> {
        let number = |helper: &String| helper.strip_prefix('h')?.parse::<u16>().ok()?.checked_sub(1);
        self.helpers.iter().filter_map(move |helper| topology.place_of(number(helper)?))
    }
}
