//! The status, which answers "Is my data safe?": stripes by remaining redundancy, helpers and files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use repair::NodeId;
use views::{
    CatalogState, Census, Damage, FileLayout, FileStripe, FileTotals, GoneNode, HelperStates, NodeView,
    RecoveryState, Redundancy, Severity, Status, StoreState, Work,
};

use crate::SETTLE_LIMIT;
use crate::answers::Answers;
use crate::counts::count;
use crate::error::{FileError, RequestError, list};
use crate::facts::{Facts, Standing, unheard};
use crate::jobs::puts::file_view;
use crate::nodes::sorted;
use crate::repairs::fullness::full_text;
use crate::stripes::picture::{Slot, Survives};
use crate::stripes::{contradictions, layout};

/// The maximum number of unreadable stripes that the status names.
const UNREADABLE_NAMED: usize = 100;

impl<'a> Answers<'a> {
    pub(crate) fn status(self) -> Result<Status, RequestError> {
        let stripes = self.census()?;
        let (files, file_bytes) = self.facts.stripes.picture.files().in_all();
        let nodes_up = sorted(self.facts.nodes.live_helpers().map(|node| self.facts.nodes.name(node)));
        let nodes_down = self.facts.nodes.registry.down_helpers(self.facts.base);
        let nodes_never_registered = self.facts.nodes.registry.never_registered(self.facts.base);
        let (gone, full, stuck) = (self.gone_nodes(), self.full_nodes(), self.stuck_drains());
        Ok(Status {
            healthy: stripes.intact == stripes.stripes
                && stripes.contradictory == 0
                && self.facts.stripes.unjudged.is_empty()
                && stripes.misplaced == 0
                && self.scrub.proof.left() == 0
                && unheard::names(self.facts).is_empty()
                && self.facts.may_change()
                && self.facts.stripes.news.unlisted().is_none(),
            severity: self.severity(&stripes, !full.is_empty() || !stuck.is_empty()),
            summary: self
                .first_line(&stripes, &helpers_text(&nodes_up, &nodes_down, &nodes_never_registered))
                + &full_text(&full)
                + &stuck_text(&stuck),
            advice: self.advice(&stripes, &gone),
            settling: !self.facts.nodes.settled && self.facts.stripes.news.unlisted().is_none(),
            totals: FileTotals { own_files: self.facts.base.store.owns_files(), files, file_bytes },
            damage: Damage {
                waiting: self.repairs.healing.waiting_stripes(self.facts),
                unreadable: self.unreadable_parts(&stripes.unreadable_stripes),
                contradictions: self.contradiction_views(),
                lost_lately: self.facts.stripes.lost_lately.iter().cloned().collect(),
            },
            helpers: HelperStates {
                nodes_up,
                nodes_down,
                nodes_never_registered,
                gone,
                full,
                leaving: self.leaving_views(),
            },
            work: Work {
                jobs: self.jobs.job_views(),
                repairs: self.open_repairs(),
                last_scrub: self.scrub.last_scrub(),
                steady_scrub: self.scrub.background_view(self.facts.base),
            },
            catalog: CatalogState {
                write_fault: self.facts.storing.write_path.check().err().map(|fault| fault.to_string()),
                newer: self.facts.newer_views(),
                orphans: self.facts.orphan_views(),
            },
            store: StoreState {
                servers_down: self.facts.servers_down(),
                servers_without_helper: self.facts.nodes.registry.servers_without_helper(self.facts.base),
                troubles: self.all_troubles(),
                unjudged: self.facts.stripes.unjudged.views(),
                remarks: self.facts.stripes.news.remarks().to_vec(),
            },
            stripes,
        })
    }

