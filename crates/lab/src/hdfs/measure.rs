//! Runs the measurements one after another on one cluster: first HDFS alone, then with Mend.

use std::process::ExitCode;

use testbed::Mend;
use testbed::hdfs::Hadoop;

use super::BenchArgs;
use super::cluster::{Commands, HdfsLab, Machines, POLICIES, Policy};
use super::losses;
use super::nodes::Gone;
use super::page::{LossRow, NodeRow, Page, ReadsRow};
use super::reads;
use crate::error::LabError;
use crate::experiment::{Repaired, Repetitions, Results, direct_send, settle};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// One DataNode more than the blocks in the widest block group, which leaves a place for a rebuilt block.
const MACHINES: Machines = Machines { data_nodes: 15, clients: 0 };
/// The index of the lost data block, or of the block whose DataNode fails.
const LOST: usize = 1;

/// Runs the requested measurements and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    hadoop: Hadoop,
    args: &BenchArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let results = Results::begin("HDFS with and without Mend", "make bench-hdfs", args.out.join("hdfs.md"));
    let mut lab = HdfsLab::up(names, programs, hadoop, MACHINES)?;
    POLICIES.iter().for_each(|policy| lab.cluster.console().make_policy_folder(policy.name));
    let mut measuring = Measuring { lab, args, say, page: Page::default() };
    if args.repetitions + args.reads > 0 {
        measuring.single_blocks()?;
        // Save now, in case a later measurement fails.
        results.save(&measuring.page.text())?;
    }
    for policy in POLICIES.into_iter().filter(|policy| args.blocks > 0 && args.measures(policy)) {
        measuring.nodes(policy)?;
        results.save(&measuring.page.text())?;
    }
    results.publish(&measuring.page.text(), &measuring.page.drawings())
}

struct Measuring<'a> {
    lab: HdfsLab,
    args: &'a BenchArgs,
    say: Say<'a>,
    page: Page,
}

fn large(policy: Policy) -> String {
    format!("/{}/large", policy.name)
}

