//! Runs the measurements one after another on one cluster.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use seaweedfs::VolumeName;
use testbed::Mend;

use super::BenchArgs;
use super::cluster::{SeaweedLab, shards};
use super::losses::Loss;
use super::page::{LossRow, Page, ReadsRow, ServerRow};
use super::reads::Needles;
use super::servers::Gone;
use crate::error::LabError;
use crate::experiment::{Repaired, Repetitions, Results, direct_send};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// The losses, as shard numbers: one data shard; and two data and two parity shards, the maximum that a 10+4
/// volume tolerates.
const LOSSES: [&[u8]; 2] = [&[3], &[0, 6, 11, 13]];
/// How long reads run without a repair.
const READS_LAST: Duration = Duration::from_secs(10);
/// The total repair cap in capped measurements.
const CAP: &str = "250Mbit";
const SMALL: &str = "small";

/// Runs the requested measurements and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    weed: &Path,
    args: &BenchArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let file = args.out.join("seaweedfs.md");
    let results = Results::begin("SeaweedFS with and without Mend", "make bench-seaweedfs", file);
    let mut lab = SeaweedLab::up(names, programs, weed, args.encrypted)?;
    say("storing objects");
    let mut volumes = Vec::new();
    for (at, megabytes) in args.volumes.iter().enumerate() {
        volumes.push(lab.store(&format!("large{at}"), megabytes * 1_000_000));
    }
    if !volumes.is_empty() {
        lab.cluster.encode(&volumes);
    }
    let mut page = Page::default();
    let mut measuring = Measuring { lab, args, say };
    measuring.losses(&mut page, &volumes)?;
    if args.small_volumes > 0 {
        measuring.servers(&mut page, volumes.len())?;
    }
    (measuring.say)("reading all objects");
    page.objects = measuring.lab.check_objects()?;
    results.publish(&page.text(), &page.drawings())
}

struct Measuring<'a> {
    lab: SeaweedLab,
    args: &'a BenchArgs,
    say: Say<'a>,
}

impl Measuring<'_> {
    fn losses(&mut self, page: &mut Page, volumes: &[VolumeName]) -> Result<(), LabError> {
        if volumes.is_empty() {
            return Ok(());
        }
        let mend = self.lab.attach(volumes.len(), false, "never");
        for &rate in &self.args.rates {
            self.lab.shape(rate)?;
            for volume in volumes {
                let bytes = self.lab.shard_bytes(volume);
                let direct = direct_send(&self.lab.network, bytes)?;
                for lost in LOSSES {
                    let row = self.loss(&mend, volume, lost, (rate, bytes, direct))?;
                    page.losses.push(row);
                }
            }
        }
        println!("{}", page.losses_table());
        Ok(())
    }

    fn loss(
        &mut self,
        mend: &Mend,
        volume: &VolumeName,
        lost: &[u8],
        (rate, shard_bytes, direct): (Rate, u64, Duration),
    ) -> Result<LossRow, LabError> {
        let (mut stock, mut own) = (Repetitions::default(), Repetitions::default());
        for _ in 0..self.args.repetitions {
            let repaired =
                Loss::of(&self.lab, shards(&self.lab.cluster, volume, lost)).repair(&self.lab, mend)?;
            mend.wait_until_safe(self.args.volumes.len());
            let rebuilt = Loss::of(&self.lab, shards(&self.lab.cluster, volume, lost)).rebuild(&self.lab)?;
            self.lab.balance(volume);
            mend.wait_until_safe(self.args.volumes.len());
            (self.say)(&format!(
                "{} of {volume} at {rate}: one read {:.2} s, ec.rebuild {:.2} s, mend {:.2} s",
                lost.len(),
                direct.as_secs_f64(),
                rebuilt.time.as_secs_f64(),
                repaired.time.as_secs_f64()
            ));
            stock.push(rebuilt);
            own.push(repaired);
        }
        Ok(LossRow { shard_bytes, rate, lost: lost.len(), direct, stock, mend: own })
    }

    /// Measures the recovery of whole servers, one after another, and the concurrent reads of clients. Each
    /// lost server is replaced by an empty one.
    fn servers(&mut self, page: &mut Page, other_volumes: usize) -> Result<(), LabError> {
        (self.say)("storing needles");
        let rate = self.args.rates[0];
        self.lab.shape(Rate::Unshaped)?;
        let bytes = self.args.small_megabytes * 1_000_000;
        let (needles, small) = Needles::store(&self.lab.cluster, SMALL, self.args.small_volumes, bytes);
        self.lab.cluster.encode(&small);
        self.lab.shape(rate)?;
        let volumes = other_volumes + small.len();
        let mut mend = self.lab.attach(volumes, false, "never");
        let idle = || thread::sleep(READS_LAST);
        read_while(page, &self.lab, &needles, "all servers are up", idle);

        let gone = Gone::kill(&mut self.lab, &mut mend, 1)?;
        read_while(page, &self.lab, &needles, "a server is down", idle);
        let repaired = gone.rebuild(&self.lab)?;
        self.note(page, "ec.rebuild", &gone, repaired);
        gone.replace(&mut self.lab, &mut mend, volumes);

        let gone = Gone::kill(&mut self.lab, &mut mend, 2)?;
        page.direct_of_server = Some((rate, gone.bytes, direct_send(&self.lab.network, gone.bytes)?));
        let repaired = gone.recover(&self.lab, &mend)?;
        self.note(page, "mend", &gone, repaired);
        gone.replace(&mut self.lab, &mut mend, volumes);

        let gone = Gone::kill(&mut self.lab, &mut mend, 3)?;
        let meanwhile = "a server is down, ec.rebuild repairs";
        read_while(page, &self.lab, &needles, meanwhile, || gone.rebuild(&self.lab))?;
        gone.replace(&mut self.lab, &mut mend, volumes);
        let gone = Gone::kill(&mut self.lab, &mut mend, 4)?;
        let meanwhile = "a server is down, mend repairs";
        read_while(page, &self.lab, &needles, meanwhile, || gone.recover(&self.lab, &mend))?;
        gone.replace(&mut self.lab, &mut mend, volumes);
        mend.run(&["caps", "--total", CAP]);
        let gone = Gone::kill(&mut self.lab, &mut mend, 5)?;
        let meanwhile = format!("a server is down, mend repairs with {CAP}/s in all");
        read_while(page, &self.lab, &needles, &meanwhile, || gone.recover(&self.lab, &mend))?;
        gone.replace(&mut self.lab, &mut mend, volumes);
        Ok(())
    }

    fn note(&mut self, page: &mut Page, who: &'static str, gone: &Gone, repaired: Repaired) {
        let (shards, time) = (gone.shards, repaired.time.as_secs_f64());
        (self.say)(&format!("a server with {shards} shards: {who} {time:.1} s"));
        page.servers.push(ServerRow { who, shards, repaired });
    }
}

fn read_while<T>(
    page: &mut Page,
    lab: &SeaweedLab,
    needles: &Needles,
    meanwhile: &str,
    work: impl FnOnce() -> T,
) -> T {
    let begun = Instant::now();
    let (reads, done) = needles.read_during(&lab.cluster, work);
    page.reads.push(ReadsRow { meanwhile: meanwhile.to_owned(), lasted: begun.elapsed(), reads });
    done
}
