//! Connections of members: registration, messages and disconnects.

use std::collections::BTreeSet;

use cluster::{Network, Role};
use repair::wire::control::{FromNode, HeldBlock, ToNode};
use repair::{BlockId, BlockProblem, NodeId, NodeProfile};
use store_api::{RecordWrite, Write};
use views::HistoryEvent;

use crate::control::{Control, facts, outer_facts};
use crate::effect::{ConnectionId, Effect};
use crate::helper_queries::Subject;
use crate::jobs::{Jobs, Requests};
use crate::nodes::continuation::NodeThen;
use crate::nodes::joining::{Hello, Refusal, check_rack, check_version, view_of};
use crate::nodes::node::Session;
use crate::routes::usage::{note_heat, note_user_load};
use crate::signal::Signal;
use crate::storing::then::Then;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;

impl Control {
    /// Applies the network of the reloaded configuration.
    pub(crate) fn change_network(&mut self, network: Network) {
        if network == self.base.settings.network {
            return;
        }
        let changed: Vec<String> =
            self.base.settings.network.trunks.keys().chain(network.trunks.keys()).cloned().collect();
        tracing::info!("loaded changed racks and links from mend.toml");
        self.base.settings.network = network;
        self.nodes.lay_links(&self.base);
        changed.into_iter().for_each(|rack| self.out.tell(Signal::Trunk(rack)));
    }

    pub(crate) fn hear(&mut self, connection: ConnectionId, message: FromNode) {
        let Some(node) = self.nodes.node_at(connection) else { return };
        match message {
            FromNode::Report { job, epoch, report } => self.take_report(node, job, epoch, report),
            FromNode::Pong { free_bytes, tasks, write_problem } => {
                self.nodes.note_load(node, free_bytes, tasks, &mut self.out);
                self.nodes.registry.note_write_problem(node, write_problem, &mut self.out);
            }
            FromNode::Seen { up, down } => self.nodes.note_seen(&self.base, node, [up, down], &mut self.out),
            FromNode::UserLoad { bytes_per_s } => note_user_load(self, node, bytes_per_s),
            FromNode::Heat { blocks } => note_heat(self, node, blocks),
            FromNode::Unused { up, down } => self.capping.note_unused(node, up, down),
            FromNode::Removed { block } => self.stripes.note_removed(node, &block, &mut self.out),
            FromNode::Verified { ask, block, result } => self.take_verified(node, ask, &block, result),
            FromNode::Verifying { ask } => self.out.queries.wait_for_block(node, ask, self.base.now),
            FromNode::Listed { ask, blocks, more: _ } => self.take_list(node, ask, Ok(&blocks)),
            FromNode::ListFailed { ask, problem } => self.take_list(node, ask, Err(&problem)),
            FromNode::RemoveFailed { block, problem } => {
                self.stripes.note_stuck(outer_facts!(self), &self.jobs, node, block, &problem, &mut self.out)
            }
            FromNode::Open { tag, request } => {
                if let Err(error) = self.open(node, tag, request) {
                    self.nodes.refuse_request(node, tag, &error, &mut self.out);
                }
            }
            FromNode::Close { tag } => self.jobs.close(node, tag),
            FromNode::Garbled { stripe, block } => {
                self.scrub.take_garbled(facts!(self), &self.jobs, node, stripe, block);
            }
            FromNode::Described { ask, blocks, last } => self.take_described(node, ask, &blocks, last),
            FromNode::RegisterHelper { .. } | FromNode::RegisterClient { .. } | FromNode::Held { .. } => {
                self.lose(node, "it registered twice on one connection");
            }
        }
    }

    pub(crate) fn part(&mut self, connection: ConnectionId, why: &str) {
        self.storing.joining.remove(&connection);
        if let Some(node) = self.nodes.node_at(connection) {
            self.lose(node, why);
        }
    }

