//! Runs a scenario: all combinations of parameters. In each repetition, a direct send of one block and all
//! schemes take turns, so that gradual changes of the machine affect all of them alike.

mod memory;
mod placement;
mod row;
mod sample;
mod stored;
mod straggling;

use std::time::{SystemTime, UNIX_EPOCH};

use cluster::ByteSize;
use codes::CodeSpec;

use crate::baseline::{Baseline, Chain};
use crate::check::check;
use crate::disk_limits::DiskLimits;
use crate::error::LabError;
use crate::instruction::{Answer, Expected, Instruction, Took};
use crate::lab_cluster::{LabCluster, Programs};
use crate::machine::Machine;
use crate::medium::Medium;
use crate::meter::{Meter, Metered};
use crate::network::{LabNode, Names, Network};
use crate::report::{Report, Row, Sample};
use crate::scenario::{Destination, Many, Scenario, Slice};
use crate::variant::Variant;
pub use placement::Placement;
pub(crate) use row::BARE_CHAIN;
use stored::Stored;
pub(crate) use stored::write_noise;
use straggling::Slowed;

/// A callback for progress messages.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Creates a lab, runs the scenario in it, and removes the lab.
///
/// # Errors
/// [`LabError`]; [`LabError::WrongBytes`] if a repaired block differs from the lost one.
pub fn run(
    names: &Names,
    programs: &Programs,
    scenario: &Scenario,
    say: Say<'_>,
) -> Result<Report, LabError> {
    let topologies = scenario.topologies();
    let mut network = Network::up(names, &topologies[0])?;
    say(&format!("network: {}", network.topology()));
    let fleets = scenario.data_tls.iter().map(|&data_tls| {
        let fleet = LabCluster::start_with(&mut network, programs, data_tls)?;
        Ok(Clustered { data_tls, fleet })
    });
    let fleets = fleets.collect::<Result<Vec<_>, LabError>>()?;
    let work = fleets[0].fleet.work();
    let medium = Medium::of(work);
    if scenario.effort.cold && medium.is_none() {
        return Err(LabError::NoDevice { path: work.to_owned() });
    }
    let helpers = || fleets.iter().flat_map(|clustered| clustered.fleet.helpers());
    let limit = |rate| DiskLimits::new(names, work, rate, helpers());
    let disks = scenario.effort.disk.map(limit).transpose()?;
    let mut run = Run { network, fleets, current: 0, medium, disks, scenario, stragglers: 0, say };
    let report = run.all();
    // End the members first; they must not write into the folder that is removed with the network.
    drop(run.fleets);
    drop(run.network);
    report
}

/// A cluster, and whether its data edges are encrypted.
struct Clustered {
    data_tls: bool,
    fleet: LabCluster,
}

struct Run<'a> {
    network: Network,
    /// Clusters that run at the same time, so that their measurements can take turns.
    fleets: Vec<Clustered>,
    /// The index of the cluster in use.
    current: usize,
    medium: Option<Medium>,
    /// The limits of helpers' disks, if the scenario has one.
    disks: Option<DiskLimits>,
    scenario: &'a Scenario,
    /// The number of helpers slowed down so far.
    stragglers: u16,
    say: Say<'a>,
}

