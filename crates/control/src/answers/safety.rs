//! Checks before an operator stops or removes a helper.

use std::collections::BTreeSet;

use recovery::Target;
use repair::NodeId;
use views::{NodeView, RepairView, ReplaceRequest, SafetyView};

use crate::answers::Answers;
use crate::commands::answer;
use crate::counts::count;
use crate::effect::Reply;
use crate::error::{NodeError, RequestError, list};
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::orders::Order;
use crate::stripes::contradictions;
use crate::stripes::picture::Survives;

/// The maximum number of stripes that an answer names.
const NAMED: usize = 20;

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
    /// Checks whether helpers can be removed permanently: the catalog must place no block on them.
    pub(crate) fn safe_to_remove(self, names: &[String]) -> Result<SafetyView, RequestError> {
        let nodes = self.facts.nodes.nodes_named(self.facts.base, names)?;
        let mut view = self.weighed(&nodes)?;
        let holding: Vec<NodeId> =
            nodes.iter().copied().filter(|&node| self.jobs.is_needed(self.facts, node)).collect();
        view.safe = holding.is_empty();
        let them = list(&view.nodes);
        view.text = match view.safe {
            true => format!("safe to remove {them}: no stripe has a block there"),
            false => {
                let on: Vec<String> = holding
                    .iter()
                    .map(|&node| {
                        format!("{} on {}", blocks_on(self.facts, node), self.facts.nodes.name(node))
                    })
                    .collect();
                format!("NOT safe to remove {them}: {}", on.join(", "))
            }
        };
        view.next_step = holding.first().map(|&node| emptied_by(self.facts, node));
        Ok(view)
    }

    pub(crate) fn check_removal(self, name: &str) -> Result<(NodeId, NodeView), RequestError> {
        self.facts.check_not_behind()?;
        self.facts.storing.check_storage()?;
        let node = self.facts.nodes.node_named(self.facts.base, name)?;
        if !self.facts.nodes.settled {
            return Err(RequestError::Settling);
        }
        let name = name.to_owned();
        if self.jobs.is_needed(self.facts, node) {
            let (blocks, next_step) = (blocks_on(self.facts, node), emptied_by(self.facts, node));
            return Err(NodeError::NodeNeeded { name, blocks, next_step }.into());
        }
        if self.facts.nodes.is_connected(node) || self.facts.nodes.registry.is_being_forgotten(node) {
            return Err(NodeError::NodeUp(name).into());
        }
        Ok((node, self.node_view(node)?))
    }
}

impl Jobs {
    /// Whether a node holds recorded blocks or is about to receive some.
    fn is_needed(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.block_count(node) > 0 || self.is_target(node) || facts.storing.adopts_on(node)
    }
}

impl<'a> Answers<'a> {
    /// Checks whether helpers can be stopped for a while: every readable stripe must stay readable and must
    /// be able to lose `leave` further helpers.
    pub(crate) fn ok_to_stop(self, names: &[String], leave: u32) -> Result<SafetyView, RequestError> {
        // Helpers that have not registered yet would count as absent, and their blocks as unreadable.
        if !self.facts.nodes.settled {
            return Err(RequestError::Settling);
        }
        let nodes = self.facts.nodes.nodes_named(self.facts.base, names)?;
        let mut view = self.weighed(&nodes)?;
        let is_left = view.survives.is_none_or(|survives| survives >= leave);
        view.safe = view.unreadable == 0 && view.contradictory == 0 && is_left;
        let doubt = contradictions::words(view.contradictory, view.stripes);
        let them = list(&view.nodes);
        view.text = match (view.safe, view.survives) {
            (false, _) if view.unreadable == 0 && doubt.is_some() => {
                format!("NOT OK to stop {them}: {}", doubt.unwrap_or_default())
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
        };
        view.next_step = (!view.safe).then(|| match nodes.len() {
            _ if view.contradictory > 0 => {
                "run mend scrub --parity and mend repair --all, then check again; mend status lists the \
                 blocks"
                    .to_owned()
            }
            1 if view.unreadable == 0 => {
                "run mend repair --all if blocks are lost, then check again; with --leave 0 the check only \
                 requires that all data stays readable"
                    .to_owned()
            }
            1 => "run mend repair --all, or start helpers that are down, then check again".to_owned(),
            _ => "stop fewer helpers at a time; if some are down already, run mend repair --all first"
                .to_owned(),
        });
        Ok(view)
    }

    /// Examines the readable stripes with blocks on these nodes as if the nodes were down: counts those that
    /// would become unreadable, and computes how many further helpers the weakest of the other stripes could
    /// lose.
    fn weighed(self, nodes: &BTreeSet<NodeId>) -> Result<SafetyView, RequestError> {
        let (facts, picture) = (self.facts, &self.facts.stripes.picture);
        let mut names: Vec<String> = nodes.iter().map(|&node| facts.nodes.name(node)).collect();
        names.sort_by(|a, b| views::natural(a, b));
        let mut view = SafetyView { nodes: names, ..SafetyView::default() };
        let doubts = facts.doubts();
        for slot in picture.stripes_on(nodes) {
            let (code, _) = picture.code_of(slot);
            if facts.survives(code, &facts.standing(&doubts, slot, |_| true))?.is_none() {
                continue; // The stripe is already unreadable.
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

/// Returns advice on how to move a node's blocks elsewhere.
fn emptied_by(facts: Facts<'_>, node: NodeId) -> String {
    let name = facts.nodes.name(node);
    match facts.nodes.is_helper(node) {
        true => format!(
            "move them away with mend node drain {name} or mend node replace {name} NEW, then try again"
        ),
        false => {
            format!("rebuild them elsewhere with mend repair --all, or start {name}, then try again")
        }
    }
}

fn blocks_on(facts: Facts<'_>, node: NodeId) -> String {
    count(facts.stripes.picture.block_count(node) as u64, "block")
}

fn replacement(facts: Facts<'_>, old: &str, new: &str) -> Result<Order, RequestError> {
    let (from, onto) = (facts.nodes.node_named(facts.base, old)?, facts.nodes.node_named(facts.base, new)?);
    if !facts.nodes.settled {
        return Err(RequestError::Settling);
    }
    if from == onto || !facts.nodes.is_helper(onto) || facts.nodes.registry.is_leaving(onto) {
        return Err(NodeError::NoReplacement { old: old.to_owned(), new: new.to_owned() }.into());
    }
    let target = if facts.nodes.is_helper(from) { Target::Drain(from) } else { Target::Node(from) };
    Ok(Order { requestors: vec![onto], ..Order::new(target, facts.scheme(None)?, facts.base.unix_ms) })
}
