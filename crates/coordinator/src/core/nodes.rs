//! Helpers and clients: joining, what they hold, leaving.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cluster::Role;
use codes::BlockIndex;
use repair::wire::control::{self, FromNode, HeldBlock, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Digest, JobId, NodeId, NodeProfile, Reach, StripeId};
use stores::{BlockRecord, BlockState, Catalog, CatalogError};

use super::stripes::indexed;
use super::{ConnectionId, Core, Outbox, log_error};

/// Clients get numbers from here on, for as long as they are connected.
pub(super) const FIRST_CLIENT: u32 = 1 << 31;
/// Removals that one helper is asked for at a time.
const REMOVALS_AT_ONCE: usize = 256;

/// What a helper could not remove is asked for again after this time.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);
/// A question that is not answered in this time has no answer: the helper's disk may hang. For one that reads a block,
/// the time that a slow and busy disk takes for its bytes comes on top.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(120);
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;

/// Somebody who is connected.
pub(super) struct Peer {
    pub connection: ConnectionId,
    pub outbox: Outbox,
    pub kind: PeerKind,
    /// Blocks that the catalog places on it.
    pub blocks: usize,
}

pub(super) enum PeerKind {
    Helper {
        bandwidth: Option<u64>,
        /// Blocks that no stripe knows.
        orphans: BTreeSet<BlockId>,
        /// Blocks it was told to remove and that it has not answered for.
        removing: BTreeSet<BlockId>,
        /// Blocks that it could not remove, and when it is asked again.
        stuck: BTreeMap<BlockId, Duration>,
        /// Bad blocks that it has again, to be verified before they count.
        rechecks: VecDeque<(StripeId, BlockIndex)>,
    },
    Client {
        /// Its open requests.
        requests: BTreeMap<u64, JobId>,
    },
}

/// A question to a helper that it has not answered.
pub(super) struct Ask {
    pub node: NodeId,
    pub subject: Subject,
    /// It counts as unanswered then.
    pub until: Duration,
}

pub(super) enum Subject {
    /// A block to be verified, and what was known of it when the question was put.
    Block { stripe: StripeId, index: BlockIndex, known: BlockRecord, scrub: bool },
    /// All its blocks, for a scrub.
    List,
    /// What its blocks say of themselves, so that its orphans can be removed.
    Orphans,
}

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
    bandwidth: Option<u64>,
    blocks: Vec<HeldBlock>,
    free_bytes: u64,
}

impl Core {
    /// Nodes of earlier days are known, and down until they register.
    pub(super) fn know_nodes(&mut self) -> Result<(), CatalogError> {
        for record in self.catalog.nodes()? {
            let mut view = NodeProfile::unknown(record.name.clone());
            view.reach = record.address.map_or(Reach::Unknown, Reach::Listens);
            view.alive = false;
            view.free_bytes = 0;
            self.topology.set(record.id, view);
            if self.settings.helpers.as_ref().is_some_and(|helpers| !helpers.contains(&record.name)) {
                self.retired.insert(record.id);
            }
            self.names.insert(record.id, record.name);
        }
        Ok(())
    }

    pub(super) fn join(&mut self, connection: ConnectionId, role: Role, hello: FromNode, outbox: Outbox) {
        match self.admit(connection, &role, hello, &outbox) {
            Ok(node) => tracing::info!(%role, %node, "registered"),
            Err(Refusal { reason, passing }) => {
                tracing::warn!(%role, %reason, "refused");
                let _ = outbox.try_send(ToNode::Refused { reason, passing }); // Its outbox is new, or it has gone.
            }
        }
    }

    fn admit(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        hello: FromNode,
        outbox: &Outbox,
    ) -> Result<NodeId, Refusal> {
        match (role, hello) {
            (
                Role::Helper(name),
                FromNode::RegisterHelper {
                    version,
                    cluster_id,
                    address,
                    rack,
                    bandwidth,
                    blocks,
                    free_bytes,
                    more: _,
                },
            ) => {
                check_version(version)?;
                self.check_cluster(&cluster_id)?;
                let hello = Hello { address, rack, bandwidth, blocks, free_bytes };
                self.admit_helper(connection, role, name.as_str(), hello, outbox)
            }
            (Role::Client(name), FromNode::RegisterClient { version }) => {
                check_version(version)?;
                Ok(self.admit_client(connection, role, name.as_str(), outbox))
            }
            (Role::Coordinator, _) => {
                Err("this is the certificate of a coordinator; use a helper's or a client's"
                    .to_owned()
                    .into())
            }
            (role, _) => Err(format!("{role} must register as what its certificate says").into()),
        }
    }

