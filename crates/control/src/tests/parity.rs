//! Parity checks of whole stripes: which blocks they name, and when they give no verdict.

use crate::commands::{FileCommand, ScrubCommand};
use views::{ParityScrubView, ScrubView, Severity};

use super::*;

impl TestCluster {
    fn scrub_parity(&mut self) -> ScrubView {
        let scrub = self.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
        self.play();
        self.scrub_state(scrub)
    }

    fn scrub_state(&mut self, scrub: u64) -> ScrubView {
        self.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap()
    }

    /// Replaces a block on its node by other bytes with matching checksums.
    fn forge(&mut self, file: &FileLayout, index: usize) {
        self.node(&home(file, index)).forged.insert(block(file, index));
    }

    /// Kills the helper of a stripe's block 1, and has the catalog record the block as after a rebuild without this
    /// helper.
    fn rebuild_without(&mut self, helper: &str, stripe: &StripeId) {
        self.kill(helper);
        let mut record = self.core().stripes.picture.stripe(stripe).unwrap();
        let block = &mut record.blocks[1];
        (block.node, block.state, block.digest) = (None, store_api::BlockState::Missing, None);
        self.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    }

    /// Lets a frozen node answer all messages except requests for fingerprints.
    fn answer_all_but_fingerprints(&mut self, name: &str) {
        let messages = std::mem::take(&mut self.node(name).backlog);
        for message in messages {
            match message {
                ToNode::Fingerprint { .. } => self.node(name).backlog.push_back(message),
                message => {
                    let answer = self.node(name).answer(message, &BTreeSet::new());
                    answer.into_iter().for_each(|answer| self.say(name, answer));
                }
            }
        }
    }

    /// Returns the requests for fingerprints that a frozen node has received.
    fn asked(&mut self, name: &str) -> Vec<ToNode> {
        let node = self.node(name);
        node.backlog.append(&mut node.inbox);
        let asks = node.backlog.iter().filter(|message| matches!(message, ToNode::Fingerprint { .. }));
        asks.cloned().collect()
    }
}

fn parity(scrub: &ScrubView) -> &ParityScrubView {
    scrub.parity.as_ref().expect("it was asked for")
}

#[test]
fn a_condemned_block_stays_lost_until_it_is_rebuilt() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 3);
    assert_eq!((parity(&cluster.scrub_parity()).stripes, parity(&cluster.scrub_parity()).checked), (3, 3));
    cluster.forge(&file, 1);
    let scrub = cluster.scrub_parity();
    assert_eq!((scrub.state.name(), parity(&scrub).checked), ("done", 3));
    let found: Vec<_> = scrub.findings.iter().map(|finding| finding.block.clone()).collect();
    assert_eq!(found, [block(&file, 1).0], "{:?}", scrub.findings);
    assert_eq!(states(&cluster.file("f")), ["healthy", "corrupt", "healthy", "healthy"]);
    // A read finds correct checksums, which proves nothing.
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    assert_eq!(states(&cluster.file("f"))[1], "corrupt");
    cluster.restart();
    for helper in ["h1", "h2", "h3", "h4", "h5"] {
        cluster.start(helper);
    }
    cluster.wait(Duration::from_secs(15));
    assert_eq!(states(&cluster.file("f"))[1], "corrupt");
    cluster.nodes.values_mut().for_each(|node| node.forged.clear());
    assert_eq!(cluster.repair_all().state.name(), "done");
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
    let scrub = cluster.scrub_parity();
    assert_eq!((parity(&scrub).checked, scrub.findings.len()), (3, 0));
}

#[test]
fn with_one_absent_block_none_is_named_and_with_two_parity_is_unknown() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.forge(&file, 1);
    cluster.kill(&home(&file, 3));
    let scrub = cluster.scrub_parity();
    let contradictory = &parity(&scrub).contradictory;
    assert_eq!((scrub.findings.len(), contradictory.len()), (0, 1));
    assert_eq!(contradictory[0].suspects.len(), 3, "{contradictory:?}");
    assert_eq!(states(&cluster.file("f"))[1], "healthy");
    cluster.kill(&home(&file, 2));
    let scrub = cluster.scrub_parity();
    assert_eq!((parity(&scrub).checked, parity(&scrub).unchecked[0].stripes), (0, 1));
}

