//! Implements `mend raid encode` and `mend raid undo`: finds the files, and lists the calls for each of them or
//! has them carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use client::Client;
use cluster::Cluster;
use hdfs_raid::{
    Candidate, Codec, DataNodes, Direction, Drive, End, Exclusion, FactFinder, Listing, Next, ParityState,
    Policies, State, Unit, Waiting, Work, candidate, forecast, parity_files,
};
use serde_json::{Value, json};
use stores::raid::{self, Covered, Errand, Outcome};
use stores::{RaidFile, RaidNameNode};

use super::encoder::Encoder;
use super::findings::listed;
use super::left::{self, Left};
use super::reports::Reports;
use super::{RaidStepsArgs, now_ms, outcomes, policies};
use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::printable;

/// A file or folder, with the steps for it or the reason for which there are none.
struct Forecast<'a> {
    unit: &'a Unit,
    steps: Result<Vec<Next>, String>,
    /// Whether HDFS has replicas to create or to remove.
    is_restless: bool,
    /// Whether the command leaves the file in a state that an operator has to change.
    needs_attention: bool,
}

/// Implements `mend raid encode` and `mend raid undo`. The coordinator records the results. `is_detailed` prints the reasons of all other files.
pub async fn steps(
    cluster: &Cluster,
    args: &RaidStepsArgs,
    (direction, encoder): (Direction, Encoder),
    client: Option<Client>,
    is_detailed: bool,
) -> Result<Answer, Failure> {
    let (policies, now_ms) = (policies(&args.plan.policy)?, now_ms());
    let (namenode, covered) = (RaidNameNode::of(cluster)?, Covered::of(cluster)?);
    if direction == Direction::Encode {
        raid::check_codecs(cluster, &policies)?;
        covered.check(&args.plan.path)?;
    }
    let mut listing = namenode.listing(&args.plan.path, &policies).await?;
    let mut units = hdfs_raid::survey(&listing, &policies, now_ms).units;
    let outside = match direction {
        Direction::Encode => take_outside(&mut units, &policies, &covered),
        Direction::Undo => Vec::new(),
    };
    let marks = namenode.marks(&marked(&units, &listing, &policies, direction)).await?;
    listing.notes.marks.extend(marks);
    let mut forecasts = forecasts(&units, &listing, &policies, direction, now_ms);
    forecasts.extend(outside.iter().map(Forecast::outside));
    if args.dry_run {
        return Ok(Answer::new(text(&forecasts, is_detailed), &facts(&forecasts)));
    }
    let (driven, others): (Vec<_>, Vec<_>) = forecasts.into_iter().partition(Forecast::has_work);
    let others: Vec<Forecast<'_>> = others.into_iter().map(Forecast::without_steps).collect();
    let (mut others_text, mut others_facts) =
        (others_text(&others, is_detailed), others.iter().map(file_facts).collect::<Vec<_>>());
    let alarming: Vec<String> =
        others.iter().filter(|it| it.needs_attention).map(|it| it.unit.path.clone()).collect();
    let (term, settled_after) = (raid::term(), raid::settled_after(cluster)?);
    let errand = |forecast: Forecast<'_>| {
        let errand = errand(forecast.unit, &policies, direction, term)?;
        Some(Errand { drive: errand.drive.with_settled(settled_after), ..errand })
    };
    let (urgent, rest): (Vec<_>, Vec<_>) = driven.into_iter().partition(Forecast::is_urgent);
    let errands = [urgent, rest].map(|all| all.into_iter().filter_map(&errand).collect::<Vec<Errand>>());
    let nodes = DataNodes::of(&listing);
    drop(listing);
    let wanted = match direction {
        Direction::Encode => End::Encoded,
        Direction::Undo => End::Plain,
    };
    let maker = encoder.maker(cluster, &namenode)?;
    let done = outcomes::carry_out(namenode.clone(), maker, &nodes, errands, Reports::new(client)).await?;
    let left = match direction {
        Direction::Encode => Vec::new(),
        Direction::Undo => Left::of(&namenode, &args.plan.path, &policies, &named(&done, &alarming)).await?,
    };
    others_text += &left::text(&left, is_detailed);
    others_facts.extend(left.iter().map(Left::facts));
    let answer = outcomes::answer(&done, &wanted, &others_text, &others_facts);
    let needs_attention = !alarming.is_empty() || !left.is_empty();
    Ok(if needs_attention { answer.or_exit(Exit::Failed) } else { answer })
}

