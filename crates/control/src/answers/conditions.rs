//! The present conditions of the cluster, determined from the state of all machines. Text, severity and exit
//! codes of the status are derived from these findings alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use repair::{NodeId, StripeId};
use views::{Census, Condition, ConditionCode, GoneNode, RecoveryState, Redundancy, Severity};

use crate::answers::Answers;
use crate::answers::stripes::newer_advice;
use crate::base::SETTLE_LIMIT;
use crate::counts::count;
use crate::durations::in_words;
use crate::error::{RequestError, list};
use crate::facts::unheard;
use crate::finding::Finding;
use crate::history::FLAPPING_MS;
use crate::nodes::Nodes;
use crate::repairs::claims::Stuck;
use crate::stripes::contradictions;

/// A repair without progress for this long has stalled.
const STALLED: Duration = Duration::from_secs(600);
/// A round of scrubbing is overdue if the last one ended this long ago.
const SCRUB_OVERDUE_MS: u64 = 35 * 86_400_000;
/// The first word of the status if some blocks or stripes may be unknown.
const INCOMPLETE: &str = "INCOMPLETE";
/// How many stripes are named whose repairs the store refuses.
const REFUSED_TOLD: usize = 5;
/// How many details of a condition are kept with the end of a repair.
const DETAILS_KEPT: usize = 5;

/// Conditions of the cluster, the most important first.
pub(crate) struct Findings {
    /// All findings, also those about stripes and helpers whose state is not known yet.
    pub all: Vec<Finding>,
    is_partial: bool,
}

impl Findings {
    /// Returns the findings that are certain.
    pub(crate) fn certain(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(|finding| !self.is_partial || !finding.needs_view())
    }
}

/// Returns everything that a condition concerns, not only what the status lists. A mute holds as long as nothing is
/// added. Blocks on a helper that is down are represented by the helper, other lost blocks by their names.
pub(crate) fn concerns(answers: Answers<'_>, finding: &Finding) -> BTreeSet<String> {
    let stripes = &answers.facts.stripes;
    match finding.code {
        ConditionCode::Unreadable | ConditionCode::AtRisk | ConditionCode::Degraded => {
            let mut lost = stripes.picture.lost_names(|node| answers.facts.nodes.name(node));
            // Blocks found bad count as lost even before this is recorded.
            let doubted =
                stripes.unrecorded.all_bad().filter_map(|(block, _)| stripes.picture.find_block(block).ok());
            lost.extend(doubted.map(|(stripe, index)| format!("{stripe}.{}", index.0)));
            if finding.code == ConditionCode::AtRisk {
                lost.extend(stripes.picture.doubled_names());
                lost.extend(stripes.contradictory().map(StripeId::to_string));
            }
            lost
        }
        ConditionCode::Misplaced => stripes.picture.doubled_names(),
        ConditionCode::Contradiction => stripes.contradictory().map(StripeId::to_string).collect(),
        ConditionCode::CertificateExpires => {
            let now = UNIX_EPOCH + Duration::from_millis(answers.facts.base.unix_ms);
            let warnings = answers.facts.nodes.certificates.warnings(now).into_iter();
            // A certificate that expires concerns something else than one that will expire.
            warnings.map(|(member, it)| if it.has_expired { member + ": expired" } else { member }).collect()
        }
        ConditionCode::StoreTrouble => stripes.news.troubles.iter().cloned().collect(),
        _ => finding.subjects.iter().cloned().collect(),
    }
}

/// Returns the greatest severity of the conditions that are not muted.
pub(crate) fn severity(conditions: &[Condition]) -> Severity {
    let loud = conditions.iter().filter(|condition| !condition.muted);
    loud.fold(Severity::Ok, |worst, condition| worst.worse(condition.severity))
}

impl<'a> Answers<'a> {
    /// Whether the state of helpers and stripes is not completely known, because helpers are still registering
    /// or the store is not listed.
    pub(crate) fn is_partial(self) -> bool {
        !self.facts.nodes.settled || self.facts.stripes.news.unlisted().is_some()
    }

    /// Returns a condition for the API.
    pub(crate) fn condition(self, finding: &Finding) -> Condition {
        self.conditions.view(finding, || concerns(self, finding), self.facts.base.unix_ms)
    }

    /// Determines the present conditions that are certain.
    pub(crate) fn findings(self) -> Result<Vec<Finding>, RequestError> {
        let census = self.census()?;
        Ok(self.all_findings(&census, &self.gone_nodes()).certain().cloned().collect())
    }

    /// Determines the present conditions.
    pub(crate) fn all_findings(self, census: &Census, gone: &[GoneNode]) -> Findings {
        let mut all = catalog_findings(self);
        all.extend(stripe_findings(self, census, gone));
        all.extend(helper_findings(self, gone));
        all.extend(room_findings(self, gone));
        all.extend(repair_findings(self, census));
        all.extend(scrub_finding(self));
        all.extend(store_findings(self));
        all.sort_by_key(|finding| finding.code);
        Findings { all, is_partial: self.is_partial() }
    }
}

