//! Checks before an operator stops or removes a helper.

use std::collections::BTreeSet;

use recovery::Target;
use repair::{Accepts, BlockId, NodeId};
use store_api::OtherData;
use views::{NodeView, RepairView, ReplaceRequest, SafetyView};

use crate::answers::Answers;
use crate::answers::conditions::incomplete_helpers;
use crate::counts::count;
use crate::effect::Reply;
use crate::error::{NodeError, RequestError, list};
use crate::facts::{Facts, unheard};
use crate::nodes::sorted;
use crate::out::{Out, answer};
use crate::repairs::orders::Order;
use crate::stripes::contradictions;
use crate::stripes::picture::Survives;

/// The maximum number of stripes that an answer names.
const NAMED: usize = 20;
/// The next step if the state of stripes is unknown.
const UNJUDGED_NEXT: &str = "mend status says why, and what to do";

impl<'a> Facts<'a> {
    /// Orders a repair that moves or rebuilds all blocks of one helper onto another.
    pub(crate) fn replace_node(
        self,
        old: &str,
        request: &ReplaceRequest,
        reply: Reply<RepairView>,
        out: &mut Out,
    ) {
        match replacement(self, old, &request.by) {
            Ok(order) => self.queue_order(order, reply, out),
            Err(error) => answer(reply, Err(error), out),
        }
    }
}

impl<'a> Answers<'a> {
    /// Checks whether helpers can be removed permanently: none of them may hold a block that is needed.
    pub(crate) fn safe_to_remove(self, names: &[String]) -> Result<SafetyView, RequestError> {
        let nodes = self.facts.nodes.nodes_named(self.facts.base, names)?;
        check_known(self.facts)?;
        let mut view = self.weighed(&nodes)?;
        let holding: Vec<(NodeId, Need)> =
            nodes.iter().filter_map(|&node| Some((node, self.need_for(node)?))).collect();
        view.safe = holding.is_empty();
        let them = list(&view.nodes);
        view.text = match view.safe {
            true => {
                let safe = format!("safe to remove {them}: no stripe has a block there");
                match takers_among(self.facts, &nodes) {
                    None => safe,
                    Some(takers) => {
                        format!("{safe}; {takers} may still get new blocks until drained or stopped")
                    }
                }
            }
            false => {
                let on = |(node, need): &(NodeId, Need)| {
                    format!("{} on {}", need.blocks(self.facts, *node), self.facts.nodes.name(*node))
                };
                let on: Vec<String> = holding.iter().map(on).collect();
                format!("NOT safe to remove {them}: {}", on.join(", "))
            }
        };
        view.next_step = holding.first().map(|(node, need)| need.next_step(self.facts, *node));
        Ok(view)
    }

    pub(crate) fn check_removal(self, name: &str) -> Result<(NodeId, NodeView), RequestError> {
        self.facts.check_not_behind()?;
        self.facts.storing.check_storage()?;
        let node = self.facts.nodes.node_named(self.facts.base, name)?;
        self.facts.nodes.check_settled(self.facts.base)?;
        let name = name.to_owned();
        // If every block is accounted for, an operator may give up what the helper might hold. Mend need not
        // know a server that the store keeps for other data, or that now has another address.
        let gives_up = |need: &Need| match need {
            Need::Unheard => !self.facts.stripes.picture.has_homeless_blocks(),
            Need::Other(_) | Need::Neighbour { .. } => true,
            _ => false,
        };
        if let Some(need) = self.need_for(node).filter(|need| !gives_up(need)) {
            let (blocks, next_step) = (need.blocks(self.facts, node), need.next_step(self.facts, node));
            return Err(NodeError::NodeNeeded { name, blocks, next_step }.into());
        }
        if self.facts.nodes.is_connected(node) || self.facts.nodes.registry.is_being_forgotten(node) {
            return Err(NodeError::NodeUp(name).into());
        }
        Ok((node, self.node_view(node)?))
    }
}

/// The blocks because of which a helper must not be removed.
pub(crate) enum Need {
    /// The catalog places blocks on the helper.
    Recorded,
    /// Blocks are being stored on the helper.
    Coming,
    /// The helper lists this many blocks that are newer than the catalog.
    Newer(u64),
    /// Other helpers list blocks that are newer than the catalog, and this helper may hold such blocks too.
    Outdated,
    /// The helper lists this many blocks of no stripe that may belong to a file.
    Orphans(u64),
    /// The helper may hold blocks that the catalog counts as missing, or does not contain.
    Unheard,
    /// The helper could not list all of its blocks, and may hold some of which the catalog does not know.
    Unlisted,
    /// The state of this many stripes with blocks on the helper's server is unknown.
    Unjudged(u64),
    /// The store keeps other data on the helper's server.
    Other(OtherData),
    /// The store lists blocks on this server, which has no helper and is on the helper's machine. It may have
    /// the helper's folders, for example after a restart with another port.
    Neighbour { server: String, blocks: u64 },
}

