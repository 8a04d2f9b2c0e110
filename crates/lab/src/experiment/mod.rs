//! The code that the experiments with HDFS, SeaweedFS and whole nodes share.
//!
//! An experiment boots a system on a [`Site`], a network of shaped links. It measures reads ([`Reads`],
//! [`read_during`]) and repairs ([`Clock`], [`measure`], [`time_program`]). For comparison with a repair, it measures a
//! [`direct_send`] of the same bytes. [`settle`] waits for idle processors before a measurement, and [`wait_while`]
//! polls for the state that ends it. A [`Book`] keeps every repetition in a [`Report`](report::Report), and makes the
//! page with [`verdicts`] from it. Each experiment defines its own losses, ways to repair them, and tables.

mod bars;
mod book;
mod reads;
mod repaired;
pub(crate) mod report;
mod results;
mod site;
mod spread;
mod timelines;
mod usage;
mod verdicts;

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use testbed::{Mend, eventually};

pub(crate) use bars::{Bar, drawing};
pub(crate) use book::{Book, Publication};
pub(crate) use reads::{ReadLog, Reads, percentile, read_during};
pub(crate) use repaired::{Clock, Repaired, measure, now_ms, time_program};
pub(crate) use results::{Results, Session, megabytes, milliseconds};
pub(crate) use site::Site;
pub(crate) use spread::Spread;
pub(crate) use timelines::timelines;
pub(crate) use usage::{Usage, Used, Watching, received_by_servers};
pub(crate) use verdicts::{Goal, Judged, verdicts};

use crate::direct;
use crate::error::LabError;
use crate::meter::Meter;
use crate::network::{LabNode, Network};

/// The number of direct sends in a measurement; their median time is the result.
const SENDS: usize = 3;
/// The lab's processes count as idle if they use less than this processor time in a second.
const IDLE_CPU_S: f64 = 0.4;
/// The longest wait of [`settle`], in seconds.
const SETTLING_S: usize = 60;
/// The timeout of [`wait_while`]. HDFS may have one DataNode rebuild all blocks of another one: 40 blocks of 64 MiB of
/// RS-10-4 then come over one link, which takes 36 minutes at 100 Mb/s.
const LIMIT: Duration = Duration::from_secs(3600);

/// Measures the time to send `bytes` bytes from the first server to the client over one plain TCP connection.
///
/// # Errors
/// [`LabError`].
pub(crate) fn direct_send(network: &Network, bytes: u64) -> Result<Duration, LabError> {
    let address = SocketAddr::from((LabNode::Helper(0).address(), direct::PORT));
    let serving = network.doors();
    // The sender's thread ends with this process. If an earlier call has started a sender, the port is taken,
    // so the new thread ends at once.
    thread::spawn(move || serving.enter(LabNode::Helper(0)).map(|()| direct::serve(address)));
    let doors = network.doors();
    let receive = move || -> Result<Vec<Duration>, LabError> {
        doors.enter(LabNode::Client)?;
        let sent = (0..SENDS).map(|_| direct::fetch(address, bytes));
        sent.collect::<Result<_, _>>().map_err(LabError::file("receive from", address.to_string()))
    };
    let mut times = thread::scope(|scope| scope.spawn(receive).join().expect("no panic"))?;
    times.sort();
    Ok(times[SENDS / 2])
}

/// Polls until `obstacle` returns `None`.
///
/// # Errors
/// After an hour, returns an error that names `who` and the last obstacle. Returns errors of `obstacle` at
/// once.
pub(crate) fn wait_while(
    who: &str,
    every: Duration,
    mut obstacle: impl FnMut() -> Result<Option<String>, LabError>,
) -> Result<(), LabError> {
    let begun = Instant::now();
    while let Some(found) = obstacle()? {
        if begun.elapsed() > LIMIT {
            let reason = format!("{found} after {} s", LIMIT.as_secs());
            return Err(LabError::Agent { who: who.to_owned(), reason });
        }
        thread::sleep(every);
    }
    Ok(())
}

/// Writes dirty pages to disk, and waits until the lab's processes are idle. Just after a start, a JVM uses all
/// processors to compile its code. Returns whether they became idle within a minute.
///
/// # Errors
/// [`LabError`].
pub(crate) fn settle(network: &Network) -> Result<bool, LabError> {
    rustix::fs::sync();
    for _ in 0..SETTLING_S {
        let meter = Meter::start(network)?;
        thread::sleep(Duration::from_secs(1));
        if meter.stop()?.cpu_s < IDLE_CPU_S {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the hash of a file, with which a rebuilt file is compared with the lost one.
///
/// # Errors
/// [`LabError::File`].
pub(crate) fn hash_of(path: &Path) -> Result<blake3::Hash, LabError> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(LabError::file("open", path))?;
    hasher.update_reader(file).map_err(LabError::file("read", path))?;
    Ok(hasher.finalize())
}

/// Waits until the coordinator reports at least this many lost blocks.
///
/// # Panics
/// On a timeout.
pub(crate) fn wait_for_lost_blocks(mend: &Mend, blocks: usize) {
    eventually("the coordinator to miss the lost blocks", || {
        let lost = mend.ask(&["status"])?["stripes"]["blocks_lost"].as_u64()?;
        (lost >= blocks as u64).then_some(())
    });
}
