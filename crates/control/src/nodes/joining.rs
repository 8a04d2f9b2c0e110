//! Who is taken: helpers and clients as they register.

use cluster::Role;
use repair::wire::control::{self, FromNode, HeldBlock, ToNode};
use repair::{NodeId, NodeProfile, Reach, StatedRates};
use stores::dir::NodeRecord;
use stores::{RecordWrite, StoreError, Write};

use crate::base::Base;
use crate::effect::Effect;
use crate::jobs::Requests;
use crate::nodes::Nodes;
use crate::nodes::{FIRST_CLIENT, Peer, PeerKind};
use crate::out::Out;
use crate::signal::Signal;
use crate::storing::Then;
use crate::stripes::inventory::Holdings;
use crate::{ConnectionId, Control};
use views::HistoryEvent;

/// Why a node is not taken.
struct Refusal {
    reason: String,
    /// Whether it may be otherwise in a few seconds.
    passing: bool,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self { reason, passing: false }
    }
}

/// What a helper says of itself when it registers.
struct Hello {
    address: String,
    rack: Option<String>,
    rates: StatedRates,
    blocks: Vec<HeldBlock>,
    free_bytes: u64,
}

impl Control {
    /// Nodes of earlier days are known, and down until they register.
    pub(crate) fn know_nodes(&mut self) {
        for record in self.stripes.picture.nodes().values().cloned().collect::<Vec<_>>() {
            self.nodes.know_node(&self.base, &record);
        }
    }

    pub(crate) fn join(&mut self, connection: ConnectionId, role: Role, hello: FromNode) {
        // A helper that was never here gets its number first, and keeps it.
        if let (Role::Helper(name), FromNode::RegisterHelper { version, cluster_id, address, .. }) =
            (&role, &hello)
            && check_version(*version).is_ok()
            && self.facts().check_cluster(cluster_id).is_ok()
            && self.stripes.picture.node_named(name.as_str()).is_none()
        {
            let (name, address) = (name.to_string(), address.clone());
            self.storing.joining.insert(connection);
            let then = Then::Join { connection, role, hello: Box::new(hello) };
            return self.out.store(Write::Records(RecordWrite::Node { name, address }), then);
        }
        self.try_admit(connection, &role, hello);
    }

    /// Who it was, if it was taken.
    fn try_admit(&mut self, connection: ConnectionId, role: &Role, hello: FromNode) -> Option<NodeId> {
        match self.admit(connection, role, hello) {
            Ok(node) => {
                tracing::info!(%role, "registered");
                Some(node)
            }
            Err(refusal) => {
                self.out.refuse(connection, role, refusal);
                None
            }
        }
    }

    /// A helper has its number now, unless that could not be stored.
    pub(crate) fn join_numbered(
        &mut self,
        connection: ConnectionId,
        role: Role,
        hello: FromNode,
        error: Option<StoreError>,
    ) {
        if !self.storing.joining.remove(&connection) {
            return; // It has gone.
        }
        match error {
            Some(error) => {
                self.out.refuse(connection, &role, Refusal { reason: error.to_string(), passing: true });
            }
            None => {
                if let Some(node) = self.try_admit(connection, &role, hello) {
                    self.out.note(HistoryEvent::NodeAdded { node: self.nodes.name(node) });
                }
            }
        }
    }

    fn admit(&mut self, connection: ConnectionId, role: &Role, hello: FromNode) -> Result<NodeId, Refusal> {
        match (role, hello) {
            (
                Role::Helper(name),
                FromNode::RegisterHelper {
                    version,
                    cluster_id,
                    address,
                    rack,
                    rates,
                    blocks,
                    free_bytes,
                    more: _,
                },
            ) => {
                check_version(version)?;
                self.facts().check_cluster(&cluster_id)?;
                let hello = Hello { address, rack, rates, blocks, free_bytes };
                self.admit_helper(connection, role, name.as_str(), hello)
            }
            (
                Role::Client(name) | Role::Plugin(name),
                FromNode::RegisterClient { version, bandwidth, rack },
            ) => {
                check_version(version)?;
                let bandwidth = bandwidth.filter(|&rate| rate > 0);
                let rate = bandwidth.map_or(self.nodes.figures.assumed(), |rate| rate as f64);
                let mut profile = NodeProfile { rack, ..NodeProfile::client(String::new()) };
                (profile.rates.up, profile.rates.down) = (rate, rate);
                profile.knows_links = bandwidth.is_some();
                Ok(self.admit_client(connection, role, name.as_str(), profile))
            }
            (Role::Coordinator, _) => {
                Err("this is the certificate of a coordinator; use a helper's or a client's"
                    .to_owned()
                    .into())
            }
            (role, _) => Err(format!("{role} must register as what its certificate says").into()),
        }
    }