/// Returns the conditions that are not muted, or no longer.
pub(crate) fn loud(answers: Answers<'_>, found: &[Finding]) -> Vec<ConditionCode> {
    let is_loud = |finding: &&Finding| !answers.condition(finding).muted;
    found.iter().filter(is_loud).map(|finding| finding.code).collect()
}

/// Returns the present conditions under which the state of some blocks is unknown, each with its first details only.
pub(crate) fn unknown(answers: Answers<'_>) -> Vec<Condition> {
    let mut all = catalog_findings(answers);
    all.extend(unjudged_finding(answers));
    all.extend(incomplete_finding(answers));
    all.retain(Finding::leaves_blocks_unknown);
    all.sort_by_key(|finding| finding.code);
    let found = Findings { all, is_partial: answers.is_partial() };
    let shortened = |finding: &Finding| {
        let mut condition = answers.condition(finding);
        condition.details.truncate(DETAILS_KEPT);
        condition
    };
    found.certain().map(shortened).collect()
}

fn catalog_findings(answers: Answers<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let claims = newer_advice(answers.facts);
    let newer = &answers.facts.stripes.newer;
    let claimants =
        || -> Vec<String> { newer.views(answers.facts.nodes).into_iter().map(|claim| claim.node).collect() };
    match answers.facts.check_not_behind() {
        Err(behind) => {
            let text = format!("{behind}; {}", behind.next_step());
            let names = claimants();
            found.push(
                Finding::about(ConditionCode::CatalogOld, &names, text)
                    .with_word("STOPPED")
                    .with_details(claims),
            );
        }
        Ok(()) if newer.has_claims() => {
            let names = claimants();
            let text = format!("{} lists blocks newer than the catalog", list(&names));
            found.push(
                Finding::about(ConditionCode::CatalogOld, &names, text)
                    .with_word(INCOMPLETE)
                    .with_severity(Severity::Warning)
                    .with_details(claims),
            );
        }
        Ok(()) => {}
    }
    if let Err(fault) = answers.facts.storing.write_path.check() {
        let text = format!("{fault}; {}", fault.next_step());
        found.push(Finding::new(ConditionCode::CatalogFailing, 1, text).with_word("READ-ONLY"));
    } else if let Some(problem) = &answers.facts.storing.copy_problem {
        let text = format!("no copy of the catalog is kept: {problem}");
        found.push(Finding::new(ConditionCode::CatalogFailing, 1, text).with_severity(Severity::Warning));
    }
    if let Some(why) = answers.facts.stripes.news.unlisted() {
        let finding = Finding::new(ConditionCode::StoreUnlisted, 1, why.to_owned());
        found.push(finding.with_word("UNKNOWN"));
    } else if let Err(waits) = answers.facts.nodes.check_settled(answers.facts.base) {
        found.push(Finding::new(ConditionCode::Starting, 1, waits.to_string()).with_word("starting"));
    }
    found
}

fn stripe_findings(answers: Answers<'_>, census: &Census, gone: &[GoneNode]) -> Vec<Finding> {
    let mut found: Vec<Finding> = unjudged_finding(answers).into_iter().collect();
    found.extend(damage_findings(census));
    if let Some(lost) = found.iter_mut().find(|finding| is_loss(finding.code)) {
        lost.details.extend(loss_details(answers, census, gone));
    }
    if let Some(misplaced) = found.iter_mut().find(|finding| finding.code == ConditionCode::Misplaced) {
        misplaced.details.extend(answers.misplaced_advice(census));
    }
    found.extend(incomplete_finding(answers));
    found.extend(unproven_finding(answers, census.stripes));
    found
}

/// Finds stripes whose state cannot be determined from the store's answers.
fn unjudged_finding(answers: Answers<'_>) -> Option<Finding> {
    let unjudged = &answers.facts.stripes.unjudged;
    let names: Vec<String> = unjudged.views().into_iter().map(|stripe| stripe.stripe).collect();
    (!names.is_empty()).then(|| {
        let text = format!("the state of {} is unknown", count(names.len() as u64, "stripe"));
        Finding::about(ConditionCode::NotJudged, &names, text)
            .with_word("NOT KNOWN")
            .with_details(unjudged.advice())
    })
}

/// Finds stripes whose parity must be checked: the catalog was replaced, or the store doubts their digests.
fn unproven_finding(answers: Answers<'_>, stripes: u64) -> Option<Finding> {
    let (proof, distrusted) = (&answers.scrub.proof, &answers.scrub.distrusted);
    let names = distrusted.names();
    let words = proof.words(answers.facts, stripes);
    let left = words.as_ref().map_or(0, |_| proof.left()) + names.len();
    let texts: Vec<String> = words.into_iter().chain(distrusted.words()).collect();
    (!texts.is_empty()).then(|| {
        Finding::new(ConditionCode::Unproven, left as u64, texts.join("; "))
            .with_subjects(&names)
            .with_word("UNPROVEN")
            .with_details(
                proof.advice(answers.facts, stripes).into_iter().chain(distrusted.advice(answers.facts)),
            )
    })
}