impl Run<'_> {
    fn all(&mut self) -> Result<Report, LabError> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut report = Report {
            scenario: self.scenario.clone(),
            machine: Machine::this(),
            started_unix_ms: started.as_millis() as u64,
            checks: Vec::new(),
            constants: None,
            rows: Vec::new(),
        };
        for topology in self.scenario.topologies() {
            self.network.reshape(&topology)?;
            let check = check(&self.network, &mut self.fleets[0].fleet)?;
            (self.say)(&check.summary());
            report.checks.push(check);
            for code in self.scenario.code.iter() {
                for block_bytes in self.scenario.block_bytes.iter() {
                    for number in 1..=self.scenario.effort.placements {
                        report.rows.extend(self.placed(code, block_bytes.bytes(), number)?);
                    }
                }
            }
        }
        Ok(report)
    }

    /// Stores a stripe, whose blocks the coordinator places at random, and measures it with each slice size.
    fn placed(&mut self, code: &CodeSpec, block_bytes: u64, number: u32) -> Result<Vec<Row>, LabError> {
        let stored = self.in_each(|run| run.store(code, block_bytes))?;
        let mut rows = Vec::new();
        for &slice in self.scenario.slice_bytes.iter() {
            rows.extend(self.compare(&stored, slice)?);
        }
        self.in_each(|run| run.forget(&stored[run.current]))?;
        if self.scenario.effort.placements > 1 {
            let placement = Placement::of(number, &stored[0]);
            rows.iter_mut().for_each(|row| row.case.placement = Some(placement.clone()));
        }
        Ok(rows)
    }

    /// Calls `work` for each cluster, with `current` set to the cluster's index; returns the results.
    fn in_each<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, LabError>,
    ) -> Result<Vec<T>, LabError> {
        let results = (0..self.fleets.len()).map(|fleet| {
            self.current = fleet;
            work(self)
        });
        results.collect()
    }

    /// Measures all schemes and losses for one slice size and one stripe, which is stored in each cluster.
    fn compare(&mut self, stored: &[Stored], slice: Slice) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        for lost in &stored[0].losses(&self.scenario.loss) {
            let expected = self.in_each(|run| {
                lost.iter().map(|&block| run.expected(&stored[run.current], block)).collect()
            })?;
            let killed = self.in_each(|run| run.kill_holders(&stored[run.current], lost))?;
            rows.extend(self.interleaved(stored, slice, lost, &expected)?);
            self.in_each(|run| {
                let mut helpers = killed[run.current].iter();
                let fleet = &mut run.fleets[run.current].fleet;
                helpers.try_for_each(|helper| fleet.revive(&run.network, helper))
            })?;
        }
        Ok(rows)
    }

    /// In each repetition, measures the direct send, the bare chains and all schemes in turn.
    fn interleaved(
        &mut self,
        stored: &[Stored],
        slice: Slice,
        lost: &[u16],
        expected: &[Vec<Expected>],
    ) -> Result<Vec<Row>, LabError> {
        let ways = self.scenario.ways();
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
        let mut baseline = self.baseline(&stored[0]);
        for _ in 0..self.scenario.effort.repetitions {
            self.current = 0;
            baseline.direct.push(self.direct(&stored[0], lost)?);
            for chain in &mut baseline.chains {
                chain.samples.push(self.bare_chain(&stored[0], chain.slice_bytes)?);
            }
            for (&way, samples) in ways.iter().zip(&mut samples) {
                let fleet = self.fleets.iter().position(|fleet| fleet.data_tls == way.encrypted);
                self.current = fleet.expect("the ways are of the same list as the fleets");
                let (stored, expected) = (&stored[self.current], &expected[self.current]);
                samples.push(self.measure(stored, way, slice, lost, expected)?);
            }
        }
        let chains = baseline.chains.iter();
        let mut rows: Vec<_> = chains.map(|chain| self.chain_row(&stored[0], chain, &baseline)).collect();
        rows.extend(ways.iter().zip(samples).map(|(&way, samples)| {
            let mut row = self.row(&stored[0], way, slice, lost);
            row.fill(&samples, &baseline);
            row
        }));
        rows.iter().for_each(|row| (self.say)(&row.summary()));
        Ok(rows)
    }

    /// Returns a baseline without samples.
    fn baseline(&self, stored: &Stored) -> Baseline {
        let sizes = self.scenario.bare_chain.iter().flat_map(Many::iter);
        let chain = |size: &ByteSize| {
            let slice_bytes = u32::try_from(size.bytes()).expect("a scenario's slices are checked");
            let hops = stored.data_blocks as f64;
            let filling = (hops - 1.0) * f64::from(slice_bytes) / stored.block_bytes as f64;
            Chain { slice_bytes, filling, samples: Vec::new() }
        };
        Baseline { direct: Vec::new(), chains: sizes.map(chain).collect() }
    }

    /// Measures a direct send of one block to the client, from a helper that holds a block of this stripe.
    fn direct(&mut self, stored: &Stored, lost: &[u16]) -> Result<Sample, LabError> {
        let other = stored.blocks.iter().zip(0..).find(|(_, index)| !lost.contains(index));
        let node = other.map_or("h1", |(at, _)| at.node.as_str());
        let index = node.trim_start_matches('h').parse::<u16>().unwrap_or(1) - 1;
        let address = self.fleets[self.current].fleet.sender(&self.network, LabNode::Helper(index))?;
        let order = Instruction::Direct { address, bytes: stored.block_bytes };
        self.undisturbed(|run| run.took(&order))
    }

    /// Measures a send of one block to the client through a bare chain, which has one relay per helper of a
    /// pipelined repair.
    fn bare_chain(&mut self, stored: &Stored, slice_bytes: u32) -> Result<Sample, LabError> {
        let hops = stored.data_blocks as u16;
        let address = self.fleets[self.current].fleet.chain(&self.network, hops, slice_bytes)?;
        let order = Instruction::Direct { address, bytes: stored.block_bytes };
        self.undisturbed(|run| run.took(&order))
    }

    /// Measures one repair, and repeats it if other programs disturbed it. Every result is compared with the
    /// lost blocks.
    fn measure(
        &mut self,
        stored: &Stored,
        way: Variant,
        slice: Slice,
        lost: &[u16],
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        self.undisturbed(|run| {
            let slowed = run.slow_down_later(stored, lost)?;
            let sample = match run.scenario.to {
                Destination::Client => run.read(stored, way, slice, lost, expected),
                Destination::Node => run.repair(stored, way, slice, lost, expected),
            };
            slowed.into_iter().try_for_each(Slowed::end)?;
            sample
        })
    }

    /// Repeats a measurement while other programs disturb it, up to the scenario's number of retries.
    fn undisturbed(
        &mut self,
        mut measure: impl FnMut(&mut Self) -> Result<Sample, LabError>,
    ) -> Result<Sample, LabError> {
        undisturbed(self.scenario.effort.retries, |sample: &Sample| &sample.metered, || measure(self))
    }

    /// Measures the execution of one instruction by the client.
    fn took(&mut self, order: &Instruction) -> Result<Sample, LabError> {
        let device_reads = || self.medium.as_ref().and_then(Medium::reads);
        let (meter, before) = (Meter::start(&self.network)?, device_reads());
        let answer = self.fleets[self.current].fleet.ask(&self.network, order)?;
        let (metered, after) = (meter.stop()?, device_reads());
        let device = after.zip(before).map(|(after, before)| after - before);
        match answer {
            Answer::Took(Took { ns, first_byte_ns, scheme, replanned }) => Ok(Sample {
                time_s: ns as f64 / 1e9,
                first_byte_s: first_byte_ns.map(|ns| ns as f64 / 1e9),
                used: scheme,
                replanned,
                metered,
                device,
            }),
            other => Err(unexpected(&other)),
        }
    }
}