#[test]
fn a_contradiction_must_be_confirmed_by_a_second_reading() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let name = home(&file, 1);
    cluster.forge(&file, 1);
    cluster.frozen.insert(name.clone());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    let mut answered = 0;
    while cluster.scrub_state(scrub).state.name() == "running" {
        cluster.play();
        let messages = std::mem::take(&mut cluster.node(&name).backlog);
        for message in messages {
            // In each check, the node returns other bytes only in the first reading.
            let second = matches!(&message, ToNode::Fingerprint { epoch, .. } if epoch.0 == 1);
            answered += usize::from(matches!(message, ToNode::Fingerprint { .. }));
            if second {
                cluster.node(&name).forged.clear();
            }
            let answer = cluster.node(&name).answer(message, &BTreeSet::new());
            cluster.forge(&file, 1);
            answer.into_iter().for_each(|answer| cluster.say(&name, answer));
        }
        cluster.wait(Duration::from_millis(100));
    }
    let state = cluster.scrub_state(scrub);
    assert_eq!((state.findings.len(), parity(&state).contradictory.len(), answered), (0, 0, 6));
    assert!(parity(&state).unchecked[0].why.contains("different bytes"), "{state:?}");
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
}

/// A helper that drops out between the two readings is among the suspects of the first.
#[test]
fn a_contradiction_is_recorded_although_a_helper_drops_out_between_two_readings() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let name = home(&file, 3);
    (1..=2).for_each(|index| cluster.forge(&file, index));
    cluster.frozen.insert(name.clone());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    let is_second = |message: &ToNode| matches!(message, ToNode::Fingerprint { epoch, .. } if epoch.0 == 1);
    for _ in 0..100 {
        cluster.play();
        if cluster.asked(&name).iter().any(is_second) {
            break;
        }
        for message in std::mem::take(&mut cluster.node(&name).backlog) {
            let answer = cluster.node(&name).answer(message, &BTreeSet::new());
            answer.into_iter().for_each(|answer| cluster.say(&name, answer));
        }
        cluster.wait(Duration::from_millis(50));
    }
    cluster.kill(&name);
    let state = cluster.scrub_state(scrub);
    let contradictory = &parity(&state).contradictory;
    assert_eq!(contradictory.len(), 1, "{state:?}");
    assert!(contradictory[0].suspects.iter().any(|suspect| suspect.node == name), "{contradictory:?}");
}

#[test]
fn a_stripe_that_changes_during_its_check_gets_no_verdict() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let name = home(&file, 1);
    cluster.forge(&file, 1);
    cluster.frozen.insert(name.clone());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    while cluster.asked(&name).is_empty() {
        cluster.play();
        cluster.answer_all_but_fingerprints(&name);
    }
    // All other helpers have answered. The stripe is removed before the last answer.
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(1));
    let state = cluster.scrub_state(scrub);
    assert_eq!((state.state.name(), state.findings.len()), ("done", 0), "{state:?}");
    let parity = parity(&state);
    assert_eq!((parity.stripes, parity.checked, parity.contradictory.len()), (0, 0, 0));
}

/// Otherwise a helper could keep all checks of its stripes from ending.
#[test]
fn caps_extend_a_check_only_for_helpers_that_owe_answers_and_for_little_more_than_an_hour() {
    let ends_within = |claimant: usize, minutes: u64| {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 1);
        let (silent, claimant) = (home(&file, 1), home(&file, claimant));
        cluster.frozen.insert(silent.clone());
        let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
        while cluster.asked(&silent).is_empty() {
            cluster.play();
            cluster.answer_all_but_fingerprints(&silent);
        }
        let Some(ToNode::Fingerprint { job, epoch, .. }) = cluster.asked(&silent).pop() else {
            panic!("it was asked for fingerprints")
        };
        for _ in 0..minutes {
            cluster.say(&claimant, FromNode::Report { job, epoch, report: Report::Limited });
            cluster.wait(Duration::from_secs(60));
        }
        cluster.scrub_state(scrub).state.name() == "done"
    };
    assert!(ends_within(0, 3), "it has answered");
    assert!(!ends_within(1, 60));
    assert!(ends_within(1, 65));
}

