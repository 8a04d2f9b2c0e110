//! Faults of a scenario, and the time at which each strikes.

use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockProblem, NodeId};

use crate::event::Event;
use crate::node::State;
use crate::scenario::Scenario;
use crate::world::World;

/// The time at which a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a point in virtual time.
    At(Duration),
    /// When this number of slices has been written to all sinks together.
    Delivered(u32),
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed: its connections are reset and its memory is lost.
    Kill {
        /// The node whose process is killed.
        node: NodeId,
        /// Time until the process is restarted; `None` if it is not.
        back_after: Option<Duration>,
    },
    /// A machine vanishes without closing its connections.
    Vanish {
        /// The machine.
        node: NodeId,
    },
    /// A process is paused by SIGSTOP.
    Pause {
        /// The node whose process is paused.
        node: NodeId,
        /// Duration of the pause; `None` if it never ends.
        lasts: Option<Duration>,
    },
    /// A bit flips in the next frame that a node sends.
    FlipFrame {
        /// The sender.
        from: NodeId,
    },
    /// A byte of a block is corrupted on the disk. The store's checksums reveal it when the byte is read.
    Corrupt {
        /// The block.
        block: BlockIndex,
    },
    /// A byte of a block is corrupted silently: no checksum reveals it.
    Lie {
        /// The block.
        block: BlockIndex,
    },
    /// A block's file is lost.
    Lose {
        /// The block.
        block: BlockIndex,
    },
    /// All connections between two nodes are reset.
    Break {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// The link between two nodes is cut for good. Neither node is notified.
    Cut {
        /// One of the two nodes.
        a: NodeId,
        /// The other node.
        b: NodeId,
    },
    /// A disk is full.
    DiskFull {
        /// The node with this disk.
        node: NodeId,
    },
    /// A node's links and disk become slower.
    Slow {
        /// The node.
        node: NodeId,
        /// The factor by which the rates fall.
        factor: u32,
    },
    /// Control messages to and from a node become slow.
    SlowControl {
        /// The node.
        node: NodeId,
        /// The longest delay of a message.
        limit: Duration,
    },
}

