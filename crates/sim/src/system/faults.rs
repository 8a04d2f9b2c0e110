//! What goes wrong, and its end. A fault that would lose more than the code gives back does not strike: what is lost then is
//! nobody's fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId};
use store_api::StripeRecord;

use super::event::{Happening, ProcessId};
use super::platter::Platter;
use super::script::Fault;
use super::wires::Way;
use super::world::{DISK_RATE, World};

/// Somebody copies the catalog this often, in scripts that put a copy back.
pub(crate) const COPY_EVERY: Duration = Duration::from_secs(8);

/// A copy of the catalog.
#[derive(Debug)]
pub(crate) struct Copy {
    at: Duration,
    platter: Platter,
    /// How often each file had been changed.
    changes: BTreeMap<String, u64>,
}

impl World {
    pub(crate) fn strike(&mut self, number: usize) {
        let fault = self.script.faults[number].1;
        if self.calm_since.is_some() {
            return;
        }
        if !self.is_tolerable(fault) {
            return self.scene.note(|| format!("{fault:?} would lose too much"));
        }
        self.scene.note(|| format!("{fault:?}"));
        if let Some(lasts) = self.carry_out_fault(fault) {
            self.after(lasts, Happening::FaultEnds(number));
        }
    }

    /// Does it; how long it lasts, if it has an end.
    fn carry_out_fault(&mut self, fault: Fault) -> Option<Duration> {
        match fault {
            Fault::CoordinatorDies { power, back_after } => {
                let ended = self.coordinator.die(power, &mut self.scene.dice);
                self.coordinator_ended(ended.map(|(requests, _)| requests), power, back_after);
                None
            }
            Fault::CoordinatorRestarts { back_after } => {
                let ended = self.coordinator.stop();
                self.coordinator_ended(ended.map(|(requests, _)| requests), false, back_after);
                None
            }
            Fault::HelperDies { helper, unheard, back_after } => {
                self.kill(helper, unheard, back_after);
                None
            }
            Fault::ClientDies { client, back_after } => {
                self.kill(client, false, Some(back_after));
                None
            }
            Fault::WireBreaks { process } => {
                if self.processes[&process].session.connection().is_some() {
                    self.hang_up(process, false);
                    self.lose_session(process);
                }
                None
            }
            Fault::Partition { process, up, down, lasts } => {
                let ways = [(Way::Up, up), (Way::Down, down)];
                ways.into_iter().filter(|&(_, cut)| cut).for_each(|(way, _)| {
                    self.wires.cut.insert((process, way));
                });
                Some(lasts)
            }
            Fault::DataPartition { a, b, lasts } => {
                if let (Some(a), Some(b)) = (self.processes[&a].node, self.processes[&b].node) {
                    self.scene.cut_data(a, b);
                }
                Some(lasts)
            }
            Fault::SlowControl { process, limit, lasts } => {
                self.wires.slow.insert(process, limit);
                Some(lasts)
            }
            Fault::FlipFrame { from } => {
                if let Some(node) = self.processes[&from].node {
                    for edge in self.scene.network.live_edges_of(node) {
                        let edge = self.scene.network.edges.get_mut(&edge).expect("it is live");
                        edge.flip_next = true;
                    }
                }
                None
            }
            Fault::Slow { helper, factor, lasts } => {
                self.set_rates(helper, f64::from(factor));
                Some(lasts)
            }
            Fault::StorageFails { after_writes, once, lasts } => {
                self.coordinator.platter.fail_after(Some((after_writes, once)));
                Some(lasts)
            }
            Fault::StorageSlow { limit, lasts } => {
                self.coordinator.storage_delay = limit;
                Some(lasts)
            }
            Fault::DiskFull { helper, lasts } => {
                self.process(helper).disk.full = true;
                Some(lasts)
            }
            Fault::BlockLost { .. } | Fault::BlockCorrupt { .. } | Fault::BlockForged { .. } => {
                self.harm(fault);
                None
            }
            Fault::CatalogRestored { age, back_after } => {
                self.restore_catalog(age, back_after);
                None
            }
            Fault::ClockJumps { by_s } => {
                self.coordinator.skew_s += i64::from(by_s);
                None
            }
        }
    }

