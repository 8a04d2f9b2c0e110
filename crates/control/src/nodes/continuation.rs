//! Continuations of the writes about helpers and caps.

use cluster::Role;
use repair::NodeId;
use repair::wire::control::FromNode;
use views::{CapsView, NodeView};

use crate::ConnectionId;
use crate::effect::Reply;

/// The continuation of a write about helpers or caps.
pub(crate) enum NodeThen {
    /// A helper has its number and registers.
    Join { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// Caps are kept and take effect.
    Capped { view: Box<CapsView>, reply: Reply<CapsView> },
    /// An operator has taken a helper off the list.
    Removed { node: NodeId, view: Box<NodeView>, reply: Reply<NodeView> },
    /// A helper that is no longer configured is forgotten.
    Forgotten { node: NodeId },
}