impl Fault {
    /// Returns the node that this fault makes unfit, for good or for so long that a job need not wait for the
    /// node. Connections that break once and bits that flip once make no node unfit. Cut links are judged
    /// elsewhere (`World::unfit`), because their effect depends on the other links.
    pub(crate) fn unfit(&self) -> Option<NodeId> {
        match *self {
            Self::Kill { node, .. }
            | Self::Vanish { node }
            | Self::Pause { node, .. }
            | Self::Slow { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Returns the block that this fault makes unreadable or wrong.
    pub(crate) fn bad_block(&self) -> Option<BlockIndex> {
        match *self {
            Self::Corrupt { block } | Self::Lie { block } | Self::Lose { block } => Some(block),
            _ => None,
        }
    }
}

impl World<'_> {
    /// Schedules the faults that strike at a point in time.
    pub(crate) fn plan_faults(&mut self) {
        for (number, (when, _)) in self.scenario.faults.iter().enumerate() {
            if let When::At(at) = *when {
                self.shared.agenda.add(at, Event::Fault(number));
            }
        }
    }

    /// Lets a fault strike if it waits for a number of delivered slices and this number is now reached.
    pub(crate) fn strike_by_deliveries(&mut self) {
        for (number, (when, _)) in self.scenario.faults.iter().enumerate() {
            if let When::Delivered(slices) = *when
                && slices <= self.shared.slices_delivered
                && !self.struck[number]
            {
                self.strike(number);
            }
        }
    }

    pub(crate) fn strike(&mut self, number: usize) {
        if std::mem::replace(&mut self.struck[number], true) {
            return;
        }
        let fault = self.scenario.faults[number].1;
        self.shared.note(|| format!("fault: {fault:?}"));
        match fault {
            Fault::Kill { node, back_after } => self.kill(node, false, back_after),
            Fault::Vanish { node } => self.kill(node, true, None),
            Fault::Pause { node, lasts } => self.pause(node, lasts),
            Fault::FlipFrame { from } => {
                let edge = self.shared.network.live_edges_of(from).into_iter().find(|edge| edge.from == from);
                if let Some(edge) = edge {
                    self.shared.network.edges.get_mut(&edge).expect("it is live").flip_next = true;
                }
            }
            Fault::Corrupt { block } => self.harm(block, false),
            Fault::Lie { block } => self.harm(block, true),
            Fault::Lose { block } => {
                let id = Scenario::block_id(block);
                if let Some(holder) = self.scenario.holder(block) {
                    self.node(holder).disk.blocks.remove(&id);
                }
            }
            Fault::Break { a, b } => {
                for edge in self.shared.network.live_edges_of(a) {
                    if edge.other_end(a) == b {
                        self.shared.close_edge(edge, None, "reset on the way");
                    }
                }
            }
            Fault::Cut { a, b } => self.shared.cut_data(a, b),
            Fault::DiskFull { node } => self.node(node).disk.full = true,
            Fault::Slow { node, factor } => {
                // If a node is slowed down twice, the stronger slowdown applies.
                let (link, disk) = (self.scenario.machines.rate, self.scenario.machines.disk_rate);
                let port = self.shared.network.ports.get_mut(&node).expect("every node has a port");
                port.rate = port.rate.min(link / f64::from(factor));
                let store = &mut self.node(node).disk;
                store.rate = store.rate.min(disk / f64::from(factor));
            }
            Fault::SlowControl { node, limit } => {
                self.shared.control.slow.insert(node, limit);
            }
        }
    }

    fn kill(&mut self, id: NodeId, unheard: bool, back_after: Option<Duration>) {
        let node = self.nodes.get_mut(&id).expect("faults strike nodes");
        if node.state == State::Dead {
            return;
        }
        node.die(&mut self.shared, unheard);
        let notice = match unheard {
            true => self.scenario.machines.ping_limit,
            false => self.shared.dice.up_to(Duration::from_millis(200)),
        };
        let connection = self.shared.connection(id);
        self.shared.after(notice, Event::NodeLost { node: id, connection });
        if let Some(delay) = back_after {
            self.shared.after(delay, Event::Restarts { node: id });
        }
    }

    fn pause(&mut self, id: NodeId, lasts: Option<Duration>) {
        let node = self.nodes.get_mut(&id).expect("faults strike nodes");
        if node.state != State::Running {
            return;
        }
        node.state = State::Paused;
        node.pauses += 1;
        let pause = node.pauses;
        self.shared.after(self.scenario.machines.ping_limit, Event::PingsUnanswered { node: id, pause });
        if let Some(delay) = lasts {
            self.shared.after(delay, Event::Continues { node: id, pause });
        }
    }

    /// Corrupts a byte of a block on the node that held the block at the start.
    fn harm(&mut self, block: BlockIndex, silently: bool) {
        let Some(holder) = self.scenario.holder(block) else { return };
        let node = self.nodes.get_mut(&holder).expect("holders are nodes");
        let stored = node.disk.blocks.get_mut(&Scenario::block_id(block));
        let Some(stored) = stored.filter(|stored| !stored.bytes.is_empty()) else { return };
        let at = self.shared.dice.below(stored.bytes.len() as u64);
        if silently {
            stored.bytes[at as usize] ^= self.shared.dice.between(1, 255) as u8;
        } else {
            stored.corrupt_at = Some(at);
        }
    }
}

/// Whether a fault explains that a store reports this problem with a block.
pub(crate) fn explains(fault: &Fault, block: BlockIndex, problem: &BlockProblem) -> bool {
    match (fault, problem) {
        (Fault::Corrupt { block: struck }, BlockProblem::Corrupt(_))
        | (Fault::Lose { block: struck }, BlockProblem::Missing)
        | (Fault::Lie { block: struck }, BlockProblem::Corrupt(_) | BlockProblem::ContradictsParity) => {
            *struck == block
        }
        _ => false,
    }
}
