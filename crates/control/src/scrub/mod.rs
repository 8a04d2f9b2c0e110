//! The scrubber works at two rates: a scrub on request reads all blocks as fast as the helpers can, and the
//! [`background_scrub`] reads them at a configured rate.
//!
//! In a scrub on request, every live helper reads the blocks that the catalog places on it, a few at a time.
//! The report lists helpers that disconnect, time out or cannot list their blocks; the scrub continues on the
//! other helpers. It also lists the helpers with blocks of stripes whose state is unknown. On request, the
//! parity of whole stripes is checked afterwards ([`parity_scrub`]). A stopped scrub keeps its findings.
//! Stripes in which jobs find contradictions are checked in the same way, and blocks that clients received
//! with wrong bytes are verified ([`reported`]).

pub(crate) mod background_scrub;
mod commands;
pub(crate) mod distrusted;
pub(crate) mod parity_checks;
pub(crate) mod parity_scrub;
pub(crate) mod proof;
mod put_off;
mod reopened;
pub(crate) mod reported;
pub(crate) mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use codes::BlockIndex;
use repair::wire::control::ToNode;
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use serde_json::Value;
use store_api::{BlockRecord, RecordWrite, StripeWrite, Unjudged, Write};

use crate::error::{RequestError, ScrubError};
use crate::facts::Facts;
use crate::helper_queries::Subject;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::records::recall;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::UNJUDGED;
use crate::scrub::state::{NodeScrub, ParityRound, Scrub, Scrubs};
use crate::storing::then::Then;
use views::{Finding, OrphanView, ScrubState, ScrubView, SkippedNode};

/// The maximum number of open queries per helper.
const OUTSTANDING: usize = 2;
/// The maximum number of findings that a report lists.
const FINDINGS_LISTED: usize = 10_000;
/// The maximum number of orphans that a report or a status lists.
const ORPHANS_LISTED: usize = 10_000;
/// The maximum number of earlier scrubs that are kept.
const PAST_SCRUBS: usize = 16;
/// The record key of the last scrub.
const LAST_KEY: &str = "scrub/last";
/// The record key of the time since which no scrub was completed.
const UNSCRUBBED_KEY: &str = "scrub/unscrubbed";

impl Scrubs {
    pub(crate) fn recall_scrub(&mut self, records: &[(String, Value)]) {
        let last = records.iter().find(|(key, _)| key == LAST_KEY);
        let view = last.and_then(|(_, value)| serde_json::from_value(value.clone()).ok());
        self.current = view.map(|view| Scrub {
            view,
            nodes: BTreeMap::new(),
            parity: None,
            inspecting: false,
            unjudged: BTreeSet::new(),
            unread: BTreeMap::new(),
        });
        self.unscrubbed_since_unix_ms =
            recall(records, UNSCRUBBED_KEY).find_map(|(_, since)| since).or_else(|| self.completed());
    }

    /// Returns the end of the last scrub, if it was completed.
    fn completed(&self) -> Option<u64> {
        let view = &self.current.as_ref()?.view;
        view.ended_unix_ms.filter(|_| view.state == ScrubState::Done)
    }

    /// Records since when there are blocks that were never scrubbed.
    pub(crate) fn note_unscrubbed(&mut self, facts: Facts<'_>, out: &mut Out) {
        if self.unscrubbed_since_unix_ms.is_none() && facts.stripes.picture.of_files().next().is_some() {
            self.set_unscrubbed(facts, out);
        }
    }

    fn set_unscrubbed(&mut self, facts: Facts<'_>, out: &mut Out) {
        self.unscrubbed_since_unix_ms = Some(facts.base.unix_ms);
        out.keep_record(UNSCRUBBED_KEY.to_owned(), &facts.base.unix_ms);
    }