    /// Disconnects a member, because its connection has ended or because the coordinator ends it.
    pub(crate) fn lose(&mut self, node: NodeId, why: &str) {
        let is_helper = self.nodes.is_helper(node);
        let Some(session) = self.nodes.disconnect(node) else { return };
        if !is_helper {
            tracing::info!(client = %self.nodes.name(node), why, "client disconnected");
        }
        self.out.push(Effect::Close { connection: session.connection });
        if !self.base.store.reports_service() {
            self.stripes.picture.set_up(node, false);
        }
        match is_helper {
            true => self.lose_helper(node, session, why),
            false => {
                self.jobs.drop_client(&self.base, node);
                self.drain_jobs();
                self.nodes.topology.remove(node);
            }
        }
    }

    fn lose_helper(&mut self, node: NodeId, session: Session, why: &str) {
        self.stripes.inventory.remove(node);
        self.repairs.tell_node_lost(node);
        self.repairs.let_go(&session.unproven.unwrap_or_default().stripes);
        self.capping.deal(&self.base, &self.nodes, &mut self.out);
        self.out.tell(Signal::Replicas(node));
        self.with_all_jobs(|job, topology, now| job.handle_node_lost(node, topology, now));
        for (number, subject) in self.out.queries.drop_node(node) {
            self.repairs.note_verified((number, node), None, None);
            if let Subject::Block { stripe, index, scrub: false, .. } = subject {
                self.scrub.reported.note_unanswered(&self.nodes, node, stripe, index);
            }
        }
        self.scrub.skip_in_scrub(facts!(self), node, "it is down", &mut self.out);
        self.scrub.leave_out_of_checks(facts!(self), node, &mut self.out);
        self.nodes.registry.note_gone(&self.base, node, why, &mut self.out);
        self.out.tell(Signal::SeekHomes); // Other helpers may still have copies that were to be removed.
    }

    pub(crate) fn join(&mut self, connection: ConnectionId, role: Role, hello: FromNode) {
        // For a new helper, the storage first assigns a permanent number.
        if let (Role::Helper(name), FromNode::RegisterHelper { version, cluster_id, address, .. }) =
            (&role, &hello)
            && check_version(*version).is_ok()
            && self.base.check_cluster(cluster_id).is_ok()
            && self.stripes.picture.node_named(name.as_str()).is_none()
        {
            let (name, address) = (name.to_string(), address.clone());
            self.storing.joining.insert(connection);
            let then = NodeThen::Join { connection, role, hello: Box::new(hello) };
            return self.out.store(Write::Records(RecordWrite::Node { name, address }), then);
        }
        self.try_admit(connection, &role, hello);
    }

    /// Admits or refuses a member. Returns its number if it is admitted.
    pub(super) fn try_admit(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        hello: FromNode,
    ) -> Option<NodeId> {
        if let (Role::Helper(name), FromNode::RegisterHelper { version, .. }) = (role, &hello) {
            self.nodes.skewed.note(name.as_str(), check_version(*version), self.base.now);
        }
        match (Newcomer { connection, role }).admit(self, hello) {
            Ok(node) => {
                let helper = if let Role::Helper(name) = role { Some(name.as_str()) } else { None };
                tracing::info!(helper, %role, "registered");
                Some(node)
            }
            Err(refusal) => {
                self.out.refuse(connection, role, refusal);
                None
            }
        }
    }

    /// Handles the start of a helper's outage: logs its blocks and the planned recovery, and adds a history
    /// entry.
    pub(crate) fn note_outage(&mut self, node: NodeId, why: String) {
        self.repairs.nodes.absent.forget(node);
        self.repairs.nodes.look_for_room(facts!(self), &self.jobs);
        let blocks = self.stripes.picture.block_count(node) as u64;
        let name = self.nodes.name(node);
        let unreadable = self.answers().census().map_or(0, |census| census.unreadable);
        let next = self.answers().gone_node(node).map(|gone| gone.text).unwrap_or_default();
        tracing::warn!(
            helper = name,
            why,
            blocks,
            unreadable_stripes = unreadable,
            next,
            "helper disconnected"
        );
        self.out.note(HistoryEvent::NodeLost { node: name, blocks, why });
    }
}

