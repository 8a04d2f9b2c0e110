//! Has files encoded, or this undone, and shows the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use hdfs_raid::{DataNodes, End, Refusal, Stop};
use serde_json::{Value, json};
use stores::RaidNameNode;
use stores::raid::{self, Driver, Errand, Outcome, ParityMaker, Unpaced};

use super::reports::Reports;
use crate::answer::Answer;
use crate::failure::{Exit, Failure, say};
use crate::format::{count, printable};
use crate::interrupt::interrupted;

/// The most files in progress. Most of them wait for heartbeats of DataNodes.
const FILES_AT_ONCE: usize = 8;

/// Carries out the calls for all files: the urgent ones, whose replication is raised first, and the others. `maker` makes the
/// parity; without one, the JVM does. `nodes` counts the blocks of the whole listing. `reports` take the ends.
///
/// # Errors
/// [`Failure`] if the user interrupts the command. Failures of single files are outcomes.
pub async fn carry_out(
    namenode: RaidNameNode,
    maker: Option<Arc<dyn ParityMaker>>,
    nodes: &DataNodes,
    errands: [Vec<Errand>; 2],
    reports: Reports,
) -> Result<Vec<Outcome>, Failure> {
    let driver = Driver::new(namenode, Arc::new(Unpaced), |path, what| tell(path, what));
    let driver = match maker {
        Some(maker) => driver.with_maker(maker),
        None => driver,
    };
    driver.note_blocks(nodes.blocks());
    let (all, mut outcomes) = (errands.iter().map(Vec::len).sum::<usize>(), Vec::new());
    let take = |outcome: Outcome| {
        reports.note(&outcome);
        outcomes.push(outcome);
    };
    let is_interrupted = tokio::select! {
        () = raid::drive_all(Arc::new(driver), errands, FILES_AT_ONCE, take) => false,
        () = interrupted() => true,
    };
    reports.finish().await;
    if is_interrupted {
        return Err(Failure::interrupted(format!(
            "{} of {} finished; the others have their former replicas, or parity that was checked",
            outcomes.len(),
            count(all as u64, "file")
        ))
        .help("run the same command again: it continues where this one has stopped"));
    }
    outcomes.sort_by(|one: &Outcome, other| one.path.cmp(&other.path));
    Ok(outcomes)
}

/// Prints a line about a file.
pub fn tell(path: &str, what: impl std::fmt::Display) {
    say(&printable(&format!("{path}: {what}")));
}

/// Whether the file is as the command asks for, or was deleted meanwhile.
fn is_success(outcome: &Outcome, wanted: &End) -> bool {
    match &outcome.result {
        Ok(End::SourceMissing) => true,
        Ok(end) => end == wanted,
        Err(_) => false,
    }
}

fn text(outcome: &Outcome) -> String {
    outcome.result.as_ref().map_or_else(ToString::to_string, ToString::to_string)
}

/// Returns the operator's next step; `None` if there is nothing to do.
fn next_step(outcome: &Outcome) -> Option<String> {
    match &outcome.result {
        Ok(End::Superseded) => Some("let the other command end".to_owned()),
        Ok(End::Occupied { .. }) => {
            let text = "a file at this path stays replicated until the path of its parity is free: run `mend raid encode` on a \
                        folder that contains the renamed file too, which renames its parity; then again. If that file is \
                        only in snapshots, delete these first";
            Some(text.to_owned())
        }
        Ok(_) => None,
        Err(Stop::Stalled(waiting)) => Some(format!("{}, then run the command again", waiting.advice())),
        Err(stop) => Some(remedy(stop).to_owned()),
    }
}

/// Returns the operator's next step after the work on a file was given up.
fn remedy(stop: &Stop) -> &'static str {
    match stop {
        Stop::Refused { kind: Refusal::Permission, .. } => {
            "let `mend raid` act as HDFS's superuser, for example by HADOOP_USER_NAME or `mend.keytab`"
        }
        Stop::Refused { kind: Refusal::Quota, .. } => {
            "raise the quota of the folder that the message names, then run the command again; parity counts below /tmp \
             first, then below its parity root"
        }
        Stop::Refused { kind: Refusal::Space, .. } => {
            "free space on DataNodes or add some (`hdfs dfsadmin -report`), then run the command again"
        }
        Stop::Refused { kind: Refusal::Changed, .. } => {
            "wait until no program changes the file any more, then run the command again"
        }
        Stop::Refused { .. } | Stop::Unavailable(_) | Stop::Stalled(_) => {
            "remove the cause that the message names, then run the command again: it continues there"
        }
        Stop::Kept => {
            "the file has its former replication. After a failover, run the command again in some hours. Otherwise delete the \
             snapshots with the file, then run the command again; `hdfs lsSnapshottableDir` lists the folders with \
             snapshots. Or undo its encoding"
        }
        Stop::WrongParity => {
            "a DataNode or this machine corrupts data: look for errors of memory and disks before you try again"
        }
        Stop::Unstable(_) => "check that nothing else changes files below /tmp, then run the command again",
        Stop::Lost { is_decodable: true, .. } => {
            "start the DataNodes with the missing blocks, or copy the file with Mend's file system class, which decodes them \
             (`hdfs dfs -D fs.hdfs.impl=org.apache.hadoop.hdfs.MendDistributedFileSystem -cp PATH COPY`), then run the \
             command again"
        }
        Stop::Lost { is_decodable: false, .. } => {
            "start the DataNodes with the missing blocks (`hdfs fsck PATH -files -blocks -locations`), then run the \
             command again"
        }
    }
}

