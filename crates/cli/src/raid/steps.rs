//! Implements `mend raid encode` and `mend raid undo`: finds the files, and lists the calls for each of them or
//! has them carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cluster::Cluster;
use hdfs_raid::{
    Codec, DataNodes, Drive, End, FactFinder, Goal, Listing, Marks, Next, Policies, RaidPolicy, Scope, State,
    Unit, Waiting, Work, forecast,
};
use serde_json::{Value, json};
use stores::raid::{self, Errand};
use stores::{RaidFile, RaidNameNode};

use super::encoder::Encoder;
use super::{EXAMPLES, RaidStepsArgs, now_ms, outcomes, policies};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::format::table;

/// Whether files are encoded, or their encoding is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Encode,
    Undo,
}

/// A file or folder, with the steps for it or the reason for which there are none.
struct Forecast<'a> {
    unit: &'a Unit,
    steps: Result<Vec<Next>, String>,
    /// Whether HDFS has replicas to create or to remove.
    is_restless: bool,
}

/// A unit with steps.
struct Candidate<'a> {
    codec: &'a Codec,
    policy: Option<&'a RaidPolicy>,
    goal: Goal,
}

/// Implements `mend raid encode` and `mend raid undo`. `is_detailed` prints the reasons of all other files.
pub async fn steps(
    cluster: &Cluster,
    args: &RaidStepsArgs,
    (direction, encoder): (Direction, Encoder),
    is_detailed: bool,
) -> Result<Answer, Failure> {
    let (policies, now_ms) = (policies(&args.plan.policy)?, now_ms());
    let namenode = RaidNameNode::of(cluster)?;
    let listing = namenode.listing(&args.plan.path, &policies).await?;
    let units = hdfs_raid::survey(&listing, &policies, now_ms).units;
    let marks = namenode.marks(&marked(&units, &listing, &policies, direction)).await?;
    let living = namenode.living(&marks).await?;
    let forecasts = forecasts(&units, &listing, &policies, direction, now_ms, &(marks, living));
    if args.dry_run {
        return Ok(Answer::new(text(&forecasts, is_detailed), &facts(&forecasts)));
    }
    let (driven, others): (Vec<_>, Vec<_>) = forecasts.into_iter().partition(Forecast::has_work);
    let others: Vec<Forecast<'_>> = others.into_iter().map(Forecast::without_steps).collect();
    let (others_text, others_facts) =
        (others_text(&others, is_detailed), others.iter().map(file_facts).collect::<Vec<_>>());
    let term = raid::term();
    let errand = |forecast: Forecast<'_>| errand(forecast.unit, &policies, direction, term);
    let errands: Vec<Errand> = driven.into_iter().filter_map(errand).collect();
    let nodes = DataNodes::of(&listing);
    drop(listing);
    let wanted = match direction {
        Direction::Encode => End::Encoded,
        Direction::Undo => End::Plain,
    };
    let maker = encoder.maker(cluster, &namenode)?;
    let done = outcomes::carry_out(namenode, maker, &nodes, errands).await?;
    Ok(outcomes::answer(&done, &wanted, &others_text, &others_facts))
}

/// Returns the work on a unit.
fn errand(unit: &Unit, policies: &Policies, direction: Direction, term: u64) -> Option<Errand> {
    let Candidate { codec, policy, goal } = candidate(unit, policies, direction).ok()?;
    let drive = Drive::new(codec.clone(), tolerated(codec), goal, term);
    let file = RaidFile { path: unit.path.clone(), codec: codec.clone(), policy: policy.cloned() };
    Some(Errand { file, drive })
}

impl Forecast<'_> {
    /// Whether the file needs calls, or waits for HDFS. While HDFS removes replicas, which of them it will keep, and thus
    /// whether blocks have to move, cannot be foretold.
    fn has_work(&self) -> bool {
        let is_work = |step: &Next| match step {
            Next::Act(_) | Next::Wait(Waiting::Replicas | Waiting::Repair) => true,
            Next::Wait(Waiting::Settled) => self.is_restless,
            Next::End(_) => false,
        };
        self.steps.as_ref().is_ok_and(|steps| steps.iter().any(is_work))
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

/// Returns the paths of the files whose attributes matter.
fn marked(units: &[Unit], listing: &Listing, policies: &Policies, direction: Direction) -> Vec<String> {
    let finder = FactFinder::new(listing);
    let candidates = units.iter().filter_map(|unit| Some((unit, candidate(unit, policies, direction).ok()?)));
    candidates.flat_map(|(unit, candidate)| finder.marked(candidate.codec, &unit.path)).collect()
}

/// Returns how a unit is processed, or why it is not.
fn candidate<'a>(unit: &Unit, policies: &'a Policies, direction: Direction) -> Result<Candidate<'a>, String> {
    if let State::Excluded(why) = &unit.state {
        return Err(why.to_string());
    }
    if let (Direction::Encode, Some(why)) = (direction, &unit.held) {
        return Err(why.to_string());
    }
    let policy = policies.policies().iter().find(|policy| Some(&policy.name) == unit.policy.as_ref());
    let codec = unit.codec.as_ref().and_then(|name| policies.codec(name)).ok_or("it has no codec")?;
    if codec.scope == Scope::Folder {
        return Err("stripes over the files of a folder can only be planned".to_owned());
    }
    let goal = match (direction, policy) {
        (Direction::Encode, None) => return Err("it is encoded, and no policy covers it".to_owned()),
        (Direction::Encode, Some(policy)) => {
            Goal::Encoded { replication: policy.replication, parity_replication: policy.parity_replication }
        }
        (Direction::Undo, _) if unit.state == State::ShouldEncode => {
            return Err("it has no parity".to_owned());
        }
        (Direction::Undo, _) => Goal::Plain,
    };
    Ok(Candidate { codec, policy, goal })
}

