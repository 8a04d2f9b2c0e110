//! Encodes files, or undoes this: carries out the calls for each file, several files at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdfs_raid::{Action, DataNodes, Drive, End, Facts, Order, Pause, Refusal, Stop, Waiting};
use serde_json::{Value, json};
use stores::{RaidFile, RaidNameNode};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::now_ms;
use crate::answer::Answer;
use crate::failure::{Exit, Failure, say};
use crate::format::{count, printable};
use crate::interrupt::interrupted;

/// The most files in progress. Most of them wait for heartbeats of DataNodes.
const FILES_AT_ONCE: usize = 8;
/// The most files whose blocks are read or written at the same time, all of them by one JVM.
const DATA_AT_ONCE: usize = 2;
/// The number of bits of a term that contain the process number.
const TERM_BITS: u32 = 20;
/// DataNodes with about as many blocks are equally good places for new ones: the choice among them is random.
const ABOUT: u64 = 4;

/// A file to encode, or whose encoding is undone.
pub struct Errand {
    pub file: RaidFile,
    pub drive: Drive,
    /// The end that the command asks for.
    pub wanted: End,
}

/// The end of the work on a file.
pub struct Outcome {
    pub path: String,
    pub result: Result<End, Stop>,
    pub wanted: End,
}

/// The state that all files share.
struct Shared {
    namenode: RaidNameNode,
    /// The number of blocks on each DataNode, by address.
    blocks: Mutex<BTreeMap<String, u64>>,
    data: Semaphore,
}

/// The work on one file.
struct Worker {
    file: RaidFile,
    drive: Drive,
    shared: Arc<Shared>,
    /// The facts of the latest look.
    facts: Facts,
    /// The reason for the latest pause.
    said: Option<Pause>,
}

/// Returns a term that no other process has: the time in milliseconds, and bits of the process number.
pub fn term() -> u64 {
    let process = u64::from(std::process::id());
    (now_ms() << TERM_BITS) | (process & ((1 << TERM_BITS) - 1))
}

