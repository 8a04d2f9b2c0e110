//! Carries out the measurements that the report lacks, one after another, on one cluster.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use seaweedfs::VolumeName;
use testbed::Mend;

use super::BenchArgs;
use super::cluster::{SeaweedLab, shards};
use super::detail::{Detail, Report, Run};
use super::losses::Loss;
use super::page::PUBLICATION;
use super::reads::Needles;
use super::servers::{Gone, nearest};
use super::tasks::{self, ALL_UP, By, CAP, ONE_DOWN, Task};
use crate::error::LabError;
use crate::experiment::report::Key;
use crate::experiment::{Book, Repaired, measure, settle};
use crate::folders::usual;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// How long reads run without a repair.
const READS_LAST: Duration = Duration::from_secs(10);
/// The collection of needles.
const SMALL: &str = "small";

/// Runs the requested measurements that the report lacks, and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    weed: &Path,
    args: &BenchArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let book = Book::open(PUBLICATION, &args.folders)?;
    let lacks = |task: &Task| book.report.lacks(&task.key, task.repetitions);
    let open = |tasks: Vec<Task>| tasks.into_iter().filter(|task| lacks(task) > 0).collect::<Vec<_>>();
    let (losses, servers, reads) =
        (open(tasks::losses(args)), open(tasks::servers(args)), open(tasks::reads(args)));
    let all = || losses.iter().chain(&servers).chain(&reads);
    say(&format!("{} repetitions are to be measured", all().map(lacks).sum::<usize>()));
    if all().next().is_none() {
        return book.publish(lacking(&book.report));
    }
    let lab = SeaweedLab::up(names, programs, weed, args.encrypted)?;
    let mut measuring = SeaweedfsBench { lab, args, say, book, volumes: Vec::new(), next_victim: 1 };
    measuring.servers(&servers, &reads)?;
    measuring.losses(&losses)?;
    (measuring.say)("reading all objects of the large volumes");
    measuring.lab.check_objects()?;
    measuring.book.publish(lacking(&measuring.book.report))
}

/// Returns the number of repetitions that a complete page has and the report lacks.
fn lacking(report: &Report) -> usize {
    let args = usual();
    let tasks = [tasks::losses(&args), tasks::servers(&args), tasks::reads(&args)].concat();
    tasks.iter().map(|task| report.lacks(&task.key, task.repetitions)).sum()
}

struct SeaweedfsBench<'a> {
    lab: SeaweedLab,
    args: &'a BenchArgs,
    say: Say<'a>,
    book: Book<Detail>,
    /// The encoded volumes.
    volumes: Vec<VolumeName>,
    /// The server that is lost next if all have equally many shards.
    next_victim: usize,
}

