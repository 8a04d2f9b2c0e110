//! The background scrub: its rate, its findings, and its continuation after a restart.

use super::*;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 40;

fn scene(blocks_per_s: u64) -> (Scene, FileLayout) {
    let mut scene = Scene::new(4);
    let file = scene.put("f", BLOCKS / 4);
    scene.core().base.settings.scrub_bytes_per_s = Some(blocks_per_s * BLOCK_BYTES);
    (scene, file)
}

fn left(scene: &mut Scene) -> u64 {
    scene.status().work.steady_scrub.expect("a rate is set").left_in_round.expect("a round has begun")
}

#[test]
fn it_reads_at_its_rate_and_finds_corrupt_blocks() {
    let (mut scene, file) = scene(4);
    let rotten = block(&file, 2);
    scene.rotten.insert(rotten.clone());
    scene.wait(Duration::from_secs(5));
    let read = BLOCKS - left(&mut scene);
    assert!((20..=26).contains(&read), "4 blocks a second for 5 s, and a second's at the beginning: {read}");
    scene.wait(Duration::from_secs(6));
    let status = scene.status();
    assert_eq!(
        status.damage.lost_lately.iter().map(|lost| lost.block.clone()).collect::<Vec<_>>(),
        [rotten.0]
    );
    assert_eq!(status.stripes.blocks_lost, 1);
    scene.wait(Duration::from_secs(120));
    let steady = scene.status().work.steady_scrub.expect("a rate is set");
    assert!(steady.last_round_ended_unix_ms.is_some(), "rounds follow each other: {steady:?}");
}

#[test]
fn it_continues_from_its_position_after_a_restart() {
    let (mut scene, _) = scene(1);
    scene.wait(Duration::from_secs(31));
    let before = left(&mut scene);
    assert!((5..=10).contains(&before), "{before}");
    scene.restart();
    scene.core().base.settings.scrub_bytes_per_s = Some(BLOCK_BYTES);
    for helper in ["h1", "h2", "h3", "h4"] {
        scene.start(helper);
    }
    scene.wait(Duration::from_secs(1));
    let after = left(&mut scene);
    assert!(after <= before + 1 && after > 0, "{after} are left of {before}: it does not begin anew");
}

#[test]
fn without_a_rate_nothing_is_read() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.frozen.extend(["h1", "h2", "h3", "h4"].map(str::to_owned));
    scene.wait(Duration::from_secs(100));
    assert_eq!(scene.status().work.steady_scrub, None);
    let asked = |message: &ToNode| matches!(message, ToNode::Verify { .. });
    for name in ["h1", "h2", "h3", "h4"] {
        assert!(!scene.node(name).backlog.iter().any(asked));
    }
}