/// Returns the steps of all units. The last argument has the attributes of files, and the existing inodes in
/// notes.
fn forecasts<'a>(
    units: &'a [Unit],
    listing: &Listing,
    policies: &Policies,
    direction: Direction,
    now_ms: u64,
    (marks, living): &(BTreeMap<String, Marks>, BTreeSet<u64>),
) -> Vec<Forecast<'a>> {
    let finder = FactFinder::new(listing);
    let mut nodes = DataNodes::of(listing);
    let tolerated: BTreeMap<&str, usize> =
        policies.codecs().iter().map(|codec| (codec.name.as_str(), tolerated(codec))).collect();
    let foretold = |unit: &'a Unit| {
        let mut is_restless = false;
        let steps = candidate(unit, policies, direction).map(|Candidate { codec, policy, goal }| {
            let facts = finder.facts(codec, policy, &unit.path, now_ms, marks, living);
            is_restless = !facts.is_at_rest(&nodes);
            let work = Work::new(codec.clone(), tolerated[codec.name.as_str()], goal, facts.next_term());
            forecast(work, facts, &mut nodes, now_ms)
        });
        Forecast { unit, steps, is_restless }
    };
    units.iter().map(foretold).collect()
}

fn text(forecasts: &[Forecast<'_>], is_detailed: bool) -> String {
    let mut text = String::new();
    for Forecast { unit, steps, .. } in forecasts {
        let Ok(steps) = steps else { continue };
        let codec = unit.codec.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{} (codec {codec}):", unit.path);
        for step in steps {
            let _ = writeln!(text, "  {step}");
        }
    }
    text += &others_text(forecasts, is_detailed);
    text
}

/// Returns a list of the files without steps.
fn others_text(forecasts: &[Forecast<'_>], is_detailed: bool) -> String {
    let others: Vec<[String; 2]> = forecasts.iter().filter_map(reason).collect();
    if others.is_empty() {
        return String::new();
    }
    let shown = if is_detailed { others.len() } else { EXAMPLES.min(others.len()) };
    let hidden = others.len() - shown;
    let mut text = "other files:\n".to_owned();
    text += &table(["path", "reason"], others.into_iter().take(shown));
    if hidden > 0 {
        let _ = writeln!(text, "… and {hidden} more; -v lists all");
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
    })
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Block, File, Fingerprint, Folder, Node, NodeIndex, Note, Storing};

    use super::*;
    use crate::raid::doubles::encoded;

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
            storing: Storing::Replicated,
            is_open: false,
            blocks: (0..2).map(block).collect(),
        };
        let draft = Folder { path: "/tmp/raid/data/f/.mend-7-1000-6".to_owned(), modified_ms: 0 };
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
        let attributes = Default::default();
        text(&forecasts(&units, &listing, &policies, direction, 1 << 40, &attributes), false)
    }

    #[test]
    fn the_calls_of_an_encoding_are_listed() {
        let expected = "/data/f (codec xor):
  continue the work in /tmp/raid/data/f/.mend-7-1000-6: rename it to /tmp/raid/data/f/.mend-7-1000-7
  encode stripe 0: parity block 0 on 10.0.0.3:9866
  read the parity back and check it against the data (1 file)
  set user.mend.source and trusted.mend.source of /tmp/raid/data/f/.mend-7-1000-7/0-0 to `1 7 3 ";
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
        let forecasts =
            forecasts(&units, &listing, &policies, Direction::Encode, 1 << 40, &Default::default());
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
            let [source, parity] = [0, 1].map(|at: usize| Fingerprint::of(&listing.files[at].blocks));
            let note = Note { inode: 1, replication: 3, source, parity };
            let marks = Marks { note: Some(note), ..Marks::default() };
            let attributes = (BTreeMap::from([("/raid/data/f".to_owned(), marks)]), BTreeSet::from([1]));
            (listing.notes.marks, listing.notes.living) = attributes.clone();
            let units = hdfs_raid::survey(&listing, &policies, 1 << 40).units;
            let forecasts = forecasts(&units, &listing, &policies, Direction::Encode, 1 << 40, &attributes);
            forecasts.iter().any(Forecast::has_work)
        };
        assert_eq!([has_work(None), has_work(Some(NodeIndex(3)))], [false, true]);
    }

    #[test]
    fn only_encoded_files_can_be_undone() {
        let text = forecast_text(Direction::Undo);
        assert!(text.contains("/data/f") && text.contains("it has no parity"), "{text}");
    }
}