    /// Starts a scrub. If a running scrub already does what is requested, joins that one.
    pub(crate) fn start_scrub(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        parity: bool,
        out: &mut Out,
    ) -> Result<ScrubView, RequestError> {
        if let Some(scrub) = self.current.as_ref().filter(|scrub| scrub.is_running()) {
            return match parity && scrub.parity.is_none() {
                true => Err(ScrubError::ScrubRuns(scrub.view.scrub).into()),
                false => Ok(ScrubView { joined: true, ..scrub.view() }),
            };
        }
        facts.stripes.news.check_listed()?;
        let unjudged = facts.stripes.unjudged.names();
        let round = parity.then(|| {
            let stripes = facts.stripes.picture.of_files().chain(unjudged.iter().cloned());
            ParityRound::new(stripes.collect(), facts.base.now)
        });
        let mut view = ScrubView {
            scrub: out.next_number()?,
            state: ScrubState::Running,
            joined: false,
            blocks: 0,
            checked: 0,
            without_checksums: 0,
            bytes: 0,
            checked_bytes: 0,
            started_unix_ms: facts.base.unix_ms,
            ended_unix_ms: None,
            skipped: unreachable_blocks(facts),
            findings: homeless_blocks(facts),
            orphans: Vec::new(),
            more_orphans: 0,
            parity: None,
        };
        view.blocks += view.findings.len() as u64;
        let mut nodes = BTreeMap::new();
        for node in facts.nodes.live_helpers().collect::<Vec<_>>() {
            let queue: VecDeque<_> = facts.stripes.picture.blocks_of(node).into();
            view.blocks += queue.len() as u64;
            view.bytes += bytes_of(facts, &queue);
            nodes.insert(node, NodeScrub::new(queue));
        }
        let asked: Vec<NodeId> = nodes.keys().copied().collect();
        // A client may still wait for the report of the last scrub.
        self.past.extend(self.current.take().map(|scrub| scrub.view()));
        while self.past.len() > PAST_SCRUBS {
            self.past.pop_front();
        }
        let then = Then::Inspected { scrub: view.scrub };
        let unread = facts.stripes.unjudged.holders((facts.nodes, facts.base));
        self.current = Some(Scrub { view, nodes, parity: round, inspecting: true, unjudged, unread });
        out.store(Write::Stripes(StripeWrite::Inspect), then);
        for node in asked {
            let ask = out.queries.open(node, Subject::List, facts.base.now);
            facts.nodes.send(node, ToNode::List { ask }, out);
        }
        self.ask_scrub(facts, jobs, out);
        Ok(self.current.as_ref().expect("just started").view())
    }

    /// Sends every helper enough queries to stay busy, and ends the scrub when all are answered.
    pub(crate) fn ask_scrub(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let Some(scrub) = self.current.as_ref().filter(|scrub| scrub.is_running()) else { return };
        for node in scrub.nodes.keys().copied().collect::<Vec<_>>() {
            while let Some((stripe, index)) = self.next_question(node) {
                self.ask_scrub_block(facts, node, stripe, index, out);
            }
        }
        self.check_stripes(facts, jobs, Asker::Scrub, out);
        self.end_scrub(facts, out);
    }

    fn next_question(&mut self, node: NodeId) -> Option<(StripeId, BlockIndex)> {
        let node = self.current.as_mut()?.nodes.get_mut(&node)?;
        if node.outstanding.len() < OUTSTANDING { node.queue.pop_front() } else { None }
    }

    fn ask_scrub_block(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        out: &mut Out,
    ) {
        let record = facts.stripes.picture.stripe(&stripe).ok();
        let known = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
        let Some(known) = known.filter(|known| known.state_on(node).is_some()) else {
            let helper = facts.nodes.name(node);
            return self.current.as_mut().expect("a scrub is running").leave_out(stripe, helper);
        };
        let ask = facts.ask_for_block(node, stripe, index, known, true, out);
        if let Some(node) = self.current.as_mut().and_then(|scrub| scrub.nodes.get_mut(&node)) {
            node.outstanding.insert(ask);
        }
    }

