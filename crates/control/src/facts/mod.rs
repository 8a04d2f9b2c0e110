//! What every machine may look at while one of them changes.

mod blocks;
mod copies;
mod gates;
mod helpers;

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