/// A member that registers.
#[derive(Clone, Copy)]
struct Newcomer<'a> {
    connection: ConnectionId,
    /// The role in the member's certificate.
    role: &'a Role,
}

impl Newcomer<'_> {
    /// Admits the member if its role permits what it registers as, or returns the reason for refusing it.
    fn admit(self, control: &mut Control, hello: FromNode) -> Result<NodeId, Refusal> {
        match (self.role, hello) {
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
                    incomplete,
                    more: _,
                },
            ) => {
                check_version(version)?;
                control.base.check_cluster(&cluster_id)?;
                check_rack(rack.as_deref())?;
                let hello = Hello { address, rack, rates, blocks, incomplete, free_bytes };
                self.admit_helper(control, name.as_str(), hello)
            }
            (
                Role::Client(name) | Role::Admin(name) | Role::Plugin(name),
                FromNode::RegisterClient { version, bandwidth, rack },
            ) => {
                check_version(version)?;
                let bandwidth = bandwidth.filter(|&rate| rate > 0);
                let rate = bandwidth.map_or(control.nodes.bandwidth.assumed(), |rate| rate as f64);
                let mut profile = NodeProfile { rack, ..NodeProfile::client(String::new()) };
                (profile.rates.up, profile.rates.down) = (rate, rate);
                profile.knows_links = bandwidth.is_some();
                Ok(self.admit_client(control, name.as_str(), profile))
            }
            (Role::Coordinator, _) => {
                Err("this is the certificate of a coordinator; use a helper's or a client's"
                    .to_owned()
                    .into())
            }
            (Role::Operator(name), _) => {
                let why = format!(
                    "operator {name} may not store or read files; use the certificate of a client or an admin"
                );
                Err(why.into())
            }
            (role, _) => Err(format!("{role} must register in the role of its certificate").into()),
        }
    }

    fn admit_helper(self, control: &mut Control, name: &str, hello: Hello) -> Result<NodeId, Refusal> {
        let known =
            control.stripes.picture.node_named(name).expect("the helper was given a number before").clone();
        let node = known.id;
        check_absent(control, node, name)?;
        // A catalog that was replaced has no addresses. A helper without one counts as not heard, so its address is
        // recorded only when it has listed all of its blocks.
        let stays_unheard =
            control.base.store.owns_files() && known.address.is_none() && hello.incomplete.is_some();
        if stays_unheard {
            control.stripes.picture.set_host(node, Some(repair::host_of(&hello.address)));
        } else if known.address.as_ref() != Some(&hello.address) {
            let (name, address) = (name.to_owned(), hello.address.clone());
            control.out.store(Write::Records(RecordWrite::Node { name, address }), Then::Nothing);
        }
        if control.nodes.bandwidth.state(node, hello.rates) {
            control.nodes.tell_all_rates(&mut control.out);
        }
        let view = view_of(self.role, name, &hello);
        let (rates, knows_links) =
            (control.nodes.bandwidth.rates(node), control.nodes.bandwidth.knows_links(node));
        control.stripes.picture.set_rack(node, view.rack.as_deref());
        control.nodes.topology.set(node, NodeProfile { rates, knows_links, ..view });
        control.nodes.lay_links(&control.base);
        control.stripes.inventory.add(node);
        let outage = control.nodes.connect_helper(node, self.connection);
        if let Some(session) = control.nodes.registry.session_mut(node) {
            session.incomplete.clone_from(&hello.incomplete);
        }
        welcome(control, node);
        if let Some(outage) = outage {
            // Before the end of the start-up phase, helpers do not count as absent, so the history gets no
            // entry.
            let (away, is_told) = (outage.lasts(control.base.now), control.nodes.settled);
            control.nodes.registry.note_back(node, away, is_told, &mut control.out);
        }
        if !control.stripes.news.keep(node, &hello.blocks) {
            control.stripes.compare(outer_facts!(control), node, &hello.blocks, &mut control.out);
        }
        if control.base.store.trusts_lists() && hello.incomplete.is_none() {
            lose_unlisted(&mut control.jobs, &control.stripes, node, &hello.blocks);
        }
        control.check_returned(node);
        control.out.tell(Signal::Node(node));
        control.capping.deal(&control.base, &control.nodes, &mut control.out);
        control.out.tell(Signal::Replicas(node));
        control.stripes.recheck_next(outer_facts!(control), node, &mut control.out);
        control.stripes.remove_discards(outer_facts!(control), &control.jobs, node, &mut control.out);
        Ok(node)
    }

    fn admit_client(self, control: &mut Control, name: &str, profile: NodeProfile) -> NodeId {
        let role = self.role;
        let is_plugin = matches!(role, Role::Plugin(_));
        let node = control.nodes.connect_client(self.connection, is_plugin);
        let kind = if is_plugin { "plugin" } else { "client" };
        if let Some(rack) =
            profile.rack.as_deref().filter(|rack| !control.nodes.knows_rack(&control.base, rack))
        {
            tracing::warn!(
                %role, rack,
                "the client's rack is unknown: mend.toml does not name it, and no helper is in it; the \
                 client counts as outside all racks"
            );
        }
        let profile = NodeProfile { name: format!("{kind} {name}"), tls_name: role.dns_name(), ..profile };
        control.nodes.topology.set(node, profile);
        control.nodes.lay_links(&control.base);
        control.jobs.clients.insert(node, Requests::default());
        welcome(control, node);
        node
    }
}

