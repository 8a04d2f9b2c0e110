//! Starts and ends the faults of a script. A fault that would lose more than the code tolerates is skipped.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, Fingerprint, StripeId, StripeParity, stripe_parity};

use super::assembly::System;
use super::coordinator::STORAGE_DELAY;
use super::event::{Happening, ProcessId};
use super::platter::Platter;
use super::process::name_of;
use super::script::{Fault, Trigger};
use super::wires::Way;
use super::world::World;

/// Interval between catalog backups, in scripts that restore one.
pub(crate) const COPY_EVERY: Duration = Duration::from_secs(8);

/// The time that a helper takes to restart when its disk is unmounted or mounted.
const REMOUNTED: Duration = Duration::from_millis(500);

/// A backup of the catalog.
#[derive(Debug)]
pub(crate) struct Copy {
    at: Duration,
    /// A copy of the medium at the time of the backup. A snapshot of the catalog is taken from this copy only
    /// if the backup is restored.
    platter: Platter,
    /// The number of changes of each file at the time of the backup.
    changes: BTreeMap<String, u64>,
}

/// Faults that also concern the clients or the judge.
impl World {
    /// Handles a fault that is due: it strikes now or waits for its trigger.
    pub(crate) fn arm(&mut self, number: usize) {
        match self.system.script.faults[number].0.on {
            Some(trigger) => self.armed.push((trigger, number)),
            None => self.strike(number, None),
        }
    }

    /// Handles a trigger at a helper. Faults that waited for this trigger strike soon, while the helper's
    /// work is in progress.
    pub(crate) fn pull(&mut self, trigger: Trigger, helper: Option<ProcessId>) {
        let is_due = |&mut (on, _): &mut (Trigger, usize)| on == trigger;
        for (_, number) in self.armed.extract_if(.., is_due).collect::<Vec<_>>() {
            let dice = &mut self.system.shared.dice;
            let soon = Duration::from_millis(dice.pick(&[0, 0, 2, 30, 300]));
            let delay = dice.up_to(soon);
            self.system.after(delay, Happening::Fault { number, at: helper });
        }
    }

    /// Lets a fault strike, at helper `at` if given. Skips the fault if too much would be lost, or if the
    /// period without faults has begun.
    pub(crate) fn strike(&mut self, number: usize, at: Option<ProcessId>) {
        let fault = self.system.script.faults[number].1;
        let fault = at.map_or(fault, |helper| fault.aimed_at(helper));
        if self.judge.is_calm() {
            return;
        }
        if !self.system.is_tolerable(fault) {
            return self
                .system
                .shared
                .note(|| format!("skipping {fault:?}: more blocks would be lost than the code tolerates"));
        }
        self.system.shared.note(|| format!("{fault:?}"));
        match fault {
            Fault::HelperDies { helper, unheard, back_after } => self.kill(helper, unheard, back_after),
            Fault::ClientDies { client, back_after } => self.kill(client, false, Some(back_after)),
            Fault::WireBreaks { process } => {
                if self.system.processes.get(process).session.connection().is_some() {
                    self.system.hang_up(process, false);
                    self.lose_session(process);
                }
            }
            Fault::BlockLost { .. } | Fault::BlockCorrupt { .. } | Fault::BlockForged { .. } => {
                if let Some((helper, block)) = self.system.struck(fault) {
                    self.judge.forget_told(&block, helper);
                    self.system.harm(fault, helper, &block);
                }
            }
            Fault::CatalogRestored { age, back_after } => self.restore_catalog(age, back_after),
            fault => self.system.begin_fault(fault),
        }
        if let Some(lasts) = fault.lasts() {
            self.system.struck.push(fault);
            self.system.after(lasts, Happening::FaultEnds(fault));
        }
    }

    fn kill(&mut self, id: ProcessId, unheard: bool, back_after: Option<Duration>) {
        if self.system.kill(id, unheard, back_after) && self.system.processes.get(id).is_client() {
            self.clients.died(id, &mut self.system);
        }
    }

    /// Makes a backup of the catalog.
    pub(crate) fn copy_catalog(&mut self) {
        if !self.judge.is_calm() {
            self.system.after(COPY_EVERY, Happening::Copies);
        }
        let coordinator = &self.system.coordinator;
        if coordinator.running.is_some() {
            let files = &self.system.truth.files;
            let changes = files.iter().map(|(name, file)| (name.clone(), file.changes)).collect();
            let platter = coordinator.platter.copy();
            self.copies.push(Copy { at: self.system.shared.now, platter, changes });
        }
    }