impl Need {
    pub(crate) fn blocks(&self, facts: Facts<'_>, node: NodeId) -> String {
        match self {
            Self::Recorded => count(facts.stripes.picture.block_count(node) as u64, "block"),
            Self::Coming => "blocks that are being stored".to_owned(),
            Self::Newer(blocks) => format!("{} newer than the catalog", count(*blocks, "block")),
            Self::Outdated => "perhaps blocks that are newer than the catalog".to_owned(),
            Self::Orphans(blocks) => format!("{} that belong to no stripe", count(*blocks, "block")),
            Self::Unheard | Self::Unlisted => "an unknown number of blocks".to_owned(),
            Self::Unjudged(stripes) => format!("blocks of {} of unknown state", count(*stripes, "stripe")),
            Self::Other(data) => data.what.clone(),
            Self::Neighbour { server, blocks } => {
                format!("perhaps {} of server {server}, which has no helper", count(*blocks, "block"))
            }
        }
    }

    /// Returns the next step for an operator who wants to remove the helper.
    pub(crate) fn next_step(&self, facts: Facts<'_>, node: NodeId) -> String {
        let name = facts.nodes.name(node);
        match self {
            Self::Recorded if facts.nodes.is_helper(node) => format!(
                "move them away with mend node drain {name} or mend node replace {name} NEW, then try again"
            ),
            Self::Recorded => {
                format!("rebuild them elsewhere with mend repair --all, or start {name}, then try again")
            }
            Self::Coming if facts.nodes.registry.is_leaving(node) => "wait, then try again".to_owned(),
            Self::Coming => format!("drain it first (mend node drain {name}), then try again"),
            Self::Newer(_) => {
                "restore a newer copy of the catalog or rebuild it; mend catalog accept --list \
                               shows the blocks"
                    .to_owned()
            }
            Self::Outdated => {
                "mend status shows which helpers have newer blocks, and what to do about them".to_owned()
            }
            Self::Orphans(_) => {
                "mend status --output json lists them; if they are not needed, run mend scrub \
                                 --remove-orphans, then try again"
                    .to_owned()
            }
            Self::Unheard => format!(
                "start {name}, or rebuild the blocks with mend repair --all; {name} has not registered since \
                 the catalog was replaced"
            ),
            Self::Unlisted => {
                format!("check the disk of {name}; mend status says which folders it could not list")
            }
            Self::Unjudged(_) => UNJUDGED_NEXT.to_owned(),
            Self::Other(data) => data.next_step.clone(),
            Self::Neighbour { server, .. } => format!(
                "if server {server} has the folders of {name}, assign it to {name} in mend.toml; otherwise add a \
                 helper for it; then restart the coordinator and try again"
            ),
        }
    }
}

impl<'a> Answers<'a> {
    /// Returns why a helper must not be removed; `None` if it holds no block that is needed.
    pub(crate) fn need_for(self, node: NodeId) -> Option<Need> {
        let (facts, stripes) = (self.facts, &self.facts.stripes);
        if stripes.picture.block_count(node) > 0 {
            return Some(Need::Recorded);
        }
        if self.jobs.is_target(node) || facts.storing.adopts_on(node) {
            return Some(Need::Coming);
        }
        if let Some(newer) = stripes.newer.claims.get(&node) {
            return Some(Need::Newer(newer.len() as u64));
        }
        if unheard::is_unheard(facts, node) {
            return Some(Need::Unheard);
        }
        if stripes.newer.has_claims() && !facts.nodes.is_connected(node) {
            return Some(Need::Outdated);
        }
        if facts.nodes.registry.is_incomplete(node) {
            return Some(Need::Unlisted);
        }
        let unjudged = stripes.unjudged.count_on((facts.nodes, facts.base), &BTreeSet::from([node]));
        if unjudged > 0 {
            return Some(Need::Unjudged(unjudged));
        }
        if let Some(data) = stripes.news.needed.get(&node) {
            return Some(Need::Other(data.clone()));
        }
        if let Some(neighbour) = neighbour_of(self.facts, node) {
            return Some(neighbour);
        }
        if !facts.base.store.owns_files() {
            return None;
        }
        // Copies that are to be removed stay as long as their stripe needs them.
        let leaving = stripes.picture.files().discards(node).filter(|block| !facts.may_go(node, block));
        let held = stripes.inventory.get(node);
        let orphans = held.into_iter().flat_map(|held| &held.orphans);
        let orphans = orphans.filter(|block| !facts.is_unreferenced(node, block));
        let needed: BTreeSet<&BlockId> = leaving.chain(orphans).collect();
        (!needed.is_empty()).then_some(Need::Orphans(needed.len() as u64))
    }
}