/// Returns the helpers that have not listed all of their blocks, with the reasons.
pub(crate) fn incomplete_helpers(nodes: &Nodes) -> Vec<(String, String)> {
    let why = |node: NodeId| Some((nodes.name(node), nodes.registry.session(node)?.incomplete.clone()?));
    let mut helpers: Vec<(String, String)> = nodes.live_helpers().filter_map(why).collect();
    helpers.sort_by(|a, b| views::natural(&a.0, &b.0));
    helpers
}

/// Finds helpers whose blocks are not all known: they have not registered since the catalog was replaced, or
/// could not list all of their blocks.
fn incomplete_finding(answers: Answers<'_>) -> Option<Finding> {
    let mut names = unheard::names(answers.facts);
    let mut texts: Vec<String> = unheard::text(answers.facts).into_iter().collect();
    let partial = incomplete_helpers(answers.facts.nodes);
    let partial_names: Vec<String> = partial.iter().map(|(name, _)| name.clone()).collect();
    if !partial.is_empty() {
        texts.push(format!("the state of some blocks is unknown on {}", list(&partial_names)));
    }
    names.extend(partial_names);
    let detail = |(name, why): (String, String)| {
        format!("{name}: {why}, so the state of the blocks there is unknown; check the disk")
    };
    (!names.is_empty()).then(|| {
        Finding::about(ConditionCode::Incomplete, &names, texts.join("; "))
            .with_word(INCOMPLETE)
            .with_details(partial.into_iter().map(detail))
    })
}

/// Returns sentences about the repair of lost blocks.
fn loss_details(answers: Answers<'_>, census: &Census, gone: &[GoneNode]) -> Vec<String> {
    let waiting = answers.repairs.healing.waiting_stripes(answers.facts);
    let mut details: Vec<String> = waiting.into_iter().map(|waiting| waiting.text).collect();
    let on_gone: u64 = gone.iter().map(|gone| gone.blocks).sum();
    let here = census.blocks_lost.saturating_sub(on_gone);
    if here > 0 && answers.facts.nodes.settled && answers.facts.may_change() && !is_rebuilding(answers) {
        details.extend(answers.repairs.healing.advice(answers.facts, here));
    }
    details
}

/// Finds helpers that are down.
fn gone_finding(gone: &[GoneNode]) -> Option<Finding> {
    let names: Vec<String> = gone.iter().map(|gone| gone.node.clone()).collect();
    let is_down = if names.len() == 1 { "is down" } else { "are down" };
    let text = format!("{} {is_down}: {}", count(names.len() as u64, "helper"), list(&names));
    let is_expected =
        |gone: &GoneNode| matches!(gone.recovery, RecoveryState::Needless | RecoveryState::Maintenance);
    let severity = if gone.iter().all(is_expected) { Severity::Ok } else { Severity::Warning };
    let told = gone.iter().filter(|gone| gone.recovery != RecoveryState::Running);
    (!gone.is_empty()).then(|| {
        Finding::about(ConditionCode::HelperGone, &names, text)
            .with_severity(severity)
            .with_details(told.map(|gone| gone.text.clone()))
    })
}

fn helper_findings(answers: Answers<'_>, gone: &[GoneNode]) -> Vec<Finding> {
    let nodes = &answers.facts.nodes;
    let mut found = Vec::new();
    found.extend(gone_finding(gone));
    let absent = nodes.registry.never_registered(answers.facts.base);
    if let ([first, ..], true) = (&absent[..], answers.facts.base.now >= SETTLE_LIMIT) {
        let has = if absent.len() == 1 { "has" } else { "have" };
        let text = format!("{} of mend.toml {has} never registered", list(&absent));
        let detail = format!(
            "{text}: start it (mend helper {first}), or take it off the list (mend node remove {first})"
        );
        found
            .push(Finding::about(ConditionCode::HelperNeverRegistered, &absent, text).with_details([detail]));
    }
    let slow: Vec<String> = nodes
        .live_helpers()
        .filter(|&node| nodes.bandwidth.is_slow(node))
        .map(|node| nodes.name(node))
        .collect();
    if !slow.is_empty() {
        let text = format!("slow: {}", list(&slow));
        found.push(Finding::about(ConditionCode::HelperSlow, &slow, text));
    }
    found.extend(unwritable_finding(answers));
    found.extend(flapping_finding(answers));
    let skewed = nodes.skewed.texts(answers.facts.base.now);
    if !skewed.is_empty() {
        let names: Vec<String> = skewed.iter().map(|(name, _)| name.clone()).collect();
        let text = format!("another version of mend: {}", list(&names));
        found.push(
            Finding::about(ConditionCode::VersionSkew, &names, text)
                .with_details(skewed.into_iter().map(|(_, why)| why)),
        );
    }
    let warnings =
        nodes.certificates.warnings(UNIX_EPOCH + Duration::from_millis(answers.facts.base.unix_ms));
    if !warnings.is_empty() {
        let certificates = count(warnings.len() as u64, "certificate");
        let text = format!("{certificates} expired or about to expire");
        let finding = Finding::new(ConditionCode::CertificateExpires, warnings.len() as u64, text);
        let stops = warnings.values().any(|warning| warning.stops);
        let severity = if stops { Severity::Critical } else { Severity::Warning };
        let details = warnings.into_values().map(|warning| warning.text);
        found.push(finding.with_severity(severity).with_details(details));
    }
    found
}

