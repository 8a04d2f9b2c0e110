//! Measures recoveries and drains of whole nodes, one section of the page after another.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use recovery::HelperPolicy;
use serde_json::Value;

use super::cluster::{LOST, NodesLab};
use super::page::{CapRow, Page, ReadsRow, Table, WholeRow};
use super::{NodesArgs, SIXTEEN_LOST, SMALL, SPARED, Setup, WIDE};
use crate::error::LabError;
use crate::experiment::{Reads, Results};
use crate::instruction::{Answer, Instruction};
use crate::lab_cluster::Programs;
use crate::meter::{LinkBytes, Meter, Metered};
use crate::network::Names;
use crate::run::Say;

/// The numbers of empty helpers to which the recovered blocks are written; each number is measured.
const REQUESTORS: [usize; 4] = [1, 2, 8, 16];
/// The caps on all repairs together, as text and in bits per second: the initial cap, and the one set while a
/// repair runs.
const CAPS: [(&str, f64); 2] = [("160Mbit", 160e6), ("320Mbit", 320e6)];
/// A helper, and the cap on its sending and on its receiving, as text and in bits per second.
const CAPPED: (&str, &str, f64) = ("h2", "20Mbit", 20e6);
/// How long a cap has been in force before the traffic is measured, and how long the traffic is measured.
const SETTLES: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(5);
/// The duration of reads, the time for which a recovery has filled the links before they begin, and the time after
/// which a recovery begins that finds reads running.
const READS_LAST: Duration = Duration::from_secs(8);
const RECOVERY_BEFORE: Duration = Duration::from_secs(2);
const RECOVERY_AFTER: Duration = Duration::from_secs(2);
const READERS: usize = 4;
/// The arguments of a recovery that runs during reads.
const RECOVERY: [&str; 3] = ["--policy", "even", "--no-wait"];
const READ_BYTES: u64 = 64 << 10;

type Section = fn(&mut Measuring, &mut Page) -> Result<(), LabError>;
const SECTIONS: [(&str, Setup, Section); 7] = [
    ("issue", SIXTEEN_LOST, |measuring, page| measuring.sixteen_lost(page)),
    ("policies", WIDE, |measuring, page| measuring.policies(page)),
    ("requestors", SPARED, |measuring, page| measuring.requestors(page)),
    ("drains", WIDE, |measuring, page| measuring.drains(page)),
    ("caps", WIDE, |measuring, page| measuring.caps(page)),
    ("reads", WIDE, |measuring, page| measuring.reads(page)),
    ("small", SMALL, |measuring, page| measuring.small(page)),
];

struct Measuring<'a> {
    lab: NodesLab,
    args: &'a NodesArgs,
    say: Say<'a>,
}

/// Runs the requested measurements and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    args: &NodesArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let file = args.out.join("nodes.md");
    let results = Results::begin("Whole nodes on real processes", "mend lab nodes", file);
    let mut page = Page::default();
    for setup in [SIXTEEN_LOST, WIDE, SPARED, SMALL] {
        let wanted = |part: &str| args.only.as_ref().is_none_or(|only| part.contains(only));
        let parts: Vec<_> = SECTIONS.iter().filter(|(name, of, _)| *of == setup && wanted(name)).collect();
        if parts.is_empty() {
            continue;
        }
        say(&format!("storing {} stripes on {} helpers", setup.stripes, setup.helpers));
        let lab = NodesLab::up(names, programs, setup, args.rate)?;
        let mut measuring = Measuring { lab, args, say };
        for (name, _, part) in parts {
            (measuring.say)(&format!("== {name}"));
            part(&mut measuring, &mut page)?;
        }
    }
    results.publish(&page.text(args.rate), &page.drawings())
}