    fn check_cluster(&self, cluster_id: &str) -> Result<(), String> {
        if cluster_id == self.settings.cluster_id {
            return Ok(());
        }
        Err(format!(
            "the helper's blocks belong to cluster {cluster_id}, and this is cluster {}; \
             give it the right folder, or the right coordinator",
            self.settings.cluster_id
        ))
    }

    fn admit_helper(
        &mut self,
        connection: ConnectionId,
        role: &Role,
        name: &str,
        hello: Hello,
        outbox: &Outbox,
    ) -> Result<NodeId, Refusal> {
        let node = self.catalog.node_id(name).map_err(|error| error.to_string())?;
        if self.peers.contains_key(&node) {
            let address = self.topology.address(node).unwrap_or_default();
            let reason = format!(
                "helper {name} is registered already, from {address}; stop that one, or give this one its own \
                 name and certificate"
            );
            // The other one may be this one, before its connection was cut.
            return Err(Refusal { reason, passing: true });
        }
        let address = self.catalog.set_node_address(node, &hello.address);
        address.map_err(|error| error.to_string())?;
        self.retired.remove(&node);
        self.names.insert(node, name.to_owned());
        self.topology.set(node, view_of(role, name, &hello));
        let peer = Peer {
            connection,
            outbox: outbox.clone(),
            kind: PeerKind::Helper {
                bandwidth: hello.bandwidth,
                orphans: BTreeSet::new(),
                removing: BTreeSet::new(),
                stuck: BTreeMap::new(),
                rechecks: VecDeque::new(),
            },
            blocks: self.catalog.blocks_of(node).len(),
        };
        self.welcome(node, connection, peer);
        log_error(self.compare(node, &hello.blocks));
        self.tell_node(node);
        self.recheck_next(node);
        self.remove_discards(node);
        Ok(node)
    }

    fn admit_client(&mut self, connection: ConnectionId, role: &Role, name: &str, outbox: &Outbox) -> NodeId {
        let node = NodeId(self.next_client);
        self.next_client = self.next_client.checked_add(1).unwrap_or(FIRST_CLIENT);
        let view = NodeProfile { tls_name: role.dns_name(), ..NodeProfile::client(format!("client {name}")) };
        self.topology.set(node, view);
        let kind = PeerKind::Client { requests: BTreeMap::new() };
        let peer = Peer { connection, outbox: outbox.clone(), kind, blocks: 0 };
        self.welcome(node, connection, peer);
        node
    }

    fn welcome(&mut self, node: NodeId, connection: ConnectionId, peer: Peer) {
        self.peers.insert(node, peer);
        self.connections.insert(connection, node);
        self.census = None;
        self.send(node, ToNode::Registered { node });
    }

    pub(super) fn kind_mut(&mut self, node: NodeId) -> Option<&mut PeerKind> {
        self.peers.get_mut(&node).map(|peer| &mut peer.kind)
    }

    /// Tells a node to remove what it shall not hold any more, except what a running job may bring there anew.
    pub(super) fn remove_discards(&mut self, node: NodeId) {
        // Until all helpers have said what they hold, an old catalog passes for the newest.
        if !self.settled || self.is_behind() {
            return;
        }
        let Some(PeerKind::Helper { removing, stuck, .. }) = self.kind_mut(node) else { return };
        let (mut removing, stuck) = (std::mem::take(removing), stuck.clone());
        for block in log_error(self.catalog.discards(node)).unwrap_or_default() {
            if removing.len() == REMOVALS_AT_ONCE {
                break;
            }
            let goes = !stuck.contains_key(&block) && !self.is_worked_on(&block) && self.may_go(node, &block);
            if goes && removing.insert(block.clone()) {
                self.send(node, ToNode::Remove { block });
            }
        }
        if let Some(PeerKind::Helper { removing: kept, .. }) = self.kind_mut(node) {
            *kept = removing;
        }
    }

    /// Whether a node has been told to remove this block and has not answered.
    pub(super) fn is_removing(&self, node: NodeId, block: &BlockId) -> bool {
        let kind = self.peers.get(&node).map(|peer| &peer.kind);
        matches!(kind, Some(PeerKind::Helper { removing, .. }) if removing.contains(block))
    }