    /// Returns sentences about automatic repairs, and about what the operator can do.
    pub(crate) fn advice(self, census: &Census, gone: &[GoneNode]) -> Vec<String> {
        let mut claims = self.newer_advice();
        claims.extend(self.misplaced_advice(census));
        claims.extend(self.scrub.proof.advice(census.stripes));
        let tells = |gone: &&GoneNode| gone.recovery != RecoveryState::Running;
        let mut advice: Vec<String> = gone.iter().filter(tells).map(|gone| gone.text.clone()).collect();
        advice.extend(self.facts.stripes.unjudged.advice());
        advice
            .extend(self.repairs.healing.waiting_stripes(self.facts).into_iter().map(|waiting| waiting.text));
        let on_gone: u64 = gone.iter().map(|gone| gone.blocks).sum();
        let here = census.blocks_lost.saturating_sub(on_gone);
        let rebuilds = self.repairs.queue.rebuilds();
        if here > 0 && self.facts.nodes.settled && self.facts.may_change() && !rebuilds {
            advice.extend(self.repairs.healing.advice(self.facts, here));
        }
        advice.extend(self.repairs.healing.paused_advice());
        if census.intact < census.stripes {
            advice.extend(self.history.failed_last().filter(|_| !rebuilds));
        }
        if self.facts.nodes.settled && self.facts.may_change() && on_gone == 0 {
            advice.extend(self.repairs.fullness.advice());
        }
        advice.extend(claims);
        advice
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
    fn first_line(self, census: &Census, helpers: &str) -> String {
        if let Some(why) = self.facts.stripes.news.unlisted() {
            return format!("UNKNOWN  {why}; {helpers}{}", self.facts.servers_text());
        }
        let incomplete = unheard::text(self.facts).map(|text| ("INCOMPLETE", text));
        let unproven = self.scrub.proof.words(census.stripes).map(|text| ("UNPROVEN", text));
        let line = summary(census, helpers).doubted([incomplete, unproven]).to_string();
        let line = self.facts.stripes.unjudged.first_line(line) + &self.facts.servers_text();
        if let Err(behind) = self.facts.check_not_behind() {
            return format!("STOPPED  {behind}; {}", behind.next_step());
        }
        if let Err(fault) = self.facts.storing.write_path.check() {
            return format!("READ-ONLY  {fault}; {}; {line}", fault.next_step());
        }
        if self.facts.nodes.settled {
            line
        } else {
            format!("starting, helpers are still registering; so far: {line}")
        }
    }

    /// Returns how serious the state of the cluster is. `lacks_room` is true if a helper is full or a drain
    /// waits for room.
    fn severity(self, census: &Census, lacks_room: bool) -> Severity {
        let weakest = census.redundancy.iter().find(|class| is_weakened(class)).map(|class| class.helpers);
        match () {
            () if !self.facts.may_change() => Severity::Critical,
            () if !self.facts.nodes.settled || self.facts.stripes.news.unlisted().is_some() => {
                Severity::Unknown
            }
            () if census.unreadable > 0 || weakest == Some(0) => Severity::Critical,
            () if census.contradictory > 0 || !self.facts.stripes.unjudged.is_empty() => Severity::Critical,
            () if self.facts.stripes.newer.has_claims() => Severity::Warning,
            () if census.intact < census.stripes || census.misplaced > 0 => Severity::Warning,
            () if self.scrub.proof.left() > 0 || !unheard::names(self.facts).is_empty() => Severity::Warning,
            () if !self.all_troubles().is_empty() || lacks_room => Severity::Warning,
            () => Severity::Ok,
        }
    }

    /// Returns the problems that the store reports, and warnings about certificates.
    fn all_troubles(self) -> Vec<String> {
        let now = UNIX_EPOCH + Duration::from_millis(self.facts.base.unix_ms);
        let expiring = self.facts.nodes.certificates.warnings(now);
        let absent = never_registered_text(self.facts);
        self.facts.stripes.news.troubles.iter().cloned().chain(expiring).chain(absent).collect()
    }

    /// Counts stripes by remaining redundancy. It uses the running counts of the picture (the catalog in
    /// memory) and cached fault tolerances. Only stripes with contradictions, or with bad copies that are not
    /// recorded yet, are examined one by one.
    pub(crate) fn census(self) -> Result<Census, RequestError> {
        let (facts, picture) = (self.facts, &self.facts.stripes.picture);
        let mut tally = Tally::new(facts);
        let doubts = facts.doubts();
        let apart = doubts.slots();
        for kind in picture.kinds_without(&apart) {
            let (stripes, block_bytes) = (kind.stripes, kind.block_bytes);
            let standing =
                Standing { lost: kind.lost, together: kind.together.clone(), contradictory: false };
            let survives = facts.survives(kind.code, &standing)?;
            let slots = kind.slots.iter().copied().filter(|slot| !apart.contains(slot));
            tally.add(&standing, survives, (stripes, block_bytes), slots);
        }
        for &slot in &apart {
            let (code, block_bytes) = picture.code_of(slot);
            let standing = facts.standing(&doubts, slot, |_| true);
            tally.add(&standing, facts.survives(code, &standing)?, (1, block_bytes), [slot].into_iter());
        }
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
        let stated = self.facts.nodes.bandwidth.stated(node);
        let view = self.facts.nodes.topology.get(node);
        let up = view.filter(|_| is_up);
        Ok(NodeView {
            node: node.0,
            name: self.facts.nodes.name(node),
            has_helper: !self.facts.nodes.registry.has_no_helper(self.facts.base, node),
            up: is_up,
            serves: self.facts.base.store.reports_service().then(|| self.facts.stripes.picture.is_up(node)),
            address: self.facts.stripes.picture.nodes().get(&node).and_then(|record| record.address.clone()),
            rack: view.and_then(|view| view.rack.clone()),
            bandwidth_bytes_per_s: stated.up.into_iter().chain(stated.down).min().filter(|_| is_up),
            free_bytes: up.map(|view| view.free_bytes),
            tasks: up.map(|view| view.load),
            blocks: self.facts.stripes.picture.block_count(node) as u64,
            orphans,
            leaving: self.facts.nodes.registry.is_leaving(node),
            to_remove: self.facts.stripes.picture.files().discard_count(node) as u64,
            maintenance_until_unix_ms: self.facts.nodes.registry.maintenance_until_unix_ms(node),
        })
    }
}

/// The counts of a census so far.
struct Tally<'a> {
    facts: Facts<'a>,
    census: Census,
    by_survives: BTreeMap<Survives, Redundancy>,
}

