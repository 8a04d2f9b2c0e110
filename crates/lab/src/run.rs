//! Carrying out a scenario: all combinations, each repetition in turn with a direct send of one block between, so
//! that whatever drifts on the machine drifts for all of them.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use codes::CodeSpec;

use crate::account::account;
use crate::check::check;
use crate::error::LabError;
use crate::fleet::{Fleet, Programs};
use crate::machine::Machine;
use crate::medium::Medium;
use crate::meter::Meter;
use crate::model::{published_timeslots, timeslots};
use crate::network::{Names, Network, Place};
use crate::order::{Answer, BlockAt, Expected, Order, ReadOrder, Took};
use crate::report::{Report, Row, Sample};
use crate::scenario::{Destination, Loss, Scenario, Slice};
use crate::topology::Rate;
use crate::way::Way;

/// Told what is being done, line by line.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// How long a coordinator may take to notice that a helper was killed.
const NOTICE_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// Makes a lab, carries the scenario out, and removes the lab.
///
/// # Errors
/// [`LabError`]; [`LabError::WrongBytes`] if any repaired block differs from what was lost.
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
        let fleet = Fleet::start_with(&mut network, programs, data_tls)?;
        Ok(Clustered { data_tls, fleet })
    });
    let fleets = fleets.collect::<Result<Vec<_>, LabError>>()?;
    let work = fleets[0].fleet.work();
    let medium = Medium::of(work);
    if scenario.cold && medium.is_none() {
        return Err(LabError::NoDevice { path: work.to_owned() });
    }
    let mut run = Run { network, fleets, current: 0, medium, scenario, say };
    let report = run.all();
    // The members first, so that nothing writes into the folder that is removed with the network.
    drop(run.fleets);
    drop(run.network);
    report
}

/// A cluster, and whether its data edges are encrypted.
struct Clustered {
    data_tls: bool,
    fleet: Fleet,
}

struct Run<'a> {
    network: Network,
    /// Beside each other, so that what is measured of one and of another is measured in turn.
    fleets: Vec<Clustered>,
    /// The one that is asked.
    current: usize,
    medium: Option<Medium>,
    scenario: &'a Scenario,
    say: Say<'a>,
}

