//! [`Preparation`]: the time in which the driver prepares nodes for an item's blocks, before it starts the job.

use repair::Wanted;

use super::backlog::Backlog;
use super::budget::{Loads, NodeLoad};
use super::item::Prepared;
use super::nodes::NodeTable;
use super::scan::Scan;
use super::stripes::Stripes;

/// The nodes that are prepared for the blocks of one item. Their room is reserved while they are being prepared; later
/// proposals of the item keep to them if they have room. The item forgets them when it starts or ends.
pub struct Preparation<'s> {
    pub(super) backlog: &'s mut Backlog,
    pub(super) stripes: &'s Stripes,
    pub(super) table: &'s mut NodeTable,
    pub(super) scan: &'s mut Scan,
    pub(super) no: u32,
}

impl Preparation<'_> {
    /// Reserves room for the item's blocks at these nodes, which the driver is about to prepare. Other items leave this
    /// room until [`end`](Self::end).
    ///
    /// # Panics
    /// If the item has ended.
    pub fn begin(self, wanted: &[Wanted]) {
        forget(self.backlog, self.no, self.table);
        let bytes = self.stripes.get(self.backlog.item(self.no).stripe).block_bytes;
        let load = |wanted: &Wanted| NodeLoad {
            node: wanted.requestor,
            jobs: 1,
            sent_bytes: 0,
            received_bytes: bytes,
            read_bytes: 0,
            stored_bytes: bytes,
        };
        let loads = Loads { nodes: wanted.iter().map(load).collect(), links: Vec::new() };
        let prepared = Prepared { wanted: wanted.to_vec(), booking: self.table.book(&loads) };
        self.backlog.item_mut(self.no).prepared = prepared;
    }

    /// Records that the nodes are prepared. Gives back the reservation there, for the item's job.
    pub fn end(self) {
        if self.backlog.is_open(self.no) {
            self.table.give_back(&mut self.backlog.item_mut(self.no).prepared.booking);
            self.scan.restart();
        }
    }

    /// Forgets the nodes, if there are any.
    pub fn withdraw(self) {
        if self.backlog.is_open(self.no) {
            forget(self.backlog, self.no, self.table);
            self.scan.restart();
        }
    }
}

/// Forgets the nodes that were prepared for an item, and gives back what is reserved there.
pub(super) fn forget(backlog: &mut Backlog, no: u32, table: &mut NodeTable) {
    let mut prepared = std::mem::take(&mut backlog.item_mut(no).prepared);
    table.give_back(&mut prepared.booking);
}
