//! One helper or server of the cluster: its name, its connection, and its drain mark.
//!
//! [`Lifecycle`] contains everything that depends on the connection. Therefore a connected node cannot be
//! absent, retired or in removal, and only a connected node can have blocks to describe. The drain mark outlives
//! connections, so it is a separate field.

use std::collections::BTreeSet;
use std::time::Duration;

use repair::{BlockId, StripeId};

use crate::effect::ConnectionId;
use crate::nodes::usage::Usage;
use crate::repairs::orders::Order;

/// A node that the catalog has registered.
pub(crate) struct Node {
    pub(super) name: String,
    lifecycle: Lifecycle,
    /// The drain mark: the node is being emptied and gets no new blocks.
    pub(super) departure: Option<Departure>,
}

/// The phase of a node between its registration and its removal.
enum Lifecycle {
    Up(Session),
    /// Not connected. The outage is set after a disconnect, or if the node did not connect in time after the
    /// coordinator's start.
    Down {
        outage: Option<Outage>,
        membership: Membership,
    },
}

/// A helper's connection.
pub(crate) struct Session {
    pub connection: ConnectionId,
    /// Set from a helper's return until it has described its blocks.
    pub unproven: Option<Unproven>,
    /// Why the helper cannot store blocks, if it has found that.
    pub write_problem: Option<String>,
    /// Why the helper has not listed all of its blocks; `None` if it has.
    pub incomplete: Option<String>,
    pub usage: Usage,
}

impl Session {
    pub(super) fn new(connection: ConnectionId) -> Self {
        let usage = Usage::default();
        Self { connection, unproven: None, write_problem: None, incomplete: None, usage }
    }
}

/// Whether a disconnected node belongs to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Member,
    /// The catalog lists the node, but mend.toml does not. It is removed once it is empty.
    Retired,
    /// The storage is removing the node. If the removal fails, the node returns to its previous state.
    Forgetting {
        was_retired: bool,
    },
}

/// A returned helper that has not yet described all of its blocks.
#[derive(Default)]
pub(crate) struct Unproven {
    /// The stripes of the helper's blocks. The scheduler starts no repairs of these stripes.
    pub stripes: Vec<StripeId>,
    /// The blocks that the helper has described.
    pub described: BTreeSet<BlockId>,
    /// The deadline for the descriptions. When it passes, the scheduler resumes the stripes, because further
    /// blocks of these stripes may be lost.
    pub until: Duration,
}

impl Node {
    /// Creates a node that the catalog lists. The node is down until it registers.
    pub(super) fn new(name: String, is_retired: bool) -> Self {
        let membership = if is_retired { Membership::Retired } else { Membership::Member };
        let lifecycle = Lifecycle::Down { outage: None, membership };
        Self { name, lifecycle, departure: None }
    }

    /// Moves the node from down to up, because it has registered. A retired node becomes a member again.
    /// Returns the outage that has ended, if there was one.
    ///
    /// # Panics
    /// If the node is up or being removed; admission refuses both.
    pub(super) fn connect(&mut self, connection: ConnectionId) -> Option<Outage> {
        assert!(!self.is_up() && !self.is_being_forgotten(), "{} cannot connect", self.name);
        let up = Lifecycle::Up(Session::new(connection));
        match std::mem::replace(&mut self.lifecycle, up) {
            Lifecycle::Down { outage, .. } => outage,
            Lifecycle::Up(_) => None,
        }
    }

    /// Moves the node from up to down. Returns the session that has ended; `None` if the node was already
    /// down.
    pub(super) fn disconnect(&mut self) -> Option<Session> {
        if !self.is_up() {
            return None;
        }
        let down = Lifecycle::Down { outage: None, membership: Membership::Member };
        match std::mem::replace(&mut self.lifecycle, down) {
            Lifecycle::Up(session) => Some(session),
            Lifecycle::Down { .. } => None,
        }
    }

    /// Starts the outage of a node that is down. Returns whether the node was down.
    pub(super) fn begin_outage(&mut self, begun: Outage) -> bool {
        match &mut self.lifecycle {
            Lifecycle::Down { outage, .. } => *outage = Some(begun),
            Lifecycle::Up(_) => return false,
        }
        true
    }

    /// Records that an operator cancelled the recovery of an absent node. Returns whether the node is absent.
    pub(super) fn cancel_recovery(&mut self) -> bool {
        match &mut self.lifecycle {
            Lifecycle::Down { outage: Some(outage), .. } => outage.cancelled = true,
            _ => return false,
        }
        true
    }

    /// Marks a node that is down as being removed by the storage. Returns whether the node is down.
    pub(super) fn begin_forgetting(&mut self) -> bool {
        let Lifecycle::Down { membership, .. } = &mut self.lifecycle else { return false };
        *membership = match *membership {
            Membership::Member => Membership::Forgetting { was_retired: false },
            Membership::Retired => Membership::Forgetting { was_retired: true },
            forgetting => forgetting,
        };
        true
    }

    /// Returns the node to its previous state, because the storage could not remove it.
    pub(super) fn keep(&mut self) {
        let Lifecycle::Down { membership, .. } = &mut self.lifecycle else { return };
        if let Membership::Forgetting { was_retired } = *membership {
            *membership = if was_retired { Membership::Retired } else { Membership::Member };
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Up(_))
    }