    /// Stops the coordinator, restores a backup of its catalog and starts it again. Changes of files since
    /// the backup are lost.
    fn restore_catalog(&mut self, age: Duration, back_after: Duration) {
        let system = &mut self.system;
        let before = system.shared.now.saturating_sub(age);
        if system.coordinator.running.is_none() {
            return;
        }
        let earlier = self.copies.iter().rev().filter(|copy| copy.at <= before);
        let mut candidates = earlier.chain(&self.copies);
        let found = candidates.find_map(|copy| Some((copy, system.coordinator.snapshot_of(&copy.platter)?)));
        let Some((copy, snapshot)) = found else { return };
        system.shared.note(|| format!("the catalog of {:?} is restored", copy.at));
        let ended = system.coordinator.stop();
        system.coordinator.platter.replace(&snapshot);
        system.truth.forget_since(&copy.changes);
        system.coordinator_ended(ended, false, back_after);
    }
}

impl System {
    /// Kills a process. Returns whether it was running.
    fn kill(&mut self, id: ProcessId, unheard: bool, back_after: Option<Duration>) -> bool {
        if !self.processes.get(id).alive {
            return false;
        }
        self.hang_up(id, unheard);
        let process = self.processes.get_mut(id);
        process.die(&mut self.shared, unheard);
        process.gone = back_after.is_none();
        let life = process.life;
        if let Some(delay) = back_after {
            self.after(delay, Happening::Starts { process: id, life });
        }
        true
    }

    /// Restarts a helper with an empty folder instead of its disk.
    fn unmount(&mut self, helper: ProcessId) {
        let disk = &self.processes.get(helper).disk;
        if disk.unmounted.is_none() && self.kill(helper, false, Some(REMOUNTED)) {
            let disk = &mut self.processes.get_mut(helper).disk;
            disk.unmounted = Some(std::mem::take(&mut disk.blocks));
        }
    }

    /// Restarts a helper with its disk, to which the operator has moved what the helper has stored meanwhile.
    fn mount(&mut self, helper: ProcessId) {
        let disk = &mut self.processes.get_mut(helper).disk;
        if let Some(mut blocks) = disk.unmounted.take() {
            blocks.append(&mut disk.blocks);
            disk.blocks = blocks;
            self.kill(helper, false, Some(REMOUNTED));
        }
    }

    /// Starts a fault that concerns only the system under test.
    fn begin_fault(&mut self, fault: Fault) {
        match fault {
            Fault::CoordinatorDies { power, back_after } => {
                let ended = self.coordinator.die(power, &mut self.shared.dice);
                self.coordinator_ended(ended, power, back_after);
            }
            Fault::CoordinatorRestarts { back_after } => {
                let ended = self.coordinator.stop();
                self.coordinator_ended(ended, false, back_after);
            }
            Fault::Partition { process, up, down, .. } => {
                let ways = [(Way::Up, up), (Way::Down, down)];
                let cut = ways.into_iter().filter(|&(_, cut)| cut);
                cut.for_each(|(way, _)| self.wires.cut(process, way));
            }
            Fault::DataPartition { a, b, .. } => {
                if let (Some(a), Some(b)) = (self.processes.get(a).node, self.processes.get(b).node) {
                    self.shared.cut_data(a, b);
                }
            }
            Fault::SlowControl { process, limit, .. } => self.wires.delay(process, Some(limit)),
            Fault::FlipFrame { from } => {
                if let Some(node) = self.processes.get(from).node {
                    self.shared.network.flip_next_frames(node);
                }
            }
            Fault::Slow { helper, factor, .. } => {
                self.processes.slow_down(helper, f64::from(factor), &mut self.shared);
            }
            Fault::StorageFails { after_writes, once, .. } => {
                self.coordinator.platter.fail_after(Some((after_writes, once)));
            }
            Fault::StorageSlow { limit, .. } => self.coordinator.storage_delay = limit,
            Fault::DiskFull { helper, .. } => self.processes.get_mut(helper).disk.full = true,
            Fault::DiskAway { helper, .. } => self.unmount(helper),
            Fault::ClockJumps { by_s } => self.coordinator.skew_s += i64::from(by_s),
            other => unreachable!("{other:?} concerns more than the system"),
        }
    }

