//! Measures the reads of several clients.

use std::path::PathBuf;
use std::time::Duration;

use repair::{Pacing, Scheme};
use sim::Dice;

use super::{CLIENTS, ClientsReport, Extent, NORMAL, Row, Run};
use crate::check::check;
use crate::error::LabError;
use crate::experiment::wait_while;
use crate::instruction::{Answer, CheckedRead, Expected, Instruction, ReadInstruction, Took};
use crate::lab_cluster::{LabCluster, Programs};
use crate::machine::Machine;
use crate::meter::{Meter, Metered};
use crate::network::{LabNode, Names, Network};
use crate::run::{Say, undisturbed, write_noise};
use crate::scenario::RETRIES;
use crate::topology::{Rate, Topology};
use crate::variant::Variant;

const CODE: &str = "rs-8-6";
const DATA_BLOCKS: u16 = 6;
/// The number of the paper's DataNodes.
const HELPERS: u16 = 13;
const STRIPES: u16 = 6;
const MIB: u64 = 1 << 20;
/// An eighth of the paper's block sizes, at three tenths of its rate.
const BLOCKS: [u64; 4] = [4 * MIB, 8 * MIB, 16 * MIB, 24 * MIB];
const RATE_MBIT: u32 = 300;
/// The unit of the paper's pipelines is 1 MB, scaled like the blocks.
const SLICE_BYTES: u32 = 128 << 10;
/// The block size at which the number of clients varies, and the numbers in addition to the paper's.
const BLOCK_OF_COUNTS: u64 = 8 * MIB;
const COUNTS: [u16; 3] = [1, 2, MOST_CLIENTS];
const MOST_CLIENTS: u16 = 6;
/// The interval between queries for the helpers that are up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns the schemes of the degraded reads. CRR-R runs in slices, as the paper's prototype, and in rounds, as
/// the paper's Algorithm 1.
fn ways() -> [Variant; 5] {
    [
        Variant::own(Scheme::Conventional),
        Variant::own(Scheme::CrrR),
        Variant { pacing: Some(Pacing::WholeBlock), ..Variant::own(Scheme::CrrR) },
        Variant::own(Scheme::CrrS),
        Variant::own(Scheme::Pipelined),
    ]
}

/// Returns the sizes of blocks, each with the numbers of clients to measure.
fn points(extent: Extent) -> Vec<(u64, Vec<u16>)> {
    let clients_at = |block_bytes: u64| -> Vec<u16> {
        let more = COUNTS.iter().copied().filter(|_| block_bytes == BLOCK_OF_COUNTS);
        more.chain([CLIENTS]).collect()
    };
    match extent {
        Extent::OfFigure => BLOCKS.map(|block_bytes| (block_bytes, clients_at(block_bytes))).into(),
        Extent::Small => vec![(MIB, vec![2])],
    }
}

/// Creates a lab, carries out all reads, and removes the lab.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    extent: Extent,
    repetitions: u32,
    say: Say<'_>,
) -> Result<ClientsReport, LabError> {
    let mut network = Network::up(names, &shaped())?;
    say(&format!("network: {}", network.topology()));
    let mut fleet = LabCluster::start(&mut network, programs)?;
    let check = check(&network, &mut fleet)?;
    say(&check.summary());
    let mut lab = ClientsLab { fleet, network, stripes: Vec::new() };
    lab.make_room_for_clients()?;
    let mut report = ClientsReport { machine: Machine::this(), check, rows: Vec::new() };
    for (block_bytes, counts) in points(extent) {
        lab.store(block_bytes)?;
        for clients in counts {
            report.rows.extend(lab.compare(clients, block_bytes, repetitions, say)?);
        }
        lab.forget()?;
    }
    Ok(report)
}

fn shaped() -> Topology {
    let rate = format!("{RATE_MBIT}mbit").parse::<Rate>().expect("a rate");
    Topology::flat(HELPERS + MOST_CLIENTS, rate)
}

/// A cluster, and further nodes on which only clients run. The fields are dropped in this order, so that the
/// processes end before the network is removed.
struct ClientsLab {
    fleet: LabCluster,
    network: Network,
    stripes: Vec<Stored>,
}

/// A stripe and the file with its data.
struct Stored {
    name: String,
    stripe: String,
    source: PathBuf,
}

