//! Measures many concurrent small reads, and the memory that they need in each process.

use repair::Scheme;

use crate::error::LabError;
use crate::finding::{Finding, Verdict};
use crate::instruction::{Answer, Expected, Instruction};
use crate::lab_cluster::{LabCluster, Programs};
use crate::meter::Meter;
use crate::network::{LabNode, Names, Network};
use crate::run::write_noise;
use crate::topology::{Rate, Topology};

const SMALL_READS: u32 = 1000;
const SMALL_BYTES: u64 = 4096;
/// The limit for the growth of the peak memory of the coordinator or a helper during the reads, in bytes.
const MEMORY_LIMIT: u64 = 256 << 20;

/// The results of the reads.
struct Reads {
    latencies_ns: Vec<u64>,
    failures: Vec<String>,
    /// The largest growth of a process's peak memory.
    grown_bytes: u64,
    disturbed: bool,
}

pub(super) fn many_small_reads(names: &Names, programs: &Programs) -> Result<Vec<Finding>, LabError> {
    let gigabit: Rate = "1gbit".parse()?;
    let mut network = Network::up(names, &Topology::flat(14, gigabit))?;
    let mut fleet = LabCluster::start(&mut network, programs)?;
    let Some(order) = store(&network, &mut fleet)? else { return Ok(Vec::new()) };
    Ok(measure(&network, &mut fleet, &order)?.map_or_else(Vec::new, |reads| reads.findings().into()))
}

/// Stores a stripe and returns the instruction to read from it.
fn store(network: &Network, fleet: &mut LabCluster) -> Result<Option<Instruction>, LabError> {
    let block_bytes = 16 << 20;
    let source = fleet.work().join("many.source");
    write_noise(&source, 10 * block_bytes, 1).map_err(LabError::file("write", &source))?;
    let (name, code) = ("many".to_owned(), "rs-14-10".to_owned());
    let put = Instruction::Put { path: source.clone(), name: name.clone(), code, block_bytes };
    fleet.ask_loader(network, &put)?;
    let Answer::Layout { stripe, .. } = fleet.ask_loader(network, &Instruction::Layout { name })? else {
        return Ok(None);
    };
    Ok(Some(Instruction::Many {
        stripe,
        block: 3,
        block_bytes,
        reads: SMALL_READS,
        bytes: SMALL_BYTES,
        scheme: Scheme::Auto,
        expected: Expected { block: 3, path: source, offset: 3 * block_bytes },
    }))
}

fn measure(
    network: &Network,
    fleet: &mut LabCluster,
    order: &Instruction,
) -> Result<Option<Reads>, LabError> {
    let members: Vec<String> =
        (0..14).map(|index| LabNode::Helper(index).to_string()).chain(["coordinator".to_owned()]).collect();
    let peak =
        |fleet: &LabCluster| members.iter().filter_map(|member| fleet.peak_memory(member)).max().unwrap_or(0);
    let before = peak(fleet);
    let meter = Meter::start(network)?;
    let answer = fleet.ask(network, order)?;
    let disturbed = meter.stop()?.disturbed;
    let Answer::Many { latencies_ns, failures } = answer else { return Ok(None) };
    Ok(Some(Reads { latencies_ns, failures, grown_bytes: peak(fleet).saturating_sub(before), disturbed }))
}

impl Reads {
    fn findings(&self) -> [Finding; 2] {
        let what = format!("{SMALL_READS} concurrent degraded reads of 4 KiB by one client, rs-14-10, 1gbit");
        let failed = self.failures.len();
        let times = format!(
            "{failed} failed; p50 {:.0} ms, p99 {:.0} ms",
            self.latency_ms(0.5),
            self.latency_ms(0.99)
        );
        let grown = self.grown_bytes as f64 / f64::from(1 << 20);
        let marks = self.marks();
        [
            Finding {
                what: what.clone(),
                target: "no failure".to_owned(),
                measured: times,
                verdict: Verdict::of(failed == 0),
                marks: marks.clone(),
            },
            Finding {
                what,
                target: "≤ 256 MiB".to_owned(),
                measured: format!("{grown:.1} MiB above idle at most in one process"),
                verdict: Verdict::of(self.grown_bytes <= MEMORY_LIMIT),
                marks,
            },
        ]
    }

    /// Returns a percentile of the sorted latencies, in milliseconds; `part` is between 0 and 1.
    fn latency_ms(&self, part: f64) -> f64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        let index = (self.latencies_ns.len() as f64 * part) as usize;
        self.latencies_ns.get(index.min(last)).map_or(f64::NAN, |&ns| ns as f64 / 1e6)
    }

    fn marks(&self) -> String {
        match (self.failures.first(), self.disturbed) {
            (Some(first), _) => format!("first: {first}"),
            (None, true) => "disturbed".to_owned(),
            (None, false) => String::new(),
        }
    }
}