/// Returns the paths that an undo names because they may still have parity: those that it did not finish, and those that
/// need attention.
fn named(done: &[Outcome], alarming: &[String]) -> BTreeSet<String> {
    let open = done.iter().filter(|outcome| !matches!(outcome.result, Ok(End::Plain)));
    open.map(|outcome| &outcome.path).chain(alarming).cloned().collect()
}

/// Returns the work on a unit.
fn errand(unit: &Unit, policies: &Policies, direction: Direction, term: u64) -> Option<Errand> {
    let Candidate { codec, policy, goal } = candidate(unit, policies, direction).ok()?;
    let drive = Drive::new(codec.clone(), tolerated(codec), goal, term);
    let stray = unit.stray().map(str::to_owned);
    let file = RaidFile { path: unit.path.clone(), codec: codec.clone(), policy: policy.cloned(), stray };
    Some(Errand { file, drive })
}

/// Takes out the units that policies would have encoded although the coordinator does not repair them. Parity still follows
/// renamed files, and an interrupted undo is continued.
fn take_outside(units: &mut Vec<Unit>, policies: &Policies, covered: &Covered) -> Vec<Unit> {
    for unit in units.iter_mut().filter(|unit| unit.stray().is_some() && !covered.contains(&unit.path)) {
        unit.policy = None;
    }
    let is_encoded = |unit: &Unit| {
        let is_undone = unit.protection.as_ref().is_some_and(|it| it.state == ParityState::Undone);
        let found = candidate(unit, policies, Direction::Encode);
        !is_undone && found.is_ok_and(|found| found.policy.is_some())
    };
    units.extract_if(.., |unit| !covered.contains(&unit.path) && is_encoded(unit)).collect()
}

impl<'a> Forecast<'a> {
    /// Returns the forecast for a unit that is not encoded, because the coordinator would not repair it.
    fn outside(unit: &'a Unit) -> Self {
        let next = if unit.protection.is_some() { ", or undo its encoding" } else { "" };
        let why = format!(
            "it is outside of `paths` in [store.namenode] of mend.toml, so its lost blocks would not be repaired: add its \
             folder there and restart the coordinator{next}"
        );
        Self { unit, steps: Err(why), is_restless: false, needs_attention: true }
    }
}

impl Forecast<'_> {
    /// Whether the file needs calls, or waits for HDFS. While HDFS removes replicas, which of them it will keep, and thus
    /// whether blocks have to move, cannot be foretold.
    fn has_work(&self) -> bool {
        let is_work = |step: &Next| match step {
            Next::Act(_) | Next::Wait(Waiting::Replicas | Waiting::Repair) => true,
            Next::Wait(Waiting::Settled) => self.is_restless,
            // The work refuses such a file, and tells the operator what to do.
            Next::End(end) => matches!(end, End::Lost { .. }),
        };
        self.steps.as_ref().is_ok_and(|steps| steps.iter().any(is_work))
    }

    /// Whether the replication of the file may have to be raised at once. Without parity, it is never raised.
    fn is_urgent(&self) -> bool {
        self.unit.is_unsafe() && self.unit.protection.is_some()
    }

    /// Replaces steps that are no work by the end that they lead to, as the reason.
    fn without_steps(self) -> Self {
        let reason = |steps: Vec<Next>| steps.last().map_or_else(String::new, ToString::to_string);
        let steps = self.steps.and_then(|steps| Err(reason(steps)));
        Self { steps, ..self }
    }
}

fn tolerated(codec: &Codec) -> usize {
    codec.tolerates().expect("the code was checked when it was parsed")
}