impl Measuring<'_> {
    /// Measures losses of single blocks and reads of them.
    fn single_blocks(&mut self) -> Result<(), LabError> {
        for policy in POLICIES {
            self.put(&large(policy), policy, self.args.block)?;
        }
        self.lab.await_whole();
        if self.args.repetitions > 0 {
            self.directly()?;
            self.losses("HDFS", None)?;
            self.with_mend(POLICIES.len(), false, Self::losses_with_mend)?;
        }
        if self.args.reads > 0 {
            self.with_mend(POLICIES.len(), false, Self::reads)?;
        }
        for policy in POLICIES {
            self.lab.cluster.console().run(&["dfs", "-rm", "-skipTrash", &large(policy)]);
        }
        Ok(())
    }

    /// Stores a file of one complete block group, whose internal blocks have `block` MiB.
    fn put(&mut self, path: &str, policy: Policy, block: usize) -> Result<(), LabError> {
        self.lab.put(path, policy.data * (block << 20), block << 20)
    }

    /// Measures the time to send one block over one link, for each rate.
    fn directly(&mut self) -> Result<(), LabError> {
        for &rate in &self.args.rates {
            self.lab.shape(rate)?;
            let time = direct_send(&self.lab.network, (self.args.block << 20) as u64)?;
            self.page.direct.push((rate, time));
        }
        Ok(())
    }

    /// Loads Mend's plug-in into the DataNodes, attaches Mend and calls `measure`. Then ends Mend and unloads
    /// the plug-in.
    fn with_mend(
        &mut self,
        groups: usize,
        heals: bool,
        measure: impl FnOnce(&mut Self, &mut Mend) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        self.lab.shape(Rate::Unshaped)?;
        self.lab.cluster.load_plugin(true);
        self.lab.command(Commands::None);
        let mut mend = self.lab.attach(groups, heals);
        self.lab.certify(&mend);
        measure(self, &mut mend)?;
        drop(mend);
        self.lab.cluster.load_plugin(false);
        Ok(())
    }

    /// Measures the repair of single blocks that the NameNode commands DataNodes to rebuild.
    fn losses(&mut self, who: &'static str, mend: Option<&Mend>) -> Result<(), LabError> {
        self.lab.shape(Rate::Unshaped)?;
        self.lab.command(Commands::Default);
        self.each_loss(who, |lab, path| losses::commanded(lab, who, mend, path, LOST))
    }

    fn losses_with_mend(&mut self, mend: &mut Mend) -> Result<(), LabError> {
        self.each_loss("Mend, asked", |lab, path| losses::asked(lab, mend, path, LOST))?;
        self.losses("Mend, commanded", Some(mend))
    }

    fn each_loss(
        &mut self,
        who: &'static str,
        repair: impl Fn(&mut HdfsLab, &str) -> Result<Repaired, LabError>,
    ) -> Result<(), LabError> {
        for &rate in &self.args.rates {
            self.lab.shape(rate)?;
            for policy in POLICIES.into_iter().filter(|policy| self.args.measures(policy)) {
                let mut repaired = Repetitions::default();
                for _ in 0..self.args.repetitions {
                    let one = repair(&mut self.lab, &large(policy))?;
                    (self.say)(&format!(
                        "{who}: a block of {} at {rate} in {:.2} s",
                        policy.name,
                        one.time.as_secs_f64()
                    ));
                    repaired.push(one);
                }
                self.page.losses.push(LossRow { who, policy, rate, repaired });
            }
        }
        Ok(())
    }

    /// Measures small reads of a block whose DataNode and helper are dead, and of the healthy block for
    /// comparison.
    fn reads(&mut self, mend: &mut Mend) -> Result<(), LabError> {
        self.lab.shape(self.args.rates[0])?;
        for policy in POLICIES {
            let path = large(policy);
            let dead = self.lab.holders(&path)[&LOST].0;
            let file = (path.as_str(), policy, self.args.block << 20);
            self.note_reads("HDFS, nothing lost", reads::STOCK, file)?;
            self.lab.cluster.kill(dead);
            mend.kill_helper(dead);
            losses::await_lacking(&mut self.lab.cluster, "the NameNode", &path, |lacking| lacking > 0)?;
            self.note_reads("HDFS", reads::STOCK, file)?;
            self.note_reads("Mend", reads::MEND, file)?;
            self.lab.cluster.start(dead);
            mend.start_helper(dead);
            self.lab.cluster.await_nodes(self.lab.cluster.nodes().len());
            self.lab.await_whole();
            mend.wait_for_helpers();
        }
        Ok(())
    }

    fn note_reads(
        &mut self,
        who: &'static str,
        system: &str,
        file: (&str, Policy, usize),
    ) -> Result<(), LabError> {
        // Warm up first: the reader loads its classes and learns which DataNodes are dead.
        let before = reads::read(&mut self.lab, system, file, LOST, self.args.reads.min(20))?;
        let mut reads = reads::read(&mut self.lab, system, file, LOST, self.args.reads)?;
        reads.through_mend -= before.through_mend;
        (self.say)(&format!(
            "{who}: reads of {}: median {:.1} ms",
            file.1.name,
            reads.median.as_secs_f64() * 1e3
        ));
        self.page.reads.push(ReadsRow { who, policy: file.1, reads });
        Ok(())
    }

    /// Measures the recovery of whole DataNodes, one after another. Each lost DataNode is replaced by an
    /// empty one.
    fn nodes(&mut self, policy: Policy) -> Result<(), LabError> {
        let (args, rate) = (self.args, self.args.rates[0]);
        let path = format!("/{}/many", policy.name);
        self.lab.shape(Rate::Unshaped)?;
        (self.say)("storing files");
        self.lab.cluster.console().run(&["dfs", "-mkdir", &path]);
        let groups = args.blocks * self.lab.cluster.nodes().len() / policy.blocks;
        for file in 0..groups {
            self.put(&format!("{path}/{file}"), policy, args.small_block)?;
        }
        let stock = [("HDFS", Commands::Default), ("HDFS, 20 streams", Commands::Many)];
        for (who, commands) in stock.into_iter().filter(|(who, _)| args.names(who)) {
            self.lab.command(commands);
            self.node(policy, who, None, rate)?;
        }
        let mend = [
            ("Mend, asked", Commands::None),
            ("Mend, commanded", Commands::Default),
            ("Mend, commanded, 20 streams", Commands::Many),
        ];
        let mend: Vec<_> = mend.into_iter().filter(|(who, _)| args.names(who)).collect();
        if !mend.is_empty() {
            self.with_mend(groups, true, |this, running| {
                for (who, commands) in mend {
                    this.lab.shape(Rate::Unshaped)?;
                    this.lab.command(commands);
                    this.node(policy, who, Some(running), rate)?;
                }
                Ok(())
            })?;
        }
        self.lab.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", &path]);
        Ok(())
    }

    fn node(
        &mut self,
        policy: Policy,
        who: &'static str,
        mut mend: Option<&mut Mend>,
        rate: Rate,
    ) -> Result<(), LabError> {
        let path = format!("/{}/many", policy.name);
        self.lab.await_whole();
        self.lab.shape(rate)?;
        settle(&self.lab.network)?;
        let gone = Gone::kill(&mut self.lab, mend.as_deref_mut(), &path, self.args.blocks)?;
        let repaired = match mend.as_deref() {
            Some(mend) if who == "Mend, asked" => gone.recover(&mut self.lab, mend, &[])?,
            mend => gone.by_itself(&mut self.lab, who, mend)?,
        };
        let bytes = (gone.blocks() * self.args.small_block) << 20;
        let direct =
            direct_send(&self.lab.network, (self.args.small_block << 20) as u64)? * gone.blocks() as u32;
        (self.say)(&format!(
            "{who}: {} blocks of {} in {:.1} s",
            gone.blocks(),
            policy.name,
            repaired.time.as_secs_f64()
        ));
        let (blocks, survivors) = (gone.blocks(), self.lab.cluster.nodes().len() - 1);
        self.page.nodes.push(NodeRow { who, policy, blocks, bytes, direct, survivors, repaired });
        self.lab.shape(Rate::Unshaped)?;
        gone.replace(&mut self.lab, mend);
        self.lab.await_whole();
        Ok(())
    }
}
