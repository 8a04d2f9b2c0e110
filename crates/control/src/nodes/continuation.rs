//! Continuations: what the control plane does once the storage has answered a write about helpers or caps.

use cluster::Role;
use repair::NodeId;
use repair::wire::control::FromNode;
use views::{CapsView, NodeView};

use crate::effect::{ConnectionId, Reply};

/// The continuation of a write about helpers or caps.
pub(crate) enum NodeThen {
    /// The storage has assigned a number to a helper, which can register now.
    Join { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// New caps are durable and take effect.
    Capped { view: Box<CapsView>, reply: Reply<CapsView> },
    /// An operator has removed a helper.
    Removed { node: NodeId, view: Box<NodeView>, reply: Reply<NodeView> },
    /// A helper that is no longer configured was removed from the catalog.
    Forgotten { node: NodeId },
}
