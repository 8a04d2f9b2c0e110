//! Contradictory blocks, from their detection to the proof that their parity holds.

use crate::commands::{FileCommand, NodeCommand, ScrubCommand, StripeCommand};
use views::{FoundBy, HistoryEvent, Severity};

use super::*;
use crate::signal::Signal;

fn blocks(indices: std::ops::Range<u16>) -> BTreeSet<BlockIndex> {
    indices.map(BlockIndex).collect()
}

/// Returns blocks that a parity check has read, each on some node.
fn read(indices: std::ops::Range<u16>) -> BTreeMap<BlockIndex, NodeId> {
    indices.map(|index| (BlockIndex(index), NodeId(u32::from(index)))).collect()
}

fn tell(cluster: &mut TestCluster, signal: Signal) {
    let core = cluster.core();
    core.out.tell(signal);
    core.route();
}

/// Creates a file of one stripe, rs-4-2, whose blocks were found to contradict each other.
fn contradicted() -> (TestCluster, StripeId, FileLayout) {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    tell(
        &mut cluster,
        Signal::Contradiction { stripe: stripe.clone(), blocks: blocks(0..3), found_by: FoundBy::Scrub },
    );
    cluster.pump();
    (cluster, stripe, file)
}

fn assert_contradicted(cluster: &mut TestCluster) {
    let status = cluster.status();
    assert!(!status.healthy, "{}", status.summary);
    assert_eq!(status.stripes.contradictory, 1, "{}", status.summary);
    assert!(!status.summary.contains("safe"), "{}", status.summary);
    let [contradiction] = &status.damage.contradictions[..] else {
        panic!("{:#?}", status.damage.contradictions)
    };
    assert_eq!((contradiction.found_by, contradiction.blocks.len()), (FoundBy::Scrub, 3));
    assert_eq!(contradiction.file.as_deref(), Some("f"));
}

fn restart(cluster: &mut TestCluster) {
    cluster.restart();
    for helper in 1..=4 {
        cluster.start(&format!("h{helper}"));
    }
    cluster.wait(Duration::from_secs(11));
}

#[test]
fn a_contradiction_survives_restarts_until_a_check_covers_every_good_block() {
    let (mut cluster, stripe, file) = contradicted();
    assert_contradicted(&mut cluster);
    assert_eq!(cluster.status().severity, Severity::Critical);
    assert!(cluster.status().summary.starts_with("IN DOUBT  "), "{}", cluster.status().summary);
    restart(&mut cluster);
    assert_contradicted(&mut cluster);
    assert_eq!(cluster.status().severity, Severity::Critical);

    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read: read(0..3) });
    assert_contradicted(&mut cluster);
    let last = home(&file, 3);
    cluster.kill(&last);
    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read: read(0..3) });
    assert_contradicted(&mut cluster);
    let next = &cluster.status().damage.contradictions[0].next_step;
    assert!(next.starts_with(&format!("start {last}")), "it holds a block that was not asked: {next}");

    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read: read(0..4) });
    cluster.pump();
    restart(&mut cluster);
    let status = cluster.status();
    assert!(status.healthy && status.damage.contradictions.is_empty(), "{}", status.summary);
    let history = cluster.core().history.history(0, 10);
    let said = |what: fn(&HistoryEvent) -> bool| history.iter().filter(|entry| what(&entry.what)).count();
    assert_eq!(said(|event| matches!(event, HistoryEvent::Contradiction { .. })), 1);
    assert_eq!(said(|event| matches!(event, HistoryEvent::ContradictionSettled { .. })), 1);
}

/// The storage refuses the block that a repair has rebuilt and checked. The copy that it still records was not read.
#[test]
fn a_check_of_a_copy_that_is_not_recorded_settles_nothing() {
    let (mut cluster, _, file) = contradicted();
    cluster.start("h5");
    let spare = cluster.node("h5").node.unwrap();
    cluster.distrusted.insert(spare);
    cluster.kill(&home(&file, 3));
    let repair = cluster.repair_all();
    assert_eq!(repair.state.name(), "failed", "{repair:#?}");
    assert_contradicted(&mut cluster);
    cluster.distrusted.clear();
    let repair = cluster.repair_all();
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert!(cluster.status().damage.contradictions.is_empty());
}

