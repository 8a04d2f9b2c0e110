//! The read-only view of nodes, stripes and storage. Every state machine of the control plane may read it
//! while it changes its own state.

mod blocks;
mod copies;
mod guards;
mod helpers;
pub(crate) mod hollow;
pub(crate) mod spare_copies;
mod standing;
mod stripe_views;
pub(crate) mod unheard;

pub(crate) use copies::copy_state;
pub(crate) use standing::Standing;

use crate::base::Base;
use crate::nodes::Nodes;
use crate::nodes::capping::Capping;
use crate::storing::Storing;
use crate::stripes::Stripes;

/// Read-only nodes, stripes and storage.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub base: &'a Base,
    pub nodes: &'a Nodes,
    pub capping: &'a Capping,
    pub stripes: &'a Stripes,
    pub storing: &'a Storing,
}

/// Like [`Facts`], but without the stripes, while these are being changed.
#[derive(Clone, Copy)]
pub(crate) struct OuterFacts<'a> {
    pub base: &'a Base,
    pub nodes: &'a Nodes,
    pub capping: &'a Capping,
    pub storing: &'a Storing,
}

impl<'a> OuterFacts<'a> {
    /// Adds the stripes in their present state.
    pub(crate) fn with(self, stripes: &'a Stripes) -> Facts<'a> {
        Facts { base: self.base, nodes: self.nodes, capping: self.capping, stripes, storing: self.storing }
    }
}
