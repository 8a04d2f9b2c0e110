//! The memory and the disks of helpers in a measurement with cold disks: which blocks are in memory when it
//! begins, and how fast the others can be read.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::stored::Stored;
use super::{Run, unexpected};
use crate::error::LabError;
use crate::instruction::{Answer, BlockAt, Instruction};
use crate::variant::Variant;

/// The time limit for helpers to report which blocks are in memory. They examine their blocks every second.
const REPORT_LIMIT: Duration = Duration::from_secs(30);

impl Run<'_> {
    /// Evicts all blocks from the page cache, if the scenario measures cold disks. With a cache, then reads as
    /// many surviving blocks into it as a repair needs, and waits until the coordinator knows them.
    pub(super) fn prepare_memory(
        &mut self,
        stored: &Stored,
        way: Variant,
        lost: &[u16],
    ) -> Result<(), LabError> {
        if !self.scenario.effort.cold {
            return Ok(());
        }
        self.fleets[self.current].fleet.forget_cached()?;
        if !way.cached {
            return Ok(());
        }
        // The highest indices, because a repair that knows of no cache reads the lowest.
        let hot: Vec<&BlockAt> = stored.survivors(lost).rev().take(stored.data_blocks).collect();
        for at in &hot {
            self.fleets[self.current].fleet.load_cached(&at.node, &at.block)?;
        }
        self.await_hot(&hot)
    }

    /// Waits until the coordinator knows that exactly these blocks are in memory.
    fn await_hot(&mut self, hot: &[&BlockAt]) -> Result<(), LabError> {
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        hot.iter().for_each(|at| *wanted.entry(&at.node).or_default() += 1);
        let give_up = Instant::now() + REPORT_LIMIT;
        loop {
            let fleet = &mut self.fleets[self.current].fleet;
            match fleet.ask_loader(&self.network, &Instruction::Hot)? {
                Answer::Hot { blocks } => {
                    let is_told = |(node, found): (&String, &u64)| {
                        *found == wanted.get(node.as_str()).copied().unwrap_or(0)
                    };
                    if blocks.iter().all(is_told) {
                        return Ok(());
                    }
                    if Instant::now() > give_up {
                        let reason = format!("{blocks:?} are reported as in memory, and {wanted:?} are");
                        return Err(LabError::Agent { who: "coordinator".to_owned(), reason });
                    }
                }
                other => return Err(unexpected(&other)),
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Measures while the disks of helpers with surviving blocks are limited, if the scenario limits them.
    pub(super) fn with_limited_disks<T>(
        &mut self,
        stored: &Stored,
        lost: &[u16],
        measure: impl FnOnce(&mut Self) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let holders: Vec<String> = stored.survivors(lost).map(|at| at.node.clone()).collect();
        self.limit_disks(&holders, true)?;
        let measured = measure(self);
        self.limit_disks(&holders, false)?;
        measured
    }

    fn limit_disks(&self, helpers: &[String], limited: bool) -> Result<(), LabError> {
        self.disks.as_ref().map_or(Ok(()), |disks| disks.set(helpers, limited))
    }
}