/// Whether an operator has to look at a file for which there is nothing to do. To undo an encoding, all parity has to go.
/// Files that are not encoded keep their replicas; but files that were encoded may have only one replica of each block,
/// and parity that does not protect them.
fn needs_attention(unit: &Unit, direction: Direction) -> bool {
    let health = &unit.health;
    let has_parity = unit.protection.is_some();
    match (direction, &unit.state) {
        (Direction::Undo, _) => has_parity,
        (Direction::Encode, State::Excluded(Exclusion::Nodes(_)) | State::Unrepairable(_)) => true,
        (Direction::Encode, State::Excluded(Exclusion::Lost { .. })) => unit.policy.is_some(),
        (Direction::Encode, _) if unit.held == Some(Exclusion::Trash) => false,
        // Its parity is stale, and it is not encoded again.
        (Direction::Encode, State::Stale(_)) if unit.is_outside && unit.policy.is_some() => true,
        (Direction::Encode, _) => has_parity && health.single + health.unprotected + health.unrecoverable > 0,
    }
}

/// Whether a file cannot be encoded for a reason that does not pass by itself.
fn is_blocked(steps: &[Next]) -> bool {
    let is_such = |end: &End| {
        matches!(end, End::Occupied { .. } | End::Unclaimed { .. } | End::Unfit(Exclusion::Nodes(_)))
    };
    matches!(steps.last(), Some(Next::End(end)) if is_such(end))
}

/// Returns the paths of the files whose attributes matter, and are not among those of the listing.
fn marked(units: &[Unit], listing: &Listing, policies: &Policies, direction: Direction) -> Vec<String> {
    let finder = FactFinder::new(listing);
    let noted: BTreeSet<&String> = parity_files(listing, policies).map(|file| &file.path).collect();
    let candidates = units.iter().filter_map(|unit| Some((unit, candidate(unit, policies, direction).ok()?)));
    let marked = candidates.flat_map(|(unit, candidate)| finder.marked(candidate.codec, &unit.path));
    marked.filter(|path| !noted.contains(path)).collect()
}

/// Returns the steps of all units. The listing contains the attributes of the [marked] files.
fn forecasts<'a>(
    units: &'a [Unit],
    listing: &Listing,
    policies: &Policies,
    direction: Direction,
    now_ms: u64,
) -> Vec<Forecast<'a>> {
    let finder = FactFinder::new(listing);
    let mut nodes = DataNodes::of(listing);
    let tolerated: BTreeMap<&str, usize> =
        policies.codecs().iter().map(|codec| (codec.name.as_str(), tolerated(codec))).collect();
    let foretold = |unit: &'a Unit| {
        let mut is_restless = false;
        let steps = candidate(unit, policies, direction).map(|Candidate { codec, policy, goal }| {
            let facts = finder.facts(codec, policy, &unit.path, now_ms);
            is_restless = !facts.is_at_rest(&nodes);
            let work = Work::new(codec.clone(), tolerated[codec.name.as_str()], goal, facts.next_term());
            forecast(work, facts, &mut nodes, now_ms)
        });
        let is_blocked = steps.as_ref().is_ok_and(|steps| is_blocked(steps));
        Forecast { unit, steps, is_restless, needs_attention: is_blocked || needs_attention(unit, direction) }
    };
    units.iter().map(foretold).collect()
}

