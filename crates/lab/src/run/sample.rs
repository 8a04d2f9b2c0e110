//! Makes one measurement, a read by the client or a repair to nodes, and checks the resulting bytes.

use std::thread;
use std::time::Duration;

use super::Run;
use super::stored::{Stored, remove_named};
use crate::error::LabError;
use crate::instruction::{Expected, Instruction, ReadInstruction};
use crate::report::Sample;
use crate::scenario::{Loss, Slice};
use crate::variant::Variant;

/// How long after the last small read a repair is measured. Helpers slow repairs down for a second after clients' reads.
const AFTER_READS: Duration = Duration::from_millis(1500);

impl Run<'_> {
    fn read_order(&self, stored: &Stored, way: Variant, slice: Slice, lost: &[u16]) -> ReadInstruction {
        ReadInstruction {
            stripe: stored.stripe.clone(),
            blocks: lost.to_vec(),
            window: 0..stored.block_bytes / u64::from(stored.sub_blocks),
            block_bytes: stored.block_bytes,
            scheme: way.scheme,
            slice_bytes: slice.bytes(),
            pacing: way.pacing,
            pretend_lost: self.scenario.loss.how == Loss::Pretend,
        }
    }

    pub(super) fn read(
        &mut self,
        stored: &Stored,
        way: Variant,
        slice: Slice,
        lost: &[u16],
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        self.prepare_memory(stored, way, lost)?;
        let order = Instruction::Read(self.read_order(stored, way, slice, lost));
        let sample = self.with_limited_disks(stored, lost, |run| run.took(&order))?;
        let compare = Instruction::Compare { expected: expected.to_vec() };
        let compared = self.fleets[self.current].fleet.ask(&self.network, &compare);
        compared.map_err(|error| wrong_bytes(stored, way, &error))?;
        Ok(sample)
    }

    /// Deletes blocks, makes the coordinator notice the loss, and repairs each block to a separate node.
    pub(super) fn repair(
        &mut self,
        stored: &Stored,
        way: Variant,
        slice: Slice,
        lost: &[u16],
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        let mut blocks = Vec::new();
        for &index in lost {
            let at = self.holder(stored, index)?;
            let folder = self.fleets[self.current].fleet.blocks(&at.node);
            remove_named(&folder, &at.block).map_err(LabError::file("remove a block in", folder))?;
            blocks.push(at.block);
        }
        let plain = ReadInstruction { pretend_lost: false, ..self.read_order(stored, way, slice, lost) };
        for &index in lost {
            // A small read makes the coordinator notice that the block is gone.
            let touch = ReadInstruction { blocks: vec![index], window: 0..4096, ..plain.clone() };
            self.fleets[self.current].fleet.ask_loader(&self.network, &Instruction::Read(touch))?;
        }
        self.prepare_memory(stored, way, lost)?;
        thread::sleep(AFTER_READS);
        let order = Instruction::Repair {
            stripe: stored.stripe.clone(),
            blocks,
            scheme: way.scheme,
            slice_bytes: slice.bytes(),
            policy: self.scenario.repairs.policy,
            verify_parity: self.scenario.repairs.verify_parity,
        };
        let sample = self.with_limited_disks(stored, lost, |run| run.took(&order))?;
        self.compare_stored(stored, way, plain, expected)?;
        Ok(sample)
    }

    /// Compares the blocks stored on nodes with the original bytes. Reads through the coordinator's
    /// namespace, because the client's link is metered.
    fn compare_stored(
        &mut self,
        stored: &Stored,
        way: Variant,
        plain: ReadInstruction,
        expected: &[Expected],
    ) -> Result<(), LabError> {
        let fleet = &mut self.fleets[self.current].fleet;
        fleet.ask_loader(&self.network, &Instruction::Read(plain))?;
        let compare = Instruction::Compare { expected: expected.to_vec() };
        let compared = fleet.ask_loader(&self.network, &compare);
        compared.map(drop).map_err(|error| wrong_bytes(stored, way, &error))
    }
}

fn wrong_bytes(stored: &Stored, way: Variant, error: &LabError) -> LabError {
    LabError::WrongBytes {
        what: format!("{} of {} by {way}", stored.name, stored.stripe),
        reason: error.to_string(),
    }
}