/// Carries out the calls for all files. `nodes` counts the blocks of the whole listing.
///
/// # Errors
/// [`Failure`] if the user interrupts the command. Failures of single files are outcomes.
pub async fn carry_out(
    namenode: RaidNameNode,
    nodes: &DataNodes,
    errands: Vec<Errand>,
) -> Result<Vec<Outcome>, Failure> {
    let mut blocks = nodes.blocks();
    let random = RandomState::new();
    blocks.iter_mut().for_each(|(address, count)| *count += random.hash_one(address) % ABOUT);
    let data = Semaphore::new(DATA_AT_ONCE);
    let shared = Arc::new(Shared { namenode, blocks: Mutex::new(blocks), data });
    let all = errands.len();
    let mut outcomes = Vec::new();
    let working = async {
        let (mut waiting, mut running) = (errands.into_iter(), JoinSet::new());
        loop {
            while running.len() < FILES_AT_ONCE
                && let Some(errand) = waiting.next()
            {
                running.spawn(finish(errand, Arc::clone(&shared)));
            }
            match running.join_next().await {
                Some(outcome) => outcomes.push(outcome.expect("no task panics or is cancelled")),
                None => break,
            }
        }
    };
    let is_interrupted = tokio::select! {
        () = working => false,
        () = interrupted() => true,
    };
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

async fn finish(errand: Errand, shared: Arc<Shared>) -> Outcome {
    let Errand { file, drive, wanted } = errand;
    let path = file.path.clone();
    let worker = Worker { file, drive, shared, facts: Facts::default(), said: None };
    let result = worker.run().await;
    match &result {
        Ok(end) => tell(&path, end),
        Err(stop) => tell(&path, stop),
    }
    Outcome { path, result, wanted }
}

impl Worker {
    async fn run(mut self) -> Result<End, Stop> {
        let mut order = Order::Look;
        loop {
            order = match order {
                Order::Look => self.look().await,
                Order::Pause { ms, why } => {
                    self.pause(ms, why).await;
                    Order::Look
                }
                Order::Act { action, until_ms } => self.act(&action, until_ms).await,
                Order::End(result) => return result,
            };
        }
    }

    async fn look(&mut self) -> Order {
        let looked_ms = now_ms();
        match self.shared.namenode.look(&self.file, looked_ms).await {
            Ok((facts, mut nodes)) => {
                nodes.add_blocks(&self.shared.blocks.lock().unwrap_or_else(PoisonError::into_inner));
                self.facts = facts.clone();
                self.drive.handle_look(Ok((facts, &nodes)), looked_ms, now_ms())
            }
            Err(trouble) => self.drive.handle_look(Err(trouble), looked_ms, now_ms()),
        }
    }

    /// Pauses; says why, unless it has said so before.
    async fn pause(&mut self, ms: u64, why: Pause) {
        if self.said.as_ref() != Some(&why) {
            tell(&self.file.path, &why);
            self.said = Some(why);
        }
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn act(&mut self, action: &Action, until_ms: u64) -> Order {
        let shared = Arc::clone(&self.shared);
        let moves_data = matches!(action, Action::Write { .. } | Action::Prove { .. } | Action::Move(_));
        let _permit = if moves_data { shared.data.acquire().await.ok() } else { None };
        self.said = None;
        tell(&self.file.path, action);
        let result = shared.namenode.act(&self.file, &self.facts, action, until_ms).await;
        if let (Ok(_), Action::Write { blocks, .. }) = (&result, action) {
            let mut counts = shared.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.iter().for_each(|block| *counts.entry(block.datanode.clone()).or_default() += 1);
        }
        self.drive.handle_action(result, now_ms())
    }
}

/// Prints a line about a file.
fn tell(path: &str, what: impl std::fmt::Display) {
    say(&printable(&format!("{path}: {what}")));
}

impl Outcome {
    /// Whether the file is as the command asks for, or was deleted meanwhile.
    fn is_success(&self) -> bool {
        match &self.result {
            Ok(End::SourceMissing) => true,
            Ok(end) => *end == self.wanted,
            Err(_) => false,
        }
    }

    fn text(&self) -> String {
        match &self.result {
            Ok(end) => end.to_string(),
            Err(stop) => stop.to_string(),
        }
    }

    /// Returns the operator's next step; `None` if there is nothing to do.
    fn next_step(&self) -> Option<&'static str> {
        match &self.result {
            Ok(End::Superseded) => Some("let the other command end"),
            Ok(End::Occupied { .. }) => {
                Some("rename the parity to the path of its file (`hdfs dfs -mv`), then run the command again")
            }
            Ok(_) => None,
            Err(stop) => Some(remedy(stop)),
        }
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
        Stop::Refused { .. } | Stop::Unavailable(_) => {
            "remove the cause that the message names, then run the command again: it continues there"
        }
        Stop::Stalled(Waiting::Repair) => {
            "start the DataNodes with the missing blocks (`hdfs fsck PATH -files -blocks -locations`), then run the \
             command again"
        }
        Stop::Stalled(_) => {
            "check that DataNodes are in service and have room (`hdfs dfsadmin -report`), then run the command again"
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

/// Returns the answer of the command; `others` are the files without calls, with the reasons.
pub fn answer(outcomes: &[Outcome], others: &str, other_facts: &[Value]) -> Answer {
    let mut text = String::new();
    let (done, open): (Vec<&Outcome>, Vec<&Outcome>) = outcomes.iter().partition(|one| one.is_success());
    let mut by_end: BTreeMap<String, u64> = BTreeMap::new();
    done.iter().for_each(|outcome| *by_end.entry(outcome.text()).or_default() += 1);
    for (end, files) in by_end {
        let _ = writeln!(text, "{end}: {}", count(files, "file"));
    }
    if !open.is_empty() {
        text += "not finished:\n";
    }
    for outcome in &open {
        let _ = writeln!(text, "  {}: {}", outcome.path, outcome.text());
        outcome.next_step().into_iter().for_each(|step| {
            let _ = writeln!(text, "    {step}");
        });
    }
    if outcomes.is_empty() {
        text += "nothing to do\n";
    }
    text += others;
    let facts: Vec<Value> = outcomes.iter().map(facts).chain(other_facts.iter().cloned()).collect();
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

fn facts(outcome: &Outcome) -> Value {
    json!({
        "path": outcome.path,
        "is_done": outcome.is_success(),
        "result": outcome.text(),
        "next_step": outcome.next_step(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(path: &str, result: Result<End, Stop>) -> Outcome {
        Outcome { path: path.to_owned(), result, wanted: End::Encoded }
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
        let answer = answer(&outcomes, "", &[]);
        assert_eq!(answer.exit(), Exit::Failed);
        let files = &answer.facts()["files"];
        assert_eq!([&files[0]["is_done"], &files[1]["is_done"], &files[2]["is_done"]], [true, true, false]);
        assert_eq!(files[2]["result"], "encode stripe 0: The DiskSpace quota of /raidrs is exceeded");
        assert!(files[2]["next_step"].as_str().is_some_and(|step| step.contains("raise the quota")));
    }

    #[test]
    fn a_file_that_another_command_encodes_is_no_success() {
        assert_eq!(answer(&[outcome("/a", Ok(End::Superseded))], "", &[]).exit(), Exit::Failed);
        assert_eq!(answer(&[outcome("/a", Ok(End::Plain))], "", &[]).exit(), Exit::Failed);
        assert_eq!(answer(&[outcome("/a", Ok(End::Encoded))], "", &[]).exit(), Exit::Done);
    }

    #[test]
    fn unrecoverable_files_have_an_exit_code_of_their_own() {
        let lost = |is_decodable| outcome("/a", Err(Stop::Lost { block: 3, is_decodable }));
        assert_eq!(answer(&[lost(true)], "", &[]).exit(), Exit::Failed);
        assert_eq!(answer(&[lost(true), lost(false)], "", &[]).exit(), Exit::Data);
    }
}