/// Until a store was listed, plug-ins must not have HDFS rebuild blocks from one that was found wrong.
#[test]
fn a_condemned_block_taints_its_stripe_until_it_is_known_to_be_elsewhere() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let mut condemn = |stripe: &str, block: &BlockId, node: u32| {
        let kept = serde_json::json!({ "stripe": stripe, "block": block, "node": node });
        cluster.core().stripes.condemned.recall(&[(format!("condemned/{node}/{block}"), kept)]);
        cluster.ask(StripeCommand::Contradictions).unwrap().stripes
    };
    let unlisted = BlockId("blk_-16_1".into());
    assert_eq!(condemn("group_-16_1", &unlisted, 1), ["group_-16_1"]);
    assert_eq!(condemn("other", &block(&file, 1), 99), ["group_-16_1"], "it was rebuilt on another node");
}

#[test]
fn a_check_need_not_cover_blocks_known_to_be_bad() {
    let (mut cluster, stripe, file) = contradicted();
    cluster.rotten.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    assert_eq!(states(&cluster.file("f"))[3], "corrupt");
    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read: read(0..3) });
    assert!(cluster.status().damage.contradictions.is_empty());
}

impl TestCluster {
    /// Has block 3 of a contradictory stripe found corrupt, and parity hold over the others, so that the contradiction
    /// ends.
    fn end_without_block_3(&mut self, stripe: &StripeId, file: &FileLayout) {
        self.rotten.insert(block(file, 3));
        self.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
        self.play();
        tell(self, Signal::ParityHeld { stripe: stripe.clone(), read: read(0..3) });
        self.pump();
        assert!(self.status().damage.contradictions.is_empty());
    }

    /// Returns how many contradictions the history contains.
    fn contradictions_noted(&mut self) -> usize {
        let history = self.core().history.history(0, 100);
        history.iter().filter(|entry| matches!(entry.what, HistoryEvent::Contradiction { .. })).count()
    }

    /// Whether the storage has the record of a contradiction.
    fn has_recorded_one(&self) -> bool {
        !self.storage.as_ref().unwrap().list("contradiction/").unwrap().is_empty()
    }
}

/// Perhaps it was the wrong one: its checksums match again. Until it is checked, no other program may decode from it.
#[test]
fn a_contradiction_returns_with_a_block_that_the_last_check_left_out() {
    for restarts in [false, true] {
        let (mut cluster, stripe, file) = contradicted();
        cluster.end_without_block_3(&stripe, &file);
        if restarts {
            restart(&mut cluster);
            assert!(cluster.status().damage.contradictions.is_empty());
        }
        cluster.node(&home(&file, 3)).forged.insert(block(&file, 3));
        cluster.rotten.clear();
        cluster.frozen.insert(home(&file, 0));
        cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
        cluster.play();
        assert_eq!(states(&cluster.file("f"))[3], "healthy");
        assert_contradicted(&mut cluster);
        assert_eq!(cluster.ask(StripeCommand::Contradictions).unwrap().stripes, [stripe.to_string()]);
        cluster.frozen.clear();
        cluster.wait(Duration::from_secs(1));
        assert_eq!(states(&cluster.file("f"))[3], "corrupt");
        assert_eq!((cluster.status().stripes.contradictory, cluster.contradictions_noted()), (0, 2));
        assert!(!cluster.has_recorded_one(), "the wrong block is recorded as such");
    }
}