    pub(crate) fn end_fault(&mut self, number: usize) {
        let fault = self.script.faults[number].1;
        self.scene.note(|| format!("{fault:?} is over"));
        match fault {
            Fault::Partition { process, .. } => self.join(process),
            Fault::DataPartition { .. } => self.scene.network.cut.clear(),
            Fault::SlowControl { process, .. } => drop(self.wires.slow.remove(&process)),
            Fault::Slow { helper, .. } => self.set_rates(helper, 1.0),
            Fault::StorageFails { .. } => self.coordinator.platter.fail_after(None),
            Fault::StorageSlow { .. } => self.coordinator.storage_delay = Duration::from_millis(3),
            Fault::DiskFull { helper, .. } => self.process(helper).disk.full = false,
            _ => {}
        }
    }

    /// All faults cease, and who is to come back does.
    pub(crate) fn cease(&mut self) {
        for number in 0..self.script.faults.len() {
            self.end_fault(number);
        }
        self.after(Duration::ZERO, Happening::CoordinatorStarts);
        for (id, process) in &self.processes {
            if !process.alive && !process.gone {
                let (process, life) = (*id, process.life);
                self.scene
                    .after(Duration::ZERO, crate::event::Event::System(Happening::Starts { process, life }));
            }
        }
    }

    fn coordinator_ended(
        &mut self,
        requests: Option<BTreeSet<control::RequestId>>,
        quietly: bool,
        back_after: Duration,
    ) {
        let Some(requests) = requests else { return };
        requests.into_iter().for_each(|request| self.unanswered(request));
        self.drop_connections(quietly);
        self.after(back_after, Happening::CoordinatorStarts);
    }

    fn kill(&mut self, id: ProcessId, unheard: bool, back_after: Option<Duration>) {
        if !self.processes[&id].alive {
            return;
        }
        self.hang_up(id, unheard);
        let process = self.processes.get_mut(&id).expect("it is a process");
        process.die(&mut self.scene, unheard);
        let life = process.life;
        process.gone = back_after.is_none();
        if process.client.is_some() {
            self.client_died(id);
        }
        if let Some(delay) = back_after {
            self.after(delay, Happening::Starts { process: id, life });
        }
    }

    fn join(&mut self, process: ProcessId) {
        for way in [Way::Up, Way::Down] {
            for (connection, held) in self.wires.join(process, way) {
                (0..held).for_each(|_| self.after(Duration::ZERO, Happening::Arrives { connection, way }));
            }
        }
    }

    fn set_rates(&mut self, helper: ProcessId, factor: f64) {
        self.process(helper).disk.rate = DISK_RATE / factor;
        let node = self.processes[&helper].node;
        if let Some(port) = node.and_then(|node| self.scene.network.ports.get_mut(&node)) {
            port.rate = self.script.link_rate as f64 / factor;
        }
    }

    // ---- copies of the catalog ----

    pub(crate) fn copy_catalog(&mut self) {
        if self.calm_since.is_none() {
            self.after(COPY_EVERY, Happening::Copies);
        }
        if let Some(platter) = self.coordinator.copy() {
            let changes = self.truth.files.iter().map(|(name, file)| (name.clone(), file.changes)).collect();
            self.copies.push(Copy { at: self.scene.now, platter, changes });
        }
    }

    /// The coordinator is stopped, an old copy put in the catalog's place, and started again. What became of files since
    /// is forgotten.
    fn restore_catalog(&mut self, age: Duration, back_after: Duration) {
        let before = self.scene.now.saturating_sub(age);
        let copy = self.copies.iter().rfind(|copy| copy.at <= before).or(self.copies.first());
        let (Some(copy), true) = (copy, self.coordinator.running.is_some()) else { return };
        let (platter, changes, at) = (copy.platter.clone(), copy.changes.clone(), copy.at);
        self.scene.note(|| format!("the catalog of {at:?} is put back"));
        let ended = self.coordinator.stop();
        self.coordinator.platter.replace(&platter);
        self.truth.forget_since(&changes);
        self.coordinator_ended(ended.map(|(requests, _)| requests), false, back_after);
    }

