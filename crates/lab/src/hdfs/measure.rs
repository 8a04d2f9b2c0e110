//! Carries out the measurements that the report lacks on one cluster: first HDFS alone, then with Mend.
//!
//! Repetitions take turns: every round repeats each measurement once, so that a drift of the machine's speed affects all
//! of them. Only HDFS alone and Mend are measured one after the other, because loading Mend's plug-in restarts all
//! DataNodes, whose JVMs then compile their code again.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use testbed::hdfs::{Hadoop, Pace};
use testbed::{Mend, Seat};

use super::BenchArgs;
use super::cluster::{Commands, HdfsLab, Machines, POLICIES, Policy};
use super::detail::{Detail, Report, Run};
use super::during::Client;
use super::losses::{self, Loss};
use super::nodes::{Gone, Recovery};
use super::page::PUBLICATION;
use super::reads;
use super::tasks::{By, READERS, Reader, Task, blocks_of, tasks};
use super::ways::Way;
use crate::error::LabError;
use crate::experiment::report::{Key, Kind};
use crate::experiment::{Book, Repaired, measure, read_during, settle};
use crate::folders::usual;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// One DataNode more than the blocks in the widest block group, which leaves a place for a rebuilt block; and a client.
const MACHINES: Machines = Machines { data_nodes: 15, clients: 1 };
/// The index of the lost data block, or of the block whose DataNode fails.
const LOST: usize = 1;
/// The heap of the client's JVM.
const CLIENT_HEAP_MEGABYTES: u32 = 256;
/// How long the client reads while nothing is repaired.
const IDLE: Duration = Duration::from_secs(10);
/// The names of the reads while nothing is repaired, with HDFS alone and with Mend attached.
pub(super) const NO_REPAIR: [&str; 2] = ["HDFS, no repair", "Mend, no repair"];
/// The small reads before those that are measured. The reader loads its classes and learns which DataNodes are dead.
const WARM_UP_READS: usize = 20;

/// Runs the requested measurements that the report lacks, and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    hadoop: Hadoop,
    args: &BenchArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let book = Book::open(PUBLICATION, &args.folders)?;
    let lacks = |task: &Task| book.report.lacks(&task.key(), task.repetitions);
    let open: Vec<Task> = tasks(args).into_iter().filter(|task| lacks(task) > 0).collect();
    say(&format!("{} repetitions are to be measured", open.iter().map(lacks).sum::<usize>()));
    if open.is_empty() {
        return book.publish(lacking(&book.report));
    }
    let mut lab = HdfsLab::up(names, programs, hadoop, MACHINES, Pace::Default)?;
    POLICIES.iter().for_each(|policy| lab.cluster.console().make_policy_folder(policy.name));
    let mut measuring = HdfsBench { lab, args, say, book, commands: Commands::None };
    measuring.all(&open)?;
    measuring.book.publish(lacking(&measuring.book.report))
}

/// Returns the number of repetitions that a complete page has and the report lacks.
fn lacking(report: &Report) -> usize {
    tasks(&usual()).iter().map(|task| report.lacks(&task.key(), task.repetitions)).sum()
}

struct HdfsBench<'a> {
    lab: HdfsLab,
    args: &'a BenchArgs,
    say: Say<'a>,
    book: Book<Detail>,
    /// The commands that the NameNode sends.
    commands: Commands,
}

fn large(policy: Policy) -> String {
    format!("/{}/large", policy.name)
}

fn many(policy: Policy) -> String {
    format!("/{}/many", policy.name)
}

/// Returns the tasks for which `is_so` is true.
fn only(tasks: &[Task], is_so: impl Fn(&Task) -> bool) -> Vec<Task> {
    tasks.iter().copied().filter(|task| is_so(task)).collect()
}