impl<'a> Tally<'a> {
    fn new(facts: Facts<'a>) -> Self {
        let census = Census { contradictory: facts.stripes.contradictory_stripes(), ..Census::default() };
        Self { facts, census, by_survives: BTreeMap::new() }
    }

    /// Adds stripes that have the same losses. `block_bytes` is the sum of the stripes' block lengths, one
    /// block per stripe.
    fn add(
        &mut self,
        standing: &Standing,
        survives: Option<Survives>,
        (stripes, block_bytes): (u64, u64),
        slots: impl Iterator<Item = Slot>,
    ) {
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

/// Returns the sentence about helpers of mend.toml that have never registered. `None` if there are none, or
/// if helpers may still be starting.
fn never_registered_text(facts: Facts<'_>) -> Option<String> {
    let names = facts.nodes.registry.never_registered(facts.base);
    let ([first, ..], true) = (&names[..], facts.base.now >= SETTLE_LIMIT) else { return None };
    let has = if names.len() == 1 { "has" } else { "have" };
    Some(format!(
        "{} of mend.toml {has} never registered: start it (mend helper {first}), or take it off the list (mend node \
         remove {first})",
        list(&names)
    ))
}

fn stuck_text(drains: &[String]) -> String {
    match drains {
        [] => String::new(),
        names => format!("; no room to empty {}", names.join(", ")),
    }
}

/// The first line of `mend status`.
struct Line {
    /// The state of the worst stripes.
    word: &'static str,
    text: String,
}

/// The word for stripes that are whole.
const SAFE: &str = "safe";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.word, self.text)
    }
}

