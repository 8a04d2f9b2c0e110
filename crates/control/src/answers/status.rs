//! The status, which answers "Is my data safe?": stripes by remaining redundancy, helpers and files.

use std::collections::BTreeMap;

use codes::CodeSpec;
use repair::{Heat, NodeId};
use views::{
    CatalogState, Census, Condition, ConditionCode, Damage, FileLayout, FileStripe, FileTotals, HelperStates,
    HelperUse, LoadView, NodeView, Redundancy, Status, StoreState, Work,
};

use crate::answers::stripes::contradiction_views;
use crate::answers::unreadable::unreadable_parts;
use crate::answers::{Answers, conditions};
use crate::counts::count;
use crate::error::{FileError, RequestError};
use crate::facts::{Facts, Standing};
use crate::jobs::puts::file_view;
use crate::nodes::Nodes;
use crate::nodes::sorted;
use crate::stripes::layout;
use crate::stripes::picture::{Slot, Survives};

/// The maximum number of unreadable stripes that the status names.
const UNREADABLE_NAMED: usize = 100;

impl<'a> Answers<'a> {
    pub(crate) fn status(self) -> Result<Status, RequestError> {
        let stripes = self.census()?;
        let (files, file_bytes) = self.facts.stripes.picture.files().in_all();
        let nodes_up = sorted(self.facts.nodes.live_helpers().map(|node| self.facts.nodes.name(node)));
        let nodes_down = self.facts.nodes.registry.down_helpers(self.facts.base);
        let nodes_never_registered = self.facts.nodes.registry.never_registered(self.facts.base);
        let gone = self.gone_nodes();
        let found = self.all_findings(&stripes, &gone);
        let conditions: Vec<Condition> = found.certain().map(|finding| self.condition(finding)).collect();
        let helpers = helpers_text(&nodes_up, &nodes_down, &nodes_never_registered);
        let (orphans, more_orphans) = self.facts.orphan_views();
        Ok(Status {
            healthy: !found
                .all
                .iter()
                .any(|finding| finding.word.is_some() && finding.code != ConditionCode::Starting),
            severity: conditions::severity(&conditions),
            summary: conditions::first_line(&found.all, &stripes, &helpers) + &muted_text(&conditions),
            conditions,
            settling: !self.facts.nodes.settled && self.facts.stripes.news.unlisted().is_none(),
            totals: FileTotals { own_files: self.facts.base.store.owns_files(), files, file_bytes },
            damage: Damage {
                waiting: self.repairs.healing.waiting_stripes(self.facts),
                unreadable: unreadable_parts(self.facts, &stripes.unreadable_stripes),
                contradictions: contradiction_views(self.facts),
                lost_lately: self.facts.stripes.lost_lately.iter().cloned().collect(),
            },
            helpers: HelperStates {
                nodes_up,
                nodes_down,
                nodes_never_registered,
                gone,
                full: self.full_nodes(),
                leaving: self.leaving_views(),
                in_use: helpers_in_use(self.facts.nodes),
            },
            work: Work {
                jobs: self.jobs.job_views(),
                repairs: self.open_repairs(),
                last_scrub: self.scrub.last_scrub(),
                steady_scrub: self.scrub.background_view(self.facts.base),
            },
            catalog: CatalogState {
                write_fault: self.facts.storing.write_path.check().err().map(|fault| fault.to_string()),
                newer: self.facts.stripes.newer.views(self.facts.nodes),
                orphans,
                more_orphans,
            },
            store: StoreState {
                servers_down: self.facts.servers_down(),
                servers_without_helper: self.facts.nodes.registry.servers_without_helper(self.facts.base),
                unjudged: self.facts.stripes.unjudged.views(),
                remarks: self.facts.stripes.news.remarks().to_vec(),
            },
            stripes,
        })
    }

    pub(crate) fn file_layout(self, name: &str) -> Result<FileLayout, RequestError> {
        let file = self.facts.stripes.picture.files().get(name).cloned();
        let file = file.ok_or_else(|| FileError::NoSuchFile(name.to_owned()))?;
        let code = self.facts.stripes.codes.get(&file.code)?;
        let mut stripes = Vec::with_capacity(file.stripes.len());
        for (id, position) in file.stripes.iter().zip(0..) {
            let record = self.facts.stripes.stripe_record(id)?;
            let extent = layout::extent(&*code, file.bytes, file.size(), position);
            stripes.push(FileStripe {
                position,
                file_offset: extent.file_offset,
                data_bytes: extent.data_bytes,
                stripe: self.facts.stripe_view(&record)?,
            });
        }
        Ok(FileLayout {
            file: file_view(&file),
            data_blocks: code.data_blocks(),
            sub_blocks: code.sub_blocks(),
            layout: stripes,
        })
    }
}