#[test]
fn a_parity_scrub_can_be_stopped() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 2);
    cluster.frozen.insert("h2".into());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    cluster.play();
    assert!(matches!(
        cluster.ask(|reply| ScrubCommand::Stop(scrub + 99, reply)),
        Err(RequestError::Scrub(ScrubError::NoSuchScrub(_)))
    ));
    let stopped = cluster.ask(|reply| ScrubCommand::Stop(scrub, reply)).unwrap();
    assert_eq!(stopped.state.name(), "stopped");
    cluster.frozen.clear();
    cluster.play();
    assert_eq!(cluster.scrub_state(scrub), stopped, "late answers change nothing");
    let again = cluster.ask(|reply| ScrubCommand::Stop(scrub, reply));
    assert!(matches!(again, Err(RequestError::Scrub(ScrubError::ScrubEnded { .. }))));
    let next = cluster.scrub_parity();
    assert_eq!((next.state.name(), parity(&next).checked), ("done", 2));
    cluster.restart();
    assert_eq!(cluster.status().work.last_scrub.unwrap(), next);
}

#[test]
fn a_helper_reads_for_one_stripe_at_a_time() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 5);
    cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap();
    let mut most = 0;
    loop {
        let answers = cluster.answers();
        if answers.is_empty() {
            break;
        }
        for (name, answer) in answers {
            cluster.say(&name, answer);
            let jobs: BTreeSet<JobId> = (cluster.asked("h1").iter().filter_map(ToNode::job)).collect();
            most = most.max(jobs.len());
        }
    }
    assert_eq!(most, 1);
}

#[test]
fn the_background_scrub_checks_stripes_after_their_blocks_within_its_rate() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 2);
    cluster.forge(&file, 2);
    let settings = &mut cluster.core().base.settings;
    (settings.scrub_bytes_per_s, settings.scrub_parity) = (Some(4 * 4096), true);
    cluster.wait(Duration::from_secs(6));
    let status = cluster.status();
    let steady = status.work.steady_scrub.unwrap().parity.expect("it is wanted");
    assert_eq!((steady.stripes, steady.checked), (2, 2));
    assert_eq!(status.damage.lost_lately.len(), 1);
    assert_eq!(states(&cluster.file("f")), ["healthy", "healthy", "corrupt", "healthy"]);
}

impl TestCluster {
    /// Restores the catalog from a copy of itself, and restarts the coordinator. The copy is
    /// complete, but the catalog is marked as restored.
    pub(super) fn restore_catalog(&mut self) {
        (self.core, self.storage) = (None, None);
        let (copy, catalog) = (self.folder.path().join("copy.redb"), self.folder.path().join(CATALOG));
        std::fs::copy(&catalog, &copy).unwrap();
        DirCatalog::restore(&copy, &catalog, CLUSTER, &Default::default()).unwrap();
        self.restart();
    }

    /// Starts helpers that answer everything except requests for fingerprints.
    pub(super) fn start_without_fingerprints(&mut self, helpers: &[&str]) {
        for helper in helpers {
            self.frozen.insert((*helper).to_owned());
            self.start(helper);
        }
        self.settle_without_fingerprints(helpers);
    }

    pub(super) fn settle_without_fingerprints(&mut self, helpers: &[&str]) {
        for _ in 0..20 {
            self.wait(Duration::from_millis(50));
            for helper in helpers {
                let node = self.node(helper);
                node.backlog.append(&mut node.inbox);
                self.answer_all_but_fingerprints(helper);
            }
        }
    }
}