/// A stripe that was stored to be lost.
struct Stored {
    name: String,
    code: CodeSpec,
    data_blocks: usize,
    stripe: String,
    block_bytes: u64,
    sub_blocks: u16,
    blocks: Vec<BlockAt>,
    source: PathBuf,
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
                    let stored = self.in_each(|run| run.store(code, block_bytes.bytes()))?;
                    for &slice in self.scenario.slice_bytes.iter() {
                        report.rows.extend(self.compare(&stored, slice)?);
                    }
                    self.in_each(|run| run.forget(&stored[run.current]))?;
                }
            }
        }
        Ok(report)
    }

    /// What `work` gives for each cluster.
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

    /// Stores a stripe of noise, from beside the coordinator.
    fn store(&mut self, code: &CodeSpec, block_bytes: u64) -> Result<Stored, LabError> {
        let built = code.build().map_err(|error| LabError::Cluster(error.to_string()))?;
        let data_blocks = built.data_blocks();
        let name = format!("{code}-{block_bytes}");
        let source = self.fleets[self.current].fleet.work().join(format!("{name}.source"));
        write_noise(&source, data_blocks as u64 * block_bytes, block_bytes)
            .map_err(LabError::file("write", &source))?;
        let put =
            Order::Put { path: source.clone(), name: name.clone(), code: code.to_string(), block_bytes };
        self.fleets[self.current].fleet.ask_loader(&self.network, &put)?;
        let layout = Order::Layout { name: name.clone() };
        match self.fleets[self.current].fleet.ask_loader(&self.network, &layout)? {
            Answer::Layout { stripe, block_bytes, sub_blocks, blocks, .. } => Ok(Stored {
                name,
                code: code.clone(),
                data_blocks,
                stripe,
                block_bytes,
                sub_blocks,
                blocks,
                source,
            }),
            other => Err(unexpected(&other)),
        }
    }

    fn forget(&mut self, stored: &Stored) -> Result<(), LabError> {
        self.fleets[self.current]
            .fleet
            .ask_loader(&self.network, &Order::Remove { name: stored.name.clone() })?;
        fs::remove_file(&stored.source).map_err(LabError::file("remove", &stored.source))
    }

    /// All schemes and losses for one stripe, as each cluster has it, and slice size.
    fn compare(&mut self, stored: &[Stored], slice: Slice) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        for lost in &self.scenario.losses.clone() {
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

    /// Where the true bytes of a block are. Data blocks are part of the source; others are read while they are
    /// healthy, and checked against the catalog's digest by that.
    fn expected(&mut self, stored: &Stored, block: u16) -> Result<Expected, LabError> {
        if usize::from(block) < stored.data_blocks && stored.sub_blocks == 1 {
            let offset = u64::from(block) * stored.block_bytes;
            return Ok(Expected { block, path: stored.source.clone(), offset });
        }
        let path = self.fleets[self.current].fleet.work().join(format!("{}.{block}", stored.name));
        if !path.exists() {
            let save = Order::Save {
                stripe: stored.stripe.clone(),
                block,
                window: 0..stored.block_bytes / u64::from(stored.sub_blocks),
                block_bytes: stored.block_bytes,
                path: path.clone(),
            };
            self.fleets[self.current].fleet.ask_loader(&self.network, &save)?;
        }
        Ok(Expected { block, path, offset: 0 })
    }

    fn kill_holders(&mut self, stored: &Stored, lost: &[u16]) -> Result<Vec<String>, LabError> {
        if self.scenario.how == Loss::Pretend {
            return Ok(Vec::new());
        }
        let holders: Vec<_> =
            lost.iter().map(|&block| stored.blocks[usize::from(block)].node.clone()).collect();
        for holder in &holders {
            self.fleets[self.current].fleet.kill(holder)?;
        }
        let give_up = std::time::Instant::now() + NOTICE_LIMIT;
        loop {
            match self.fleets[self.current].fleet.ask_loader(&self.network, &Order::Nodes)? {
                Answer::Nodes { up } if !holders.iter().any(|holder| up.contains(holder)) => {
                    return Ok(holders);
                }
                _ if std::time::Instant::now() > give_up => {
                    let reason = format!("{} still counts as up", holders.join(", "));
                    return Err(LabError::Agent { who: "coordinator".to_owned(), reason });
                }
                _ => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        }
    }

    /// Repetitions of all schemes in turn.
    fn interleaved(
        &mut self,
        stored: &[Stored],
        slice: Slice,
        lost: &[u16],
        expected: &[Vec<Expected>],
    ) -> Result<Vec<Row>, LabError> {
        let ways = self.scenario.ways();
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
        let mut direct_s = Vec::new();
        for _ in 0..self.scenario.repetitions {
            self.current = 0;
            direct_s.push(self.direct(&stored[0], lost[0])?);
            for (&way, samples) in ways.iter().zip(&mut samples) {
                let fleet = self.fleets.iter().position(|fleet| fleet.data_tls == way.encrypted);
                self.current = fleet.expect("the ways are of the same list as the fleets");
                let (stored, expected) = (&stored[self.current], &expected[self.current]);
                samples.push(self.measure(stored, way, slice, lost, expected)?);
            }
        }
        let mut rows = Vec::new();
        for (&way, samples) in ways.iter().zip(samples) {
            let mut row = self.row(&stored[0], way, slice, lost);
            row.fill(&samples, &direct_s);
            (self.say)(&format!(
                "{} {} {} slice {} {}: {:.4} s, {:.3} of a direct send, CPU {:.2} s {}",
                row.rate,
                row.code,
                cluster::ByteSize::from_bytes(row.block_bytes),
                row.slice,
                row.scheme,
                row.median_s,
                row.ratio,
                row.cpu_s,
                row.marks(),
            ));
            rows.push(row);
        }
        Ok(rows)
    }

    /// A direct send of one block to the client, from a helper that has one of this stripe.
    fn direct(&mut self, stored: &Stored, lost: u16) -> Result<f64, LabError> {
        let other = stored.blocks.iter().enumerate().find(|(index, _)| *index != usize::from(lost));
        let node = other.map_or("h1", |(_, at)| at.node.as_str());
        let index = node.trim_start_matches('h').parse::<u16>().unwrap_or(1) - 1;
        let address = self.fleets[self.current].fleet.sender(&self.network, Place::Helper(index))?;
        let order = Order::Direct { address, bytes: stored.block_bytes };
        Ok(self.undisturbed(|run| run.took(&order))?.time_s)
    }

    /// One repair, repeated while other programs disturb it; every one is compared with what was lost.
    fn measure(
        &mut self,
        stored: &Stored,
        way: Way,
        slice: Slice,
        lost: &[u16],
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        self.undisturbed(|run| match run.scenario.to {
            Destination::Client => run.read(stored, way, slice, lost, expected),
            Destination::Node => run.repair(stored, way, slice, lost[0], expected),
        })
    }

    /// The first undisturbed of a few measurements, or the one that was least disturbed.
    fn undisturbed(
        &mut self,
        mut measure: impl FnMut(&mut Self) -> Result<Sample, LabError>,
    ) -> Result<Sample, LabError> {
        let mut best = measure(self)?;
        for _ in 0..self.scenario.retries {
            if !best.metered.disturbed {
                break;
            }
            let next = measure(self)?;
            if next.metered.foreign_s < best.metered.foreign_s {
                best = next;
            }
        }
        Ok(best)
    }

    /// An order of the client's, metered.
    fn took(&mut self, order: &Order) -> Result<Sample, LabError> {
        if self.scenario.cold {
            self.fleets[self.current].fleet.forget_cached()?;
        }
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
            Answer::Repaired { ns, .. } => Ok(Sample {
                time_s: ns as f64 / 1e9,
                first_byte_s: None,
                used: None,
                replanned: Vec::new(),
                metered,
                device,
            }),
            other => Err(unexpected(&other)),
        }
    }

    fn read_order(&self, stored: &Stored, way: Way, slice: Slice, lost: &[u16]) -> ReadOrder {
        ReadOrder {
            stripe: stored.stripe.clone(),
            blocks: lost.to_vec(),
            window: 0..stored.block_bytes / u64::from(stored.sub_blocks),
            block_bytes: stored.block_bytes,
            scheme: way.scheme,
            slice_bytes: slice.bytes(),
            pacing: way.pacing,
            pretend_lost: self.scenario.how == Loss::Pretend,
        }
    }

    fn read(
        &mut self,
        stored: &Stored,
        way: Way,
        slice: Slice,
        lost: &[u16],
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        let sample = self.took(&Order::Read(self.read_order(stored, way, slice, lost)))?;
        self.hold(stored, way, expected)?;
        Ok(sample)
    }

    /// Holds what the client read against the true bytes.
    fn hold(&mut self, stored: &Stored, way: Way, expected: &[Expected]) -> Result<(), LabError> {
        let compare = Order::Compare { expected: expected.to_vec() };
        let compared = self.fleets[self.current].fleet.ask(&self.network, &compare).map(drop);
        compared.map_err(|error| LabError::WrongBytes {
            what: format!("{} of {} by {way}", stored.name, stored.stripe),
            reason: error.to_string(),
        })
    }

    /// Takes a block away, has the coordinator notice, and repairs it onto a node.
    fn repair(
        &mut self,
        stored: &Stored,
        way: Way,
        slice: Slice,
        lost: u16,
        expected: &[Expected],
    ) -> Result<Sample, LabError> {
        let at = self.holder(stored, lost)?;
        let removed = remove_named(&self.fleets[self.current].fleet.blocks(&at.node), &at.block);
        removed
            .map_err(LabError::file("remove a block in", self.fleets[self.current].fleet.blocks(&at.node)))?;
        let healthy = |order: ReadOrder| ReadOrder { pretend_lost: false, ..order };
        let plain = healthy(self.read_order(stored, way, slice, &[lost]));
        // A read finds that it is gone; what it reads is not needed.
        let touch = ReadOrder { window: 0..4096, ..plain.clone() };
        self.fleets[self.current].fleet.ask(&self.network, &Order::Read(touch))?;
        let order = Order::Repair { block: at.block.clone(), scheme: way.scheme, slice_bytes: slice.bytes() };
        let sample = self.took(&order)?;
        self.fleets[self.current].fleet.ask(&self.network, &Order::Read(plain))?;
        self.hold(stored, way, expected)?;
        Ok(sample)
    }

    /// Where a block is now.
    fn holder(&mut self, stored: &Stored, block: u16) -> Result<BlockAt, LabError> {
        let layout = Order::Layout { name: stored.name.clone() };
        match self.fleets[self.current].fleet.ask_loader(&self.network, &layout)? {
            Answer::Layout { blocks, .. } => Ok(blocks[usize::from(block)].clone()),
            other => Err(unexpected(&other)),
        }
    }

    /// A row that says what it is about, and no figures.
    fn row(&self, stored: &Stored, way: Way, slice: Slice, lost: &[u16]) -> Row {
        let topology = self.network.topology();
        let slices =
            slice.bytes().map_or(usize::MAX, |bytes| (stored.block_bytes / u64::from(bytes)) as usize);
        let account = account(&stored.code, stored.block_bytes, lost, way, slice.bytes()).ok();
        let links_decide = topology.is_uniform() && topology.rate != Rate::Unshaped;
        let formula = (links_decide && lost.len() == 1).then(|| {
            // There are formulas for whole blocks read by each helper; beyond that the plan's count is one.
            let helpers = account?.disk_blocks as usize;
            match way {
                _ if stored.sub_blocks > 1 => Some(account?.timeslots),
                Way { scheme, .. } if way.is_in_rounds() => published_timeslots(scheme, helpers),
                Way { scheme, .. } => timeslots(scheme, helpers, slices),
            }
        });
        Row {
            network: topology.to_string(),
            rate: topology.rate.to_string(),
            edge: topology.edge.map(|edge| edge.to_string()),
            code: stored.code.to_string(),
            data_blocks: stored.data_blocks,
            block_bytes: stored.block_bytes,
            slice: slice.to_string(),
            scheme: way.to_string(),
            pacing: way.pacing,
            used: None,
            lost: lost.to_vec(),
            times_s: Vec::new(),
            median_s: f64::NAN,
            spread: f64::NAN,
            first_byte_s: None,
            direct_s: f64::NAN,
            ratio: f64::NAN,
            formula: formula.flatten(),
            cpu_s: f64::NAN,
            busy: f64::NAN,
            disturbed: 0,
            cpu_bound: false,
            replanned: Vec::new(),
            traffic: Default::default(),
            disk: Default::default(),
            device: None,
            account,
        }
    }
}

fn unexpected(answer: &Answer) -> LabError {
    LabError::Agent { who: "client".to_owned(), reason: format!("an answer to something else: {answer:?}") }
}

/// Bytes that do not repeat, from a seed: a block in the wrong place shows.
pub(crate) fn write_noise(path: &Path, bytes: u64, seed: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut state = seed | 1;
    let mut left = bytes;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let part = left.min(word.len() as u64);
        file.write_all(&word[..part as usize])?;
        left -= part;
    }
    file.flush()
}

/// Removes a block's files, wherever below the folder they are: `NAME` and `NAME.crc`.
fn remove_named(folder: &Path, name: &str) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_named(&path, name)?;
        } else if let Some(file) = path.file_name().and_then(|file| file.to_str())
            && matches!(file.strip_prefix(name), Some("" | ".crc"))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
