//! Collects the data to rebuild a lost catalog: opens the control port only to receive every helper's
//! description of its blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::Role;
use repair::NodeId;
use repair::wire::control::{self, Description, FromNode, ToNode};
use store_api::Inventory;
use tokio::time::{Instant, timeout_at};

use crate::config::CoordinatorConfig;
use crate::connections::ControlServer;
use crate::incoming::{EventQueue, Incoming, Outbox, event_queue};
use crate::server::{RunError, listen};
use ::control::{ConnectionId, Event};
use serving::Door;

/// The number of the query. Only one query is sent to each helper.
const ASK: u64 = 1;

/// The descriptions from which a catalog can be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventories {
    /// Each helper that answered, with the descriptions of its blocks.
    pub answered: Vec<Inventory>,
    /// Helpers in mend.toml that did not answer in time.
    pub silent: BTreeSet<String>,
}

/// Collects every helper's description of its blocks, from which the caller can rebuild the catalog. No
/// coordinator may be running. Waits until all helpers of mend.toml have answered, but no longer than `wait`.
///
/// # Errors
/// [`RunError::NoHelpers`] if no helper has answered, and other variants of [`RunError`] if the port cannot
/// be opened.
pub async fn gather_inventories(config: CoordinatorConfig, wait: Duration) -> Result<Inventories, RunError> {
    let identity = config.cluster.identity(&Role::Coordinator)?;
    let (listener, _) = listen(&config, config.control, "[coordinator] control").await?;
    let (events, incoming) = event_queue();
    let door = Door::new("control", identity.server_config(), config.descriptors);
    let cluster = config.cluster.clone();
    let server = tokio::spawn(ControlServer { listener, door, cluster, events }.serve());
    let expected = config.cluster.config().helper_names();
    let cluster_id = config.cluster.config().cluster_id.to_string();
    let mut asking = Asking { cluster_id, expected, connections: BTreeMap::new(), answered: BTreeMap::new() };
    asking.gather(incoming, Instant::now() + wait).await;
    server.abort();
    let Asking { expected, answered, .. } = asking;
    if answered.is_empty() {
        return Err(RunError::NoHelpers { wait });
    }
    let silent = expected.into_iter().filter(|helper| !answered.contains_key(helper)).collect();
    Ok(Inventories { answered: answered.into_values().collect(), silent })
}

/// The helpers that are connected, and those that have sent all their descriptions.
struct Asking {
    cluster_id: String,
    expected: BTreeSet<String>,
    connections: BTreeMap<ConnectionId, (Inventory, Outbox)>,
    answered: BTreeMap<String, Inventory>,
}

impl Asking {
    async fn gather(&mut self, mut incoming: EventQueue, until: Instant) {
        while !self.expected.iter().all(|helper| self.answered.contains_key(helper)) {
            let Ok(Some(event)) = timeout_at(until, incoming.recv()).await else { return };
            match event {
                Incoming::Joined { connection, role: Role::Helper(name), hello, outbox, .. } => {
                    self.ask(connection, name.to_string(), *hello, outbox);
                }
                Incoming::Said { connection, message, .. } => self.hear(connection, *message),
                Incoming::Event(Event::Left { connection, .. }) => drop(self.connections.remove(&connection)),
                Incoming::Joined { outbox, .. } => {
                    let reason =
                        "the catalog is being rebuilt; try again when the coordinator is running".to_owned();
                    // The outbox is new, so it has room. The peer may have disconnected.
                    let _ = outbox.try_send(ToNode::Refused { reason, passing: true });
                }
                Incoming::Event(_) | Incoming::Stored { .. } | Incoming::Asked { .. } | Incoming::Stop => {}
            }
        }
    }

    fn ask(&mut self, connection: ConnectionId, node: String, hello: FromNode, outbox: Outbox) {
        let FromNode::RegisterHelper { version, cluster_id, address, .. } = hello else { return };
        if version != control::VERSION || cluster_id != self.cluster_id {
            tracing::warn!(
                helper = node,
                version,
                cluster_id,
                "ignoring a helper of another cluster or another version of mend"
            );
            return;
        }
        let number = NodeId(self.connections.len() as u32 + 1);
        for message in [ToNode::Registered { node: number }, ToNode::Describe { ask: ASK }] {
            let _ = outbox.try_send(message); // A helper that has disconnected registers again.
        }
        let inventory = Inventory { node, address, blocks: Vec::new() };
        self.connections.insert(connection, (inventory, outbox));
    }

    fn hear(&mut self, connection: ConnectionId, message: FromNode) {
        let FromNode::Described { ask: ASK, blocks, last } = message else { return };
        let Some((inventory, _)) = self.connections.get_mut(&connection) else { return };
        inventory.blocks.extend(blocks);
        if last {
            let blocks: Vec<Description> = std::mem::take(&mut inventory.blocks);
            tracing::info!(
                helper = inventory.node,
                blocks = blocks.len(),
                "received the list of a helper's blocks"
            );
            self.answered.insert(inventory.node.clone(), Inventory { blocks, ..inventory.clone() });
        }
    }
}