/// Finds helpers that cannot write to their disks.
fn unwritable_finding(answers: Answers<'_>) -> Option<Finding> {
    let nodes = &answers.facts.nodes;
    let problem = |node: NodeId| Some((nodes.name(node), nodes.registry.write_problem(node)?.to_owned()));
    let mut problems: Vec<(String, String)> = nodes.live_helpers().filter_map(problem).collect();
    problems.sort_by(|a, b| views::natural(&a.0, &b.0));
    let names: Vec<String> = problems.iter().map(|(name, _)| name.clone()).collect();
    let details = problems.iter().map(|(name, problem)| {
        format!("{name} gets no new blocks, because it cannot write to its disk: {problem}")
    });
    let text = format!("unable to write: {}", list(&names));
    (!names.is_empty())
        .then(|| Finding::about(ConditionCode::HelperCannotWrite, &names, text).with_details(details))
}

/// Finds helpers that were lost again and again, according to the history.
fn flapping_finding(answers: Answers<'_>) -> Option<Finding> {
    let now = answers.facts.base.unix_ms;
    let mut flapping: Vec<(&str, u64, u64)> =
        answers.history.flapping(now.saturating_sub(FLAPPING_MS)).collect();
    flapping.sort_by(|a, b| views::natural(a.0, b.0));
    let names: Vec<String> = flapping.iter().map(|&(name, ..)| name.to_owned()).collect();
    let details = flapping.iter().map(|&(name, times, since_unix_ms)| {
        let within = Duration::from_millis(now.saturating_sub(since_unix_ms));
        format!("{name} was lost {times} times within {}", in_words(within))
    });
    let text = format!("lost again and again: {}", list(&names));
    (!names.is_empty())
        .then(|| Finding::about(ConditionCode::HelperFlapping, &names, text).with_details(details))
}

fn room_findings(answers: Answers<'_>, gone: &[GoneNode]) -> Vec<Finding> {
    let mut found = Vec::new();
    let full = answers.full_nodes();
    for (code, is_full, word) in
        [(ConditionCode::Full, true, "full"), (ConditionCode::NearFull, false, "nearly full")]
    {
        let names: Vec<String> =
            full.iter().filter(|node| node.full == is_full).map(|node| node.node.clone()).collect();
        if !names.is_empty() {
            found.push(Finding::about(code, &names, format!("{word}: {}", names.join(", "))));
        }
    }
    let stuck = answers.stuck_drains();
    if !stuck.is_empty() {
        let text = format!("no room to empty {}", stuck.join(", "));
        let details = answers.leaving_views().into_iter().filter(|leaving| stuck.contains(&leaving.node));
        found.push(
            Finding::about(ConditionCode::NoRoomToDrain, &stuck, text)
                .with_details(details.map(|leaving| leaving.text)),
        );
    }
    let homeless: Vec<String> = gone
        .iter()
        .filter(|gone| gone.recovery == RecoveryState::NoRoom)
        .map(|gone| gone.node.clone())
        .collect();
    let on_gone: u64 = gone.iter().map(|gone| gone.blocks).sum();
    let knows = answers.facts.nodes.settled && answers.facts.may_change() && on_gone == 0;
    if let Some(finding) = no_room_finding(answers, homeless) {
        found.push(finding);
    } else if let Some(advice) = answers.repairs.fullness.advice().filter(|_| knows) {
        let text = "no room to repair after another failure".to_owned();
        found.push(
            Finding::new(ConditionCode::NoRoomToRepair, 1, text)
                .with_severity(Severity::Ok)
                .with_details([advice]),
        );
    }
    found
}