/// Returns the answer of a command that asks for the end `wanted`; `others` are the files without calls, with the
/// reasons.
pub fn answer(outcomes: &[Outcome], wanted: &End, others: &str, other_facts: &[Value]) -> Answer {
    let mut text = String::new();
    let (done, open): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|one| is_success(one, wanted));
    let mut by_end: BTreeMap<String, u64> = BTreeMap::new();
    done.iter().for_each(|outcome| *by_end.entry(self::text(outcome)).or_default() += 1);
    for (end, files) in by_end {
        let _ = writeln!(text, "{end}: {}", count(files, "file"));
    }
    if !open.is_empty() {
        text += "not finished:\n";
    }
    for outcome in &open {
        let _ = writeln!(text, "  {}", printable(&format!("{}: {}", outcome.path, self::text(outcome))));
        next_step(outcome).into_iter().for_each(|step| {
            let _ = writeln!(text, "    {}", printable(&step));
        });
    }
    if outcomes.is_empty() {
        text += "nothing to do\n";
    }
    text += others;
    let facts: Vec<Value> =
        outcomes.iter().map(|outcome| facts(outcome, wanted)).chain(other_facts.iter().cloned()).collect();
    Answer::new(text, &json!({ "files": facts })).with_exit(exit(&open))
}

fn exit(open: &[&Outcome]) -> Exit {
    let is_loss = |outcome: &&Outcome| matches!(outcome.result, Err(Stop::Lost { is_decodable: false, .. }));
    match open {
        [] => Exit::Done,
        _ if open.iter().any(is_loss) => Exit::Data,
        _ => Exit::Failed,
    }
}

fn facts(outcome: &Outcome, wanted: &End) -> Value {
    json!({
        "path": outcome.path,
        "is_done": is_success(outcome, wanted),
        "result": text(outcome),
        "next_step": next_step(outcome),
    })
}

#[cfg(test)]
mod tests {
    use stores::raid::Deeds;

    use super::*;

    fn outcome(path: &str, result: Result<End, Stop>) -> Outcome {
        Outcome { path: path.to_owned(), result, deeds: Deeds::default() }
    }

    #[test]
    fn files_that_are_not_finished_are_listed_with_the_next_step() {
        let text = "The DiskSpace quota of /raidrs is exceeded".to_owned();
        let stop = Stop::Refused { action: Some("encode stripe 0".to_owned()), kind: Refusal::Quota, text };
        let outcomes = [
            outcome("/a", Ok(End::Encoded)),
            outcome("/b", Ok(End::SourceMissing)),
            outcome("/c", Err(stop)),
        ];
        let answer = answer(&outcomes, &End::Encoded, "", &[]);
        assert_eq!(answer.exit(), Exit::Failed);
        let files = &answer.facts()["files"];
        assert_eq!([&files[0]["is_done"], &files[1]["is_done"], &files[2]["is_done"]], [true, true, false]);
        assert_eq!(files[2]["result"], "encode stripe 0: The DiskSpace quota of /raidrs is exceeded");
        assert!(files[2]["next_step"].as_str().is_some_and(|step| step.contains("raise the quota")));
    }

    #[test]
    fn a_file_that_another_command_encodes_is_no_success() {
        assert_eq!(
            answer(&[outcome("/a", Ok(End::Superseded))], &End::Encoded, "", &[]).exit(),
            Exit::Failed
        );
        assert_eq!(answer(&[outcome("/a", Ok(End::Plain))], &End::Encoded, "", &[]).exit(), Exit::Failed);
        assert_eq!(answer(&[outcome("/a", Ok(End::Encoded))], &End::Encoded, "", &[]).exit(), Exit::Done);
    }

    #[test]
    fn unrecoverable_files_have_an_exit_code_of_their_own() {
        let lost = |is_decodable| outcome("/a", Err(Stop::Lost { block: 3, is_decodable }));
        assert_eq!(answer(&[lost(true)], &End::Encoded, "", &[]).exit(), Exit::Failed);
        assert_eq!(answer(&[lost(true), lost(false)], &End::Encoded, "", &[]).exit(), Exit::Data);
    }
}