impl SeaweedfsBench<'_> {
    /// Carries out each task once in every round, until the report has all its repetitions.
    fn rounds(
        &mut self,
        tasks: &[Task],
        mut one: impl FnMut(&mut Self, &Task) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let most = tasks.iter().map(|task| task.repetitions).max().unwrap_or_default();
        for round in 1..=most {
            for task in tasks.iter().filter(|task| round <= task.repetitions) {
                if self.book.report.lacks(&task.key, round) > 0 {
                    one(self, task)?;
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, key: &Key, run: Run) -> Result<(), LabError> {
        (self.say)(&format!("{}: {}: {:.2} s", key.by, key.tick(), run.seconds));
        self.book.keep(key, run)
    }

    fn collections(&self) -> Vec<String> {
        let mut collections: Vec<_> =
            self.volumes.iter().map(|volume| volume.collection().to_owned()).collect();
        collections.dedup();
        collections
    }

    // ---- shards of one volume ----

    fn losses(&mut self, tasks: &[Task]) -> Result<(), LabError> {
        if tasks.is_empty() {
            return Ok(());
        }
        (self.say)("storing objects");
        self.lab.shape(Rate::Unshaped)?;
        let sizes = self.args.volumes.iter().enumerate();
        let large: Vec<VolumeName> = sizes
            .map(|(at, megabytes)| self.lab.store(&format!("large{at}"), megabytes * 1_000_000))
            .collect();
        self.lab.cluster.encode(&large);
        self.volumes.extend(large.iter().cloned());
        let mend = self.lab.attach(self.volumes.len(), false, "never");
        self.rounds(tasks, |this, task| this.loss(task, &large[task.volume], &mend))
    }

    /// Measures the repair of lost shards. After `ec.rebuild`, the shards are spread over the servers again.
    fn loss(&mut self, task: &Task, volume: &VolumeName, mend: &Mend) -> Result<(), LabError> {
        self.lab.shape(task.rate)?;
        let shard_bytes = self.lab.shard_bytes(volume);
        self.book.direct(&self.lab.network, shard_bytes, task.rate)?;
        let loss = Loss::of(&self.lab, shards(&self.lab.cluster, volume, task.lost));
        loss.await_lost(mend);
        let is_settled = settle(&self.lab.network)?;
        let repaired = match task.by {
            By::Stock => loss.rebuild(&self.lab)?,
            _ => loss.repair(&self.lab, mend)?,
        };
        self.keep(&task.key, Run::of(repaired.after(is_settled), Detail::Shards { shard_bytes }))?;
        if task.by == By::Stock {
            self.lab.shape(Rate::Unshaped)?;
            self.lab.balance([volume.collection()]);
        }
        mend.wait_until_safe(self.volumes.len());
        Ok(())
    }

    // ---- whole servers ----

    /// Measures the recovery of whole servers, one after another, then with concurrent reads of clients.
    fn servers(&mut self, servers: &[Task], reads: &[Task]) -> Result<(), LabError> {
        if servers.is_empty() && reads.is_empty() {
            return Ok(());
        }
        (self.say)("storing needles");
        self.lab.shape(Rate::Unshaped)?;
        let bytes = self.args.small_megabytes * 1_000_000;
        let (needles, small) = Needles::store(&self.lab.cluster, SMALL, self.args.small_volumes, bytes);
        self.lab.cluster.encode(&small);
        self.lab.balance([SMALL]);
        self.volumes.extend(small);
        let mut mend = self.lab.attach(self.volumes.len(), false, "never");
        self.rounds(servers, |this, task| this.server(task, &mut mend))?;
        self.rounds(reads, |this, task| this.reads(task, &mut mend, &needles))
    }

    /// Kills a server whose number of shards is nearest to the mean. The links then have the rate of the task.
    fn kill(&mut self, task: &Task, mend: &mut Mend) -> Result<Gone, LabError> {
        self.lab.shape(task.rate)?;
        self.book.link(&self.lab.network, task.rate)?;
        let victim = nearest(&self.lab.shard_counts(), self.next_victim);
        self.next_victim = victim + 1;
        let gone = Gone::kill(&mut self.lab, mend, victim)?;
        gone.await_lost(mend);
        Ok(gone)
    }

    /// Replaces a lost server by an empty one, and spreads all shards over the servers again.
    fn replace(&mut self, gone: Gone, mend: &mut Mend) -> Result<(), LabError> {
        self.lab.shape(Rate::Unshaped)?;
        let collections = self.collections();
        let collections = collections.iter().map(String::as_str);
        gone.replace(&mut self.lab, mend, self.volumes.len(), collections);
        Ok(())
    }

    fn server(&mut self, task: &Task, mend: &mut Mend) -> Result<(), LabError> {
        let gone = self.kill(task, mend)?;
        let is_settled = settle(&self.lab.network)?;
        let repaired = self.recovery(task, &gone, mend)?.after(is_settled);
        self.keep(&task.key, Run::of(repaired, Detail::Server(gone.lost)))?;
        self.replace(gone, mend)
    }

    fn recovery(&self, task: &Task, gone: &Gone, mend: &Mend) -> Result<Repaired, LabError> {
        match task.by {
            By::Stock => gone.rebuild(&self.lab),
            _ => gone.recover(&self.lab, mend),
        }
    }

    /// Measures reads during a recovery, and unless the report has them, before the loss and before the recovery.
    fn reads(&mut self, task: &Task, mend: &mut Mend, needles: &Needles) -> Result<(), LabError> {
        self.lab.shape(task.rate)?;
        self.idle_reads(task, ALL_UP, needles)?;
        let gone = self.kill(task, mend)?;
        self.idle_reads(task, ONE_DOWN, needles)?;
        if task.by == By::Capped {
            mend.run(&["caps", "--total", CAP]);
        }
        let is_settled = settle(&self.lab.network)?;
        let (log, recovered) = needles.read_during(&self.lab.cluster, || self.recovery(task, &gone, mend))?;
        let repaired = recovered.after(is_settled);
        if task.by == By::Capped {
            mend.run(&["caps", "--none"]);
        }
        let reads = log.within(repaired.begun(), repaired.time);
        (self.say)(&format!("during {}: {}", task.key.by, reads.summary()));
        self.keep(&task.key, Run::of(repaired, Detail::ReadsDuring(reads)))?;
        self.replace(gone, mend)
    }

    /// Measures reads while nothing is repaired, unless the report has them.
    fn idle_reads(&mut self, task: &Task, name: &str, needles: &Needles) -> Result<(), LabError> {
        let key = Key { by: name.to_owned(), ..task.key.clone() };
        if self.book.report.lacks(&key, task.repetitions) == 0 {
            return Ok(());
        }
        let is_settled = settle(&self.lab.network)?;
        let (log, idle) = needles.read_during(&self.lab.cluster, || {
            measure(&self.lab.network, Vec::new(), || {
                thread::sleep(READS_LAST);
                Ok(())
            })
        })?;
        let idle = idle.after(is_settled);
        let reads = log.within(idle.begun(), idle.time);
        self.keep(&key, Run::of(idle, Detail::ReadsDuring(reads)))
    }
}
