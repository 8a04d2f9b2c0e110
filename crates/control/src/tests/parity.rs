//! Parity checks of whole stripes: which blocks they name, and when they give no verdict.

use crate::commands::{FileCommand, ScrubCommand};
use views::{ParityScrubView, ScrubView, Severity};

use super::*;

impl Scene {
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
    let mut scene = Scene::new(5);
    let file = scene.put("f", 3);
    assert_eq!((parity(&scene.scrub_parity()).stripes, parity(&scene.scrub_parity()).checked), (3, 3));
    scene.forge(&file, 1);
    let scrub = scene.scrub_parity();
    assert_eq!((scrub.state.name(), parity(&scrub).checked), ("done", 3));
    let found: Vec<_> = scrub.findings.iter().map(|finding| finding.block.clone()).collect();
    assert_eq!(found, [block(&file, 1).0], "{:?}", scrub.findings);
    assert_eq!(states(&scene.file("f")), ["healthy", "corrupt", "healthy", "healthy"]);
    // A read finds correct checksums, which proves nothing.
    scene.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    scene.play();
    assert_eq!(states(&scene.file("f"))[1], "corrupt");
    scene.restart();
    for helper in ["h1", "h2", "h3", "h4", "h5"] {
        scene.start(helper);
    }
    scene.wait(Duration::from_secs(15));
    assert_eq!(states(&scene.file("f"))[1], "corrupt");
    scene.nodes.values_mut().for_each(|node| node.forged.clear());
    assert_eq!(scene.repair_all().state.name(), "done");
    assert_eq!(states(&scene.file("f")), ["healthy"; 4]);
    let scrub = scene.scrub_parity();
    assert_eq!((parity(&scrub).checked, scrub.findings.len()), (3, 0));
}

#[test]
fn with_one_absent_block_none_is_named_and_with_two_parity_is_unknown() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    scene.forge(&file, 1);
    scene.kill(&home(&file, 3));
    let scrub = scene.scrub_parity();
    let contradictory = &parity(&scrub).contradictory;
    assert_eq!((scrub.findings.len(), contradictory.len()), (0, 1));
    assert_eq!(contradictory[0].suspects.len(), 3, "{contradictory:?}");
    assert_eq!(states(&scene.file("f"))[1], "healthy");
    scene.kill(&home(&file, 2));
    let scrub = scene.scrub_parity();
    assert_eq!((parity(&scrub).checked, parity(&scrub).unchecked[0].stripes), (0, 1));
}

#[test]
fn a_contradiction_must_be_confirmed_by_a_second_reading() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let name = home(&file, 1);
    scene.forge(&file, 1);
    scene.frozen.insert(name.clone());
    let scrub = scene.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    let mut answered = 0;
    while scene.scrub_state(scrub).state.name() == "running" {
        scene.play();
        let messages = std::mem::take(&mut scene.node(&name).backlog);
        for message in messages {
            // In each check, the node returns other bytes only in the first reading.
            let second = matches!(&message, ToNode::Fingerprint { epoch, .. } if epoch.0 == 1);
            answered += usize::from(matches!(message, ToNode::Fingerprint { .. }));
            if second {
                scene.node(&name).forged.clear();
            }
            let answer = scene.node(&name).answer(message, &BTreeSet::new());
            scene.forge(&file, 1);
            answer.into_iter().for_each(|answer| scene.say(&name, answer));
        }
        scene.wait(Duration::from_millis(100));
    }
    let state = scene.scrub_state(scrub);
    assert_eq!((state.findings.len(), parity(&state).contradictory.len(), answered), (0, 0, 6));
    assert!(parity(&state).unchecked[0].why.contains("different bytes"), "{state:?}");
    assert_eq!(states(&scene.file("f")), ["healthy"; 4]);
}

#[test]
fn a_stripe_that_changes_during_its_check_gets_no_verdict() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 1);
    let name = home(&file, 1);
    scene.forge(&file, 1);
    scene.frozen.insert(name.clone());
    let scrub = scene.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    while scene.asked(&name).is_empty() {
        scene.play();
        scene.answer_all_but_fingerprints(&name);
    }
    // All other helpers have answered. The stripe is removed before the last answer.
    scene.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    scene.frozen.clear();
    scene.play();
    scene.wait(Duration::from_secs(1));
    let state = scene.scrub_state(scrub);
    assert_eq!((state.state.name(), state.findings.len()), ("done", 0), "{state:?}");
    let parity = parity(&state);
    assert_eq!((parity.stripes, parity.checked, parity.contradictory.len()), (0, 0, 0));
}

#[test]
fn a_parity_scrub_can_be_stopped() {
    let mut scene = Scene::new(4);
    scene.put("f", 2);
    scene.frozen.insert("h2".into());
    let scrub = scene.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    scene.play();
    assert!(matches!(
        scene.ask(|reply| ScrubCommand::Stop(scrub + 99, reply)),
        Err(RequestError::Scrub(ScrubError::NoSuchScrub(_)))
    ));
    let stopped = scene.ask(|reply| ScrubCommand::Stop(scrub, reply)).unwrap();
    assert_eq!(stopped.state.name(), "stopped");
    scene.frozen.clear();
    scene.play();
    assert_eq!(scene.scrub_state(scrub), stopped, "late answers change nothing");
    let again = scene.ask(|reply| ScrubCommand::Stop(scrub, reply));
    assert!(matches!(again, Err(RequestError::Scrub(ScrubError::ScrubEnded { .. }))));
    let next = scene.scrub_parity();
    assert_eq!((next.state.name(), parity(&next).checked), ("done", 2));
    scene.restart();
    assert_eq!(scene.status().work.last_scrub.unwrap(), next);
}