    fn admit_helper(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        name: &str,
        hello: Hello,
    ) -> Result<NodeId, Refusal> {
        let known = self.stripes.picture.node_named(name).expect("it has its number").clone();
        let node = known.id;
        if self.nodes.forgetting.contains(&node) {
            let reason = format!("helper {name} is just being forgotten, since it was not in mend.toml");
            return Err(Refusal { reason, passing: true });
        }
        if self.nodes.peers.contains_key(&node) {
            let address = self.nodes.topology.address(node).unwrap_or_default();
            let reason = format!(
                "helper {name} is registered already, from {address}; stop that one, or give this one its own \
                 name and certificate"
            );
            // The other one may be this one, before its connection was cut.
            return Err(Refusal { reason, passing: true });
        }
        if known.address.as_ref() != Some(&hello.address) {
            let (name, address) = (name.to_owned(), hello.address.clone());
            self.out.store(Write::Records(RecordWrite::Node { name, address }), Then::Nothing);
        }
        self.nodes.retired.remove(&node);
        self.nodes.names.insert(node, name.to_owned());
        if self.nodes.figures.state(node, hello.rates) {
            self.nodes.tell_all_rates(&mut self.out);
        }
        let view = view_of(role, name, &hello);
        let (rates, knows_links) = (self.nodes.figures.rates(node), self.nodes.figures.knows_links(node));
        self.stripes.picture.set_rack(node, view.rack.as_deref());
        self.nodes.topology.set(node, NodeProfile { rates, knows_links, ..view });
        self.nodes.lay_links(&self.base);
        let peer = Peer { connection, kind: PeerKind::Helper };
        self.stripes.holdings.insert(node, Holdings::default());
        self.welcome(node, connection, peer);
        self.nodes.note_back(&self.base, node, &mut self.out);
        if !self.stripes.news.keep(node, &hello.blocks) {
            self.stripes.compare(around!(self), node, &hello.blocks, &mut self.out);
        }
        self.check_returned(node);
        self.out.tell(Signal::Node(node));
        self.nodes.deal_caps(&self.base, &mut self.out);
        self.out.tell(Signal::Replicas(node));
        self.stripes.recheck_next(around!(self), node, &mut self.out);
        self.stripes.remove_discards(around!(self), &self.jobs, node, &mut self.out);
        Ok(node)
    }

    fn admit_client(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        name: &str,
        profile: NodeProfile,
    ) -> NodeId {
        let node = NodeId(self.nodes.next_client);
        self.nodes.next_client = self.nodes.next_client.checked_add(1).unwrap_or(FIRST_CLIENT);
        let is_plugin = matches!(role, Role::Plugin(_));
        let kind = if is_plugin { "plugin" } else { "client" };
        if let Some(rack) = profile.rack.as_deref().filter(|rack| !self.nodes.knows_rack(&self.base, rack)) {
            tracing::warn!(%role, %rack, "no helper is in this rack, and mend.toml does not name it: it counts as outside all racks");
        }
        let profile = NodeProfile { name: format!("{kind} {name}"), tls_name: role.dns_name(), ..profile };
        self.nodes.topology.set(node, profile);
        self.nodes.lay_links(&self.base);
        let kind = if is_plugin { PeerKind::Plugin } else { PeerKind::Client };
        self.jobs.clients.insert(node, Requests::default());
        let peer = Peer { connection, kind };
        self.welcome(node, connection, peer);
        node
    }
}

impl Out {
    fn refuse(&mut self, connection: ConnectionId, role: &Role, Refusal { reason, passing }: Refusal) {
        tracing::warn!(%role, %reason, "refused");
        self.send(connection, ToNode::Refused { reason, passing });
        self.push(Effect::Close { connection });
    }
}

impl Nodes {
    /// There is such a node; it is down until it registers.
    pub(crate) fn know_node(&mut self, base: &Base, record: &NodeRecord) {
        if self.names.insert(record.id, record.name.clone()).is_none() {
            let mut view = NodeProfile::unknown(record.name.clone());
            view.reach = record.address.clone().map_or(Reach::Unknown, Reach::Listens);
            view.alive = false;
            view.free_bytes = 0;
            self.topology.set(record.id, view);
            // Servers without a helper are the store's, which says itself when they are gone.
            let named = base.settings.helpers.as_ref().is_none_or(|helpers| helpers.contains(&record.name));
            if !named && !base.nature.tells_service {
                self.retired.insert(record.id);
            }
        }
    }
}

fn check_version(version: u32) -> Result<(), String> {
    if version == control::VERSION {
        return Ok(());
    }
    Err(format!(
        "it speaks version {version} of the control protocol, and the coordinator speaks version {}; run the \
         same mend on both",
        control::VERSION
    ))
}

fn view_of(role: &Role, name: &str, hello: &Hello) -> NodeProfile {
    let mut view = NodeProfile::helper(name, &hello.address);
    view.tls_name = role.dns_name();
    view.rack = hello.rack.clone();
    view.free_bytes = hello.free_bytes;
    view
}