impl<'a> Answers<'a> {
    /// Counts stripes by remaining redundancy. It uses the running counts of the picture (the catalog in
    /// memory) and cached fault tolerances. Only stripes with contradictions, or with bad copies that are not
    /// recorded yet, are examined one by one.
    pub(crate) fn census(self) -> Result<Census, RequestError> {
        let mut tally = Tally::new(self.facts);
        each_standing(self.facts, |group| tally.add(group))?;
        Ok(tally.census())
    }

    pub(crate) fn node_views(self) -> Result<Vec<NodeView>, RequestError> {
        let views: Result<Vec<_>, _> =
            self.facts.nodes.registry.ids().map(|node| self.node_view(node)).collect();
        let mut views = views?;
        views.sort_by(|a, b| views::natural(&a.name, &b.name));
        Ok(views)
    }

    pub(crate) fn node_view(self, node: NodeId) -> Result<NodeView, RequestError> {
        let is_up = self.facts.nodes.is_connected(node);
        let held = self.facts.stripes.inventory.get(node);
        let orphans = held.map_or(0, |held| held.orphans.len() as u64);
        let recorded =
            self.facts.stripes.picture.nodes().get(&node).and_then(|record| record.address.clone());
        let stated = self.facts.nodes.bandwidth.stated(node);
        let view = self.facts.nodes.topology.get(node);
        let up = view.filter(|_| is_up);
        let usage = self.facts.nodes.registry.session(node).map(|session| &session.usage);
        Ok(NodeView {
            node: node.0,
            name: self.facts.nodes.name(node),
            has_helper: !self.facts.nodes.registry.has_no_helper(self.facts.base, node),
            up: is_up,
            serves: self.facts.base.store.reports_service().then(|| self.facts.stripes.picture.is_up(node)),
            address: recorded.or_else(|| self.facts.nodes.topology.address(node).filter(|_| is_up)),
            rack: view.and_then(|view| view.rack.clone()),
            bandwidth_bytes_per_s: stated.up.into_iter().chain(stated.down).min().filter(|_| is_up),
            free_bytes: up.map(|view| view.free_bytes),
            load: LoadView {
                tasks: up.map(|view| view.load),
                user_bytes_per_s: usage.map(|usage| usage.user_bytes_per_s),
                hot_blocks: usage.map(|usage| usage.blocks(Heat::Hot)),
                very_hot_blocks: usage.map(|usage| usage.blocks(Heat::VeryHot)),
            },
            blocks: self.facts.stripes.picture.block_count(node) as u64,
            orphans,
            leaving: self.facts.nodes.registry.is_leaving(node),
            to_remove: self.facts.stripes.picture.files().discard_count(node) as u64,
            maintenance_until_unix_ms: self.facts.nodes.maintenance.until_unix_ms(node),
        })
    }
}

/// Returns the helpers from which clients read, or which have blocks in memory.
fn helpers_in_use(nodes: &Nodes) -> Vec<HelperUse> {
    let use_of = |node: NodeId| {
        let usage = &nodes.registry.session(node)?.usage;
        let [hot_blocks, very_hot_blocks] = [Heat::Hot, Heat::VeryHot].map(|heat| usage.blocks(heat));
        let user_bytes_per_s = usage.user_bytes_per_s;
        let is_used = (hot_blocks, very_hot_blocks, user_bytes_per_s) != (0, 0, 0);
        let node = nodes.name(node);
        is_used.then_some(HelperUse { node, hot_blocks, very_hot_blocks, user_bytes_per_s })
    };
    let mut used: Vec<HelperUse> = nodes.live_helpers().filter_map(use_of).collect();
    used.sort_by(|a, b| views::natural(&a.node, &b.node));
    used
}

/// Stripes with the same code and the same losses.
pub(crate) struct Alike<'g> {
    pub code: &'g CodeSpec,
    pub standing: &'g Standing,
    /// The losses that they survive; `None` if they are unreadable.
    pub survives: Option<Survives>,
    /// The number of stripes.
    pub stripes: u64,
    /// The sum of the stripes' block lengths, one block per stripe.
    pub block_bytes: u64,
    pub slots: &'g mut dyn Iterator<Item = Slot>,
}