#[test]
fn after_a_restore_the_status_waits_for_the_parity_of_all_stripes() {
    let helpers = ["h1", "h2", "h3", "h4", "h5"];
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 3);
    cluster.forge(&file, 1);
    assert!(cluster.status().summary.starts_with("safe"), "nobody has looked");
    cluster.restore_catalog();
    let forged: Vec<BTreeSet<BlockId>> =
        helpers.iter().map(|name| cluster.nodes[*name].forged.clone()).collect();
    cluster.start_without_fingerprints(&helpers);
    let status = cluster.status();
    let line = "UNPROVEN  parity of 3 of 3 stripes unchecked since the catalog was restored; all 3 stripes \
                are whole";
    assert!(status.summary.starts_with(line), "{}", status.summary);
    assert_eq!((status.severity, status.healthy), (Severity::Warning, false));
    assert!(
        details(&status).iter().any(|advice| advice.contains("mend scrub --parity")),
        "{:?}",
        details(&status)
    );
    // The record of unproven stripes survives a restart.
    cluster.restart();
    cluster.start_without_fingerprints(&helpers);
    assert!(
        cluster.status().summary.starts_with("UNPROVEN  parity of 3 of 3 "),
        "{}",
        cluster.status().summary
    );
    for (name, forged) in helpers.iter().zip(forged) {
        cluster.node(name).forged = forged;
    }
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(5));
    assert_eq!(states(&cluster.file("f")), ["healthy", "corrupt", "healthy", "healthy"]);
    let status = cluster.status();
    assert!(status.summary.starts_with("DEGRADED"), "{}", status.summary);
    cluster.nodes.values_mut().for_each(|node| node.forged.clear());
    assert_eq!(cluster.repair_all().state.name(), "done");
    cluster.wait(Duration::from_secs(1));
    assert!(cluster.status().healthy, "{}", cluster.status().summary);
    // The end of these checks is recorded too, so no stripe is unproven after a restart.
    cluster.restart();
    helpers.iter().for_each(|helper| cluster.start(helper));
    cluster.wait(Duration::from_secs(1));
    assert!(cluster.status().summary.starts_with("safe"), "{}", cluster.status().summary);
}

#[test]
fn a_stripe_without_spare_blocks_stays_unproven_until_it_has_some() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let away = [home(&file, 0), home(&file, 1)];
    cluster.restore_catalog();
    for helper in ["h1", "h2", "h3", "h4"].into_iter().filter(|helper| !away.contains(&(*helper).to_owned()))
    {
        cluster.start(helper);
    }
    cluster.wait(Duration::from_secs(30));
    let advice = details(&cluster.status());
    assert!(
        advice.iter().any(|line| line.contains("last obstacle: a helper with one of the blocks is down")),
        "{advice:?}"
    );
    away.iter().for_each(|helper| cluster.start(helper));
    cluster.wait(Duration::from_secs(15));
    assert!(cluster.status().healthy, "{}", cluster.status().summary);
}

/// A store that others run cannot tell the state of a stripe for a moment, and then lists a copy as good that parity
/// has shown to be wrong.
#[test]
fn a_block_stays_condemned_while_the_state_of_its_stripe_is_unknown() {
    for is_removed in [false, true] {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 1);
        let (wrong, id) = (home(&file, 1), StripeId(file.layout[0].stripe.stripe.clone()));
        cluster.forge(&file, 1);
        cluster.scrub_parity();
        let core = cluster.core();
        let node = core.nodes.node_named(&core.base, &wrong).unwrap();
        let mut record = core.stripes.picture.stripe(&id).unwrap();
        record.blocks[1].state = store_api::BlockState::Healthy;
        let unjudged = store_api::Unjudged {
            stripe: id.clone(),
            blocks: Vec::new(),
            servers: BTreeSet::new(),
            why: "two encodings are listed".into(),
            next_step: "wait".into(),
        };
        let gone = store_api::StoreChange::StripeGone(id.clone());
        cluster.handle(Event::Changed(vec![gone, store_api::StoreChange::Unjudged(vec![unjudged])]));
        let judged = store_api::StoreChange::Unjudged(Vec::new());
        if is_removed {
            cluster.handle(Event::Changed(vec![judged]));
            assert!(cluster.core().stripes.condemned.problem(&block(&file, 1), node).is_none());
            continue;
        }
        cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false), judged]));
        let now = cluster.core().stripes.picture.stripe(&id).unwrap();
        let is_marked = now.blocks[1].state_on(node) != Some(store_api::BlockState::Healthy)
            || cluster.core().stripes.unrecorded.is_bad(&block(&file, 1), node);
        assert!(is_marked, "{:?}", now.blocks[1]);
    }
}