fn text(forecasts: &[Forecast<'_>], is_detailed: bool) -> String {
    let mut text = String::new();
    for Forecast { unit, steps, .. } in forecasts {
        let Ok(steps) = steps else { continue };
        let codec = unit.codec.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{} (codec {codec}):", printable(&unit.path));
        for step in steps {
            let _ = writeln!(text, "  {}", printable(&step.to_string()));
        }
    }
    text += &others_text(forecasts, is_detailed);
    text
}

/// Returns lists of the files without steps: those that need attention, all of them, and the others.
fn others_text(forecasts: &[Forecast<'_>], is_detailed: bool) -> String {
    let (alarming, others): (Vec<&Forecast<'_>>, Vec<&Forecast<'_>>) =
        forecasts.iter().partition(|forecast| forecast.needs_attention);
    let mut text = String::new();
    for (title, forecasts, is_whole) in
        [("files that need attention", alarming, true), ("other files", others, is_detailed)]
    {
        let rows: Vec<[String; 2]> = forecasts.into_iter().filter_map(reason).collect();
        if !rows.is_empty() {
            let _ = write!(text, "{title}:\n{}", listed(["path", "reason"], rows, is_whole));
        }
    }
    text
}

/// Returns the path of a unit without steps, and the reason.
fn reason(forecast: &Forecast<'_>) -> Option<[String; 2]> {
    let why = forecast.steps.as_ref().err()?;
    Some([forecast.unit.path.clone(), why.clone()])
}

fn facts(forecasts: &[Forecast<'_>]) -> Value {
    json!({ "files": forecasts.iter().map(file_facts).collect::<Vec<_>>() })
}

fn file_facts(forecast: &Forecast<'_>) -> Value {
    let texts = |steps: &Vec<Next>| steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "path": forecast.unit.path,
        "codec": forecast.unit.codec,
        "steps": forecast.steps.as_ref().map(texts).unwrap_or_default(),
        "reason": forecast.steps.as_ref().err(),
        "needs_attention": forecast.steps.is_err() && forecast.needs_attention,
    })
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Block, File, Folder, Node, NodeIndex, Owner, Storing};

    use super::*;
    use crate::raid::doubles::{encoded, note};

    const POLICIES: &str = r#"
        [[policy]]
        name = "all"
        paths = ["/data"]
        codec = "xor"
        min_blocks = 1
        min_age = "0s"
    "#;

    /// Returns a listing with a file of two blocks on the first three of four DataNodes, a file without a
    /// policy, and an interrupted encoding of the first file by the coordinator of term 6.
    fn listing() -> Listing {
        let node = |at| Node { address: format!("10.0.0.{at}:9866"), rack: "/r".into(), is_usable: true };
        let block =
            |number| Block { number, stamp: 1, bytes: 1 << 20, replicas: [0, 1, 2].map(NodeIndex).to_vec() };
        let file = |path: &str| File {
            inode: 7,
            path: path.to_owned(),
            bytes: 2 << 20,
            block_bytes: 1 << 20,
            replication: 3,
            modified_ms: 1000,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: (0..2).map(block).collect(),
        };
        let path = "/tmp/raid/data/f/.mend-7-1000-6".to_owned();
        let draft = Folder { inode: 9, path, modified_ms: 0, owner: Owner::Superuser };
        let nodes = (0..4).map(node).collect();
        Listing {
            nodes,
            files: vec![file("/data/f"), file("/other")],
            folders: vec![draft],
            ..Listing::default()
        }
    }

    fn forecast_text(direction: Direction) -> String {
        let (listing, policies) = (listing(), Policies::parse(POLICIES).expect("policies"));
        let units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
        assert_eq!(marked(&units, &listing, &policies, Direction::Encode), ["/data/f"]);
        text(&forecasts(&units, &listing, &policies, direction, 1 << 40), false)
    }

    #[test]
    fn the_calls_of_an_encoding_are_listed() {
        let expected = "/data/f (codec xor):
  continue the work in /tmp/raid/data/f/.mend-7-1000-6: rename it to /tmp/raid/data/f/.mend-7-1000-7
  encode stripe 0: parity block 0 on 10.0.0.3:9866
  read the parity back and check it against the data (1 file)
  set user.mend.source and trusted.mend.source of /tmp/raid/data/f/.mend-7-1000-7/0-0 to `2 7 3 ";
        let text = forecast_text(Direction::Encode);
        assert!(text.starts_with(expected), "{text}");
        let (_, rest) = text.split_at(expected.len());
        let expected =
            "  set the modification time of /tmp/raid/data/f/.mend-7-1000-7/0-0 to 1000 ms after 1970
  let /tmp/raid/data/f/.mend-7-1000-7/0-0 become /raid/data/f
  delete /tmp/raid/data/f/.mend-7-1000-7
  set the replication of /data/f to 1
  wait until HDFS has created or removed replicas
  encoded
other files:
";
        let (_, rest) = rest.split_once('\n').expect("a line");
        assert!(rest.starts_with(expected), "{rest}");
        assert!(rest.contains("no policy covers it"), "{rest}");
    }

    #[test]
    fn only_files_with_calls_are_worked_on() {
        let (listing, policies) = (listing(), Policies::parse(POLICIES).expect("policies"));
        let units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
        let forecasts = forecasts(&units, &listing, &policies, Direction::Encode, 1 << 40);
        let worked: Vec<&str> =
            forecasts.iter().filter(|it| it.has_work()).map(|it| it.unit.path.as_str()).collect();
        assert_eq!(worked, ["/data/f"]);
        let errand = errand(&units[0], &policies, Direction::Undo, 1);
        assert!(errand.is_none(), "it has no parity");
    }

    /// A command was killed after it had lowered the replication. HDFS may keep replicas where blocks have to move.
    #[test]
    fn a_file_whose_replicas_are_being_removed_is_worked_on() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let has_work = |surplus: Option<NodeIndex>| {
            let mut listing = encoded(0);
            listing.files[0].blocks[0].replicas.extend(surplus);
            note(&mut listing);
            let units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
            let forecasts = forecasts(&units, &listing, &policies, Direction::Encode, 1 << 40);
            forecasts.iter().any(Forecast::has_work)
        };
        assert_eq!([has_work(None), has_work(Some(NodeIndex(3)))], [false, true]);
    }

    /// Returns whether the first file has work and needs attention, and the reason if there are no steps.
    fn judged(listing: &Listing, policies: &Policies, direction: Direction) -> (bool, bool, String) {
        let units = hdfs_raid::survey(listing, policies, 1 << 40).units;
        let mut forecasts = forecasts(&units, listing, policies, direction, 1 << 40);
        let first = forecasts.remove(0);
        let (has_work, needs_attention) = (first.has_work(), first.needs_attention);
        let reason = first.without_steps().steps.expect_err("a reason");
        (has_work, needs_attention, reason)
    }

    #[test]
    fn a_file_with_one_replica_and_stale_parity_is_no_success() {
        let mut stale = encoded(0);
        stale.files[0].modified_ms = 9;
        let without = Policies::none();
        let (has_work, needs_attention, reason) = judged(&stale, &without, Direction::Encode);
        assert_eq!((has_work, needs_attention), (false, true), "{reason}");
        assert_eq!(reason, "its parity is stale, and no policy of codec xor covers it: undo its encoding");
        // HDFS has not created the replicas yet.
        stale.files[0].replication = 3;
        assert!(judged(&stale, &without, Direction::Encode).1);
        // With its replicas, it has lost nothing.
        let replicas = || [0, 1, 2].map(NodeIndex).to_vec();
        stale.files[0].blocks.iter_mut().for_each(|block| block.replicas = replicas());
        assert!(!judged(&stale, &without, Direction::Encode).1);
        // The parity may be that of a file that was renamed.
        let policies = Policies::parse(POLICIES).expect("policies");
        let (has_work, needs_attention, reason) = judged(&stale, &policies, Direction::Encode);
        assert_eq!((has_work, needs_attention), (false, true), "{reason}");
        assert!(reason.starts_with("/raid/data/f has no note by Mend"), "{reason}");
        // An intact file is protected by its parity.
        assert!(!judged(&encoded(0), &without, Direction::Encode).1);
    }

    /// `mend raid undo` was killed after it had marked the parity.
    #[test]
    fn an_interrupted_undo_of_an_unrepairable_file_is_work() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let mut old = encoded(0);
        old.files[0].blocks[0].number = -1;
        note(&mut old);
        let (has_work, needs_attention, reason) = judged(&old, &policies, Direction::Encode);
        assert_eq!((has_work, needs_attention), (false, true), "{reason}");
        assert!(reason.contains("or undo its encoding"), "{reason}");
        old.notes.marks.get_mut("/raid/data/f").expect("marks").is_undone = true;
        assert!(judged(&old, &policies, Direction::Encode).0);
        let (has_work, _, reason) = judged(&old, &Policies::none(), Direction::Encode);
        assert!(!has_work && reason.contains("or undo its encoding"), "{reason}");
    }

    /// A client appends to the encoded file.
    #[test]
    fn an_open_file_with_stale_parity_gets_its_replicas() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let mut open = encoded(0);
        note(&mut open);
        (open.files[0].modified_ms, open.files[0].is_open) = (9, true);
        open.files[0].blocks[1].stamp = 2;
        let units = hdfs_raid::survey(&open, &policies, 1 << 40).units;
        let forecasts = forecasts(&units, &open, &policies, Direction::Encode, 1 << 40);
        let steps = forecasts[0].steps.as_ref().expect("steps");
        assert_eq!(steps[0].to_string(), "set the replication of /data/f to 3");
        assert_eq!(steps.last(), Some(&Next::End(End::Unfit(Exclusion::Open))));
    }

    #[test]
    fn changed_files_with_one_replica_are_urgent() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let is_urgent = |listing: &Listing| {
            let units = hdfs_raid::survey(listing, &policies, 1 << 40).units;
            let forecasts = forecasts(&units, listing, &policies, Direction::Encode, 1 << 40);
            forecasts[0].has_work() && forecasts[0].is_urgent()
        };
        let mut changed = encoded(0);
        note(&mut changed);
        changed.files[0].blocks[1].stamp = 2;
        assert!(is_urgent(&changed));
        changed.files[0].replication = 3;
        let replicas = || [0, 1, 3].map(NodeIndex).to_vec();
        changed.files[0].blocks.iter_mut().for_each(|block| block.replicas = replicas());
        assert!(!is_urgent(&changed), "it has its replicas");
        assert!(!is_urgent(&listing()), "it was never encoded");
    }

    #[test]
    fn a_file_that_is_left_encoded_is_not_undone() {
        let mut kept = encoded(0);
        kept.snapshots = vec!["/data".to_owned()];
        let without = Policies::none();
        let (has_work, needs_attention, reason) = judged(&kept, &without, Direction::Undo);
        assert_eq!(
            (has_work, needs_attention, reason.as_str()),
            (false, true, "excluded: /data has snapshots")
        );
        let mut plain = encoded(0);
        plain.files.truncate(1);
        assert!(!judged(&plain, &without, Direction::Undo).1);
    }

    /// Returns the paths of the units that are not encoded if the coordinator repairs the files in this folder.
    fn outside(units: &mut Vec<Unit>, policies: &Policies, folder: &str) -> Vec<String> {
        let outside = take_outside(units, policies, &Covered::new(&[folder]));
        outside.into_iter().map(|unit| unit.path).collect()
    }

    #[test]
    fn files_that_the_coordinator_does_not_repair_are_not_encoded() {
        let (listing, policies) = (listing(), Policies::parse(POLICIES).expect("policies"));
        let mut units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
        assert!(outside(&mut units, &policies, "/data").is_empty());
        let taken = take_outside(&mut units, &policies, &Covered::new(&["/other"]));
        let forecast = Forecast::outside(&taken[0]);
        assert!(!forecast.has_work() && forecast.needs_attention);
        let text = text(&[forecast], false);
        assert!(text.contains("it is outside of `paths` in [store.namenode]"), "{text}");
        let left: Vec<&str> = units.iter().map(|unit| unit.path.as_str()).collect();
        assert_eq!(left, ["/other"], "no policy covers it");
    }

    #[test]
    fn outside_of_the_coordinators_folders_parity_follows_renames_and_undo_continues() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let mut renamed = encoded(0);
        note(&mut renamed);
        renamed.files[0].path = "/data/g".to_owned();
        let mut units = hdfs_raid::survey(&renamed, &policies, 1 << 40).units;
        assert!(outside(&mut units, &policies, "/other").is_empty());
        let found = candidate(&units[0], &policies, Direction::Encode).expect("a candidate");
        assert_eq!(found.goal, hdfs_raid::Goal::Protected);
        let mut undone = encoded(0);
        note(&mut undone);
        undone.notes.marks.get_mut("/raid/data/f").expect("marks").is_undone = true;
        let mut units = hdfs_raid::survey(&undone, &policies, 1 << 40).units;
        assert!(outside(&mut units, &policies, "/other").is_empty());
    }

    #[test]
    fn too_few_datanodes_are_reported() {
        let policies = Policies::parse(POLICIES).expect("policies");
        let mut few = listing();
        few.nodes[2..].iter_mut().for_each(|node| node.is_usable = false);
        let (_, needs_attention, reason) = judged(&few, &policies, Direction::Encode);
        assert!(needs_attention && reason.contains("DataNodes in service"), "{reason}");
    }

    #[test]
    fn files_that_need_attention_are_all_listed() {
        let mut listing = encoded(0);
        listing.files[0].modified_ms = 9;
        let policies = Policies::none();
        let units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
        let forecasts = forecasts(&units, &listing, &policies, Direction::Encode, 1 << 40);
        let text = text(&forecasts, false);
        assert!(text.starts_with("files that need attention:\n"), "{text}");
        assert!(text.contains("other files:\n") && text.contains("it is parity"), "{text}");
        let facts = facts(&forecasts);
        let attention = |at: usize| facts["files"][at]["needs_attention"] == true;
        assert_eq!([attention(0), attention(1)], [true, false]);
    }

    #[test]
    fn the_parity_of_a_renamed_file_follows_it() {
        let mut renamed = encoded(0);
        note(&mut renamed);
        renamed.files[0].path = "/data/g".to_owned();
        let policies = Policies::parse(POLICIES).expect("policies");
        let units = hdfs_raid::survey(&renamed, &policies, 1 << 40).units;
        let forecasts = forecasts(&units, &renamed, &policies, Direction::Encode, 1 << 40);
        let steps = forecasts[0].steps.as_ref().expect("steps");
        assert_eq!(steps[0].to_string(), "let /raid/data/f become /raid/data/g");
        let errand = errand(&units[0], &policies, Direction::Encode, 1).expect("an errand");
        assert_eq!(errand.file.stray.as_deref(), Some("/raid/data/f"));
        // No policy covers its new path, for example in the trash.
        renamed.files[0].path = "/user/a/.Trash/Current/f".to_owned();
        let units = hdfs_raid::survey(&renamed, &policies, 1 << 40).units;
        let trashed = units.iter().find(|unit| unit.path.starts_with("/user/")).expect("a unit");
        let errand = self::errand(trashed, &policies, Direction::Encode, 1).expect("an errand");
        assert_eq!(errand.file.stray.as_deref(), Some("/raid/data/f"));
    }

    /// It was changed a moment ago, so the policy does not encode it. But nothing else protects its only replica.
    #[test]
    fn a_renamed_file_that_was_changed_gets_its_replicas() {
        let policies = POLICIES.replace("\"0s\"", "\"1d\"");
        let policies = Policies::parse(&policies).expect("policies");
        let mut renamed = encoded(0);
        note(&mut renamed);
        renamed.files[0].path = "/data/g".to_owned();
        (renamed.files[0].blocks[1].stamp, renamed.files[0].modified_ms) = (2, 1 << 40);
        let units = hdfs_raid::survey(&renamed, &policies, 1 << 40).units;
        let forecasts = forecasts(&units, &renamed, &policies, Direction::Encode, 1 << 40);
        let texts: Vec<String> =
            forecasts[0].steps.as_ref().expect("steps").iter().map(ToString::to_string).collect();
        assert_eq!(
            texts[..2],
            ["set the replication of /data/g to 3", "let /raid/data/f become /raid/data/g"]
        );
        assert!(texts.last().is_some_and(|end| end.starts_with("excluded: it was modified")), "{texts:?}");
        assert!(forecasts[0].has_work());
        let errand = errand(&units[0], &policies, Direction::Encode, 1).expect("an errand");
        assert_eq!(errand.file.stray.as_deref(), Some("/raid/data/f"));
    }

    #[test]
    fn only_encoded_files_can_be_undone() {
        let text = forecast_text(Direction::Undo);
        assert!(text.contains("/data/f") && text.contains("it has no parity"), "{text}");
    }
}