impl Measuring<'_> {
    fn sixteen_lost(&mut self, page: &mut Page) -> Result<(), LabError> {
        let ways: [(&str, &[&str]); 4] = [
            ("even", &["--policy", "even"]),
            ("free-budget", &["--policy", "free-budget"]),
            ("chains of the lowest indices", &["--policy", "lowest-index", "--scheme", "pipelined"]),
            ("conventional", &["--policy", "lowest-index", "--scheme", "conventional"]),
        ];
        for (what, words) in ways {
            for _ in 0..self.args.repetitions {
                let row = self.recover(what, words)?;
                page.add(Table::SixteenLost, row);
            }
        }
        Ok(())
    }

    fn policies(&mut self, page: &mut Page) -> Result<(), LabError> {
        for policy in HelperPolicy::ALL {
            let policy = policy.to_string();
            let row = self.recover(&policy, &["--policy", &policy])?;
            page.add(Table::Policies, row);
        }
        let conventional = ["--policy", "lowest-index", "--scheme", "conventional"];
        let row = self.recover("lowest-index, conventional", &conventional)?;
        page.add(Table::Policies, row);
        Ok(())
    }

    fn requestors(&mut self, page: &mut Page) -> Result<(), LabError> {
        let ways: [(&str, &[&str]); 3] = [
            ("even", &["--policy", "even"]),
            ("chains, LRU", &["--policy", "least-recently-used", "--scheme", "pipelined"]),
            ("conventional", &["--policy", "lowest-index", "--scheme", "conventional"]),
        ];
        for count in REQUESTORS {
            let named = self.lab.spares()[..count].join(",");
            for (way, words) in ways {
                let mut words = words.to_vec();
                words.extend(["--requestors", &named]);
                let row = self.recover(&format!("{way}, {count} requestors"), &words)?;
                page.add(Table::Requestors, row);
            }
        }
        Ok(())
    }

    fn small(&mut self, page: &mut Page) -> Result<(), LabError> {
        for _ in 0..self.args.repetitions {
            let row = self.recover("small blocks", &[])?;
            page.add(Table::Small, row);
        }
        Ok(())
    }

    fn drains(&mut self, page: &mut Page) -> Result<(), LabError> {
        let ways: [(&str, &[&str]); 3] = [
            ("both ways", &[]),
            ("copies only", &["--migrate-only"]),
            ("rebuilds only", &["--rebuild-only"]),
        ];
        for (what, words) in ways {
            self.lab.fresh()?;
            let mut verb = vec!["node", "drain", LOST];
            verb.extend(words);
            let row = self.whole(what, &verb)?;
            page.add(Table::Drains, row);
        }
        Ok(())
    }

    fn recover(&mut self, what: &str, words: &[&str]) -> Result<WholeRow, LabError> {
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let mut verb = vec!["node", "recover", LOST];
        verb.extend(words);
        self.whole(what, &verb)
    }

    /// Measures the time of a recovery or drain, and checks afterwards that every block of the lost helper is
    /// unchanged on another helper.
    fn whole(&mut self, what: &str, verb: &[&str]) -> Result<WholeRow, LabError> {
        let meter = Meter::start(&self.lab.network)?;
        let begun = Instant::now();
        let view = self.lab.mend(verb)?;
        let took = begun.elapsed();
        let metered = meter.stop()?;
        self.lab.compare(what)?;
        let blocks = self.lab.lost_blocks()?;
        let bound = view["progress"]["bound_ms"].as_f64().unwrap_or(f64::NAN) / 1e3;
        let limit = view["progress"]["limited_by"].as_str().unwrap_or_default().to_owned();
        let items = view["items"].as_array().into_iter().flatten();
        let replanned = items.flat_map(|item| item["replanned"].as_array().into_iter().flatten());
        let replanned: Vec<String> = replanned.filter_map(|why| Some(why.as_str()?.to_owned())).collect();
        let took = took.as_secs_f64();
        let busiest = self.busiest(&metered);
        let row = WholeRow { what: what.to_owned(), blocks, took, bound, busiest, limit, replanned, metered };
        (self.say)(&row.summary());
        row.replanned.iter().for_each(|why| (self.say)(&format!("  replanned: {why}")));
        Ok(row)
    }

    /// Finds the direction of a helper's link that carried the most bytes. Returns the time in seconds that
    /// these bytes take at the link's rate.
    fn busiest(&self, metered: &Metered) -> f64 {
        let most = helpers(metered).map(|link| link.sent_bytes.max(link.received_bytes)).max();
        let rate = self.args.rate.bandwidth().map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        most.unwrap_or(0) as f64 * 8.0 / rate
    }

    /// Measures the cap on all repairs together, which is changed while a repair runs, and then one helper's
    /// cap. The traffic on links includes headers. The share of block data in the traffic is taken from a
    /// complete repair, which sends k blocks for each rebuilt block.
    fn caps(&mut self, page: &mut Page) -> Result<(), LabError> {
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let rates: Vec<&str> = CAPS.iter().map(|(text, _)| *text).collect();
        self.lab.mend(&["caps", "--total", rates[0]])?;
        let whole = Meter::start(&self.lab.network)?;
        let chains = ["--policy", "lowest-index", "--scheme", "pipelined", "--no-wait"];
        let repair = self.begin(&chains)?;
        let mut windows = Vec::new();
        for (at, &(cap, rate)) in CAPS.iter().enumerate() {
            if at > 0 {
                self.lab.mend(&["caps", "--total", cap])?;
            }
            windows.push((format!("all together {cap}"), rate, self.window()?));
        }
        self.lab.mend(&["caps", "--none"])?;
        self.end(&repair)?;
        let share = self.payload(&whole.stop()?)?;
        for (what, cap, (metered, time)) in windows {
            let sent = helpers(&metered).map(|traffic| traffic.sent_bytes).sum::<u64>();
            page.caps.push(CapRow { what, cap, measured: sent as f64 * share * 8.0 / time });
        }

        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let (helper, cap, rate) = CAPPED;
        self.lab.mend(&["caps", "--node", &format!("{helper}={cap}")])?;
        let whole = Meter::start(&self.lab.network)?;
        let repair = self.begin(&chains)?;
        let (metered, time) = self.window()?;
        self.lab.mend(&["caps", "--none"])?;
        self.end(&repair)?;
        let share = self.payload(&whole.stop()?)?;
        let traffic = metered.traffic.get(helper).copied().unwrap_or_default();
        for (what, bytes) in [("sends", traffic.sent_bytes), ("receives", traffic.received_bytes)] {
            let measured = bytes as f64 * share * 8.0 / time;
            page.caps.push(CapRow { what: format!("{helper} {cap}, {what}"), cap: rate, measured });
        }
        self.lab.compare("repairs within caps")
    }

    fn begin(&mut self, words: &[&str]) -> Result<String, LabError> {
        let mut verb = vec!["node", "recover", LOST];
        verb.extend(words);
        Ok(self.lab.mend(&verb)?["repair"].to_string())
    }

    fn end(&mut self, repair: &str) -> Result<Value, LabError> {
        self.lab.mend(&["watch", repair])
    }

    /// Measures the link traffic in a window, after a settling time.
    fn window(&self) -> Result<(Metered, f64), LabError> {
        thread::sleep(SETTLES);
        let (meter, begun) = (Meter::start(&self.lab.network)?, Instant::now());
        thread::sleep(WINDOW);
        let time = begun.elapsed().as_secs_f64();
        Ok((meter.stop()?, time))
    }

    /// Returns the share of block data in the traffic that helpers sent during a complete recovery.
    fn payload(&self, whole: &Metered) -> Result<f64, LabError> {
        let Setup { data_blocks, block_bytes, .. } = self.lab.setup;
        let sent: u64 = helpers(whole).map(|traffic| traffic.sent_bytes).sum();
        Ok((self.lab.lost_blocks()? as u64 * data_blocks * block_bytes) as f64 / sent as f64)
    }

    fn reads(&mut self, page: &mut Page) -> Result<(), LabError> {
        self.lab.fresh()?;
        self.read_while(page, "all helpers are up")?;
        self.lab.lose(LOST)?;
        self.read_while(page, "a helper is down")?;
        let (cap, _) = CAPS[0];
        for capped in [None, Some(cap)] {
            self.lab.fresh()?;
            self.lab.lose(LOST)?;
            if let Some(cap) = capped {
                self.lab.mend(&["caps", "--total", cap])?;
            }
            let repair = self.begin(&RECOVERY)?;
            thread::sleep(RECOVERY_BEFORE);
            let how = capped.map_or("uncapped".to_owned(), |cap| format!("{cap}/s in all"));
            self.read_while(page, &format!("it is being recovered, {how}"))?;
            self.lab.mend(&["caps", "--none"])?;
            self.end_recovery(page, &repair)?;
        }
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let meanwhile = format!("its recovery begins after {} s, uncapped", RECOVERY_AFTER.as_secs());
        let repair = self.read_and(page, &meanwhile, |measuring| {
            thread::sleep(RECOVERY_AFTER);
            measuring.begin(&RECOVERY)
        })?;
        self.end_recovery(page, &repair)
    }

    /// Waits for the end of a recovery that ran during the last reads, and adds its time to their row.
    fn end_recovery(&mut self, page: &mut Page, repair: &str) -> Result<(), LabError> {
        let view = self.end(repair)?;
        self.lab.compare("recovery during reads")?;
        let seconds = |name: &str| view["progress"][name].as_f64().map(|milliseconds| milliseconds / 1e3);
        if let Some(row) = page.reads.last_mut() {
            row.recovery = seconds("elapsed_ms").map(|took| (took, seconds("bound_ms")));
            (self.say)(&row.summary());
        }
        Ok(())
    }

    fn read_while(&mut self, page: &mut Page, meanwhile: &str) -> Result<(), LabError> {
        self.read_and(page, meanwhile, |_| Ok(()))
    }

    /// Measures reads, and does `work` in the meantime.
    fn read_and<T>(
        &mut self,
        page: &mut Page,
        meanwhile: &str,
        work: impl FnOnce(&mut Self) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let order = Instruction::Steady {
            pieces: self.lab.pieces.clone(),
            block_bytes: self.lab.setup.block_bytes,
            clients: READERS,
            bytes: READ_BYTES,
            last_ms: READS_LAST.as_millis() as u64,
        };
        // Starts the client, which takes a while.
        self.lab.fleet.ask(&self.lab.network, &Instruction::Nodes)?;
        let (meter, begun) = (Meter::start(&self.lab.network)?, Instant::now());
        self.lab.fleet.begin(&self.lab.network, &order)?;
        let done = work(self)?;
        let answer = self.lab.fleet.finish(&self.lab.network)?;
        let (metered, time) = (meter.stop()?, begun.elapsed().as_secs_f64());
        let sent: u64 = helpers(&metered).map(|traffic| traffic.sent_bytes).sum();
        if let Answer::Many { latencies_ns, failures } = answer {
            let latencies = latencies_ns.into_iter().map(Duration::from_nanos).collect();
            let reads = Reads::of(latencies, READS_LAST, failures.len());
            let (meanwhile, sent) = (meanwhile.to_owned(), sent as f64 * 8.0 / time);
            let row = ReadsRow { meanwhile, reads, sent, recovery: None };
            (self.say)(&row.summary());
            page.reads.push(row);
        }
        Ok(done)
    }
}

/// Returns the link traffic of each helper.
fn helpers(metered: &Metered) -> impl Iterator<Item = LinkBytes> {
    let is_helper = |name: &str| name.strip_prefix('h').is_some_and(|number| number.parse::<u16>().is_ok());
    metered.traffic.iter().filter(move |(name, _)| is_helper(name)).map(|(_, traffic)| *traffic)
}