/// Repeats a measurement while other programs disturb it, at most `retries` times. Returns the undisturbed result, or
/// else the least disturbed one.
pub(crate) fn undisturbed<T>(
    retries: u32,
    metered: impl Fn(&T) -> &Metered,
    mut measure: impl FnMut() -> Result<T, LabError>,
) -> Result<T, LabError> {
    let mut best = measure()?;
    for _ in 0..retries {
        if !metered(&best).disturbed {
            break;
        }
        let next = measure()?;
        if metered(&next).foreign_s < metered(&best).foreign_s {
            best = next;
        }
    }
    Ok(best)
}

fn unexpected(answer: &Answer) -> LabError {
    LabError::Agent { who: "client".to_owned(), reason: format!("an answer to something else: {answer:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of measurements, and the load of other programs in the one that counts.
    fn kept(foreign_s: &[f64]) -> (usize, f64) {
        let mut measured = 0;
        let sample = undisturbed(
            2,
            |sample: &Sample| &sample.metered,
            || {
                let mut sample = Sample::of_test(1.0, 0.1, false);
                sample.metered.foreign_s = foreign_s[measured];
                sample.metered.disturbed = foreign_s[measured] > 0.1;
                measured += 1;
                Ok(sample)
            },
        );
        (measured, sample.unwrap().metered.foreign_s)
    }

    #[test]
    fn the_least_disturbed_measurement_counts() {
        assert_eq!(kept(&[0.05]), (1, 0.05));
        assert_eq!(kept(&[0.3, 0.02]), (2, 0.02));
        assert_eq!(kept(&[0.3, 0.2, 0.4]), (3, 0.2));
    }
}