/// Refuses a helper that is being forgotten, or that has a connection already.
fn check_absent(control: &Control, node: NodeId, name: &str) -> Result<(), Refusal> {
    if control.nodes.registry.is_being_forgotten(node) {
        let reason = format!("helper {name} is being forgotten, because mend.toml did not list it");
        return Err(Refusal { reason, passing: true });
    }
    if control.nodes.is_connected(node) {
        let address = control.nodes.topology.address(node).unwrap_or_default();
        let reason = format!(
            "helper {name} is registered already, from {address}; stop that helper, or start this one \
             with its own name and certificate"
        );
        // The existing connection may be a broken one of the same helper, so a retry may succeed.
        return Err(Refusal { reason, passing: true });
    }
    Ok(())
}

/// Passes the changed facts about a node to the planner and the scheduler.
pub(crate) fn note_node(control: &mut Control, node: NodeId) {
    let accepts = facts!(control).accepts(node);
    control.nodes.topology.set_accepts(node, accepts);
    control.repairs.tell_node(facts!(control), node);
}

/// Confirms the registration of a node or client.
fn welcome(control: &mut Control, node: NodeId) {
    if !control.base.store.reports_service() {
        control.stripes.picture.set_up(node, true);
    }
    control.nodes.send(node, ToNode::Registered { node }, &mut control.out);
}

/// Notes blocks that jobs have stored on a helper, and that are missing from the helper's list while the storage has not
/// recorded them yet. They count as missing once they are recorded, unless the helper registers again and lists them.
fn lose_unlisted(jobs: &mut Jobs, stripes: &Stripes, node: NodeId, listed: &[HeldBlock]) {
    let listed: BTreeSet<&BlockId> = listed.iter().map(|block| &block.id).collect();
    for running in jobs.running.values_mut().filter(|running| running.recording > 0) {
        let Ok(record) = stripes.picture.stripe(&running.stripe) else { continue };
        for (index, block) in indexed(&record) {
            if running.holder(index) != Some(node) {
                continue;
            }
            let missing = (index, node, BlockProblem::Missing);
            match listed.contains(&block.id) {
                true => running.lost_meanwhile.retain(|lost| *lost != missing),
                false => running.lost_meanwhile.push(missing),
            }
        }
    }
}