    /// Returns the parity checks of the scrub, if all blocks have been read.
    pub(crate) fn parity_round(&mut self) -> Option<&mut ParityRound> {
        let scrub = self.current.as_mut().filter(|scrub| scrub.is_running())?;
        if !scrub.nodes.values().all(NodeScrub::is_done) {
            return None;
        }
        scrub.parity.as_mut()
    }

    /// Adds a finding to the scrub.
    pub(crate) fn find_in_scrub(&mut self, finding: Finding) {
        if let Some(scrub) = self.current.as_mut().filter(|scrub| scrub.is_running())
            && scrub.view.findings.len() < FINDINGS_LISTED
        {
            scrub.view.findings.push(finding);
        }
    }

    /// Stops a scrub early.
    pub(crate) fn stop_scrub(
        &mut self,
        facts: Facts<'_>,
        id: u64,
        out: &mut Out,
    ) -> Result<ScrubView, ScrubError> {
        let known = self.scrub_state(id)?;
        if known.state != ScrubState::Running {
            return Err(ScrubError::ScrubEnded { scrub: id, state: known.state });
        }
        let steps = self.checks.give_up(Asker::Scrub);
        self.follow_checks(facts, steps, out);
        self.close_scrub(facts, ScrubState::Stopped, out);
        self.scrub_state(id)
    }

    pub(crate) fn count_in_scrub(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        ask: u64,
        stripe: &StripeId,
        block: &BlockRecord,
        result: Result<Option<Digest>, BlockProblem>,
    ) {
        let name = facts.nodes.name(node);
        let Some(scrub) = &mut self.current else { return };
        let Some(of_node) = scrub.nodes.get_mut(&node) else { return };
        if !of_node.outstanding.remove(&ask) {
            return;
        }
        if let Err(problem @ BlockProblem::Unavailable(_)) = &result {
            of_node.unavailable = (of_node.unavailable.0 + 1, problem.to_string());
            return;
        }
        scrub.view.checked += 1;
        scrub.view.without_checksums += u64::from(result == Ok(None));
        scrub.view.checked_bytes += block.bytes;
        if let Err(problem) = result
            && scrub.view.findings.len() < FINDINGS_LISTED
        {
            scrub.view.findings.push(Finding {
                block: block.id.to_string(),
                stripe: stripe.to_string(),
                node: name,
                problem: problem.to_string(),
            });
        }
    }

    /// Handles the stripes whose state is unknown now.
    pub(crate) fn note_unjudged(&mut self, facts: Facts<'_>, unjudged: &[Unjudged]) {
        self.proof.note_unjudged(facts, unjudged);
        if let Some(scrub) = self.current.as_mut().filter(|scrub| scrub.is_running()) {
            scrub.unjudged.extend(unjudged.iter().map(|it| it.stripe.clone()));
        }
    }

    pub(crate) fn listed_in_scrub(&mut self, node: NodeId) {
        if let Some(node) = self.current.as_mut().and_then(|scrub| scrub.nodes.get_mut(&node)) {
            node.listed = true;
        }
    }

    /// Records that a helper could not list its blocks. The blocks are read all the same, but the helper's
    /// orphans stay unknown.
    pub(crate) fn unlisted_in_scrub(&mut self, facts: Facts<'_>, node: NodeId, why: String, out: &mut Out) {
        let name = facts.nodes.name(node);
        let Some(scrub) = self.current.as_mut().filter(|scrub| scrub.is_running()) else { return };
        if scrub.nodes.contains_key(&node) {
            scrub.view.skipped.push(SkippedNode { node: name, blocks: 0, why });
            self.listed_in_scrub(node);
            self.end_scrub(facts, out);
        }
    }

    /// Skips the remaining blocks of a helper that has disconnected or timed out.
    pub(crate) fn skip_in_scrub(&mut self, facts: Facts<'_>, node: NodeId, why: &str, out: &mut Out) {
        let name = facts.nodes.name(node);
        let Some(scrub) = self.current.as_mut().filter(|scrub| scrub.is_running()) else { return };
        let Some(left) = scrub.nodes.remove(&node) else { return };
        let blocks = (left.queue.len() + left.outstanding.len()) as u64;
        if blocks > 0 || !left.listed {
            scrub.view.skipped.push(SkippedNode { node: name.to_owned(), blocks, why: why.to_owned() });
        }
        scrub.view.skipped.extend(unavailable(name, &left));
        self.end_scrub(facts, out);
    }