/// Finds lost blocks that no helper can take: all blocks of the helpers `homeless`, and those of stripes for which the
/// store refuses every possible helper.
fn no_room_finding(answers: Answers<'_>, homeless: Vec<String>) -> Option<Finding> {
    let now = answers.facts.base.now;
    let refused: BTreeMap<&StripeId, &Stuck> = answers.repairs.refused_by_store();
    let mut texts = Vec::new();
    if !homeless.is_empty() {
        texts.push(format!("no room to rebuild the blocks of {}", list(&homeless)));
    }
    if !refused.is_empty() {
        let stripes = count(refused.len() as u64, "stripe");
        texts.push(format!("the store refuses every possible helper for lost blocks of {stripes}"));
    }
    let details = refused.iter().take(REFUSED_TOLD).map(|(stripe, stuck)| {
        let left = in_words(stuck.again.saturating_sub(now));
        format!("the repair of {stripe} waits: {}; the store is asked again in {left}", stuck.why)
    });
    let details: Vec<String> = details.collect();
    let stripes = refused.keys().map(|stripe| stripe.to_string());
    let subjects: Vec<String> = homeless.into_iter().chain(stripes).collect();
    (!subjects.is_empty()).then(|| {
        Finding::about(ConditionCode::NoRoomToRepair, &subjects, texts.join("; ")).with_details(details)
    })
}

/// Whether a stripe is in the catalog. Others are only described, for example those of files that are being encoded. Their
/// repairs do not concern lost blocks.
fn is_listed(answers: Answers<'_>, stripe: &StripeId) -> bool {
    answers.facts.stripes.picture.stripe(stripe).is_ok()
}

/// Whether lost blocks are being rebuilt.
fn is_rebuilding(answers: Answers<'_>) -> bool {
    answers.repairs.queue.rebuilds(|stripe| is_listed(answers, stripe))
}

fn repair_findings(answers: Answers<'_>, census: &Census) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_damaged = census.intact < census.stripes;
    let counts = |target: &str| {
        let stripe = target.strip_prefix("stripe ").map(|name| StripeId(name.to_owned()));
        stripe.is_none_or(|stripe| is_listed(answers, &stripe))
    };
    if let Some(failure) =
        answers.history.failed_last(counts).filter(|_| is_damaged && !is_rebuilding(answers))
    {
        let text = "the last repair failed, and blocks are still lost".to_owned();
        found.push(Finding::new(ConditionCode::RepairFailed, 1, text).with_details([failure]));
    }
    let open = || answers.repairs.queue.by_id.iter().filter(|(_, repair)| repair.is_open());
    let stalled: Vec<(u64, Duration)> = open()
        .filter_map(|(&id, repair)| Some((id, repair.course.stalled_for(answers.facts.base.now)?)))
        .filter(|(_, time)| *time >= STALLED)
        .collect();
    if !stalled.is_empty() {
        let names: Vec<String> = stalled.iter().map(|(id, _)| id.to_string()).collect();
        let text = format!("no progress of repair {}", list(&names));
        let details = stalled.iter().map(|&(id, time)| {
            let (time, refused) = (in_words(time), answers.repairs.claims.refusal_of(id));
            let why = refused.map(|why| format!("; the store refuses it: {why}")).unwrap_or_default();
            format!("repair {id} has made no progress for {time}{why}; mend timeline {id} shows its steps")
        });
        found.push(Finding::about(ConditionCode::RepairStalled, &names, text).with_details(details));
    }
    let paused: Vec<String> =
        open().filter(|(_, repair)| repair.order.paused).map(|(id, _)| id.to_string()).collect();
    let advice = answers.repairs.healing.paused_advice();
    if !paused.is_empty() {
        let text = format!("{} paused: {}", count(paused.len() as u64, "repair"), list(&paused));
        found.push(
            Finding::about(ConditionCode::RepairsPaused, &paused, text)
                .with_severity(if is_damaged { Severity::Warning } else { Severity::Ok })
                .with_details(advice),
        );
    }
    found
}

/// Returns the finding that the blocks were not checked for a long time. A scrub that was stopped does not count.
fn scrub_finding(answers: Answers<'_>) -> Option<Finding> {
    let steady = answers.scrub.background_view(answers.facts.base);
    let last = answers.scrub.unscrubbed_since_unix_ms;
    let round = steady.as_ref().and_then(|it| it.last_round_ended_unix_ms.or(it.round_began_unix_ms));
    let newest = last.into_iter().chain(round).max()?;
    let age = answers.facts.base.unix_ms.saturating_sub(newest);
    let days = age / 86_400_000;
    let severity = if steady.is_some() { Severity::Warning } else { Severity::Ok };
    (age >= SCRUB_OVERDUE_MS).then(|| {
        let text = format!("no scrub has been completed for {days} days");
        Finding::new(ConditionCode::ScrubOverdue, 1, text).with_severity(severity)
    })
}