    /// Ends a fault.
    pub(crate) fn end_fault(&mut self, fault: Fault) {
        self.shared.note(|| format!("{fault:?} ends"));
        match fault {
            Fault::Partition { process, .. } => self.wires.join(process, &mut self.shared),
            Fault::DataPartition { .. } => self.shared.network.cut.clear(),
            Fault::SlowControl { process, .. } => self.wires.delay(process, None),
            Fault::Slow { helper, .. } => self.processes.slow_down(helper, 1.0, &mut self.shared),
            Fault::StorageFails { .. } => self.coordinator.platter.fail_after(None),
            Fault::StorageSlow { .. } => self.coordinator.storage_delay = STORAGE_DELAY,
            Fault::DiskFull { helper, .. } => self.processes.get_mut(helper).disk.full = false,
            Fault::DiskAway { helper, .. } => self.mount(helper),
            _ => {}
        }
    }

    /// Ends all faults and restarts all processes that have not left for good.
    pub(crate) fn cease(&mut self) {
        self.shared.note(|| "calm".to_owned());
        for fault in std::mem::take(&mut self.struck) {
            self.end_fault(fault);
        }
        self.after(Duration::ZERO, Happening::CoordinatorStarts);
        for id in self.processes.ids() {
            let process = self.processes.get(id);
            if !process.alive && !process.gone {
                let life = process.life;
                self.after(Duration::ZERO, Happening::Starts { process: id, life });
            }
        }
    }

    /// Damages or removes a block on a helper's disk.
    fn harm(&mut self, fault: Fault, helper: ProcessId, block: &BlockId) {
        self.shared.note(|| format!("{block} on {}", name_of(helper)));
        let dice = &mut self.shared.dice;
        let blocks = &mut self.processes.get_mut(helper).disk.blocks;
        let Some(stored) = blocks.get_mut(block) else { return };
        let at = dice.below((stored.bytes.len() as u64).max(1));
        match fault {
            Fault::BlockCorrupt { .. } => stored.corrupt_at = Some(at),
            Fault::BlockForged { .. } if !stored.bytes.is_empty() => {
                stored.bytes[at as usize] ^= dice.between(1, 255) as u8;
                if let Some((stripe, _)) = block.0.rsplit_once('.') {
                    self.truth.forged.insert(StripeId(stripe.to_owned()));
                }
            }
            _ => drop(blocks.remove(block)),
        }
    }

    /// Returns the block that a fault strikes, with its helper, or `None` if the fault strikes no block.
    fn struck(&self, fault: Fault) -> Option<(ProcessId, BlockId)> {
        let (Fault::BlockLost { helper, nth }
        | Fault::BlockCorrupt { helper, nth }
        | Fault::BlockForged { helper, nth }) = fault
        else {
            return None;
        };
        let blocks = &self.processes.get(helper).disk.blocks;
        let block = blocks.keys().nth(nth as usize % blocks.len().max(1))?;
        Some((helper, block.clone()))
    }

    /// Whether a fault may strike. Afterwards every stripe must still be readable from good blocks on helpers
    /// that have not left for good, and at least as many helpers must remain as a stripe has blocks.
    fn is_tolerable(&self, fault: Fault) -> bool {
        let (gone, struck) = match fault {
            Fault::HelperDies { helper, back_after: None, .. } => (Some(helper), None),
            fault => match self.struck(fault) {
                Some(struck) => (None, Some(struck)),
                None => return true,
            },
        };
        if gone.is_some() {
            let stays = |&id: &ProcessId| Some(id) != gone && !self.processes.get(id).gone;
            if self.script.helper_ids().filter(stays).count() < self.code.blocks() {
                return false;
            }
        }
        let forges = matches!(fault, Fault::BlockForged { .. });
        self.coordinator.stripes().iter().all(|(stripe, _)| {
            let stays = |&(index, holder): &(BlockIndex, ProcessId)| {
                let block = stripe.blocks[usize::from(index.0)].id.clone();
                Some(holder) != gone && struck.as_ref() != Some(&(holder, block))
            };
            let good = self.good_blocks(stripe).into_iter().filter(stays);
            let good: Vec<BlockIndex> = good.map(|(index, _)| index).collect();
            let is_forged = forges || self.truth.forged.contains(&stripe.id);
            self.decodes(stripe, &good) && (!is_forged || self.shows_errors(&good))
        })
    }

    /// Whether an error in any of these blocks of a stripe breaks an equation over the others. If a block is forged, a
    /// repair is published only then. For an MDS code, this takes one block more than reading the stripe.
    fn shows_errors(&self, blocks: &[BlockIndex]) -> bool {
        let zeros = vec![Fingerprint::zero(); self.code.sub_blocks()];
        let read = blocks.iter().map(|&index| (index, zeros.clone())).collect();
        match stripe_parity(&*self.code, &read) {
            StripeParity::Holds { unproven } => unproven.is_empty(),
            _ => false,
        }
    }
}
