//! A demo of a few minutes: objects, a killed server, SeaweedFS's own repair, and the same loss with Mend.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use seaweedfs::VolumeName;
use testbed::{Mend, eventually};

use super::cluster::{SERVERS, SeaweedLab};
use super::servers::Gone;
use crate::error::LabError;
use crate::experiment::direct_send;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::topology::Rate;

const LINKS: &str = "500mbit";
/// Bytes stored through the filer; a shard then has 66 MB.
const PICTURES_BYTES: usize = 660_000_000;
/// Objects stored through S3: their number, and the size of each in bytes.
const BACKUPS: (usize, usize) = (40, 2_500_000);
/// How long Mend waits in this demo for a server to come back.
const GRACE: Duration = Duration::from_secs(3);

fn say(headline: &str) {
    println!("\n\x1b[1m== {headline}\x1b[0m");
}

/// Runs the demo.
pub(super) fn run(names: &Names, programs: &Programs, weed: &Path) -> Result<ExitCode, LabError> {
    let begun = Instant::now();
    say("A SeaweedFS cluster, unmodified: a master, a filer with S3, 15 volume servers");
    let mut lab = SeaweedLab::up(names, programs, weed, false)?;
    println!("each volume server runs in its own network namespace");
    let volumes = fill(&mut lab)?;

    say("Mend is attached: no part of SeaweedFS is changed or restarted");
    let mend = lab.attach(volumes.len(), false, "never");
    println!("$ mend attach seaweedfs --master {}", lab.cluster.weed.master_address());
    println!("{}", mend.said.lines().next().unwrap_or_default());
    println!("started: a coordinator next to the master, and a helper next to each volume server");

    let stock = stock_repair(&mut lab, mend, &volumes)?;
    let own = own_repair(&mut lab, &volumes)?;
    let is_whole = check(&lab)?;

    say("Results");
    let direct = direct_send(&lab.network, lab.shard_bytes(&volumes[0]))?;
    println!("reading one shard over a link of {LINKS}           {:6.1} s", direct.as_secs_f64());
    println!("ec.rebuild, from the command to the end         {:6.1} s", stock.as_secs_f64());
    let own = own.saturating_sub(GRACE);
    println!("Mend, automatically, after the grace period     {:6.1} s", own.as_secs_f64());
    drop(lab);
    say(&format!("Done in {} s; the cluster was removed", begun.elapsed().as_secs()));
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Kills a volume server and runs SeaweedFS's own repair. Returns the time of the repair.
fn stock_repair(lab: &mut SeaweedLab, mut mend: Mend, volumes: &[VolumeName]) -> Result<Duration, LabError> {
    say("A volume server is killed (SIGKILL). SeaweedFS repairs the loss on command: ec.rebuild -apply");
    let victim = victim(lab, volumes);
    let gone = Gone::kill(lab, &mut mend, victim)?;
    println!("the master lists {}", less(&gone));
    let stock = gone.rebuild(lab)?;
    println!("ec.rebuild rebuilt these shards in {:.1} s", stock.time.as_secs_f64());
    gone.replace(lab, &mut mend, volumes.len(), []);
    Ok(stock.time)
}

/// Kills another volume server and waits until Mend has repaired the loss. Returns the time since the kill.
fn own_repair(lab: &mut SeaweedLab, volumes: &[VolumeName]) -> Result<Duration, LabError> {
    say("Another volume server with the same number of shards is killed. This time Mend repairs the loss \
         automatically");
    let mut mend = lab.attach(volumes.len(), true, &format!("{}s", GRACE.as_secs()));
    show(&mend);
    let victim = victim(lab, volumes);
    let killed = Instant::now();
    let gone = Gone::kill(lab, &mut mend, victim)?;
    println!("the master lists {}", less(&gone));
    eventually("Mend to notice", || {
        let status = mend.ask(&["status"])?;
        (status["stripes"]["blocks_lost"] == gone.lost.shards).then_some(())
    });
    println!("after {:.1} s Mend reports the loss:", killed.elapsed().as_secs_f64());
    show(&mend);
    println!("Mend waits {} s, the grace period for absent servers in this demo", GRACE.as_secs());
    eventually("all shards", || lab.cluster.are_whole(volumes).then_some(()));
    let own = killed.elapsed();
    println!(
        "{:.1} s after the kill the master lists all shards again: {:.1} s of grace period, {:.1} s of \
         detection and repair",
        own.as_secs_f64(),
        GRACE.as_secs_f64(),
        own.saturating_sub(GRACE).as_secs_f64()
    );
    mend.wait_until_safe(volumes.len());
    show(&mend);
    println!("$ mend history");
    print!("{}", String::from_utf8_lossy(&mend.run(&["history", "-n", "5"]).stdout));
    Ok(own)
}

/// Compares all objects and runs SeaweedFS's check. Returns whether the check finds nothing to rebuild.
fn check(lab: &SeaweedLab) -> Result<bool, LabError> {
    say("Check of all data");
    println!("read {} objects; every byte is unchanged", lab.check_objects()?);
    let said = lab.cluster.shell(&["lock", "ec.rebuild", "unlock"]);
    let is_whole = !said.contains("rebuildOneEcVolume") && !said.contains("error:");
    println!("ec.rebuild finds {}", if is_whole { "nothing to do" } else { "work:" });
    if !is_whole {
        println!("{said}");
    }
    Ok(is_whole)
}

/// Returns a server that holds exactly one shard of each volume, or else exactly one shard of the first
/// volume.
fn victim(lab: &SeaweedLab, volumes: &[VolumeName]) -> usize {
    let listing = lab.cluster.list();
    let has = |server: usize, volume: &VolumeName| {
        let id = lab.cluster.servers[server].address.http();
        let holdings = listing.volumes.get(&volume.id()).into_iter().flatten();
        holdings.filter(|holding| holding.server.0 == id).map(|holding| holding.shards.len()).sum::<usize>()
    };
    let of_each = (0..SERVERS.into()).find(|&at| volumes.iter().all(|volume| has(at, volume) == 1));
    let of_first = || (0..SERVERS.into()).find(|&at| has(at, &volumes[0]) == 1);
    of_each.or_else(of_first).expect("fourteen shards are spread over fifteen servers")
}

fn less(gone: &Gone) -> String {
    format!("{} fewer shards, {} MB", gone.lost.shards, gone.lost.bytes / 1_000_000)
}

fn fill(lab: &mut SeaweedLab) -> Result<Vec<VolumeName>, LabError> {
    say("Objects through the filer and through S3, then both volumes are erasure-coded (10+4)");
    let volumes =
        vec![lab.store("pictures", PICTURES_BYTES), lab.store_by_s3("backups", BACKUPS.0, BACKUPS.1)];
    lab.cluster.encode(&volumes);
    for volume in &volumes {
        println!("volume {volume}: 14 shards of {} MB", lab.shard_bytes(volume) / 1_000_000);
    }
    lab.shape(LINKS.parse::<Rate>().expect("a rate"))?;
    println!("from now on each of the {SERVERS} links is limited to {LINKS} in each direction");
    Ok(volumes)
}

fn show(mend: &Mend) {
    println!("$ mend status");
    let said = mend.run(&["status"]).stdout;
    String::from_utf8_lossy(&said).lines().take(3).for_each(|line| println!("{line}"));
}