    fn end_scrub(&mut self, facts: Facts<'_>, out: &mut Out) {
        let is_over = |scrub: &Scrub| {
            let stripes_done = scrub.parity.as_ref().is_none_or(ParityRound::is_done);
            !scrub.inspecting
                && scrub.nodes.values().all(NodeScrub::is_done)
                && stripes_done
                && self.checks.open_for(Asker::Scrub) == 0
        };
        if self.current.as_ref().is_some_and(|scrub| scrub.is_running() && is_over(scrub)) {
            self.close_scrub(facts, ScrubState::Done, out);
        }
    }

    /// Ends the running scrub and records its report.
    fn close_scrub(&mut self, facts: Facts<'_>, state: ScrubState, out: &mut Out) {
        let (orphans, more_orphans) = facts.orphan_views();
        let Some(mut scrub) = self.current.take() else { return };
        let names = scrub.nodes.keys().map(|&node| facts.nodes.name(node)).collect::<Vec<_>>();
        let unavailable =
            names.into_iter().zip(scrub.nodes.values()).filter_map(|(name, node)| unavailable(name, node));
        scrub.view.skipped.extend(unavailable);
        scrub.report_unread(facts);
        scrub.nodes.clear();
        scrub.view.state = state;
        scrub.view.ended_unix_ms = Some(facts.base.unix_ms);
        scrub.view.orphans = orphans;
        scrub.view.more_orphans = more_orphans;
        let view = scrub.view();
        let record = serde_json::to_value(&view).expect("a view has string keys");
        tracing::info!(scrub = view.scrub, findings = view.findings.len(), state = %state, "scrub ended");
        self.current = Some(scrub);
        if state == ScrubState::Done && view.skipped.is_empty() {
            self.set_unscrubbed(facts, out);
        }
        out.store(Write::Records(RecordWrite::Put(LAST_KEY.to_owned(), record)), Then::Nothing);
    }

    /// Adds a finding about a damaged file that the store keeps next to blocks.
    pub(crate) fn note_spoiled(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        stripe: &StripeId,
        file: &BlockId,
        problem: &str,
    ) {
        let node = facts.nodes.name(node);
        let (block, stripe, problem) = (file.to_string(), stripe.to_string(), problem.to_owned());
        self.find_in_scrub(Finding { block, stripe, node, problem });
    }

    /// Records that the store has inspected the files that it keeps next to blocks.
    pub(crate) fn inspected_in_scrub(&mut self, facts: Facts<'_>, id: u64, out: &mut Out) {
        if let Some(scrub) = self.current.as_mut().filter(|scrub| scrub.view.scrub == id) {
            scrub.inspecting = false;
            self.end_scrub(facts, out);
        }
    }
}

impl Scrubs {
    pub(crate) fn is_scrubbing(&self) -> bool {
        self.current.as_ref().is_some_and(Scrub::is_running)
    }

    pub(crate) fn scrub_state(&self, id: u64) -> Result<ScrubView, ScrubError> {
        let last = self.current.as_ref().filter(|scrub| scrub.view.scrub == id).map(Scrub::view);
        let past = || self.past.iter().find(|view| view.scrub == id).cloned();
        last.or_else(past).ok_or(ScrubError::NoSuchScrub(id))
    }

    pub(crate) fn last_scrub(&self) -> Option<ScrubView> {
        self.current.as_ref().map(Scrub::view)
    }
}