    /// Nodes that have been told to remove something and have not answered.
    pub(super) fn removers(&self) -> impl Iterator<Item = NodeId> + '_ {
        let removes =
            |kind: &PeerKind| matches!(kind, PeerKind::Helper { removing, .. } if !removing.is_empty());
        self.peers.iter().filter(move |(_, peer)| removes(&peer.kind)).map(|(&node, _)| node)
    }

    /// Whether a running job publishes blocks of the stripe that this block is named after.
    fn is_worked_on(&self, block: &BlockId) -> bool {
        self.jobs.values().any(|running| {
            !running.targets.is_empty() && running.job.stripe().blocks.iter().any(|other| other.id == *block)
        })
    }

    pub(super) fn hear(&mut self, connection: ConnectionId, message: FromNode) {
        let Some(&node) = self.connections.get(&connection) else { return };
        match message {
            FromNode::Report { job, epoch, report } => self.take_report(node, job, epoch, report),
            FromNode::Pong { free_bytes, tasks } => self.note_load(node, free_bytes, tasks),
            FromNode::Removed { block } => self.note_removed(node, &block),
            FromNode::Verified { ask, block, result } => self.take_verified(node, ask, &block, result),
            FromNode::Listed { ask, blocks, more: _ } => self.take_listed(node, ask, &blocks),
            FromNode::ListFailed { ask, problem } => self.take_unlisted(node, ask, &problem),
            FromNode::RemoveFailed { block, problem } => self.note_stuck(node, block, &problem),
            FromNode::Open { tag, request } => self.open(node, tag, request),
            FromNode::Close { tag } => self.close(node, tag),
            FromNode::Described { ask, blocks, last } => self.take_described(node, ask, &blocks, last),
            FromNode::RegisterHelper { .. } | FromNode::RegisterClient { .. } | FromNode::Held { .. } => {
                self.lose(node, "it registered twice on one connection");
            }
        }
    }

    fn note_load(&mut self, node: NodeId, free_bytes: u64, tasks: u32) {
        let is_helper = self.is_helper(node);
        if let Some(view) = self.topology.get_mut(node) {
            view.load = tasks;
            if is_helper {
                view.free_bytes = free_bytes;
            }
        }
        self.tell_space(node);
    }

    fn note_removed(&mut self, node: NodeId, block: &BlockId) {
        let Some(PeerKind::Helper { removing, .. }) = self.kind_mut(node) else { return };
        if !removing.remove(block) {
            return;
        }
        let empty = removing.is_empty();
        log_error(self.catalog.discarded(node, block));
        if empty {
            self.remove_discards(node); // There may be more than were asked for at once.
        }
    }

    /// A node cannot remove a block. It is asked again later, and not before.
    fn note_stuck(&mut self, node: NodeId, block: BlockId, problem: &StoreProblem) {
        let again = self.now + REMOVE_AGAIN;
        let Some(PeerKind::Helper { removing, stuck, .. }) = self.kind_mut(node) else { return };
        if !removing.remove(&block) {
            return;
        }
        let (first, empty) = (stuck.is_empty(), removing.is_empty());
        stuck.insert(block.clone(), again);
        if first {
            let node = self.name(node);
            tracing::warn!(%block, %node, %problem, "cannot remove a block; trying again later");
        }
        if empty {
            self.remove_discards(node);
        }
    }

    /// Asks again for removals that failed some time ago.
    pub(super) fn retry_removals(&mut self) {
        if self.now >= self.removals_due {
            // Some waited for another copy to be readable.
            self.removals_due = self.now + REMOVE_AGAIN;
            self.live_helpers().collect::<Vec<_>>().into_iter().for_each(|node| self.remove_discards(node));
        }
        let now = self.now;
        let due = |peer: &Peer| matches!(&peer.kind, PeerKind::Helper { stuck, .. } if stuck.values().any(|&at| at <= now));
        let nodes: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| due(peer)).map(|(&node, _)| node).collect();
        for node in nodes {
            if let Some(PeerKind::Helper { stuck, .. }) = self.kind_mut(node) {
                stuck.retain(|_, at| *at > now);
            }
            self.remove_discards(node);
        }
    }

    pub(super) fn is_helper(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| matches!(peer.kind, PeerKind::Helper { .. }))
    }

    /// Helpers that are connected.
    pub(super) fn live_helpers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers
            .iter()
            .filter(|(_, peer)| matches!(peer.kind, PeerKind::Helper { .. }))
            .map(|(&node, _)| node)
    }

    /// Names of the helpers that are known and not connected.
    pub(super) fn down_helpers(&self) -> Vec<String> {
        let down = self.names.iter().filter(|(node, _)| !self.peers.contains_key(node));
        down.map(|(_, name)| name.clone()).collect()
    }

    /// Puts a message in a node's outbox; one that is full or closed ends the connection.
    pub(super) fn send(&mut self, node: NodeId, message: ToNode) {
        if let Some(peer) = self.peers.get(&node)
            && peer.outbox.try_send(message).is_err()
        {
            self.broken.insert(node);
        }
    }

    pub(super) fn part(&mut self, connection: ConnectionId, why: &str) {
        if let Some(&node) = self.connections.get(&connection) {
            self.lose(node, why);
        }
    }

    /// A node is gone.
    pub(super) fn lose(&mut self, node: NodeId, why: &str) {
        let Some(peer) = self.peers.remove(&node) else { return };
        tracing::info!(name = %self.name(node), why, "lost a connection");
        self.connections.remove(&peer.connection);
        self.census = None;
        if let Some(view) = self.topology.get_mut(node) {
            (view.alive, view.load) = (false, 0);
        }
        match peer.kind {
            PeerKind::Helper { .. } => self.lose_helper(node),
            PeerKind::Client { requests } => self.lose_client(node, requests.into_values()),
        }
    }

    fn lose_helper(&mut self, node: NodeId) {
        self.tell_node_lost(node);
        for (&id, running) in &mut self.jobs {
            running.job.handle_node_lost(node, &self.topology, self.now);
            self.stirred.insert(id);
        }
        let unanswered: Vec<u64> =
            self.asks.iter().filter(|(_, ask)| ask.node == node).map(|(&number, _)| number).collect();
        for number in unanswered {
            self.asks.remove(&number);
        }
        self.skip_in_scrub(node, "it is down");
    }

    fn lose_client(&mut self, node: NodeId, requests: impl Iterator<Item = JobId>) {
        for id in requests {
            if let Some(running) = self.jobs.get_mut(&id) {
                running.job.cancel();
                self.stirred.insert(id);
            }
        }
        self.orphan_puts(node);
        self.drain_jobs();
        self.topology.remove(node);
    }

    /// Has a block verified.
    pub(super) fn ask_for_block(
        &mut self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        scrub: bool,
    ) -> u64 {
        let block = known.id.clone();
        let ask = self.ask(node, Subject::Block { stripe, index, known, scrub });
        self.send(node, ToNode::Verify { ask, block });
        ask
    }

    pub(super) fn ask(&mut self, node: NodeId, subject: Subject) -> u64 {
        self.next_ask += 1;
        let reading = match &subject {
            Subject::Block { known, .. } => Duration::from_secs(known.bytes / SLOW_BYTES_PER_SECOND),
            Subject::List | Subject::Orphans => Duration::ZERO,
        };
        let until = self.now + ANSWER_LIMIT + reading;
        self.asks.insert(self.next_ask, Ask { node, subject, until });
        self.next_ask
    }

    /// Goes on without answers that do not come, though the helper's connection lives.
    pub(super) fn expire_asks(&mut self) {
        let late = self.asks.iter().filter(|(_, ask)| ask.until <= self.now);
        for number in late.map(|(&number, _)| number).collect::<Vec<_>>() {
            let Some(Ask { node, subject, .. }) = self.asks.remove(&number) else { continue };
            tracing::warn!(node = %self.name(node), "a helper does not answer what it is asked; its disk may hang");
            match subject {
                Subject::Block { scrub: false, .. } => self.recheck_next(node),
                Subject::Orphans => {}
                Subject::Block { .. } | Subject::List => self.skip_in_scrub(node, "it does not answer"),
            }
        }
    }

    fn take_verified(
        &mut self,
        node: NodeId,
        number: u64,
        block: &BlockId,
        result: Result<Option<Digest>, BlockProblem>,
    ) {
        let Some(ask) = self.take_ask(node, number) else { return };
        let Subject::Block { stripe, index, known, scrub } = ask.subject else { return };
        if known.id != *block {
            tracing::warn!(%block, asked = %known.id, "an answer about another block");
        }
        let result_digest = result.as_ref().ok().copied();
        let problem = match result {
            Ok(digest) if known.digest.is_none() || known.digest == digest => None,
            Ok(digest) => Some(BlockProblem::Corrupt(other_digest(known.digest, digest))),
            Err(problem) => Some(problem),
        };
        // What was learned of a block that has changed since is of no use.
        let current = self.catalog.stripe(&stripe).ok();
        let current = current.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
        let still = current.as_ref() == Some(&known);
        match (result_digest, &current) {
            // Its home may have come back without it meanwhile, so what counts is where it belongs now.
            (Some(digest), Some(current)) if current.node != Some(node) => {
                self.adopt(node, &stripe, index, current, digest);
            }
            _ if still && known.node == Some(node) => {
                self.apply_verdict(node, &stripe, index, &known, problem.as_ref());
            }
            _ => {}
        }
        if scrub {
            self.count_in_scrub(node, number, &stripe, &known, problem.filter(|_| still));
        } else {
            self.recheck_next(node);
        }
    }

    fn take_ask(&mut self, node: NodeId, number: u64) -> Option<Ask> {
        if self.asks.get(&number)?.node != node {
            return None;
        }
        self.asks.remove(&number)
    }

    fn take_listed(&mut self, node: NodeId, number: u64, blocks: &[HeldBlock]) {
        if self.take_ask(node, number).is_some() {
            log_error(self.note_orphans(node, blocks));
            self.listed_in_scrub(node);
        }
    }

    /// A helper cannot say what it holds: the scrub goes on without its list.
    fn take_unlisted(&mut self, node: NodeId, number: u64, problem: &StoreProblem) {
        if self.take_ask(node, number).is_some() {
            tracing::warn!(node = %self.name(node), %problem, "cannot list the blocks of a helper");
            self.unlisted_in_scrub(node, format!("it cannot list its blocks: {problem}"));
        }
    }

    /// Has a block looked at that could not be read for a reason that says nothing of it.
    pub(super) fn look_again(&mut self, stripe: StripeId, index: BlockIndex, known: BlockRecord) {
        let asked = self
            .asks
            .values()
            .any(|ask| matches!(&ask.subject, Subject::Block { known: other, .. } if other.id == known.id));
        if let Some(node) = known.node.filter(|node| !asked && self.peers.contains_key(node)) {
            self.ask_for_block(node, stripe, index, known, false);
        }
    }

    fn apply_verdict(
        &mut self,
        node: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
        known: &BlockRecord,
        problem: Option<&BlockProblem>,
    ) {
        let Some(state) = problem.map_or(Some(BlockState::Healthy), state_for) else { return };
        if known.state == state || known.state == BlockState::NotStored {
            return;
        }
        if let Some(problem) = problem {
            self.remember_loss(node, &known.id, problem.to_string());
        }
        log_error(self.catalog.set_state(stripe, index, state));
        self.tell_block(stripe, index, node, state);
        self.census = None;
    }

    pub(super) fn note_loss(&mut self, node: NodeId, block: &BlockId, state: BlockState) {
        let problem = if state == BlockState::Missing { "missing" } else { "of another length" };
        self.remember_loss(node, block, problem.to_owned());
    }

    /// Remembers a bad block for the status.
    pub(super) fn remember_loss(&mut self, node: NodeId, block: &BlockId, problem: String) {
        let node = self.name(node);
        tracing::warn!(%block, %node, problem, "a block is bad");
        if self.lost_lately.len() == super::LOST_REMEMBERED {
            self.lost_lately.pop_front();
        }
        self.lost_lately.push_back(views::LostBlock {
            block: block.to_string(),
            node,
            problem,
            at_unix_ms: super::unix_ms(),
        });
    }

    /// Counts the blocks of connected helpers again, after many have gone at once.
    pub(super) fn recount_blocks(&mut self) {
        for (&node, peer) in &mut self.peers {
            peer.blocks = self.catalog.block_count(node);
        }
        for node in self.live_helpers().collect::<Vec<_>>() {
            self.tell_space(node);
        }
        self.census = None;
    }

    /// The blocks that the catalog places on a node, for a scrub.
    pub(super) fn blocks_on(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        self.catalog.blocks_of(node)
    }

    /// Tells the nodes of these blocks to remove what they shall not hold any more.
    pub(super) fn remove_everywhere(&mut self) {
        for node in self.live_helpers().collect::<Vec<_>>() {
            self.remove_discards(node);
        }
        self.recount_blocks();
    }

    /// The index of a block in a stripe's record.
    pub(super) fn index_of(record: &stores::StripeRecord, block: &BlockId) -> Option<BlockIndex> {
        indexed(record).find(|(_, other)| other.id == *block).map(|(index, _)| index)
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
    if let Some(bandwidth) = hello.bandwidth.filter(|&bandwidth| bandwidth > 0) {
        (view.rates.up, view.rates.down) = (bandwidth as f64, bandwidth as f64);
    }
    view
}

/// The state of a block of which this is wrong, if that says anything of the block.
pub(super) fn state_for(problem: &BlockProblem) -> Option<BlockState> {
    match problem {
        BlockProblem::Missing => Some(BlockState::Missing),
        BlockProblem::Corrupt(_) | BlockProblem::Unreadable(_) => Some(BlockState::Corrupt),
        BlockProblem::Unavailable(_) => None,
    }
}

fn other_digest(recorded: Option<Digest>, found: Option<Digest>) -> String {
    let name = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    format!("its digest is {}, and {} is recorded", name(found), name(recorded))
}
