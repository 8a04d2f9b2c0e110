//! What every machine may look at while one of them changes.

mod blocks;
mod copies;
mod gates;
mod helpers;
mod stripe_views;

use crate::base::Base;
use crate::nodes::Nodes;
use crate::storing::Storing;
use crate::stripes::Stripes;

/// Nodes, stripes and storage as they are, for reading only.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub base: &'a Base,
    pub nodes: &'a Nodes,
    pub stripes: &'a Stripes,
    pub storing: &'a Storing,
}

/// The same without stripes, which are being changed.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub base: &'a Base,
    pub nodes: &'a Nodes,
    pub storing: &'a Storing,
}

impl<'a> Around<'a> {
    /// All facts, with the stripes as they are now.
    pub(crate) fn with(self, stripes: &'a Stripes) -> Facts<'a> {
        Facts { base: self.base, nodes: self.nodes, stripes, storing: self.storing }
    }
}