impl<'a> Facts<'a> {
    /// Returns some of the orphans, and the number of further ones.
    pub(crate) fn orphan_views(self) -> (Vec<OrphanView>, u64) {
        let (mut views, mut all) = (Vec::new(), 0);
        for (node, held) in self.stripes.inventory.iter() {
            let name = self.nodes.name(node);
            let view = |block: &BlockId| OrphanView { node: name.clone(), block: block.to_string() };
            views.extend(held.orphans.iter().take(ORPHANS_LISTED - views.len()).map(view));
            all += held.orphans.len();
        }
        let more = (all - views.len()) as u64;
        (views, more)
    }
}

/// Returns the report's entry for the unavailable blocks of a helper.
fn unavailable(node: String, of_node: &NodeScrub) -> Option<SkippedNode> {
    let (blocks, why) = of_node.unavailable.clone();
    (blocks > 0).then_some(SkippedNode { node, blocks, why })
}

impl Scrub {
    fn view(&self) -> ScrubView {
        let parity = self.parity.as_ref().map(|round| round.view.clone());
        ScrubView { parity: parity.or_else(|| self.view.parity.clone()), ..self.view.clone() }
    }

    fn is_running(&self) -> bool {
        self.view.ended_unix_ms.is_none()
    }

    /// Leaves out a block that is not on this helper any more. It was removed or rebuilt elsewhere since the scrub
    /// started, or the state of its stripe was unknown.
    fn leave_out(&mut self, stripe: StripeId, helper: String) {
        self.view.blocks -= 1;
        if self.unjudged.contains(&stripe) {
            self.unread.entry(stripe).or_default().insert(helper);
        }
    }

    /// Reports the blocks that were not read because the state of their stripes was unknown, unless these stripes are
    /// gone.
    fn report_unread(&mut self, facts: Facts<'_>) {
        let stripes = facts.stripes;
        let exists = |stripe: &StripeId| {
            stripes.unjudged.contain(stripe) || stripes.picture.is_pending(stripe).is_some()
        };
        let mut blocks: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, helpers) in self.unread.iter().filter(|(stripe, _)| exists(stripe)) {
            // Each helper has at least one block of the stripe. The store may name no helper.
            let unnamed = helpers.is_empty().then_some("");
            for helper in helpers.iter().map(String::as_str).chain(unnamed) {
                *blocks.entry(helper).or_default() += 1;
            }
        }
        let skipped = blocks.into_iter().map(|(helper, blocks)| SkippedNode {
            node: helper.to_owned(),
            blocks,
            why: UNJUDGED.to_owned(),
        });
        self.view.skipped.extend(skipped);
    }
}

fn unreachable_blocks(facts: Facts<'_>) -> Vec<SkippedNode> {
    let down = facts.nodes.registry.named().filter(|(node, _)| !facts.nodes.is_connected(*node));
    down.map(|(node, name)| (name, facts.stripes.picture.block_count(node) as u64))
        .filter(|&(_, blocks)| blocks > 0)
        .map(|(name, blocks)| SkippedNode { node: name.to_owned(), blocks, why: "it is down".into() })
        .collect()
}

/// Returns the lost blocks that no helper is known to have. They cannot be read.
fn homeless_blocks(facts: Facts<'_>) -> Vec<Finding> {
    let picture = &facts.stripes.picture;
    let stripes = picture.rotten().iter().map(|&slot| picture.stripe_in(slot));
    let homeless = stripes.flat_map(|stripe| {
        let blocks = stripe.blocks.into_iter().filter(|block| block.node.is_none());
        blocks.map(move |block| Finding {
            block: block.id.to_string(),
            stripe: stripe.id.to_string(),
            node: String::new(),
            problem: "no helper has it".to_owned(),
        })
    });
    homeless.take(FINDINGS_LISTED).collect()
}

fn bytes_of(facts: Facts<'_>, blocks: &VecDeque<(StripeId, BlockIndex)>) -> u64 {
    let record = |stripe: &StripeId| facts.stripes.picture.stripe(stripe).expect("listed stripes exist");
    blocks.iter().map(|(stripe, index)| record(stripe).blocks[usize::from(index.0)].bytes).sum()
}