    pub(super) fn is_retired(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Down { membership: Membership::Retired, .. })
    }

    pub(super) fn is_being_forgotten(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Down { membership: Membership::Forgetting { .. }, .. })
    }

    /// Returns the connection of a node that is up.
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.lifecycle {
            Lifecycle::Up(session) => Some(session),
            Lifecycle::Down { .. } => None,
        }
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.lifecycle {
            Lifecycle::Up(session) => Some(session),
            Lifecycle::Down { .. } => None,
        }
    }

    /// Returns the outage of a node, if it is absent.
    pub(super) fn outage(&self) -> Option<&Outage> {
        match &self.lifecycle {
            Lifecycle::Down { outage, .. } => outage.as_ref(),
            Lifecycle::Up(_) => None,
        }
    }
}

/// The outage of a helper.
pub(crate) struct Outage {
    pub(crate) since_unix_ms: u64,
    /// How long the helper had been away at time `at`.
    pub(super) before: Duration,
    pub(super) at: Duration,
    /// Whether an operator cancelled the recovery. A cancelled recovery does not start automatically again.
    pub(crate) cancelled: bool,
}

impl Outage {
    pub(super) fn new(since_unix_ms: u64, before: Duration, at: Duration) -> Self {
        Self { since_unix_ms, before, at, cancelled: false }
    }

    pub(crate) fn lasts(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.at)
    }
}

/// The drain mark of a node.
#[derive(Default)]
pub(crate) struct Departure {
    /// The order that later drains repeat; `None` for a mark that an earlier version recorded.
    pub(super) order: Option<Order>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the state of a node: `up`, or its outage and membership.
    fn state(node: &Node) -> String {
        match &node.lifecycle {
            Lifecycle::Up(_) => "up".to_owned(),
            Lifecycle::Down { outage, membership } => {
                let membership = match membership {
                    Membership::Member => "member",
                    Membership::Retired => "retired",
                    Membership::Forgetting { was_retired: false } => "forgetting member",
                    Membership::Forgetting { was_retired: true } => "forgetting retired",
                };
                let gone = match outage {
                    None => "",
                    Some(outage) if outage.cancelled => "gone, called off, ",
                    Some(_) => "gone, ",
                };
                format!("{gone}{membership}")
            }
        }
    }

    type Step = fn(&mut Node);

    fn absent(node: &mut Node) {
        node.begin_outage(Outage::new(0, Duration::ZERO, Duration::ZERO));
    }

    fn connect(node: &mut Node) {
        node.connect(ConnectionId(1));
    }

    fn disconnect(node: &mut Node) {
        node.disconnect();
    }

    fn call_off(node: &mut Node) {
        node.cancel_recovery();
    }

    fn forget(node: &mut Node) {
        node.begin_forgetting();
    }

    #[test]
    fn every_transition_from_every_state() {
        let start: [(&str, bool, &[Step]); 9] = [
            ("member", false, &[]),
            ("retired", true, &[]),
            ("up", true, &[connect]),
            ("gone, member", false, &[absent]),
            ("gone, called off, member", false, &[absent, call_off]),
            ("gone, retired", true, &[absent]),
            ("forgetting member", false, &[forget]),
            ("forgetting retired", true, &[forget]),
            ("gone, forgetting member", false, &[absent, forget]),
        ];
        let steps: [(&str, Step, [&str; 9]); 5] = [
            (
                "is missed",
                absent,
                [
                    "gone, member",
                    "gone, retired",
                    "up",
                    "gone, member",
                    "gone, member",
                    "gone, retired",
                    "gone, forgetting member",
                    "gone, forgetting retired",
                    "gone, forgetting member",
                ],
            ),
            (
                "is called off",
                call_off,
                [
                    "member",
                    "retired",
                    "up",
                    "gone, called off, member",
                    "gone, called off, member",
                    "gone, called off, retired",
                    "forgetting member",
                    "forgetting retired",
                    "gone, called off, forgetting member",
                ],
            ),
            (
                "disconnects",
                disconnect,
                [
                    "member",
                    "retired",
                    "member",
                    "gone, member",
                    "gone, called off, member",
                    "gone, retired",
                    "forgetting member",
                    "forgetting retired",
                    "gone, forgetting member",
                ],
            ),
            (
                "begins to be forgotten",
                forget,
                [
                    "forgetting member",
                    "forgetting retired",
                    "up",
                    "gone, forgetting member",
                    "gone, called off, forgetting member",
                    "gone, forgetting retired",
                    "forgetting member",
                    "forgetting retired",
                    "gone, forgetting member",
                ],
            ),
            (
                "is kept",
                Node::keep,
                [
                    "member",
                    "retired",
                    "up",
                    "gone, member",
                    "gone, called off, member",
                    "gone, retired",
                    "member",
                    "retired",
                    "gone, member",
                ],
            ),
        ];
        for (what, step, ends) in steps {
            for ((from, is_retired, before), end) in start.iter().zip(ends) {
                let mut node = Node::new("h1".to_owned(), *is_retired);
                before.iter().for_each(|step| step(&mut node));
                assert_eq!(state(&node), *from);
                step(&mut node);
                assert_eq!(state(&node), end, "{from}, then it {what}");
            }
        }
    }

    #[test]
    fn connecting_ends_an_outage_and_makes_a_retired_node_a_member() {
        let mut node = Node::new("h1".to_owned(), true);
        absent(&mut node);
        assert!(node.connect(ConnectionId(7)).is_some(), "the outage ends");
        assert_eq!(state(&node), "up");
        let session = node.disconnect().expect("it was up");
        assert_eq!(session.connection, ConnectionId(7));
        assert_eq!(state(&node), "member");
    }

    #[test]
    #[should_panic(expected = "h1 cannot connect")]
    fn a_node_that_is_being_forgotten_does_not_connect() {
        let mut node = Node::new("h1".to_owned(), false);
        forget(&mut node);
        connect(&mut node);
    }
}