fn store_findings(answers: Answers<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let down = answers.facts.servers_down();
    if !down.is_empty() {
        let text = format!("servers out of service: {}", down.join(", "));
        let nodes = &answers.facts.nodes;
        let maintained = answers.facts.stripes.news.maintained.iter().map(|&node| nodes.name(node));
        let maintained: Vec<String> = maintained.filter(|name| down.contains(name)).collect();
        let details = (!maintained.is_empty()).then(|| {
            format!(
                "in maintenance in the store, so their blocks are not rebuilt automatically: {}",
                list(&maintained)
            )
        });
        found.push(Finding::about(ConditionCode::ServerDown, &down, text).with_details(details));
    }
    let troubles = &answers.facts.stripes.news.troubles;
    if !troubles.is_empty() {
        let text = count(troubles.len() as u64, "problem") + " with the store";
        let finding = Finding::new(ConditionCode::StoreTrouble, troubles.len() as u64, text);
        found.push(finding.with_details(troubles.iter().cloned()));
    }
    let alone = answers.facts.nodes.registry.servers_without_helper(answers.facts.base);
    if !alone.is_empty() {
        let text = format!("servers without a helper: {}", alone.join(", "));
        let detail = "blocks on servers without a helper are neither read nor repaired there".to_owned();
        found.push(Finding::about(ConditionCode::NotCovered, &alone, text).with_details([detail]));
    }
    found
}

/// Returns the findings about damaged stripes.
fn damage_findings(census: &Census) -> Vec<Finding> {
    let (all, mut found) = (census.stripes, Vec::new());
    let of_all = |stripes: u64| format!("{stripes} of {}", count(all, "stripe"));
    if census.unreadable > 0 {
        let text = format!("{} cannot be read", of_all(census.unreadable));
        found.push(
            Finding::new(ConditionCode::Unreadable, census.unreadable, text)
                .with_subjects(&census.unreadable_stripes)
                .with_word("UNREADABLE"),
        );
    }
    if let Some(doubt) = contradictions::words(census.contradictory, all) {
        let finding = Finding::new(ConditionCode::Contradiction, census.contradictory, doubt);
        found.push(finding.with_word("IN DOUBT"));
    }
    let weakened = || census.redundancy.iter().filter(|class| class.degraded > 0 || class.misplaced > 0);
    let (risk, rest): (Vec<&Redundancy>, Vec<&Redundancy>) = weakened().partition(|class| class.helpers == 0);
    if let Some(weakest) = risk.first() {
        let stripes = risk.iter().map(|class| class.degraded.max(class.misplaced)).sum();
        let text = format!("{} {}", of_all(stripes), can_lose_more(weakest));
        found.push(Finding::new(ConditionCode::AtRisk, stripes, text).with_word("AT RISK"));
    }
    let degraded: Vec<&&Redundancy> = rest.iter().filter(|class| class.degraded > 0).collect();
    if let Some(weakest) = degraded.first() {
        let stripes = degraded.iter().map(|class| class.degraded).sum();
        // Only the weakest stripes can lose no more than the text says.
        let text = format!("{} {}", of_all(weakest.degraded), can_lose_more(weakest));
        found.push(Finding::new(ConditionCode::Degraded, stripes, text).with_word("DEGRADED"));
    }
    if census.misplaced > 0 {
        let weakest = weakened().find(|class| class.misplaced > 0);
        let lose = weakest.filter(|_| found.is_empty()).map(|class| format!(" and {}", can_lose_more(class)));
        let text = format!(
            "{} have several blocks on one helper{}",
            of_all(census.misplaced),
            lose.unwrap_or_default()
        );
        found.push(Finding::new(ConditionCode::Misplaced, census.misplaced, text).with_word("MISPLACED"));
    }
    found
}

/// Whether the condition says that blocks are lost.
fn is_loss(code: ConditionCode) -> bool {
    matches!(code, ConditionCode::Unreadable | ConditionCode::AtRisk | ConditionCode::Degraded)
}

fn can_lose_more(class: &Redundancy) -> String {
    let noun = if class.helpers < class.survives { "helper" } else { "block" };
    match class.helpers {
        0 => format!("cannot lose another {noun}"),
        1 => format!("can lose only 1 more {noun}"),
        more => format!("can lose {more} more {noun}s"),
    }
}

/// Composes the first line of the status: the word of the most important finding, the texts of all findings
/// with a word, the state of whole stripes, the helpers, and the texts of further findings that call for
/// action.
pub(crate) fn first_line(findings: &[Finding], census: &Census, helpers: &str) -> String {
    let stated: Vec<&Finding> = findings.iter().filter(|finding| finding.word.is_some()).collect();
    let find = |code| stated.iter().find(|finding| finding.code == code);
    // A claim of a single helper says less than what is known of the data.
    let is_claim = |finding: &Finding| {
        finding.code == ConditionCode::CatalogOld && finding.severity != Severity::Critical
    };
    if let Some(old) = find(ConditionCode::CatalogOld).filter(|old| !is_claim(old)) {
        return format!("STOPPED  {}", old.text); // Nothing else is certain.
    }
    if let Some(unlisted) = find(ConditionCode::StoreUnlisted) {
        return format!("UNKNOWN  {}; {helpers}", unlisted.text);
    }
    let is_apart = |code| matches!(code, ConditionCode::CatalogFailing | ConditionCode::Starting);
    let mut rest: Vec<&&Finding> = stated.iter().filter(|finding| !is_apart(finding.code)).collect();
    rest.sort_by_key(|finding| is_claim(finding));
    let word = rest.first().and_then(|finding| finding.word).unwrap_or("safe");
    let mut parts: Vec<String> = rest.iter().map(|finding| finding.text.clone()).collect();
    parts.extend(whole_text(census, &stated));
    parts.push(helpers.to_owned());
    let told_elsewhere = [ConditionCode::HelperGone, ConditionCode::HelperNeverRegistered];
    let further = findings.iter().filter(|finding| finding.word.is_none());
    let further =
        further.filter(|finding| finding.severity != Severity::Ok && !told_elsewhere.contains(&finding.code));
    parts.extend(further.map(|finding| finding.text.clone()));
    let mut line = format!("{word}  {}", parts.join("; "));
    if find(ConditionCode::Starting).is_some() {
        line = format!("starting, helpers are still registering; so far: {line}");
    }
    match find(ConditionCode::CatalogFailing) {
        Some(failing) => format!("READ-ONLY  {}; {line}", failing.text),
        None => line,
    }
}