/// Returns the helpers that mend.toml no longer lists and that hold nothing that is needed. As long as blocks may be
/// unknown, there are none: the store is not listed yet, or the catalog may be an old copy.
pub(crate) fn retired_nodes(answers: Answers<'_>) -> Vec<NodeId> {
    let (nodes, stripes) = (answers.facts.nodes, answers.facts.stripes);
    if !nodes.settled || stripes.news.unlisted().is_some() || !answers.facts.may_remove() {
        return Vec::new();
    }
    let retired = nodes.registry.ids().filter(|&node| nodes.registry.is_retired(node));
    retired.filter(|&node| answers.need_for(node).is_none()).collect()
}

/// Returns the answer to whether helpers can be stopped. The state of `unjudged` stripes there is unknown, and
/// that of some blocks on the `incomplete` helpers. The blocks of `unproven` stripes there have doubted
/// checksums.
fn stop_text(view: &SafetyView, unjudged: u64, unproven: u64, incomplete: &[String]) -> String {
    let doubt = contradictions::words(view.contradictory, view.stripes);
    let them = list(&view.nodes);
    match (view.safe, view.survives) {
        (false, _) if unjudged > 0 => {
            format!("NOT OK to stop {them}: the state of {} there is unknown", count(unjudged, "stripe"))
        }
        (false, _) if view.unreadable == 0 && view.unreadable_now > 0 => format!(
            "NOT OK to stop {them}: {} with blocks there cannot be read now",
            count(view.unreadable_now, "stripe")
        ),
        (false, _) if view.unreadable == 0 && doubt.is_some() => {
            format!("NOT OK to stop {them}: {}", doubt.unwrap_or_default())
        }
        (false, _) if view.unreadable == 0 && unproven > 0 => format!(
            "NOT OK to stop {them}: the checksums of {} there are doubted, and parity has not confirmed enough \
             blocks yet",
            count(unproven, "stripe")
        ),
        (false, _) if view.unreadable == 0 && !incomplete.is_empty() => {
            format!("NOT OK to stop {them}: the state of some blocks is unknown on {}", list(incomplete))
        }
        (false, Some(survives)) if view.unreadable == 0 => format!(
            "NOT OK to stop {them}: all {} with blocks there stay readable, but some stripes {}",
            count(view.stripes, "stripe"),
            match survives {
                0 => "could not lose another helper".to_owned(),
                few => format!("could lose only {}", count(few.into(), "more helper")),
            }
        ),
        (false, _) => format!(
            "NOT OK to stop {them}: {} of the {} with blocks there would become unreadable",
            view.unreadable,
            count(view.stripes, "stripe")
        ),
        (true, Some(survives)) => {
            format!(
                "ok to stop {them}: {} with blocks there stay readable and can lose {}",
                count(view.stripes, "stripe"),
                count(survives.into(), "more helper")
            )
        }
        (true, None) => format!("ok to stop {them}: no readable stripe has blocks there"),
    }
}

/// Returns the next step for an operator whose helpers cannot be stopped.
fn next_before_stop(view: &SafetyView, is_known: bool) -> &'static str {
    match view.nodes.len() {
        _ if !is_known && view.unreadable == 0 => UNJUDGED_NEXT,
        _ if view.contradictory > 0 => {
            "run mend scrub --parity and mend repair --all, then check again; mend status lists the blocks"
        }
        1 if view.unreadable == 0 => {
            "run mend repair --all if blocks are lost, then check again; with --leave 0 the check only \
             requires that all data stays readable"
        }
        1 => "run mend repair --all, or start helpers that are down, then check again",
        _ => "stop fewer helpers at a time; if some are down already, run mend repair --all first",
    }
}

impl<'a> Answers<'a> {
    /// Checks whether helpers can be stopped for a while: every readable stripe must stay readable and must
    /// be able to lose `leave` further helpers.
    pub(crate) fn ok_to_stop(self, names: &[String], leave: u32) -> Result<SafetyView, RequestError> {
        check_known(self.facts)?;
        self.facts.check_not_behind()?;
        let nodes = self.facts.nodes.nodes_named(self.facts.base, names)?;
        let mut view = self.weighed(&nodes)?;
        let is_left = view.survives.is_none_or(|survives| survives >= leave);
        let unjudged = self.facts.stripes.unjudged.count_on((self.facts.nodes, self.facts.base), &nodes);
        let mut incomplete: Vec<String> =
            incomplete_helpers(self.facts.nodes).into_iter().map(|(name, _)| name).collect();
        // Nothing is expected of the helpers that are to be stopped.
        incomplete.retain(|name| !view.nodes.contains(name));
        let is_known = unjudged == 0 && view.unreadable_now == 0 && incomplete.is_empty();
        let unproven = self.scrub.distrusted.count_on(self.facts, &nodes, leave);
        view.safe = view.unreadable == 0 && view.contradictory == 0 && is_known && is_left && unproven == 0;
        view.text = stop_text(&view, unjudged, unproven, &incomplete);
        view.next_step = (!view.safe).then(|| next_before_stop(&view, is_known && unproven == 0).to_owned());
        Ok(view)
    }