/// A catalog that was rebuilt without a helper has no digests of its blocks. The helper returns with a wrong block.
#[test]
fn a_block_that_only_its_name_identifies_is_checked_against_parity() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (late, id) = (home(&file, 1), StripeId(file.layout[0].stripe.stripe.clone()));
    cluster.rebuild_without(&late, &id);
    cluster.start(&late);
    cluster.node(&late).forged.insert(BlockId(format!("{id}.1")));
    cluster.wait(Duration::from_secs(15));
    let status = cluster.status();
    assert_eq!(
        states(&cluster.file("f")),
        ["healthy", "corrupt", "healthy", "healthy"],
        "{}",
        status.summary
    );
}

/// The stripe was checked before, when another block was found. Three of its blocks can be read, so a check
/// shows that one of them is wrong, although the fourth one is away.
#[test]
fn a_block_that_is_found_after_earlier_checks_is_checked_while_another_helper_is_down() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (late, down) = (home(&file, 1), home(&file, 3));
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    cluster.rebuild_without(&late, &id);
    cluster.start(&late);
    // The check takes so long that the next pass over the unproven stripes begins meanwhile.
    cluster.frozen.insert(home(&file, 0));
    cluster.wait(Duration::from_secs(1));
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(15));
    assert_eq!(cluster.core().scrub.proof.left(), 0);
    cluster.kill(&down);
    cluster.rebuild_without(&late, &id);
    cluster.start(&late);
    cluster.node(&late).forged.insert(BlockId(format!("{id}.1")));
    cluster.wait(Duration::from_secs(15));
    assert!(cluster.core().stripes.contradictions.has(&id), "{}", cluster.status().summary);
}

/// The same, with a helper that answers no requests for fingerprints for the time being.
#[test]
fn a_block_that_only_its_name_identifies_is_unproven_also_after_a_restart() {
    let helpers = ["h1", "h2", "h3", "h4", "h5"];
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 3);
    let (late, id) = (home(&file, 1), StripeId(file.layout[0].stripe.stripe.clone()));
    cluster.rebuild_without(&late, &id);
    cluster.frozen.insert(late.clone());
    cluster.start(&late);
    cluster.settle_without_fingerprints(&[&late]);
    assert!(cluster.status().summary.starts_with("UNPROVEN"), "{}", cluster.status().summary);
    cluster.restart();
    cluster.start_without_fingerprints(&helpers);
    let summary = cluster.status().summary;
    assert!(summary.starts_with("UNPROVEN  parity of 1 of 3 stripes"), "{summary}");
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(15));
    assert!(cluster.status().healthy, "{}", cluster.status().summary);
}

/// Block 1 is rebuilt on another helper, which dies. The former helper returns with the wrong copy.
#[test]
fn a_condemned_copy_stays_condemned_after_the_block_was_rebuilt_elsewhere() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (wrong, id) = (home(&file, 1), StripeId(file.layout[0].stripe.stripe.clone()));
    cluster.forge(&file, 1);
    cluster.scrub_parity();
    cluster.kill(&wrong);
    assert_eq!(cluster.repair_all().state.name(), "done");
    let core = cluster.core();
    let node = core.nodes.node_named(&core.base, &wrong).unwrap();
    assert!(core.stripes.condemned.problem(&block(&file, 1), node).is_some());
    let mut record = core.stripes.picture.stripe(&id).unwrap();
    assert!(!core.stripes.condemned.has(&record.blocks[1]), "the new copy is right");
    // The store lists the wrong copy again.
    (record.blocks[1].node, record.blocks[1].state) = (Some(node), store_api::BlockState::Healthy);
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    let now = cluster.core().stripes.picture.stripe(&id).unwrap();
    let is_marked = now.blocks[1].state_on(node) != Some(store_api::BlockState::Healthy)
        || cluster.core().stripes.unrecorded.is_bad(&block(&file, 1), node);
    assert!(is_marked);
}