/// A read of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Planned {
    stripe: usize,
    block: u16,
    is_degraded: bool,
}

/// Plans the reads of one client: random blocks, one of them degraded, at a random place in the sequence.
fn plan(repetition: u32, client: u16) -> Vec<Planned> {
    let mut dice = Dice::new((u64::from(repetition) << 16) | u64::from(client));
    let degraded = dice.below(NORMAL as u64 + 1) as usize;
    let read = |at: usize| Planned {
        stripe: dice.below(u64::from(STRIPES)) as usize,
        block: dice.below(u64::from(DATA_BLOCKS)) as u16,
        is_degraded: at == degraded,
    };
    (0..=NORMAL).map(read).collect()
}

impl ClientsLab {
    /// Kills the last helpers, before anything is stored. Clients then run on their nodes.
    fn make_room_for_clients(&mut self) -> Result<(), LabError> {
        for index in HELPERS..HELPERS + MOST_CLIENTS {
            self.fleet.kill(&LabNode::Helper(index).to_string())?;
        }
        wait_while("coordinator", LOOK_EVERY, || {
            let answer = self.fleet.ask_loader(&self.network, &Instruction::Nodes)?;
            let sees = matches!(&answer, Answer::Nodes { up } if up.len() == usize::from(HELPERS));
            Ok((!sees).then(|| format!("the coordinator does not list {HELPERS} helpers as up")))
        })
    }

    /// Stores the stripes over unshaped links.
    fn store(&mut self, block_bytes: u64) -> Result<(), LabError> {
        self.network.reshape(&Topology { rate: Rate::Unshaped, ..shaped() })?;
        for number in 0..STRIPES {
            let stored = self.store_one(number, block_bytes)?;
            self.stripes.push(stored);
        }
        Ok(self.network.reshape(&shaped())?)
    }

    fn store_one(&mut self, number: u16, block_bytes: u64) -> Result<Stored, LabError> {
        let name = format!("f{number}-{block_bytes}");
        let source = self.fleet.work().join(format!("{name}.source"));
        write_noise(&source, u64::from(DATA_BLOCKS) * block_bytes, u64::from(number) * 2 + 1)
            .map_err(LabError::file("write", &source))?;
        let put =
            Instruction::Put { path: source.clone(), name: name.clone(), code: CODE.to_owned(), block_bytes };
        self.fleet.ask_loader(&self.network, &put)?;
        match self.fleet.ask_loader(&self.network, &Instruction::Layout { name: name.clone() })? {
            Answer::Layout { stripe, .. } => Ok(Stored { name, stripe, source }),
            other => Err(unexpected(&other)),
        }
    }

    fn forget(&mut self) -> Result<(), LabError> {
        for Stored { name, source, .. } in std::mem::take(&mut self.stripes) {
            self.fleet.ask_loader(&self.network, &Instruction::Remove { name })?;
            std::fs::remove_file(&source).map_err(LabError::file("remove", &source))?;
        }
        Ok(())
    }

    /// Carries out the same reads with every scheme in turn, once in each repetition.
    fn compare(
        &mut self,
        clients: u16,
        block_bytes: u64,
        repetitions: u32,
        say: Say<'_>,
    ) -> Result<Vec<Row>, LabError> {
        let row = |way: Variant| Row { clients, block_bytes, scheme: way.to_string(), runs: Vec::new() };
        let mut rows = ways().map(row);
        for repetition in 0..repetitions {
            let plans: Vec<_> = (0..clients).map(|client| plan(repetition, client)).collect();
            for (way, row) in ways().into_iter().zip(&mut rows) {
                let reads = || self.read(&plans, block_bytes, way);
                let (run, _) = undisturbed(RETRIES, |(_, metered): &(Run, Metered)| metered, reads)?;
                say(&format!(
                    "{clients} clients, {}, {}: mean {:.4} s, normal {:.4} s, degraded {:.4} s",
                    cluster::ByteSize::from_bytes(block_bytes),
                    row.scheme,
                    run.all_s,
                    run.normal_s,
                    run.degraded_s
                ));
                row.runs.push(run);
            }
        }
        Ok(rows.into())
    }