    // ---- blocks ----

    fn harm(&mut self, fault: Fault) {
        let Some((helper, block)) = self.struck(fault) else { return };
        self.scene.note(|| format!("{block} on {}", super::process::name_of(helper)));
        self.told_bad.remove(&(block.clone(), helper)); // That was another time.
        let dice = &mut self.scene.dice;
        let disk = &mut self.processes.get_mut(&helper).expect("it is a process").disk;
        let Some(stored) = disk.blocks.get_mut(&block) else { return };
        let at = dice.below((stored.bytes.len() as u64).max(1));
        match fault {
            Fault::BlockCorrupt { .. } => stored.corrupt_at = Some(at),
            Fault::BlockForged { .. } if !stored.bytes.is_empty() => {
                stored.bytes[at as usize] ^= dice.between(1, 255) as u8;
                if let Some((stripe, _)) = block.0.rsplit_once('.') {
                    self.forged.insert(repair::StripeId(stripe.to_owned()));
                }
            }
            _ => drop(disk.blocks.remove(&block)),
        }
    }

    /// The block that a fault strikes.
    fn struck(&self, fault: Fault) -> Option<(ProcessId, BlockId)> {
        let (Fault::BlockLost { helper, nth }
        | Fault::BlockCorrupt { helper, nth }
        | Fault::BlockForged { helper, nth }) = fault
        else {
            return None;
        };
        let blocks = &self.processes[&helper].disk.blocks;
        let block = blocks.keys().nth(nth as usize % blocks.len().max(1))?;
        Some((helper, block.clone()))
    }

    // ---- tolerance ----

    /// Whether all that is stored can be read after a fault, from what is good on disks that are not gone for good.
    fn is_tolerable(&self, fault: Fault) -> bool {
        let (gone, struck) = match fault {
            Fault::HelperDies { helper, back_after: None, .. } => (Some(helper), None),
            fault => match self.struck(fault) {
                Some(struck) => (None, Some(struck)),
                None => return true,
            },
        };
        if gone.is_some() {
            let left = self.script.helper_ids().filter(|&id| Some(id) != gone && !self.processes[&id].gone);
            if left.count() < self.code.blocks() {
                return false;
            }
        }
        let forges = matches!(fault, Fault::BlockForged { .. });
        self.coordinator.stripes().iter().all(|(stripe, _)| {
            let good: Vec<BlockIndex> = self
                .good_blocks(stripe)
                .into_iter()
                .filter(|&(index, holder)| {
                    let id = &stripe.blocks[usize::from(index.0)].id;
                    Some(holder) != gone && struck.as_ref() != Some(&(holder, id.clone()))
                })
                .map(|(index, _)| index)
                .collect();
            // Who holds a wrong block against the others needs one more.
            let spare = usize::from(forges || self.forged.contains(&stripe.id));
            self.decodes(stripe, &good) && good.len() >= self.code.data_blocks() + spare
        })
    }

    /// Whether a stripe can be read from these blocks.
    pub(crate) fn decodes(&self, stripe: &StripeRecord, good: &[BlockIndex]) -> bool {
        let all = (0..stripe.blocks.len() as u16).map(BlockIndex);
        let lost: Vec<BlockIndex> = all.filter(|index| !good.contains(index)).collect();
        lost.is_empty() || self.code.repair(&lost, good).is_ok()
    }

    /// Blocks of a stripe that are where the catalog says and what they have to be, on disks that are not gone for good.
    pub(crate) fn good_blocks(&self, stripe: &StripeRecord) -> Vec<(BlockIndex, ProcessId)> {
        let holder = |node: NodeId| self.ids.get(&node).copied();
        let good = (0..).map(BlockIndex).zip(&stripe.blocks).filter_map(|(index, block)| {
            let process = &self.processes[&holder(block.node?)?];
            let stored = process.disk.blocks.get(&block.id)?;
            let is_good = !process.gone && stored.corrupt_at.is_none();
            (is_good && self.truth.is_block(&block.id, &stored.bytes)).then_some((index, process.id))
        });
        good.collect()
    }
}