/// The blocks of a helper that does not return would be read again and again, and prove nothing.
#[test]
fn after_a_restore_stripes_with_blocks_on_absent_helpers_are_read_once() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 3);
    let away = home(&file, 0);
    cluster.restore_catalog();
    let others: Vec<String> =
        (1..=5).map(|number| format!("h{number}")).filter(|name| *name != away).collect();
    others.iter().for_each(|name| cluster.start(name));
    cluster.wait(Duration::from_secs(120));
    let read: u32 = others.iter().map(|name| cluster.node(name).fingerprinted).sum();
    assert!((3..=12).contains(&read), "{read} blocks were read");
    let advice = details(&cluster.status());
    assert!(advice.iter().any(|line| line.contains("a helper with one of the blocks is down")), "{advice:?}");
    cluster.start(&away);
    cluster.wait(Duration::from_secs(15));
    assert!(!details(&cluster.status()).iter().any(|line| line.contains("unchecked since")));
}

/// The disk with block 1 is not mounted during the check. It returns with a wrong block, whose checksums match.
#[test]
fn after_a_restore_a_block_that_was_lost_at_the_check_is_checked_when_it_returns() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (late, wrong) = (home(&file, 1), block(&file, 1));
    cluster.restore_catalog();
    let bytes = cluster.node(&late).disk.remove(&wrong).unwrap();
    (1..=5).for_each(|helper| cluster.start(&format!("h{helper}")));
    cluster.wait(Duration::from_secs(30));
    assert_eq!(states(&cluster.file("f"))[1], "missing");
    assert_eq!(cluster.core().scrub.proof.left(), 1, "{}", cluster.status().summary);
    let fingerprinted =
        |cluster: &TestCluster| cluster.nodes.values().map(|node| node.fingerprinted).sum::<u32>();
    assert_eq!(fingerprinted(&cluster), 3);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(fingerprinted(&cluster), 3, "a further check would read the same blocks");
    cluster.kill(&late);
    cluster.node(&late).disk.insert(wrong.clone(), bytes);
    cluster.frozen.insert(late.clone());
    cluster.start(&late);
    cluster.node(&late).forged.insert(wrong);
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(30));
    assert_eq!(states(&cluster.file("f"))[1], "corrupt", "{}", cluster.status().summary);
}

/// Creates a cluster whose helpers compute cryptographic digests, with a file of one stripe. Blocks 0 and 1 are data.
fn with_strong_digests() -> (TestCluster, FileLayout) {
    let mut cluster = TestCluster::new(5);
    cluster.nodes.values_mut().for_each(|node| node.digests.are_strong = true);
    let file = cluster.put("f", 1);
    (cluster, file)
}

fn first_stripe(file: &FileLayout) -> StripeId {
    StripeId(file.layout[0].stripe.stripe.clone())
}

impl TestCluster {
    /// Changes a block's bytes so that its checksums still match, but not its digest.
    fn change(&mut self, file: &FileLayout, index: usize) {
        self.node(&home(file, index)).digests.changed.insert(block(file, index));
    }

    /// Has the parity of a file's stripe checked without a scrub, which would read all blocks in full first.
    fn check_parity(&mut self, file: &FileLayout) {
        let now = self.now;
        self.core().scrub.doubt(&first_stripe(file), now);
        self.wait(Duration::from_secs(1));
    }

    fn recorded_digest(&mut self, file: &FileLayout, index: usize) -> Option<Digest> {
        self.core().stripes.picture.stripe(&first_stripe(file)).unwrap().blocks[index].digest
    }
}

