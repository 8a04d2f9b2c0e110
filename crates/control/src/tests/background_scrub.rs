//! The background scrub: its rate, its findings, and its continuation after a restart.

use super::*;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 40;

fn cluster(blocks_per_s: u64) -> (TestCluster, FileLayout) {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", BLOCKS / 4);
    cluster.core().base.settings.scrub_bytes_per_s = Some(blocks_per_s * BLOCK_BYTES);
    (cluster, file)
}

fn left(cluster: &mut TestCluster) -> u64 {
    cluster.status().work.steady_scrub.expect("a rate is set").left_in_round.expect("a round has begun")
}

#[test]
fn it_reads_at_its_rate_and_finds_corrupt_blocks() {
    let (mut cluster, file) = cluster(4);
    let rotten = block(&file, 2);
    cluster.rotten.insert(rotten.clone());
    cluster.wait(Duration::from_secs(5));
    let read = BLOCKS - left(&mut cluster);
    assert!((20..=26).contains(&read), "4 blocks a second for 5 s, and a second's at the beginning: {read}");
    cluster.wait(Duration::from_secs(6));
    let status = cluster.status();
    assert_eq!(
        status.damage.lost_lately.iter().map(|lost| lost.block.clone()).collect::<Vec<_>>(),
        [rotten.0]
    );
    assert_eq!(status.stripes.blocks_lost, 1);
    cluster.wait(Duration::from_secs(120));
    let steady = cluster.status().work.steady_scrub.expect("a rate is set");
    assert!(steady.last_round_ended_unix_ms.is_some(), "rounds follow each other: {steady:?}");
}

#[test]
fn it_continues_from_its_position_after_a_restart() {
    let (mut cluster, _) = cluster(1);
    cluster.wait(Duration::from_secs(31));
    let before = left(&mut cluster);
    assert!((5..=10).contains(&before), "{before}");
    cluster.restart();
    cluster.core().base.settings.scrub_bytes_per_s = Some(BLOCK_BYTES);
    for helper in ["h1", "h2", "h3", "h4"] {
        cluster.start(helper);
    }
    cluster.wait(Duration::from_secs(1));
    let after = left(&mut cluster);
    assert!(after <= before + 1 && after > 0, "{after} are left of {before}: it does not begin anew");
}

/// A helper whose disk hangs delays only its own blocks.
#[test]
fn it_reads_the_blocks_of_other_helpers_while_one_does_not_answer() {
    let (mut cluster, file) = cluster(4);
    let last = &file.layout.last().expect("a stripe").stripe.blocks[2];
    let slow = last.node.clone().expect("it is healthy");
    cluster.rotten.insert(BlockId(last.block.clone()));
    cluster.frozen.insert(slow);
    cluster.wait(Duration::from_secs(60));
    let steady = cluster.status().work.steady_scrub.expect("a rate is set");
    assert!(steady.last_round_ended_unix_ms.is_some(), "the blocks of the others were read: {steady:?}");
    assert_eq!(cluster.status().stripes.blocks_lost, 0);
    cluster.frozen.clear();
    // The next round begins after a pause, and needs 10 s to reach the last stripe.
    cluster.wait(Duration::from_secs(43));
    assert_eq!(cluster.status().stripes.blocks_lost, 1, "what was put off comes first");
}

#[test]
fn without_a_rate_nothing_is_read() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.extend(["h1", "h2", "h3", "h4"].map(str::to_owned));
    cluster.wait(Duration::from_secs(100));
    assert_eq!(cluster.status().work.steady_scrub, None);
    let asked = |message: &ToNode| matches!(message, ToNode::Verify { .. });
    for name in ["h1", "h2", "h3", "h4"] {
        assert!(!cluster.node(name).backlog.iter().any(asked));
    }
}