    /// Lets all clients read at the same time.
    fn read(
        &mut self,
        plans: &[Vec<Planned>],
        block_bytes: u64,
        way: Variant,
    ) -> Result<(Run, Metered), LabError> {
        let sequence = |plan: &Vec<Planned>| {
            let reads = plan.iter().map(|planned| self.checked(*planned, block_bytes, way));
            Instruction::Sequence { reads: reads.collect() }
        };
        let places = (HELPERS..).map(LabNode::Helper);
        let orders: Vec<(LabNode, Instruction)> = places.zip(plans.iter().map(sequence)).collect();
        let meter = Meter::start(&self.network)?;
        let answers = self.fleet.ask_each(&self.network, &orders)?;
        let metered = meter.stop()?;
        let mut took = Vec::new();
        for (answer, plan) in answers.into_iter().zip(plans) {
            match answer {
                Answer::Sequence { took: reads } => took.extend(reads.into_iter().zip(plan.iter().copied())),
                other => return Err(unexpected(&other)),
            }
        }
        Ok((summary(took, &metered), metered))
    }

    fn checked(&self, planned: Planned, block_bytes: u64, way: Variant) -> CheckedRead {
        let Planned { stripe, block, is_degraded } = planned;
        let Stored { stripe, source, .. } = &self.stripes[stripe];
        let read = ReadInstruction {
            stripe: stripe.clone(),
            blocks: vec![block],
            window: 0..block_bytes,
            block_bytes,
            scheme: if is_degraded { way.scheme } else { Scheme::Auto },
            slice_bytes: Some(SLICE_BYTES),
            pacing: way.pacing.filter(|_| is_degraded),
            pretend_lost: is_degraded,
        };
        let offset = u64::from(block) * block_bytes;
        CheckedRead { read, expected: Expected { block, path: source.clone(), offset } }
    }
}

/// Computes the mean times of the reads of all clients.
fn summary(reads: Vec<(Took, Planned)>, metered: &Metered) -> Run {
    let mean = |is: fn(&Planned) -> bool| {
        let of = reads.iter().filter(|(_, planned)| is(planned)).map(|(took, _)| took.ns as f64 / 1e9);
        let times: Vec<f64> = of.collect();
        times.iter().sum::<f64>() / times.len() as f64
    };
    Run {
        all_s: mean(|_| true),
        normal_s: mean(|planned| !planned.is_degraded),
        degraded_s: mean(|planned| planned.is_degraded),
        disturbed: metered.disturbed,
        cpu_bound: metered.cpu_bound,
        replanned: reads.into_iter().flat_map(|(took, _)| took.replanned).collect(),
    }
}

fn unexpected(answer: &Answer) -> LabError {
    LabError::Agent { who: "client".to_owned(), reason: format!("an answer to something else: {answer:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_clients_reads_is_degraded() {
        for client in 0..MOST_CLIENTS {
            let reads = plan(2, client);
            assert_eq!(reads.len(), NORMAL + 1);
            assert_eq!(reads.iter().filter(|read| read.is_degraded).count(), 1);
            assert!(reads.iter().all(|read| read.block < DATA_BLOCKS && read.stripe < STRIPES.into()));
        }
        assert_eq!(plan(2, 1), plan(2, 1), "every scheme carries out the same reads");
        assert_ne!(plan(2, 1), plan(2, 2));
    }

    #[test]
    fn the_mean_counts_all_reads_of_all_clients() {
        let read = |ns, is_degraded| {
            let took = Took { ns, replanned: vec!["slow".to_owned()], ..Took::default() };
            (took, Planned { stripe: 0, block: 0, is_degraded })
        };
        let reads = vec![read(1_000_000_000, false), read(2_000_000_000, false), read(6_000_000_000, true)];
        let metered = crate::report::Sample::of_test(1.0, 0.1, true).metered;
        let run = summary(reads, &metered);
        assert_eq!((run.all_s, run.normal_s, run.degraded_s), (3.0, 1.5, 6.0));
        assert_eq!((run.cpu_bound, run.replanned.len()), (true, 3));
    }

    #[test]
    fn every_size_has_the_papers_clients() {
        let points = points(Extent::OfFigure);
        assert_eq!(points[0], (BLOCKS[0], vec![CLIENTS]));
        assert_eq!(points[1], (BLOCK_OF_COUNTS, vec![1, 2, MOST_CLIENTS, CLIENTS]));
        assert!(points.iter().all(|(_, counts)| counts.contains(&CLIENTS)));
    }
}
