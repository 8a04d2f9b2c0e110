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
use crate::listing::ServerId;

/// Prefix of the record keys; the number of the node follows.
const PREFIX: &str = "seaweedfs/server/";
/// The number of IDs that are kept for a node: its server may get another one at each start.
const MOST_IDS: usize = 16;

/// The IDs of each node's server, the present one last.
#[derive(Default)]
pub(super) struct ServerIds(BTreeMap<NodeId, Vec<String>>);

fn key(node: NodeId) -> String {
    format!("{PREFIX}{}", node.0)
}

impl State {
    /// Records the node of a connected server, and continues under its ID the work that is recorded under former ones.
    pub fn number_server(&mut self, attachment: &Attachment, server: &ServerId, record: &NodeRecord) {
        let former = self.former_ids(attachment, server, record);
        self.view.number(server.clone(), record.id);
        for former in former {
            self.view.rename_server(&former, server);
            self.rename_withdrawals(&former, server);
            self.rename_late_deletions(&former, server);
        }
        self.keep_server_id(record.id, server);
    }

    /// Forgets a node that was removed.
    pub fn forget_node(&mut self, node: NodeId) {
        self.view.forget_node(node);
        if self.server_ids.0.remove(&node).is_some() {
            self.keep_records([(key(node), None)]);
        }
    }

    /// Returns the former IDs of a node's server. A recorded one that another server has by now is left out: `mend.toml`
    /// may have named the wrong server before.
    fn former_ids(&self, attachment: &Attachment, server: &ServerId, record: &NodeRecord) -> Vec<ServerId> {
        let is_of_other = |id: &String| {
            let has_other_helper = attachment.helpers.get(id).is_some_and(|helper| *helper != record.name);
            let mut others = self.server_ids.0.iter().filter(|(node, _)| **node != record.id);
            has_other_helper
                || others.any(|(_, ids)| ids.last() == Some(id))
                || self.view.volumes().servers().contains_key(&ServerId(id.clone()))
        };
        let recorded = self.server_ids.0.get(&record.id).into_iter().flatten();
        let recorded = recorded.filter(|&id| *id != server.0 && !is_of_other(id));
        // A master may still list a former ID for a moment.
        let listed = self.view.nodes().server(record.id).filter(|&id| id != server).cloned();
        recorded.map(|id| ServerId(id.clone())).chain(listed).collect()
    }

    fn keep_server_id(&mut self, node: NodeId, server: &ServerId) {
        let ids = self.server_ids.0.entry(node).or_default();
        if ids.last() == Some(&server.0) {
            return;
        }
        ids.retain(|id| *id != server.0);
        if ids.len() == MOST_IDS {
            ids.remove(0);
        }
        ids.push(server.0.clone());
        let value = Value::from(ids.clone());
        self.keep_records([(key(node), Some(value))]);
    }
}

impl Knowledge {
    /// Loads the IDs that earlier coordinators recorded. Must be called before the cluster is listed.
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
        state.server_ids.0 = records.filter_map(parse).collect();
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
        restart(&paper, &[]).system().known.state().forget_node(NodeId(0));
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
}