/// An attacker has replaced as many blocks as there are spare ones, so that the others seem to contradict block 0.
#[test]
fn full_reads_find_forged_blocks_because_of_which_parity_names_an_innocent_one() {
    let (mut cluster, file) = with_strong_digests();
    let digest = cluster.recorded_digest(&file, 0);
    cluster.forge(&file, 0);
    (1..3).for_each(|index| cluster.change(&file, index));
    cluster.check_parity(&file);
    assert_eq!(states(&cluster.file("f")), ["healthy", "corrupt", "corrupt", "healthy"]);
    assert_eq!(cluster.recorded_digest(&file, 0), digest);
    assert!(cluster.core().stripes.condemned.is_empty());
    assert!(!cluster.core().stripes.contradictions.has(&first_stripe(&file)));
}

#[test]
fn a_data_block_that_does_not_match_its_strong_digest_keeps_the_digest_and_is_rebuilt() {
    let (mut cluster, file) = with_strong_digests();
    let digest = cluster.recorded_digest(&file, 0);
    cluster.forge(&file, 0);
    cluster.change(&file, 0);
    cluster.check_parity(&file);
    assert_eq!(states(&cluster.file("f")), ["corrupt", "healthy", "healthy", "healthy"]);
    assert!(cluster.core().stripes.condemned.is_empty());
    let name = home(&file, 0);
    cluster.node(&name).forged.clear();
    cluster.node(&name).digests.changed.clear();
    assert_eq!(cluster.repair_all().state.name(), "done");
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
    assert_eq!(cluster.recorded_digest(&file, 0), digest);
}

/// All blocks match their digests, so someone has replaced a recorded digest too, or a helper lies.
#[test]
fn a_block_that_matches_a_strong_digest_is_condemned_once_all_others_match_theirs() {
    for index in [0, 3] {
        let (mut cluster, file) = with_strong_digests();
        cluster.forge(&file, index);
        let scrub = cluster.scrub_parity();
        let found: Vec<_> = scrub.findings.iter().map(|finding| finding.block.clone()).collect();
        assert_eq!(found, [block(&file, index).0], "{:?}", scrub.findings);
        let bad = (0..4).map(|other| if other == index { "corrupt" } else { "healthy" });
        assert!(states(&cluster.file("f")).into_iter().eq(bad));
        assert!(!cluster.core().stripes.condemned.is_empty());
    }
}

/// Forges block 3 and has parity checked. The helper of the block `silent` answers until blocks are read in full, and
/// then dies.
fn check_with_silent_helper(silent: usize) -> (TestCluster, FileLayout) {
    let (mut cluster, file) = with_strong_digests();
    let name = home(&file, silent);
    cluster.forge(&file, 3);
    cluster.frozen.insert(name.clone());
    let now = cluster.now;
    cluster.core().scrub.doubt(&first_stripe(&file), now);
    let mut was_asked = false;
    for _ in 0..100 {
        cluster.wait(Duration::from_millis(50));
        let messages = std::mem::take(&mut cluster.node(&name).backlog);
        was_asked = messages.iter().any(|message| matches!(message, ToNode::Reread { .. }));
        if was_asked {
            break;
        }
        for message in messages {
            let answer = cluster.node(&name).answer(message, &BTreeSet::new());
            answer.into_iter().for_each(|answer| cluster.say(&name, answer));
        }
    }
    assert!(was_asked);
    assert!(cluster.core().stripes.condemned.is_empty());
    cluster.kill(&name);
    (cluster, file)
}

#[test]
fn no_block_is_condemned_if_another_was_not_read_in_full_and_could_be_the_wrong_one() {
    let (mut cluster, file) = check_with_silent_helper(1);
    assert!(cluster.core().stripes.condemned.is_empty());
    assert!(cluster.core().stripes.contradictions.has(&first_stripe(&file)));
    assert_eq!(states(&cluster.file("f"))[3], "healthy");
}

#[test]
fn a_wrong_block_cannot_prevent_its_condemnation_by_silence() {
    let (mut cluster, _) = check_with_silent_helper(3);
    assert!(!cluster.core().stripes.condemned.is_empty());
    assert_eq!(states(&cluster.file("f"))[3], "corrupt");
}