#[test]
fn a_contradiction_does_not_return_with_a_block_that_a_job_has_made() {
    let (mut cluster, stripe, file) = contradicted();
    cluster.start("h5");
    cluster.end_without_block_3(&stripe, &file);
    assert!(cluster.has_recorded_one());
    cluster.rotten.clear();
    assert_eq!(cluster.repair_all().state.name(), "done");
    cluster.wait(Duration::from_secs(1));
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
    assert_eq!(cluster.contradictions_noted(), 1);
    assert!(cluster.has_recorded_one(), "an older copy may return");
}

/// HDFS may rebuild it from another block that has returned meanwhile.
#[test]
fn a_contradiction_without_some_blocks_taints_its_stripe_until_the_store_is_listed() {
    let (mut cluster, stripe, file) = contradicted();
    cluster.end_without_block_3(&stripe, &file);
    let tainted = |cluster: &mut TestCluster| cluster.ask(StripeCommand::Contradictions).unwrap().stripes;
    assert_eq!(tainted(&mut cluster), [""; 0]);
    cluster.core().stripes.picture = crate::stripes::picture::Picture::default();
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Unlisted(Some("not listed".into()))]));
    assert_eq!(tainted(&mut cluster), [stripe.to_string()]);
}

#[test]
fn a_contradiction_ends_with_its_stripe() {
    let (mut cluster, ..) = contradicted();
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.pump();
    assert_eq!(cluster.status().stripes.contradictory, 0);
    restart(&mut cluster);
    assert!(cluster.status().healthy);
}

/// A job cannot judge all blocks of a stripe; the check that follows reads all of them from their disks.
#[test]
fn a_contradiction_that_a_job_finds_is_checked_at_once() {
    for found_by in [FoundBy::Read, FoundBy::Repair] {
        for is_forged in [true, false] {
            let mut cluster = TestCluster::new(4);
            let file = cluster.put("f", 1);
            if is_forged {
                cluster.node(&home(&file, 1)).forged.insert(block(&file, 1));
            }
            let stripe = StripeId(file.layout[0].stripe.stripe.clone());
            tell(&mut cluster, Signal::Contradiction { stripe, blocks: blocks(0..4), found_by });
            assert!(!cluster.status().healthy, "until it is settled");
            cluster.wait(Duration::from_secs(1));
            let status = cluster.status();
            assert_eq!((status.stripes.contradictory, status.healthy), (0, !is_forged), "{}", status.summary);
            let state = if is_forged { "corrupt" } else { "healthy" };
            assert_eq!(states(&cluster.file("f")), ["healthy", state, "healthy", "healthy"]);
        }
    }
}

impl TestCluster {
    /// Returns how many verifications helpers were asked for since the last call, and lets the helpers
    /// answer.
    fn verifications(&mut self) -> usize {
        let mut count = 0;
        for node in self.nodes.values_mut() {
            node.backlog.append(&mut node.inbox);
            count += node.backlog.iter().filter(|message| matches!(message, ToNode::Verify { .. })).count();
        }
        self.play();
        count
    }

    /// Reports blocks 20 times a second for this long; returns the number of verifications.
    fn report(&mut self, reporter: &str, reported: &[(StripeId, BlockIndex)], time: Duration) -> usize {
        let (end, mut count) = (self.now + time, 0);
        while self.now < end {
            for (stripe, block) in reported.iter().cloned() {
                self.say(reporter, FromNode::Garbled { stripe, block });
            }
            self.now += Duration::from_millis(50);
            self.tick();
            self.pump();
            count += self.verifications();
        }
        count
    }
}

#[test]
fn a_block_that_a_client_reports_is_verified_by_its_helper() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let second = Duration::from_secs(1);
    cluster.rotten.insert(block(&file, 1));
    assert_eq!(cluster.report("h2", &[(stripe.clone(), BlockIndex(1))], second), 0, "helpers report nothing");
    let nonsense = [(stripe.clone(), BlockIndex(4)), (StripeId("999".into()), BlockIndex(0))];
    assert_eq!(cluster.report("admin", &nonsense, second), 0);
    let reported = [(stripe.clone(), BlockIndex(0)), (stripe, BlockIndex(1))];
    assert_eq!(cluster.report("admin", &reported, second), 2);
    assert_eq!(
        states(&cluster.file("f")),
        ["healthy", "corrupt", "healthy", "healthy"],
        "a report is no verdict"
    );
}