#[test]
fn a_helper_reads_for_one_stripe_at_a_time() {
    let mut scene = Scene::new(4);
    scene.put("f", 5);
    scene.ask(|reply| ScrubCommand::Start(true, reply)).unwrap();
    let mut most = 0;
    loop {
        let answers = scene.answers();
        if answers.is_empty() {
            break;
        }
        for (name, answer) in answers {
            scene.say(&name, answer);
            let jobs: BTreeSet<JobId> = (scene.asked("h1").iter().filter_map(ToNode::job)).collect();
            most = most.max(jobs.len());
        }
    }
    assert_eq!(most, 1);
}

#[test]
fn the_background_scrub_checks_stripes_after_their_blocks_within_its_rate() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 2);
    scene.forge(&file, 2);
    let settings = &mut scene.core().base.settings;
    (settings.scrub_bytes_per_s, settings.scrub_parity) = (Some(4 * 4096), true);
    scene.wait(Duration::from_secs(6));
    let status = scene.status();
    let steady = status.work.steady_scrub.unwrap().parity.expect("it is wanted");
    assert_eq!((steady.stripes, steady.checked), (2, 2));
    assert_eq!(status.damage.lost_lately.len(), 1);
    assert_eq!(states(&scene.file("f")), ["healthy", "healthy", "corrupt", "healthy"]);
}

impl Scene {
    /// Restores the catalog from a copy of itself, and restarts the coordinator. Nothing is lost, but the
    /// catalog is marked as restored.
    fn restore_catalog(&mut self) {
        (self.core, self.storage) = (None, None);
        let (copy, catalog) = (self.folder.path().join("copy.redb"), self.folder.path().join(CATALOG));
        std::fs::copy(&catalog, &copy).unwrap();
        DirCatalog::restore(&copy, &catalog, CLUSTER).unwrap();
        self.restart();
    }

    /// Starts helpers that answer everything except requests for fingerprints.
    fn start_without_fingerprints(&mut self, helpers: &[&str]) {
        for helper in helpers {
            self.frozen.insert((*helper).to_owned());
            self.start(helper);
        }
        self.settle_without_fingerprints(helpers);
    }

    fn settle_without_fingerprints(&mut self, helpers: &[&str]) {
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
    let mut scene = Scene::new(5);
    let file = scene.put("f", 3);
    scene.forge(&file, 1);
    assert!(scene.status().summary.starts_with("safe"), "nobody has looked");
    scene.restore_catalog();
    let forged: Vec<BTreeSet<BlockId>> =
        helpers.iter().map(|name| scene.nodes[*name].forged.clone()).collect();
    scene.start_without_fingerprints(&helpers);
    let status = scene.status();
    let line = "UNPROVEN  parity of 3 of 3 stripes unchecked since the catalog was restored; all 3 stripes \
                are whole";
    assert!(status.summary.starts_with(line), "{}", status.summary);
    assert_eq!((status.severity, status.healthy), (Severity::Warning, false));
    assert!(status.advice.iter().any(|advice| advice.contains("mend scrub --parity")), "{:?}", status.advice);
    // The record of unproven stripes survives a restart.
    scene.restart();
    scene.start_without_fingerprints(&helpers);
    assert!(scene.status().summary.starts_with("UNPROVEN  parity of 3 of 3 "), "{}", scene.status().summary);
    for (name, forged) in helpers.iter().zip(forged) {
        scene.node(name).forged = forged;
    }
    scene.frozen.clear();
    scene.play();
    scene.wait(Duration::from_secs(5));
    assert_eq!(states(&scene.file("f")), ["healthy", "corrupt", "healthy", "healthy"]);
    let status = scene.status();
    assert!(status.summary.starts_with("DEGRADED"), "{}", status.summary);
    scene.nodes.values_mut().for_each(|node| node.forged.clear());
    assert_eq!(scene.repair_all().state.name(), "done");
    scene.wait(Duration::from_secs(1));
    assert!(scene.status().healthy, "{}", scene.status().summary);
    // The end of these checks is recorded too, so no stripe is unproven after a restart.
    scene.restart();
    helpers.iter().for_each(|helper| scene.start(helper));
    scene.wait(Duration::from_secs(1));
    assert!(scene.status().summary.starts_with("safe"), "{}", scene.status().summary);
}

#[test]
fn a_stripe_without_spare_blocks_stays_unproven_until_it_has_some() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let away = [home(&file, 0), home(&file, 1)];
    scene.restore_catalog();
    for helper in ["h1", "h2", "h3", "h4"].into_iter().filter(|helper| !away.contains(&(*helper).to_owned()))
    {
        scene.start(helper);
    }
    scene.wait(Duration::from_secs(30));
    let advice = scene.status().advice;
    assert!(
        advice.iter().any(|line| line.contains("too few blocks are readable: a parity check needs")),
        "{advice:?}"
    );
    away.iter().for_each(|helper| scene.start(helper));
    scene.wait(Duration::from_secs(15));
    assert!(scene.status().healthy, "{}", scene.status().summary);
}