/// Returns the text about stripes if no block is lost or misplaced. It says that stripes are whole only if the state of
/// all of their blocks is known, and that there are none only if no stripe is of unknown state.
fn whole_text(census: &Census, stated: &[&Finding]) -> Option<String> {
    let all = census.stripes;
    let is_incomplete = stated.iter().any(|finding| finding.word == Some(INCOMPLETE));
    let is_unjudged = stated.iter().any(|finding| finding.code == ConditionCode::NotJudged);
    if all == 0 && is_unjudged {
        return None;
    }
    if all == 0 {
        return Some(if is_incomplete { "no stripe is known" } else { "nothing is stored" }.to_owned());
    }
    if census.intact < all || census.misplaced > 0 || census.unreadable > 0 {
        return None;
    }
    if is_incomplete {
        return Some(format!("no block of {} is known to be lost", count(all, "stripe")));
    }
    if census.contradictory > 0 {
        return Some("no block is missing".to_owned());
    }
    let other = if is_unjudged { "other " } else { "" };
    let weakest = census.redundancy.first().expect("readable stripes belong to a class");
    let whole = if all == 1 {
        format!("the only {other}stripe is whole")
    } else {
        format!("all {all} {other}stripes are whole")
    };
    Some(format!("{whole} and {}", can_lose(weakest)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn class(survives: u32, stripes: u64, degraded: u64) -> Redundancy {
        Redundancy { survives, helpers: survives, hosts: None, racks: None, stripes, degraded, misplaced: 0 }
    }

    fn census(intact: u64, redundancy: Vec<Redundancy>, unreadable: u64) -> Census {
        Census {
            stripes: 10,
            intact,
            redundancy,
            unreadable,
            unreadable_stripes: vec!["7".into(); unreadable as usize],
            ..Census::default()
        }
    }

    fn line(census: &Census) -> String {
        first_line(&damage_findings(census), census, "all 1 helper up")
    }

    #[test]
    fn the_first_line_of_whole_stripes_says_what_they_can_lose() {
        assert_eq!(line(&Census::default()), "safe  nothing is stored; all 1 helper up");
        let whole = census(10, vec![class(4, 10, 0)], 0);
        assert_eq!(line(&whole), "safe  all 10 stripes are whole and can lose 4 blocks; all 1 helper up");
        let one = Census { stripes: 1, intact: 1, redundancy: vec![class(1, 1, 0)], ..Census::default() };
        assert_eq!(line(&one), "safe  the only stripe is whole and can lose 1 block; all 1 helper up");
        let on_hosts = Redundancy { hosts: Some(2), racks: Some(0), ..class(4, 10, 0) };
        let text = line(&census(10, vec![on_hosts], 0));
        assert!(text.contains("can lose 4 blocks, but only 2 hosts and no rack; "), "{text}");
    }

    #[test]
    fn stripes_count_as_whole_only_if_all_blocks_are_known() {
        let whole = census(10, vec![class(4, 10, 0)], 0);
        let text = |code, word| {
            let finding = Finding::new(code, 1, "why".to_owned()).with_word(word);
            first_line(&[finding], &whole, "all 6 helpers up")
        };
        assert_eq!(
            text(ConditionCode::Incomplete, INCOMPLETE),
            "INCOMPLETE  why; no block of 10 stripes is known to be lost; all 6 helpers up"
        );
        assert_eq!(
            text(ConditionCode::NotJudged, "NOT KNOWN"),
            "NOT KNOWN  why; all 10 other stripes are whole and can lose 4 blocks; all 6 helpers up"
        );
        let unknown = Finding::new(ConditionCode::NotJudged, 1, "why".to_owned()).with_word("NOT KNOWN");
        let text = first_line(&[unknown], &Census::default(), "all 6 helpers up");
        assert_eq!(text, "NOT KNOWN  why; all 6 helpers up", "the stripe of unknown state is stored");
    }

    #[test]
    fn the_first_line_begins_with_the_worst_damage() {
        let degraded = census(8, vec![class(1, 2, 2), class(4, 8, 0)], 0);
        assert_eq!(line(&degraded), "DEGRADED  2 of 10 stripes can lose only 1 more block; all 1 helper up");
        let degraded = census(8, vec![class(0, 3, 0), class(3, 2, 2)], 0);
        assert!(line(&degraded).starts_with("DEGRADED  2 of 10 stripes can lose 3 more blocks; "));
        let risk = census(8, vec![class(0, 2, 2), class(4, 8, 0)], 0);
        assert!(line(&risk).starts_with("AT RISK  2 of 10 stripes cannot lose another block; "));
        let both = census(5, vec![class(0, 2, 2), class(2, 8, 3)], 0);
        let codes: Vec<(ConditionCode, u64)> =
            damage_findings(&both).iter().map(|finding| (finding.code, finding.count)).collect();
        assert_eq!(codes, [(ConditionCode::AtRisk, 2), (ConditionCode::Degraded, 3)]);
        let unreadable = "UNREADABLE  1 of 10 stripes cannot be read; ";
        assert!(line(&census(8, vec![class(4, 9, 0)], 1)).starts_with(unreadable));
        let all = Census { stripes: 1, unreadable: 1, ..Census::default() };
        assert!(line(&all).starts_with("UNREADABLE  1 of 1 stripe cannot be read; "));
    }

    #[test]
    fn contradictions_come_before_losses() {
        let doubted = Census { contradictory: 1, ..census(10, vec![class(4, 10, 0)], 0) };
        assert_eq!(
            line(&doubted),
            "IN DOUBT  the blocks of 1 of 10 stripes contradict each other, so at least one block of each is \
             wrong; no block is missing; all 1 helper up"
        );
        let risk = census(8, vec![class(0, 2, 2), class(4, 8, 0)], 0);
        let doubted = Census { contradictory: 2, ..risk };
        assert!(line(&doubted).starts_with("IN DOUBT  the blocks of 2 of 10 stripes contradict each other"));
        assert!(line(&doubted).contains("; 2 of 10 stripes cannot lose another block; "));
    }

    #[test]
    fn misplaced_stripes_are_counted_even_if_they_are_at_risk() {
        let shared = Redundancy { helpers: 1, misplaced: 3, ..class(2, 3, 0) };
        let misplaced = Census { misplaced: 3, ..census(10, vec![shared, class(2, 7, 0)], 0) };
        let text =
            "MISPLACED  3 of 10 stripes have several blocks on one helper and can lose only 1 more helper; ";
        assert!(line(&misplaced).starts_with(text), "{}", line(&misplaced));
        let shared = Redundancy { helpers: 0, misplaced: 3, ..class(2, 3, 0) };
        let misplaced = Census { misplaced: 3, ..census(10, vec![shared, class(2, 7, 0)], 0) };
        let text = "AT RISK  3 of 10 stripes cannot lose another helper; 3 of 10 stripes have several blocks on \
                    one helper; ";
        assert!(line(&misplaced).starts_with(text), "{}", line(&misplaced));
    }

    #[test]
    fn findings_that_call_for_action_are_named_after_the_helpers() {
        let whole = census(10, vec![class(4, 10, 0)], 0);
        let full = Finding::about(ConditionCode::Full, &["h5".to_owned()], "full: h5".to_owned());
        let told =
            Finding::new(ConditionCode::NoRoomToRepair, 1, "no room".to_owned()).with_severity(Severity::Ok);
        let text = first_line(&[full, told], &whole, "all 6 helpers up");
        assert_eq!(text, "safe  all 10 stripes are whole and can lose 4 blocks; all 6 helpers up; full: h5");
    }

    #[test]
    fn a_catalog_that_cannot_be_written_does_not_hide_the_state_of_the_data() {
        let risk = census(8, vec![class(0, 2, 2), class(4, 8, 0)], 0);
        let mut found = damage_findings(&risk);
        found.insert(
            0,
            Finding::new(ConditionCode::CatalogFailing, 1, "a fault".to_owned()).with_word("READ-ONLY"),
        );
        let text = first_line(&found, &risk, "all 6 helpers up");
        assert!(
            text.starts_with("READ-ONLY  a fault; AT RISK  2 of 10 stripes cannot lose another block; "),
            "{text}"
        );
    }

    #[test]
    fn a_starting_coordinator_says_what_it_knows_so_far() {
        let whole = census(10, vec![class(4, 10, 0)], 0);
        let starting = Finding::new(ConditionCode::Starting, 1, String::new()).with_word("starting");
        let text = first_line(&[starting], &whole, "1 helper up");
        assert!(text.starts_with("starting, helpers are still registering; so far: safe  all 10"), "{text}");
    }
}