#[test]
fn reports_of_clients_are_bounded_in_rate_and_number() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 60);
    let stripes: Vec<StripeId> =
        file.layout.iter().map(|part| StripeId(part.stripe.stripe.clone())).collect();
    let all: Vec<_> = stripes
        .into_iter()
        .flat_map(|stripe| (0..4).map(move |at| (stripe.clone(), BlockIndex(at))))
        .collect();
    // A helper verifies one reported block at a time.
    let slow = home(&file, 0);
    cluster.frozen.insert(slow.clone());
    cluster.report("admin", &all[..80], Duration::from_secs(5));
    let waiting =
        cluster.node(&slow).backlog.iter().filter(|message| matches!(message, ToNode::Verify { .. }));
    assert_eq!(waiting.count(), 1);
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(70));
    // A block is verified at most once a minute.
    assert_eq!(cluster.report("admin", &all[..1], Duration::from_secs(50)), 1);
    cluster.wait(Duration::from_secs(70));
    let count = cluster.report("admin", &all, Duration::from_secs(50));
    assert!((50..=100).contains(&count), "{count} verifications in a minute");
}

/// The helper may never return.
#[test]
fn reports_about_a_helper_that_is_away_do_not_keep_others_from_being_verified() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 130);
    let on = |name: &str| -> Vec<(StripeId, BlockIndex)> {
        let blocks = file.layout.iter().flat_map(|part| {
            let at = part.stripe.blocks.iter().position(|block| block.node.as_deref() == Some(name));
            at.map(|at| (StripeId(part.stripe.stripe.clone()), BlockIndex(at as u16)))
        });
        blocks.collect()
    };
    assert_eq!(on("h1").len(), 130);
    cluster.frozen.insert("h1".to_owned());
    cluster.report("admin", &on("h1"), Duration::from_secs(1));
    cluster.kill("h1");
    assert_eq!(cluster.report("admin", &on("h2")[..1], Duration::from_secs(1)), 1);
    cluster.frozen.clear();
    cluster.start("h1");
    let before = cluster.node("h1").verified;
    cluster.wait(Duration::from_secs(30));
    assert!(cluster.node("h1").verified - before >= 100, "the reports were kept");
}

#[test]
fn a_contradictory_stripe_can_lose_nothing() {
    let (mut cluster, stripe, file) = contradicted();
    let answer = cluster.ask(|reply| NodeCommand::OkToStop(vec![home(&file, 3)], 0, reply)).unwrap();
    assert!(!answer.safe && answer.contradictory == 1, "{answer:?}");
    assert!(answer.text.contains("contradict each other"), "{}", answer.text);
    let classes = cluster.status().stripes.redundancy;
    assert_eq!((classes.len(), classes[0].survives, classes[0].helpers), (1, 0, 0), "{classes:?}");
    let view = &cluster.file("f").layout[0].stripe;
    assert_eq!((view.readable, view.survives, view.helpers), (true, 0, 0));
    let metrics = cluster.ask(crate::commands::ClusterCommand::Metrics).unwrap();
    assert_eq!(metrics.data.stripes, BTreeMap::from([(("rs-4-2".to_owned(), Some(0)), 1)]));

    tell(&mut cluster, Signal::ParityHeld { stripe, read: read(0..4) });
    let answer = cluster.ask(|reply| NodeCommand::OkToStop(vec![home(&file, 3)], 0, reply)).unwrap();
    assert!(answer.safe && answer.survives == Some(1), "{answer:?}");
    assert_eq!(cluster.status().stripes.redundancy[0].survives, 2);
    assert_eq!(cluster.file("f").layout[0].stripe.survives, 2);
}
