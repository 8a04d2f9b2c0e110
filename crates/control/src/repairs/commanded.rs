//! Recoveries of servers whose blocks an attached store has begun to rebuild.
//!
//! HDFS has no grace period: once a DataNode is dead, the NameNode commands other DataNodes to rebuild its
//! blocks, a few at a time. If plug-ins pass these commands on, the first one shows that the rebuilding has begun.
//! The dead server is then recovered as a whole, which uses the links better than one command after
//! another. Plug-ins skip the commands for stripes of an open recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use recovery::Target;
use repair::NodeId;

use crate::facts::Facts;
use crate::out::Out;
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;

/// How long a command counts. The store may report a server as out of service some time after the first command.
const COUNTS_FOR: Duration = Duration::from_secs(30);

/// The servers whose blocks the store has begun to rebuild.
#[derive(Default)]
pub(crate) struct Commanded {
    /// The homes of blocks that commands were about, and the time of the last command.
    homes: BTreeMap<NodeId, Duration>,
    /// The servers whose recovery has begun, until they are in service again.
    begun: BTreeSet<NodeId>,
}

impl Commanded {
    /// Records the order that results from a command of the store: where the blocks were that it wants rebuilt.
    pub(crate) fn note(&mut self, facts: Facts<'_>, order: &Order) {
        let Some(given) = order.given.as_ref().filter(|_| facts.base.store.reports_service()) else { return };
        let Ok(record) = facts.stripes.picture.stripe(&given.stripe.id) else { return };
        let homes = given.homes.keys().filter_map(|index| record.blocks.get(usize::from(index.0))?.node);
        self.homes.extend(homes.map(|home| (home, facts.base.now)));
    }

    /// Records that a server has gone out of service. During a recovery, commands about the same stripes are skipped,
    /// so no command may tell of a second dead server.
    pub(crate) fn note_outage(&mut self, facts: Facts<'_>, queue: &Queue, node: NodeId) {
        if self.begun.iter().any(|&begun| queue.recovery_of(begun).is_some()) {
            self.homes.insert(node, facts.base.now);
        }
    }

    /// Begins the recovery of servers that are out of service and whose blocks are being rebuilt. A server is
    /// recovered once per outage; further commands are carried out one by one.
    pub(crate) fn follow(&mut self, facts: Facts<'_>, queue: &Queue, out: &mut Out) {
        let is_out = |node: &NodeId| !facts.stripes.picture.is_up(*node);
        self.homes.retain(|_, at| facts.base.now < *at + COUNTS_FOR);
        self.begun.retain(is_out);
        if facts.heals().is_none_or(|policy| policy.dry_run) {
            return;
        }
        let is_lost = |node: &NodeId| is_out(node) && !facts.stripes.news.maintained.contains(node);
        let due = self.homes.keys().copied().filter(|node| is_lost(node) && !self.begun.contains(node));
        for node in due.collect::<Vec<_>>() {
            if queue.recovery_of(node).is_none() {
                let order = facts.own_order(Target::Node(node));
                let (Ok(order), Ok(id)) = (order, out.next_number()) else { return };
                let node = facts.nodes.name(node);
                tracing::info!(helper = %node, "the store has begun to rebuild the blocks of a server; recovering the server");
                let (write, then) = Ordered::new(id, order, OrderedBy::Damage).stored();
                out.store(write, then);
            }
            self.begun.insert(node);
        }
    }
}