impl HdfsBench<'_> {
    fn all(&mut self, tasks: &[Task]) -> Result<(), LabError> {
        let stock = only(tasks, |task| !task.needs_mend());
        if !stock.is_empty() {
            self.lab.cluster.load_plugin(false);
        }
        self.singles(&only(&stock, Task::is_single), None)?;
        self.nodes(&only(&stock, |task| !task.is_single()), None)?;
        let mend = only(tasks, Task::needs_mend);
        self.singles_with_mend(&only(&mend, Task::is_single))?;
        self.nodes_with_mend(&only(&mend, |task| !task.is_single()))
    }

    /// Restarts all DataNodes with Mend's plug-in. A plug-in trusts the coordinator that it has met first, so it must be
    /// loaded before Mend is attached, each time.
    fn load_plugin(&mut self) -> Result<(), LabError> {
        self.command(Commands::None)?;
        self.lab.cluster.load_plugin(true);
        self.lab.cluster.await_plugins();
        Ok(())
    }

    /// Carries out each task once in every round, until the report has all its repetitions.
    fn rounds(
        &mut self,
        tasks: &[Task],
        mut one: impl FnMut(&mut Self, &Task) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let most = tasks.iter().map(|task| task.repetitions).max().unwrap_or_default();
        for round in 1..=most {
            for task in tasks.iter().filter(|task| round <= task.repetitions) {
                if self.book.report.lacks(&task.key(), round) > 0 {
                    one(self, task)?;
                }
            }
        }
        Ok(())
    }

    /// Restarts the NameNode if it has to send other commands.
    fn command(&mut self, commands: Commands) -> Result<(), LabError> {
        self.lab.shape(Rate::Unshaped)?;
        if self.commands != commands {
            self.lab.command(commands);
            self.commands = commands;
        }
        Ok(())
    }

    fn keep(&mut self, key: &Key, run: Run) -> Result<(), LabError> {
        (self.say)(&format!("{}: {}: {:.2} s", key.by, key.tick(), run.seconds));
        self.book.keep(key, run)
    }

    // ---- single blocks ----

    fn singles_with_mend(&mut self, tasks: &[Task]) -> Result<(), LabError> {
        if tasks.is_empty() {
            return Ok(());
        }
        self.store_large()?;
        self.load_plugin()?;
        let mut mend = self.lab.attach(POLICIES.len());
        self.lab.certify(&mend);
        let repairs = only(tasks, |task| task.kind != Kind::SmallReads);
        self.rounds(&repairs, |this, task| this.loss(task, Some(&mend)))?;
        self.small_reads(&only(tasks, |task| task.kind == Kind::SmallReads), &mut mend)?;
        self.remove_large();
        Ok(())
    }

    fn singles(&mut self, tasks: &[Task], mend: Option<&Mend>) -> Result<(), LabError> {
        if tasks.is_empty() {
            return Ok(());
        }
        self.store_large()?;
        self.rounds(tasks, |this, task| this.loss(task, mend))?;
        self.remove_large();
        Ok(())
    }

    /// Stores a file of one complete block group for each policy.
    fn store_large(&mut self) -> Result<(), LabError> {
        self.lab.shape(Rate::Unshaped)?;
        for policy in POLICIES {
            let block = self.args.block << 20;
            self.lab.put(&large(policy), policy.data * block, block)?;
        }
        self.lab.await_whole();
        Ok(())
    }

    fn remove_large(&mut self) {
        self.lab.remove(&POLICIES.map(large));
    }

    /// Measures the repair of a single block.
    fn loss(&mut self, task: &Task, mend: Option<&Mend>) -> Result<(), LabError> {
        self.command(task.commands())?;
        self.lab.shape(task.rate)?;
        self.book.direct(&self.lab.network, task.block_bytes() as u64, task.rate)?;
        let path = large(task.policy);
        let is_cold = task.kind == Kind::ColdLoss;
        let loss = Loss { who: task.name(), path: &path, index: LOST, is_cold };
        let repaired = match mend {
            Some(mend) if task.by == By::Way(Way::Asked) => losses::asked(&mut self.lab, mend, &loss)?,
            mend => losses::commanded(&mut self.lab, mend, &loss)?,
        };
        self.keep(&task.key(), Run::of(repaired, Detail::Block))
    }

    /// Measures small reads of blocks whose DataNode and helper are dead, and of the healthy blocks for comparison.
    fn small_reads(&mut self, tasks: &[Task], mend: &mut Mend) -> Result<(), LabError> {
        for policy in POLICIES {
            let of_policy = only(tasks, |task| task.policy == policy);
            if let Some(task) = of_policy.first() {
                self.reads_of(task, mend)?;
            }
        }
        Ok(())
    }

    /// Measures all readers with the policy of the task.
    fn reads_of(&mut self, task: &Task, mend: &mut Mend) -> Result<(), LabError> {
        self.command(Commands::None)?;
        self.lab.shape(task.rate)?;
        let path = large(task.policy);
        let dead = self.lab.holders(&path)[&LOST].0;
        for reader in READERS {
            if reader == Reader::Stock {
                self.lab.cluster.kill(dead);
                mend.kill_helper(dead);
                losses::await_lacking(&mut self.lab.cluster, "the NameNode", &path, |lacking| lacking > 0)?;
            }
            self.read(&Task { by: By::Reader(reader), ..*task })?;
        }
        self.lab.cluster.start(dead);
        mend.start_helper(dead);
        self.lab.cluster.await_nodes(self.lab.cluster.nodes().len());
        self.lab.await_whole();
        mend.wait_for_helpers();
        Ok(())
    }

    fn read(&mut self, task: &Task) -> Result<(), LabError> {
        let path = large(task.policy);
        let system = if task.by == By::Reader(Reader::Mend) { reads::MEND } else { reads::STOCK };
        let file = (path.as_str(), task.policy, task.block_bytes());
        let (_, before) = reads::read(&mut self.lab, system, file, LOST, WARM_UP_READS)?;
        let is_settled = settle(&self.lab.network)?;
        let (measured, mut found) = reads::read(&mut self.lab, system, file, LOST, self.args.reads)?;
        found.through_mend -= before.through_mend;
        (self.say)(&format!("{}: {}", task.name(), found.summary()));
        self.keep(&task.key(), Run::of(measured.after(is_settled), Detail::SmallReads(found)))
    }

    // ---- whole DataNodes ----

    fn nodes_with_mend(&mut self, tasks: &[Task]) -> Result<(), LabError> {
        if tasks.is_empty() {
            return Ok(());
        }
        self.load_plugin()?;
        let mut mend = self.lab.attach_with(&[]);
        mend.wait_for_helpers();
        self.lab.certify(&mend);
        self.nodes(tasks, Some(&mut mend))
    }

    fn nodes(&mut self, tasks: &[Task], mut mend: Option<&mut Mend>) -> Result<(), LabError> {
        self.rounds(tasks, |this, task| match task.kind {
            Kind::NodeToOne => this.node_to_one(task, mend.as_deref_mut()),
            _ => this.node(task, mend.as_deref_mut()),
        })
    }

    /// Measures the recovery of a DataNode whose blocks go to all others.
    fn node(&mut self, task: &Task, mend: Option<&mut Mend>) -> Result<(), LabError> {
        self.command(task.commands())?;
        let blocks = blocks_of(task.block_mib, self.args.blocks);
        let groups = blocks * self.lab.cluster.nodes().len() / task.policy.blocks;
        let stored = self.fill(task, groups, mend.as_deref())?;
        self.shape(task)?;
        let gone = Gone::choose(&mut self.lab, &many(task.policy), blocks)?;
        match task.kind {
            Kind::ReadsDuring => self.lose_during_reads(task, gone, stored, mend),
            _ => self.lose(task, gone, mend),
        }
    }

    /// Removes all files of earlier recoveries, and stores others, so that the blocks of every recovery are spread over
    /// all running DataNodes: after a recovery, the DataNode that replaced the lost one has none. Returns the bytes of a
    /// file.
    fn fill(&mut self, task: &Task, groups: usize, mend: Option<&Mend>) -> Result<Vec<u8>, LabError> {
        (self.say)(&format!("storing {groups} files of {}", task.key().tick()));
        self.lab.shape(Rate::Unshaped)?;
        self.lab.remove(&POLICIES.map(many));
        let block = task.block_bytes();
        let stored = self.lab.store(&many(task.policy), groups, (task.policy.data * block, block))?;
        if let Some(mend) = mend {
            mend.wait_until_safe(groups);
        }
        Ok(stored)
    }

    fn shape(&mut self, task: &Task) -> Result<(), LabError> {
        self.lab.shape(task.rate)?;
        self.book.link(&self.lab.network, task.rate)
    }

    /// Kills the DataNode, measures its recovery, and replaces it.
    fn lose(&mut self, task: &Task, gone: Gone, mut mend: Option<&mut Mend>) -> Result<(), LabError> {
        let is_settled = settle(&self.lab.network)?;
        gone.kill(&mut self.lab, mend.as_deref_mut());
        let Recovery { repaired, from_command } = self.recovery(task, &gone, mend.as_deref())?;
        let from_command_s = from_command.map(|time| time.as_secs_f64());
        let detail = Detail::Node { lost: gone.lost, from_command_s };
        self.keep(&task.key(), Run::of(repaired.after(is_settled), detail))?;
        self.lab.shape(Rate::Unshaped)?;
        gone.replace(&mut self.lab, mend);
        Ok(())
    }

    fn recovery(&mut self, task: &Task, gone: &Gone, mend: Option<&Mend>) -> Result<Recovery, LabError> {
        match mend {
            Some(mend) if task.by == By::Way(Way::Asked) => {
                gone.await_dead(&mut self.lab, mend)?;
                let repaired = gone.recover(&mut self.lab, mend, &[])?;
                Ok(Recovery { repaired, from_command: None })
            }
            mend => gone.by_itself(&mut self.lab, task.name(), mend),
        }
    }

    /// Lets a client read healthy files, first while nothing is repaired, then during the recovery of the DataNode.
    fn lose_during_reads(
        &mut self,
        task: &Task,
        gone: Gone,
        stored: Vec<u8>,
        mut mend: Option<&mut Mend>,
    ) -> Result<(), LabError> {
        let seat = Seat::Server(self.lab.cluster.nodes().len());
        let console = self.lab.cluster.start_console(seat, CLIENT_HEAP_MEGABYTES);
        let local = self.lab.cluster.folder().join("read-during");
        let mut client = Client::new(console, local, gone.untouched()?, stored);
        self.idle_reads(task, &mut client)?;
        let is_settled = settle(&self.lab.network)?;
        gone.kill(&mut self.lab, mend.as_deref_mut());
        let (log, recovered) =
            read_during(vec![|log: &mut _| client.read(log)], || self.recovery(task, &gone, mend.as_deref()));
        client.check()?;
        let repaired = recovered?.repaired.after(is_settled);
        let reads = log.within(repaired.begun(), repaired.time);
        (self.say)(&format!("during {}: {}", task.name(), reads.summary()));
        self.keep(&task.key(), Run::of(repaired, Detail::ReadsDuring(reads)))?;
        self.lab.shape(Rate::Unshaped)?;
        gone.replace(&mut self.lab, mend);
        Ok(())
    }

    /// Measures the client's reads while nothing is repaired, unless the report has them.
    fn idle_reads(&mut self, task: &Task, client: &mut Client) -> Result<(), LabError> {
        let key = Key { by: NO_REPAIR[usize::from(task.needs_mend())].to_owned(), ..task.key() };
        // The client loads its classes.
        read_during(vec![|log: &mut _| client.read(log)], || thread::sleep(IDLE / 2));
        if self.book.report.lacks(&key, task.repetitions) == 0 {
            return Ok(());
        }
        let is_settled = settle(&self.lab.network)?;
        let (log, idle) = read_during(vec![|log: &mut _| client.read(log)], || self.idle());
        let idle = idle?.after(is_settled);
        let reads = log.within(idle.begun(), idle.time);
        self.keep(&key, Run::of(idle, Detail::ReadsDuring(reads)))
    }

    fn idle(&self) -> Result<Repaired, LabError> {
        measure(&self.lab.network, Vec::new(), || {
            thread::sleep(IDLE);
            Ok(())
        })
    }

    // ---- recovery onto one DataNode ----

    /// Measures the recovery of a DataNode whose blocks all have to go to a new one: no other DataNode is without a block
    /// of the groups.
    fn node_to_one(&mut self, task: &Task, mut mend: Option<&mut Mend>) -> Result<(), LabError> {
        self.command(task.commands())?;
        let (all, width) = (self.lab.cluster.nodes().len(), task.policy.blocks);
        let blocks = blocks_of(task.block_mib, self.args.blocks);
        self.lab.remove(&POLICIES.map(many));
        (width..all).for_each(|node| self.stop(node, mend.as_deref_mut()));
        self.lab.cluster.await_nodes(width);
        self.fill(task, blocks, None)?;
        self.start(width, mend.as_deref_mut());
        self.lab.cluster.await_nodes(width + 1);
        self.shape(task)?;
        let gone = Gone::choose(&mut self.lab, &many(task.policy), blocks)?;
        self.lose(task, gone, mend.as_deref_mut())?;
        (width + 1..all).for_each(|node| self.start(node, mend.as_deref_mut()));
        self.lab.cluster.await_nodes(all);
        Ok(())
    }

    fn stop(&mut self, node: usize, mend: Option<&mut Mend>) {
        self.lab.cluster.kill(node);
        if let Some(mend) = mend {
            mend.kill_helper(node);
        }
    }

    fn start(&mut self, node: usize, mend: Option<&mut Mend>) {
        self.lab.cluster.start(node);
        if let Some(mend) = mend {
            mend.start_helper(node);
        }
    }
}