    /// Examines the readable stripes with blocks on these nodes as if the nodes were down: counts those that
    /// would become unreadable, and computes how many further helpers the weakest of the other stripes could
    /// lose. An unreadable stripe of an open put does not count, because no file contains it.
    fn weighed(self, nodes: &BTreeSet<NodeId>) -> Result<SafetyView, RequestError> {
        let (facts, picture) = (self.facts, &self.facts.stripes.picture);
        let mut names: Vec<String> = nodes.iter().map(|&node| facts.nodes.name(node)).collect();
        names.sort_by(|a, b| views::natural(a, b));
        let mut view = SafetyView { nodes: names, ..SafetyView::default() };
        let (doubts, pending) = (facts.doubts(), picture.pending_on(nodes));
        for slot in picture.stripes_on(nodes) {
            let (code, _) = picture.code_of(slot);
            if facts.survives(code, &facts.standing(&doubts, slot, |_| true))?.is_none() {
                view.unreadable_now += u64::from(!pending.contains(&slot));
                continue;
            }
            view.stripes += 1;
            let without = facts.standing(&doubts, slot, |node| !nodes.contains(&node));
            view.contradictory += u64::from(without.contradictory);
            match facts.survives(code, &without)? {
                Some(Survives { nodes, .. }) => {
                    view.survives = Some(view.survives.unwrap_or(nodes).min(nodes));
                }
                None => {
                    view.unreadable += 1;
                    let named = view.unreadable_stripes.len() < NAMED;
                    view.unreadable_stripes.extend(named.then(|| picture.name_of(slot)));
                }
            }
        }
        Ok(view)
    }
}

/// Returns the names of the nodes that may get further blocks; `None` if there are none.
fn takers_among(facts: Facts<'_>, nodes: &BTreeSet<NodeId>) -> Option<String> {
    let takes = |node: &&NodeId| facts.nodes.is_helper(**node) && facts.accepts(**node) != Accepts::Nothing;
    let names = sorted(nodes.iter().filter(takes).map(|&node| facts.nodes.name(node)));
    (!names.is_empty()).then(|| list(&names))
}

/// Checks that the places of all blocks are known. Helpers that have not registered yet would count as
/// absent, and blocks that an attached store has not listed yet as not there.
fn check_known(facts: Facts<'_>) -> Result<(), RequestError> {
    facts.nodes.check_settled(facts.base)?;
    facts.stripes.news.check_listed()
}

/// If this helper's server is out of service, finds a server with blocks that has no helper and is on the
/// same machine.
fn neighbour_of(facts: Facts<'_>, node: NodeId) -> Option<Need> {
    let (nodes, base) = (facts.nodes, facts.base);
    if !base.store.reports_service() || facts.stripes.picture.is_up(node) {
        return None;
    }
    let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let name = nodes.name(node);
    let own =
        base.settings.beside.iter().find(|(_, helper)| **helper == name).and_then(|(at, _)| host(at))?;
    let alone = nodes.registry.named().filter(|&(other, _)| nodes.registry.has_no_helper(base, other));
    let near = alone.filter(|(_, server)| host(server).as_ref() == Some(&own));
    let near = near.map(|(other, server)| (server, facts.stripes.picture.block_count(other) as u64));
    let (server, blocks) = near.max_by_key(|&(_, blocks)| blocks).filter(|&(_, blocks)| blocks > 0)?;
    Some(Need::Neighbour { server: server.to_owned(), blocks })
}

fn replacement(facts: Facts<'_>, old: &str, new: &str) -> Result<Order, RequestError> {
    let (from, onto) = (facts.nodes.node_named(facts.base, old)?, facts.nodes.node_named(facts.base, new)?);
    facts.nodes.check_settled(facts.base)?;
    let names = || (old.to_owned(), new.to_owned());
    match () {
        () if from == onto => return Err(NodeError::ReplacesItself(old.to_owned()).into()),
        () if !facts.nodes.is_helper(onto) => {
            let (old, new) = names();
            return Err(NodeError::ReplacementDown { old, new }.into());
        }
        () if facts.nodes.registry.is_leaving(onto) => {
            let (old, new) = names();
            return Err(NodeError::ReplacementLeaves { old, new }.into());
        }
        () => {}
    }
    let target = if facts.nodes.is_helper(from) { Target::Drain(from) } else { Target::Node(from) };
    Ok(Order { requestors: vec![onto], ..Order::new(target, facts.scheme(None)?, facts.base.unix_ms) })
}
