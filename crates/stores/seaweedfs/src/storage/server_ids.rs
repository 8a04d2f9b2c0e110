//! Records the IDs under which the server of each node was listed.
//!
//! Records of unfinished work and of the places of shards name servers by their IDs. A server gets another one if it is
//! restarted with another `-id`, or without an `-id` at another address. It keeps its node, which is that of its helper in
//! `mend.toml`. So its records are moved to the present ID, also if the server returns after a restart of the coordinator.

use std::collections::BTreeMap;

use repair::NodeId;
use serde_json::Value;
use store_api::{CatalogError, NodeRecord};

use super::open::Attachment;
use super::state::{Knowledge, State};
use super::unwritten::Record;
use super::{deletions, withdrawals};
use crate::listing::ServerId;

/// Prefix of the record keys; the number of the node follows.
const PREFIX: &str = "seaweedfs/server/";
/// The number of IDs that are kept for a node: its server may get another one at each start.
const MOST_IDS: usize = 16;

/// The IDs of each node's server.
#[derive(Default)]
pub(super) struct ServerIds {
    /// The IDs by node, the present one last.
    ids: BTreeMap<NodeId, Vec<String>>,
    /// The names of the nodes. A node without a helper has the ID of its server as name.
    names: BTreeMap<NodeId, String>,
}

fn key(node: NodeId) -> String {
    format!("{PREFIX}{}", node.0)
}

impl ServerIds {
    /// Returns the recorded former IDs of a node's server; none if the server was last that of another helper. Which
    /// server the node has lost is unknown then: the servers may have exchanged their machines.
    fn former(&self, server: &ServerId, node: NodeId) -> impl Iterator<Item = &String> {
        let ids = if self.was_of_other_helper(server, node) { None } else { self.ids.get(&node) };
        ids.into_iter().flatten().filter(move |id| **id != server.0)
    }

    fn was_of_other_helper(&self, server: &ServerId, node: NodeId) -> bool {
        let has_helper = |node: &NodeId| self.names.get(node) != Some(&server.0);
        self.nodes_of(&server.0).any(|other| other != node && has_helper(&other))
    }

    /// Returns the nodes whose server had this ID last.
    fn nodes_of(&self, id: &str) -> impl Iterator<Item = NodeId> {
        let found = self.ids.iter().filter(move |(_, ids)| ids.last().is_some_and(|last| last == id));
        found.map(|(&node, _)| node)
    }

    /// Adds the present ID of a node's server. Returns the record, if it has changed.
    fn add(&mut self, server: &ServerId, node: &NodeRecord) -> Option<Record> {
        self.names.insert(node.id, node.name.clone());
        let ids = self.ids.entry(node.id).or_default();
        if ids.last() == Some(&server.0) {
            return None;
        }
        ids.retain(|id| *id != server.0);
        if ids.len() == MOST_IDS {
            ids.remove(0);
        }
        ids.push(server.0.clone());
        Some((key(node.id), Some(Value::from(ids.clone()))))
    }

    /// Forgets a node. Returns the removal of its record, if there is one.
    fn remove(&mut self, node: NodeId) -> Option<Record> {
        self.names.remove(&node);
        self.ids.remove(&node).map(|_| (key(node), None))
    }
}

/// Records the node of a connected server, and continues under its ID the work that is recorded under former ones.
pub(super) fn number(state: &mut State, attachment: &Attachment, server: &ServerId, record: &NodeRecord) {
    let former = former_ids(state, attachment, server, record);
    state.view.number(server.clone(), record.id);
    for former in former {
        state.view.rename_server(&former, server);
        withdrawals::rename(state, &former, server);
        deletions::rename(state, &former, server);
    }
    if let Some(changed) = state.server_ids.add(server, record) {
        state.keep_records([changed]);
    }
}

/// Forgets a node that was removed.
pub(super) fn forget_node(state: &mut State, node: NodeId) {
    state.view.forget_node(node);
    if let Some(removal) = state.server_ids.remove(node) {
        state.keep_records([removal]);
    }
}

/// Returns the former IDs of a node's server. A recorded one that another server has by now is left out: `mend.toml`
/// may have named the wrong server before.
fn former_ids(
    state: &State,
    attachment: &Attachment,
    server: &ServerId,
    record: &NodeRecord,
) -> Vec<ServerId> {
    let is_of_other = |id: &String| {
        attachment.helpers.get(id).is_some_and(|helper| *helper != record.name)
            || state.server_ids.nodes_of(id).any(|node| node != record.id)
            || state.view.volumes().servers().contains_key(&ServerId(id.clone()))
    };
    let recorded = state.server_ids.former(server, record.id).filter(|&id| !is_of_other(id));
    // A master may still list a former ID for a moment.
    let listed = state.view.nodes().server(record.id).filter(|&id| id != server).cloned();
    recorded.map(|id| ServerId(id.clone())).chain(listed).collect()
}