impl Line {
    fn new(word: &'static str, text: String) -> Self {
        Self { word, text }
    }

    /// If the line says that all is safe, adds the doubts about that, each with the word that replaces
    /// [`SAFE`].
    fn doubted(self, doubts: [Option<(&'static str, String)>; 2]) -> Self {
        let doubts: Vec<_> = doubts.into_iter().flatten().collect();
        match doubts.first() {
            Some(&(word, _)) if self.word == SAFE => {
                let texts = doubts.into_iter().map(|(_, text)| text).chain([self.text]);
                Self { word, text: texts.collect::<Vec<_>>().join("; ") }
            }
            _ => self,
        }
    }
}

fn summary(census: &Census, helpers: &str) -> Line {
    let all = census.stripes;
    if all == 0 {
        return Line::new(SAFE, format!("nothing is stored; {helpers}"));
    }
    let doubt = contradictions::words(census.contradictory, all);
    if census.unreadable > 0 {
        let doubt = doubt.map(|doubt| format!("; {doubt}")).unwrap_or_default();
        let stripes = format!("{} of {}", census.unreadable, count(all, "stripe"));
        return Line::new("UNREADABLE", format!("{stripes} cannot be read{doubt}; {helpers}"));
    }
    let weakest = census.redundancy.first().expect("readable stripes belong to a class");
    if let (Some(doubt), true) = (&doubt, census.intact == all && census.misplaced == 0) {
        return Line::new("IN DOUBT", format!("{doubt}; no block is missing; {helpers}"));
    }
    if census.intact == all && census.misplaced == 0 {
        let whole = if all == 1 {
            "the only stripe is whole".to_owned()
        } else {
            format!("all {all} stripes are whole")
        };
        return Line::new(SAFE, format!("{whole} and {}; {helpers}", can_lose(weakest)));
    }
    let weakened = census.redundancy.iter().find(|class| is_weakened(class)).unwrap_or(weakest);
    let stripes = format!("{} of {}", weakened.degraded.max(weakened.misplaced), count(all, "stripe"));
    let lose = can_lose_more(weakened);
    let word = match () {
        () if doubt.is_some() => "IN DOUBT",
        () if weakened.helpers == 0 => "AT RISK",
        () if census.intact < all => "DEGRADED",
        () => "MISPLACED",
    };
    let doubt = doubt.map(|doubt| format!("{doubt}; ")).unwrap_or_default();
    let several = if weakened.misplaced > 0 { "have several blocks on one helper and " } else { "" };
    Line::new(word, format!("{doubt}{stripes} {several}{lose}; {helpers}"))
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

/// Whether stripes of this class have lost or misplaced blocks.
fn is_weakened(class: &Redundancy) -> bool {
    class.degraded > 0 || class.misplaced > 0
}

/// Returns text about how many blocks each undamaged stripe can lose. If the stripe can lose fewer helpers,
/// hosts or racks than blocks, the text gives these numbers too.
fn can_lose(class: &Redundancy) -> String {
    let blocks = match class.survives {
        0 => return "cannot lose a block".to_owned(),
        survives => format!("can lose {}", count(survives.into(), "block")),
    };
    let mut least = class.survives;
    let mut only = Vec::new();
    for (domains, noun) in [(Some(class.helpers), "helper"), (class.hosts, "host"), (class.racks, "rack")] {
        if let Some(domains) = domains.filter(|&domains| domains < least) {
            least = domains;
            only.push(match domains {
                0 => format!("no {noun}"),
                _ => format!("only {}", count(domains.into(), noun)),
            });
        }
    }
    if only.is_empty() { blocks } else { format!("{blocks}, but {}", only.join(" and ")) }
}

fn can_lose_more(class: &Redundancy) -> String {
    let noun = if class.helpers < class.survives { "helper" } else { "block" };
    match class.helpers {
        0 => format!("cannot lose another {noun}"),
        1 => format!("can lose only 1 more {noun}"),
        more => format!("can lose {more} more {noun}s"),
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

    #[test]
    fn the_first_line_summarizes_the_redundancy() {
        let class = |survives, stripes, degraded| Redundancy {
            stripes,
            degraded,
            ..empty_class(Survives { blocks: survives, nodes: survives, hosts: 0, racks: 0 }, false, false)
        };
        let up = "all 1 helper up";
        let census = |intact, redundancy: Vec<Redundancy>, unreadable| Census {
            stripes: 10,
            intact,
            redundancy,
            unreadable,
            unreadable_stripes: vec!["7".into(); unreadable as usize],
            ..Census::default()
        };
        let line = |census: &Census| summary(census, up).to_string();
        assert_eq!(line(&Census::default()), "safe  nothing is stored; all 1 helper up");
        let whole = census(10, vec![class(4, 10, 0)], 0);
        assert_eq!(line(&whole), "safe  all 10 stripes are whole and can lose 4 blocks; all 1 helper up");
        let one = Census { stripes: 1, intact: 1, redundancy: vec![class(1, 1, 0)], ..Census::default() };
        assert_eq!(line(&one), "safe  the only stripe is whole and can lose 1 block; all 1 helper up");
        let doubts =
            || [("INCOMPLETE", "a"), ("UNPROVEN", "b")].map(|(word, text)| Some((word, text.into())));
        assert_eq!(
            summary(&one, up).doubted(doubts()).to_string(),
            "INCOMPLETE  a; b; the only stripe is whole and can lose 1 block; all 1 helper up"
        );
        let degraded = census(8, vec![class(1, 2, 2), class(4, 8, 0)], 0);
        assert_eq!(summary(&degraded, up).doubted(doubts()).to_string(), line(&degraded));
        assert!(line(&degraded).starts_with("DEGRADED  2 of 10 stripes can lose only 1 more block; "));
        let degraded = census(8, vec![class(0, 3, 0), class(3, 2, 2)], 0);
        assert!(line(&degraded).starts_with("DEGRADED  2 of 10 stripes can lose 3 more blocks; "));
        let risk = census(8, vec![class(0, 2, 2), class(4, 8, 0)], 0);
        assert!(line(&risk).starts_with("AT RISK  2 of 10 stripes cannot lose another block; "));
        let unreadable = "UNREADABLE  1 of 10 stripes cannot be read; ";
        assert!(line(&census(8, vec![class(4, 9, 0)], 1)).starts_with(unreadable));
        let doubted = Census { contradictory: 1, ..whole };
        assert_eq!(
            line(&doubted),
            "IN DOUBT  the blocks of 1 of 10 stripes contradict each other, so at least one block of each is \
             wrong; no block is missing; all 1 helper up"
        );
        let doubted = Census { contradictory: 2, ..risk };
        assert!(line(&doubted).starts_with("IN DOUBT  the blocks of 2 of 10 stripes contradict each other"));
        assert!(line(&doubted).contains("; 2 of 10 stripes cannot lose another block; "));
        let on_hosts = Redundancy { hosts: Some(2), racks: Some(0), ..class(4, 10, 0) };
        let racks = "safe  all 10 stripes are whole and can lose 4 blocks, but only 2 hosts and no rack; ";
        assert!(line(&census(10, vec![on_hosts], 0)).starts_with(racks));
        let shared = Redundancy { helpers: 1, misplaced: 3, ..class(2, 3, 0) };
        let misplaced = Census { misplaced: 3, ..census(10, vec![shared, class(2, 7, 0)], 0) };
        let text =
            "MISPLACED  3 of 10 stripes have several blocks on one helper and can lose only 1 more helper; ";
        assert!(line(&misplaced).starts_with(text), "{}", line(&misplaced));
        let all = Census { stripes: 1, unreadable: 1, ..Census::default() };
        assert!(line(&all).starts_with("UNREADABLE  1 of 1 stripe cannot be read; "));
    }
}