/// Calls `take` for all stripes of files, each in one group.
pub(crate) fn each_standing(facts: Facts<'_>, mut take: impl FnMut(Alike<'_>)) -> Result<(), RequestError> {
    let (picture, doubts) = (&facts.stripes.picture, facts.doubts());
    let apart = doubts.slots();
    for kind in picture.kinds_without(&apart) {
        let (code, stripes, block_bytes) = (kind.code, kind.stripes, kind.block_bytes);
        let standing = Standing { lost: kind.lost, together: kind.together.clone(), contradictory: false };
        let survives = facts.survives(code, &standing)?;
        let slots = &mut kind.slots.iter().copied().filter(|slot| !apart.contains(slot));
        take(Alike { code, standing: &standing, survives, stripes, block_bytes, slots });
    }
    for &slot in &apart {
        let (code, block_bytes) = picture.code_of(slot);
        let standing = facts.standing(&doubts, slot, |_| true);
        let survives = facts.survives(code, &standing)?;
        let slots = &mut std::iter::once(slot);
        take(Alike { code, standing: &standing, survives, stripes: 1, block_bytes, slots });
    }
    Ok(())
}

/// The counts of a census so far.
struct Tally<'a> {
    facts: Facts<'a>,
    census: Census,
    by_survives: BTreeMap<Survives, Redundancy>,
}

impl<'a> Tally<'a> {
    fn new(facts: Facts<'a>) -> Self {
        let census =
            Census { contradictory: facts.stripes.contradictory().count() as u64, ..Census::default() };
        Self { facts, census, by_survives: BTreeMap::new() }
    }

    fn add(&mut self, group: Alike<'_>) {
        let Alike { standing, survives, stripes, block_bytes, slots, .. } = group;
        let Self { facts, census, by_survives } = self;
        let lost = standing.lost.len() as u64;
        let is_misplaced = facts.base.store.owns_files() && standing.together.shares_nodes();
        let (degraded, misplaced) = (u64::from(lost > 0) * stripes, u64::from(is_misplaced) * stripes);
        census.stripes += stripes;
        census.intact += stripes - degraded;
        census.blocks_lost += lost * stripes;
        census.bytes_lost += lost * block_bytes;
        census.misplaced += misplaced;
        let Some(survives) = survives else {
            census.unreadable += stripes;
            let room = UNREADABLE_NAMED - census.unreadable_stripes.len();
            let named = slots.take(room).map(|slot| facts.stripes.picture.name_of(slot));
            return census.unreadable_stripes.extend(named);
        };
        let (hosts, racks) = facts.stripes.picture.knows_domains();
        let class = by_survives.entry(survives).or_insert_with(|| empty_class(survives, hosts, racks));
        class.stripes += stripes;
        class.degraded += degraded;
        class.misplaced += misplaced;
    }

    fn census(self) -> Census {
        Census { redundancy: self.by_survives.into_values().collect(), ..self.census }
    }
}

/// Says how many helpers are up, and names the others.
fn helpers_text(up: &[String], down: &[String], never_registered: &[String]) -> String {
    let mut text = match (up, down, never_registered) {
        ([], [], _) => "no helper is up".to_owned(),
        (up, [], []) => format!("all {} up", count(up.len() as u64, "helper")),
        (up, ..) => format!("{} up", count(up.len() as u64, "helper")),
    };
    for (state, names) in [("down", down), ("never registered", never_registered)] {
        if !names.is_empty() {
            text += &format!(", {state}: {}", names.join(", "));
        }
    }
    text
}

/// Returns the end of the first line, which names the muted conditions.
fn muted_text(conditions: &[Condition]) -> String {
    let muted = conditions.iter().filter(|condition| condition.muted).map(|condition| condition.code.name());
    let muted: Vec<&str> = muted.collect();
    if muted.is_empty() { String::new() } else { format!("; muted: {}", muted.join(", ")) }
}

fn empty_class(survives: Survives, hosts: bool, racks: bool) -> Redundancy {
    Redundancy {
        survives: survives.blocks,
        helpers: survives.nodes,
        hosts: hosts.then_some(survives.hosts),
        racks: racks.then_some(survives.racks),
        stripes: 0,
        degraded: 0,
        misplaced: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_that_are_not_up_are_named() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let text = |up: &[&str], down: &[&str], never: &[&str]| {
            helpers_text(&names(up), &names(down), &names(never))
        };
        assert_eq!(text(&[], &[], &[]), "no helper is up");
        assert_eq!(text(&["h1"], &[], &[]), "all 1 helper up");
        assert_eq!(text(&["h1"], &["h2", "h10"], &[]), "1 helper up, down: h2, h10");
        assert_eq!(text(&[], &[], &["h1"]), "no helper is up, never registered: h1");
        assert_eq!(text(&["h1"], &["h2"], &["h3"]), "1 helper up, down: h2, never registered: h3");
    }
}