impl Knowledge {
    /// Loads the IDs that earlier coordinators recorded, and the names of the nodes. Must be called before the cluster
    /// is listed.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_server_ids(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?.into_iter();
        let parse = |(key, value): (String, Value)| {
            let node = NodeId(key.strip_prefix(PREFIX)?.parse().ok()?);
            Some((node, serde_json::from_value::<Vec<String>>(value).ok()?))
        };
        let names = state.ledger.nodes()?.into_iter().map(|node| (node.id, node.name)).collect();
        state.server_ids = ServerIds { ids: records.filter_map(parse).collect(), names };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::*;
    use crate::listing::Listing;
    use crate::storage::AttachedCatalog;
    use crate::storage::doubles::{LIST_EVERY, Paper, attachment, listing, start_with};

    /// Starts a coordinator over the records of the one before. `mend.toml` names these servers and their helpers.
    fn restart(paper: &Arc<Mutex<Paper>>, helpers: &[(&str, &str)]) -> AttachedCatalog {
        let name = |&(server, helper): &(&str, &str)| (server.to_owned(), helper.to_owned());
        let helpers = helpers.iter().map(name).collect();
        let catalog = start_with(paper, Attachment { helpers, ..attachment() });
        catalog.system().known.recall_homes().expect("readable");
        catalog.system().known.recall_server_ids().expect("readable");
        catalog
    }

    /// Lists these servers without shards, and returns the servers on which the shards of volume 5 are sought, in order.
    fn sought<const N: usize>(catalog: &AttachedCatalog, servers: [&str; N]) -> Vec<String> {
        let known = &catalog.system().known;
        let bare = Listing { volumes: BTreeMap::new(), ..listing(servers) };
        known.take_all(bare, Instant::now(), LIST_EVERY).expect("recorded");
        let state = known.state();
        state.view.volumes().unlisted().map(|(.., home)| home.server.0.clone()).collect()
    }

    /// Returns records of two servers, each with a shard of volume 5.
    fn recorded() -> Arc<Mutex<Paper>> {
        let paper = Arc::new(Mutex::new(Paper::default()));
        let catalog = restart(&paper, &[("a", "vs-a"), ("b", "vs-b")]);
        let known = &catalog.system().known;
        known.take_all(listing(["a", "b"]), Instant::now(), LIST_EVERY).expect("recorded");
        paper
    }

    #[test]
    fn shards_are_sought_under_the_present_id_of_their_server() {
        let paper = recorded();
        for id in ["c", "d"] {
            let catalog = restart(&paper, &[(id, "vs-a"), ("b", "vs-b")]);
            assert_eq!(sought(&catalog, [id, "b"]), [id, "b"]);
        }
        let catalog = restart(&paper, &[("a", "vs-a"), ("b", "vs-b")]);
        assert_eq!(sought(&catalog, ["a", "b"]), ["a", "b"], "it has its first ID again");
        drop(catalog);
        forget_node(&mut restart(&paper, &[]).system().known.state(), NodeId(0));
        let catalog = restart(&paper, &[("e", "vs-a")]);
        assert_eq!(sought(&catalog, ["e"]), ["a", "b"], "the node was removed");
    }

    /// `mend.toml` has named the wrong server of a helper.
    #[test]
    fn the_id_of_another_server_is_no_former_one() {
        let paper = recorded();
        let catalog = restart(&paper, &[("b", "vs-a"), ("a", "vs-b")]);
        assert_eq!(sought(&catalog, ["b"]), ["a", "b"], "it has another helper");
        drop(catalog);
        let paper = recorded();
        let catalog = restart(&paper, &[("b", "vs-a")]);
        assert_eq!(sought(&catalog, ["a", "b"]), ["a", "b"], "it is connected");
        drop(catalog);
        let catalog = restart(&paper, &[("b", "vs-a")]);
        assert_eq!(sought(&catalog, ["b"]), ["a", "b"], "it was connected, without a helper");
    }

    /// The two servers have exchanged their machines, and only one of them is up when the coordinator starts.
    #[test]
    fn the_first_of_two_exchanged_servers_does_not_get_the_records_of_the_other() {
        let paper = recorded();
        let exchanged = [("b:8080", "vs-a"), ("a:8080", "vs-b")];
        let catalog = restart(&paper, &exchanged);
        assert_eq!(sought(&catalog, ["a"]), ["a", "b"]);
        drop(catalog);
        let catalog = restart(&paper, &exchanged);
        assert_eq!(sought(&catalog, ["b"]), ["a", "b"], "the other one is up after the next start");
        assert_eq!(sought(&catalog, ["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn a_server_that_had_no_helper_before_has_former_ids() {
        let (helper, bare) = (NodeId(0), NodeId(1));
        let mut ids = ServerIds::default();
        for (server, id, name) in [("a", helper, "vs-a"), ("c", bare, "c")] {
            ids.add(&ServerId(server.to_owned()), &NodeRecord { id, name: name.to_owned(), address: None });
        }
        let former =
            |ids: &ServerIds| ids.former(&ServerId("c".to_owned()), helper).cloned().collect::<Vec<String>>();
        assert_eq!(former(&ids), ["a"]);
        ids.names.insert(bare, "vs-c".to_owned());
        assert_eq!(former(&ids), [""; 0], "it was the server of another helper");
    }
}
