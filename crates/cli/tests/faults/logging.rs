//! Daemons whose log is not read.

use std::io::Read;
use std::thread;
use std::time::Duration;

use crate::cluster::Cluster;

/// The reader of the coordinator's log has stopped reading, as a terminal or a log collector may. At the level `trace`,
/// some requests fill the pipe.
#[test]
fn a_log_that_is_not_read_stops_no_coordinator() {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    cluster.start_unread(&["coordinator"]);
    for helper in 1..=4 {
        cluster.start(&["helper", &format!("h{helper}")]);
    }
    cluster.await_ready();
    cluster.await_helpers(4);
    for round in 0..20 {
        let name = format!("film-{round}");
        let content = cluster.put(&name, 300_000);
        cluster.assert_reads(&name, &content, &[]);
    }
    let mut log = cluster.take_log("coordinator");
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        log.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    thread::sleep(Duration::from_secs(1)); // Until there is room for the last lines.
    cluster.signal("coordinator", "TERM");
    let text = reader.join().unwrap();
    assert!(text.len() > 64 << 10, "the log has filled the pipe: {}", text.len());
    assert!(text.ends_with('\n') && text.contains("INFO stopping"), "the last lines are written");
}
