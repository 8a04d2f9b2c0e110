//! The story in a few minutes: objects, a server killed, SeaweedFS's own repair, the same loss with Mend beside it.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stores::seaweedfs::VolumeName;
use weed::{Mend, eventually};

use super::scene::{SERVERS, Scene};
use super::servers::Gone;
use crate::error::LabError;
use crate::fleet::Programs;
use crate::network::Names;
use crate::topology::Rate;

const LINKS: &str = "500mbit";
/// Through the filer: a shard has 66 MB.
const PICTURES_BYTES: usize = 660_000_000;
/// Through S3.
const BACKUPS: (usize, usize) = (40, 2_500_000);
/// How long Mend of this demo waits for a server to come back.
const GRACE: Duration = Duration::from_secs(3);

fn say(headline: &str) {
    println!("\n\x1b[1m== {headline}\x1b[0m");
}

/// Runs the demo.
pub(super) fn run(names: &Names, programs: &Programs, weed: &Path) -> Result<ExitCode, LabError> {
    let begun = Instant::now();
    say("A SeaweedFS cluster, unmodified: a master, a filer with S3, 15 volume servers");
    let mut scene = Scene::up(names, programs, weed, false)?;
    println!("each volume server in a network namespace of its own");
    let volumes = fill(&mut scene)?;

    say("Mend is attached beside it: nothing of SeaweedFS is changed or restarted");
    let mut mend = scene.attach(volumes.len(), false, "never");
    println!("$ mend attach seaweedfs --master {}", scene.cluster.master_address());
    println!("{}", mend.said.lines().next().unwrap_or_default());
    println!("a coordinator beside the master and a helper beside each volume server are started");

    say(
        "A volume server is killed (SIGKILL). SeaweedFS's own repair, as somebody types it: ec.rebuild -apply",
    );
    let gone = Gone::kill(&mut scene, &mut mend, 1)?;
    println!("the master lists {} shards less", gone.shards);
    let stock = gone.rebuild(&scene)?;
    println!("ec.rebuild made them again in {:.1} s", stock.time.as_secs_f64());
    gone.replace(&mut scene, &mut mend, volumes.len());
    drop(mend);

    say("The same loss again: another volume server is killed. This time nobody types anything");
    let mut mend = scene.attach(volumes.len(), true, &format!("{}s", GRACE.as_secs()));
    show(&scene, &mend);
    let killed = Instant::now();
    let gone = Gone::kill(&mut scene, &mut mend, 2)?;
    eventually("Mend to notice", || {
        let status = mend.ask(&scene.cluster, &["status"])?;
        (status["stripes"]["blocks_lost"] == gone.shards).then_some(())
    });
    println!("after {:.1} s Mend knows:", killed.elapsed().as_secs_f64());
    show(&scene, &mend);
    println!("it waits {} s, which is how long a server may be away here", GRACE.as_secs());
    eventually("all shards", || scene.cluster.are_whole(&volumes).then_some(()));
    let own = killed.elapsed();
    println!(
        "{:.1} s after the kill the master lists all shards again: {:.1} s of waiting, {:.1} s of noticing and repairing",
        own.as_secs_f64(),
        GRACE.as_secs_f64(),
        own.saturating_sub(GRACE).as_secs_f64()
    );
    mend.wait_until_safe(&scene.cluster, volumes.len());
    show(&scene, &mend);
    println!("$ mend history");
    print!("{}", String::from_utf8_lossy(&mend.run(&scene.cluster, &["history", "-n", "5"]).stdout));

    say("Is everything as it was?");
    drop(mend);
    println!("{} objects read, and every byte is as it was", scene.check_objects()?);
    let nothing = scene.cluster.shell(&["lock", "ec.rebuild", "unlock"]);
    let idle = !nothing.contains("rebuildOneEcVolume") && !nothing.contains("error:");
    println!("ec.rebuild finds {}", if idle { "nothing to do" } else { "work:" });
    if !idle {
        println!("{nothing}");
    }

    say("What it took");
    let direct = scene.direct(scene.shard_bytes(&volumes[0]))?;
    println!("reading one shard over a link of {LINKS}   {:6.1} s", direct.as_secs_f64());
    println!("ec.rebuild, once somebody has typed it  {:6.1} s", stock.time.as_secs_f64());
    println!("Mend, by itself, after its grace        {:6.1} s", own.saturating_sub(GRACE).as_secs_f64());
    drop(scene);
    say(&format!("Done in {} s; all of it is taken down", begun.elapsed().as_secs()));
    Ok(if idle { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn fill(scene: &mut Scene) -> Result<Vec<VolumeName>, LabError> {
    say("Objects through the filer and through S3, then both volumes are erasure-coded (10+4)");
    let volumes =
        vec![scene.store("pictures", PICTURES_BYTES), scene.store_by_s3("backups", BACKUPS.0, BACKUPS.1)];
    scene.cluster.encode(&volumes);
    for volume in &volumes {
        println!("volume {volume}: 14 shards of {} MB", scene.shard_bytes(volume) / 1_000_000);
    }
    scene.shape(LINKS.parse::<Rate>().expect("a rate"))?;
    println!("from here on each of the {SERVERS} links carries {LINKS}, each way");
    Ok(volumes)
}

fn show(scene: &Scene, mend: &Mend) {
    println!("$ mend status");
    let said = mend.run(&scene.cluster, &["status"]).stdout;
    String::from_utf8_lossy(&said).lines().take(3).for_each(|line| println!("{line}"));
}
