//! Admission of helpers and clients that register.

use cluster::Role;
use repair::wire::control::{self, HeldBlock, ToNode};
use repair::{NodeId, NodeProfile, Reach, StatedRates};
use store_api::NodeRecord;

use crate::base::Base;
use crate::effect::{ConnectionId, Effect};
use crate::nodes::Nodes;
use crate::nodes::node::Node;
use crate::nodes::registry::Registry;
use crate::out::Out;

/// The maximum length of the name of a helper's rack, in bytes.
const MAX_RACK_BYTES: usize = 255;

/// The reason for refusing a node.
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// Whether a retry in a few seconds may succeed.
    pub(crate) passing: bool,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self { reason, passing: false }
    }
}

/// The data that a helper sends when it registers.
pub(crate) struct Hello {
    pub(crate) address: String,
    pub(crate) rack: Option<String>,
    pub(crate) rates: StatedRates,
    pub(crate) blocks: Vec<HeldBlock>,
    pub(crate) incomplete: Option<String>,
    pub(crate) free_bytes: u64,
}

impl Out {
    pub(crate) fn refuse(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        Refusal { reason, passing }: Refusal,
    ) {
        tracing::warn!(%role, %reason, "refused");
        self.send(connection, ToNode::Refused { reason, passing });
        self.push(Effect::Close { connection });
    }
}

impl Nodes {
    /// Adds a registered node; it is down until it connects.
    pub(crate) fn know_node(&mut self, base: &Base, record: &NodeRecord) {
        if let Some(node) = self.registry.get_mut(record.id) {
            node.name.clone_from(&record.name);
            return;
        }
        // If the store itself reports which servers are down, a server without a helper is never retired.
        let is_listed = base.settings.helpers.as_ref().is_none_or(|helpers| helpers.contains(&record.name));
        let is_retired = !is_listed && !base.store.reports_service();
        self.registry.insert(record.id, Node::new(record.name.clone(), is_retired));
        let mut view = NodeProfile::unknown(record.name.clone());
        view.reach = record.address.clone().map_or(Reach::Unknown, Reach::Listens);
        view.alive = false;
        view.free_bytes = 0;
        self.topology.set(record.id, view);
    }

    /// Drops all state about a node that the storage has removed.
    pub(crate) fn forget_node(&mut self, base: &Base, node: NodeId, out: &mut Out) {
        self.registry.forget_outage(node, out);
        self.maintenance.forget(&self.registry, node, out);
        self.registry.unmark_leaving(node, out);
        if let Ok(name) = self.name(node).parse() {
            self.certificates.forget(&Role::Helper(name));
        }
        self.registry.remove(node);
        self.topology.remove(node);
        self.bandwidth.forget(node);
        self.lay_links(base);
    }
}

pub(crate) fn check_version(version: u32) -> Result<(), String> {
    if version == control::VERSION {
        return Ok(());
    }
    Err(format!(
        "this program uses version {version} of the control protocol, but the coordinator uses version {}; \
         run the same version of mend on both machines",
        control::VERSION
    ))
}

/// Names of racks are kept after a helper has left.
pub(crate) fn check_rack(rack: Option<&str>) -> Result<(), String> {
    match rack.map_or(0, str::len) {
        ..=MAX_RACK_BYTES => Ok(()),
        bytes => Err(format!("its rack has a name of {bytes} bytes; the limit is {MAX_RACK_BYTES}")),
    }
}

pub(crate) fn view_of(role: &Role, name: &str, hello: &Hello) -> NodeProfile {
    let mut view = NodeProfile::helper(name, &hello.address);
    view.tls_name = role.dns_name();
    view.rack = hello.rack.clone();
    view.free_bytes = hello.free_bytes;
    view
}

impl Registry {
    /// Returns the helpers of the catalog that have not connected since the coordinator's start.
    pub(crate) fn awaited(&self, base: &Base) -> impl Iterator<Item = NodeId> {
        self.ids().filter(move |&node| {
            !self.is_retired(node) && !self.is_up(node) && !self.has_no_helper(base, node)
        })
    }
}
