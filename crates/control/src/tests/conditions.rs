//! Conditions: their beginnings, mutes, and causes that no other test covers.

use store_api::{NodeRecord, StoreChange};
use views::{Condition, ConditionCode, MuteRequest, Severity};

use super::*;
use crate::commands::{NodeCommand, ScrubCommand};
use crate::error::ConditionError;

impl TestCluster {
    fn mute(&mut self, code: &str, for_ms: Option<u64>) -> Result<Condition, RequestError> {
        self.ask(|reply| ClusterCommand::Mute(code.to_owned(), MuteRequest { for_ms }, reply))
    }

    fn condition(&mut self, code: ConditionCode) -> Option<Condition> {
        self.status().condition(code).cloned()
    }
}

fn kill_one_more(cluster: &mut TestCluster, file: &FileLayout, index: usize) {
    let home = file.layout[0].stripe.blocks[index].node.clone().unwrap();
    cluster.kill(&home);
    cluster.wait(Duration::from_secs(2));
}

#[test]
fn a_condition_is_known_from_its_beginning_also_after_a_restart() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    assert_eq!(cluster.status().conditions.iter().filter(|it| it.severity != Severity::Ok).count(), 0);
    kill_one_more(&mut cluster, &file, 0);
    let began = cluster.condition(ConditionCode::Degraded).expect("a block is lost");
    assert_eq!((began.severity, began.count), (Severity::Warning, 1));
    assert!(cluster.clock().unix_ms - began.since_unix_ms < 3000, "{began:?}");
    cluster.wait(Duration::from_secs(20));
    cluster.restart();
    let names: Vec<String> = (1..=6).map(|number| format!("h{number}")).collect();
    let lost = file.layout[0].stripe.blocks[0].node.clone().unwrap();
    names.iter().filter(|name| **name != lost).for_each(|name| cluster.start(name));
    assert_eq!(cluster.condition(ConditionCode::Degraded), None, "helpers are still registering");
    assert!(cluster.condition(ConditionCode::Starting).is_some());
    cluster.wait(Duration::from_secs(12));
    let again = cluster.condition(ConditionCode::Degraded).expect("the block is still lost");
    assert_eq!(again.since_unix_ms, began.since_unix_ms);
    cluster.start(&lost);
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.condition(ConditionCode::Degraded), None);
}

#[test]
fn a_mute_ends_when_the_condition_becomes_worse_or_ends() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let absent = cluster.mute("DEGRADED", None);
    assert!(matches!(
        absent,
        Err(RequestError::Condition(ConditionError::NotPresent(ConditionCode::Degraded)))
    ));
    assert!(matches!(
        cluster.mute("NONSENSE", None),
        Err(RequestError::Condition(ConditionError::NoSuchCode(_)))
    ));
    kill_one_more(&mut cluster, &file, 0);
    for code in ["DEGRADED", "helper_gone"] {
        assert!(cluster.mute(code, None).unwrap().muted);
    }
    let status = cluster.status();
    assert_eq!(status.severity, Severity::Ok, "{:#?}", status.conditions);
    assert!(
        status.summary.starts_with("DEGRADED") && status.summary.ends_with("; muted: DEGRADED, HELPER_GONE")
    );
    kill_one_more(&mut cluster, &file, 1);
    let status = cluster.status();
    assert_eq!(status.severity, Severity::Critical, "the stripe cannot lose another block: {status:#?}");
    assert!(!status.condition(ConditionCode::HelperGone).unwrap().muted, "two helpers are down");
}

/// A block is lost after a file with another lost block was removed, so the counts stay the same.
#[test]
fn a_mute_ends_when_the_condition_concerns_something_else() {
    let mut cluster = TestCluster::new(6);
    let files = ["f", "g", "h"].map(|name| cluster.put(name, 1));
    let is_muted = |cluster: &mut TestCluster| {
        let condition = cluster.condition(ConditionCode::Degraded).unwrap();
        (condition.count, condition.muted)
    };
    lose(&mut cluster, &files[0], 0);
    lose(&mut cluster, &files[1], 0);
    cluster.mute("DEGRADED", None).unwrap();
    assert_eq!(is_muted(&mut cluster), (2, true));
    cluster.ask(|reply| FileCommand::Remove("g".to_owned(), reply)).unwrap();
    cluster.wait(Duration::from_secs(2));
    assert_eq!(is_muted(&mut cluster), (1, true));
    lose(&mut cluster, &files[2], 0);
    assert_eq!(is_muted(&mut cluster), (2, false));
}

/// Removes a block from its helper's disk, which a reader then reports.
fn lose(cluster: &mut TestCluster, file: &FileLayout, index: usize) {
    let block = file.layout[0].stripe.blocks[index].clone();
    let (name, id) = (block.node.unwrap(), BlockId(block.block));
    cluster.node(&name).disk.remove(&id);
    let report = Report::BadBlock { block: id, problem: BlockProblem::Missing };
    cluster.say(&name, FromNode::Report { job: JobId(1 << 40), epoch: repair::Epoch(1), report });
    cluster.wait(Duration::from_secs(2));
}

#[test]
fn a_mute_ends_after_its_time_or_on_request() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    kill_one_more(&mut cluster, &file, 0);
    let muted = cluster.mute("DEGRADED", Some(10_000)).unwrap();
    assert_eq!(muted.muted_until_unix_ms, Some(cluster.clock().unix_ms + 10_000));
    cluster.wait(Duration::from_secs(9));
    assert!(cluster.condition(ConditionCode::Degraded).unwrap().muted);
    cluster.wait(Duration::from_secs(2));
    assert!(!cluster.condition(ConditionCode::Degraded).unwrap().muted);
    cluster.mute("DEGRADED", None).unwrap();
    let unmuted = cluster.ask(|reply| ClusterCommand::Unmute("DEGRADED".to_owned(), reply)).unwrap();
    assert!(!unmuted.muted);
    let again = cluster.ask(|reply| ClusterCommand::Unmute("DEGRADED".to_owned(), reply));
    assert!(matches!(again, Err(RequestError::Condition(ConditionError::NotMuted(_)))));
}

#[test]
fn a_helper_that_is_lost_again_and_again_is_named() {
    let mut cluster = TestCluster::new(3);
    for round in 0..3 {
        assert_eq!(cluster.condition(ConditionCode::HelperFlapping), None, "after {round} losses");
        cluster.kill("h2");
        cluster.wait(Duration::from_secs(2));
        cluster.start("h2");
        cluster.wait(Duration::from_secs(2));
    }
    let flapping = cluster.condition(ConditionCode::HelperFlapping).expect("lost three times");
    assert_eq!(
        (flapping.subjects, flapping.details),
        (vec!["h2".to_owned()], vec!["h2 was lost 3 times within 12 s".to_owned()])
    );
    cluster.wait(Duration::from_secs(3601));
    assert_eq!(cluster.condition(ConditionCode::HelperFlapping), None);
}

#[test]
fn a_helper_of_another_version_is_named_while_it_tries() {
    let mut cluster = TestCluster::new(1);
    let hello = FromNode::RegisterHelper {
        version: control::VERSION + 1,
        cluster_id: CLUSTER.into(),
        address: "h9.example:7410".into(),
        rack: None,
        rates: repair::StatedRates::default(),
        blocks: Vec::new(),
        more: false,
        incomplete: None,
        free_bytes: 0,
    };
    cluster.join("x", Role::Helper("h9".parse().unwrap()), hello);
    cluster.play();
    let skew = cluster.condition(ConditionCode::VersionSkew).expect("it was refused");
    assert_eq!(skew.subjects, ["h9"]);
    assert!(skew.details[0].contains("run the same version of mend"), "{skew:?}");
}

/// The job that asked for the block ends before the helper's answer arrives.
#[test]
fn a_late_report_of_a_bad_block_has_the_block_verified() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    lose(&mut cluster, &file, 1);
    assert!(
        !cluster.status().damage.lost_lately.is_empty(),
        "the helper was asked, and found the block missing"
    );
}

/// A stripe whose blocks contradict each other cannot lose a block, so it is at risk although no block was lost since.
#[test]
fn a_mute_ends_when_another_stripe_is_at_risk_without_a_new_loss() {
    let mut cluster = TestCluster::new(6);
    let files = ["f", "g"].map(|name| cluster.put(name, 1));
    lose(&mut cluster, &files[0], 0);
    lose(&mut cluster, &files[0], 1);
    lose(&mut cluster, &files[1], 0);
    cluster.mute("AT_RISK", None).unwrap();
    assert!(cluster.condition(ConditionCode::AtRisk).unwrap().muted);
    contradict(&mut cluster, &[StripeId(files[1].layout[0].stripe.stripe.clone())]);
    let condition = cluster.condition(ConditionCode::AtRisk).unwrap();
    assert_eq!((condition.count, condition.muted), (2, false));
}

/// Reports that the blocks of these stripes contradict each other.
fn contradict(cluster: &mut TestCluster, stripes: &[StripeId]) {
    let core = cluster.core();
    for stripe in stripes {
        core.out.tell(crate::signal::Signal::Contradiction {
            stripe: stripe.clone(),
            blocks: (1..4).map(BlockIndex).collect(),
            found_by: views::FoundBy::Scrub,
        });
    }
    core.route();
    cluster.pump();
}

/// The status lists at most 100 contradictions, the first ones by name.
#[test]
fn a_mute_ends_when_one_more_of_very_many_stripes_is_contradictory() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 102);
    lose(&mut cluster, &file, 0);
    lose(&mut cluster, &file, 1);
    let mut stripes: Vec<StripeId> =
        file.layout.iter().map(|part| StripeId(part.stripe.stripe.clone())).collect();
    stripes.sort();
    contradict(&mut cluster, &stripes[..101]);
    for code in ["CONTRADICTION", "AT_RISK"] {
        assert!(cluster.mute(code, None).unwrap().muted);
    }
    contradict(&mut cluster, &stripes[101..]);
    for code in [ConditionCode::Contradiction, ConditionCode::AtRisk] {
        assert!(!cluster.condition(code).unwrap().muted, "{code}");
    }
}

/// Repairs in the background may have to wait until a long recovery has ended. If no other repair runs, something else
/// keeps them from starting.
#[test]
fn a_repair_in_the_background_has_not_stalled_while_others_run() {
    let mut cluster = TestCluster::new(6);
    let waits = cluster.put("f", 1);
    lose(&mut cluster, &waits, 0);
    let stripe = |file: &FileLayout| file.layout[0].stripe.stripe.clone();
    cluster.core().repairs.hold(&[StripeId(stripe(&waits))]); // No job of it starts.
    let priority = Some("background".to_owned());
    let request = RepairRequest { stripe: Some(stripe(&waits)), priority, ..RepairRequest::default() };
    let background = cluster.repair(request).repair;
    for round in 0..11 {
        let other = cluster.put(&format!("g{round}"), 1);
        lose(&mut cluster, &other, 0);
        let all: Vec<String> = cluster.nodes.keys().cloned().collect();
        cluster.frozen.extend(all);
        cluster.repair(RepairRequest { stripe: Some(stripe(&other)), ..RepairRequest::default() });
        cluster.wait(Duration::from_millis(1500));
        assert!(!cluster.core().jobs.running.is_empty(), "the repair of g{round} runs");
        cluster.frozen.clear();
        cluster.wait(Duration::from_secs(60));
        assert_eq!(cluster.condition(ConditionCode::RepairStalled), None, "round {round}");
    }
    cluster.wait(Duration::from_secs(570));
    let stalled = cluster.condition(ConditionCode::RepairStalled).expect("no other repair runs any more");
    assert_eq!(stalled.subjects, [background.to_string()]);
}

/// No file contains the stripe, so the status does not count it either.
#[test]
fn an_unreadable_stripe_of_an_open_put_does_not_keep_its_helpers_from_being_stopped() {
    let mut cluster = TestCluster::new(8);
    let put = cluster.begin("f", 8192).unwrap();
    cluster.open(1, ClientRequest::PutStripe { put: put.put, position: 0 });
    cluster.closed(1).unwrap().unwrap();
    let homes = cluster.nodes.iter().filter(|(_, node)| !node.disk.is_empty());
    let homes: Vec<String> = homes.map(|(name, _)| name.clone()).collect();
    assert_eq!(homes.len(), 4);
    homes[1..].iter().for_each(|name| cluster.kill(name));
    let node = cluster.nodes[&homes[0]].node.unwrap();
    assert_eq!(cluster.core().stripes.picture.pending_on(&BTreeSet::from([node])).len(), 1);
    let stop = cluster.ask(|reply| NodeCommand::OkToStop(vec![homes[0].clone()], 1, reply)).unwrap();
    assert!(stop.safe && stop.unreadable_now == 0, "{stop:?}");
}

#[test]
fn a_certificate_that_expires_is_critical_and_ends_the_mute_of_the_warning() {
    let mut cluster = TestCluster::new(4);
    let day = Duration::from_secs(86_400);
    let now = std::time::UNIX_EPOCH + Duration::from_millis(cluster.clock().unix_ms);
    let note = |cluster: &mut TestCluster, role: Role, expires| {
        cluster.handle(Event::Certificate { role, expires });
    };
    note(&mut cluster, Role::Operator("olga".parse().unwrap()), now + day);
    note(&mut cluster, helper_role("h1"), now + day);
    cluster.mute("CERTIFICATE_EXPIRES", None).unwrap();
    let state = |cluster: &mut TestCluster| {
        let condition = cluster.condition(ConditionCode::CertificateExpires).unwrap();
        (condition.severity, condition.muted)
    };
    assert_eq!(state(&mut cluster), (Severity::Warning, true));
    note(&mut cluster, Role::Operator("olga".parse().unwrap()), now - day);
    assert_eq!(state(&mut cluster), (Severity::Warning, false), "the operator's has expired");
    note(&mut cluster, helper_role("h1"), now - day);
    assert_eq!(state(&mut cluster), (Severity::Critical, false), "the helper cannot connect");
}

/// Restarts the coordinator after some days.
fn restart_after(cluster: &mut TestCluster, days: u64) {
    cluster.started_unix_ms += days * 86_400_000;
    cluster.restart();
    (1..=4).for_each(|helper| cluster.start(&format!("h{helper}")));
    cluster.wait(Duration::from_secs(12));
}

#[test]
fn blocks_that_were_never_scrubbed_are_overdue() {
    let mut empty = TestCluster::new(4);
    restart_after(&mut empty, 100);
    assert_eq!(empty.condition(ConditionCode::ScrubOverdue), None, "nothing is stored");
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.wait(Duration::from_secs(2));
    restart_after(&mut cluster, 34);
    assert_eq!(cluster.condition(ConditionCode::ScrubOverdue), None);
    restart_after(&mut cluster, 2);
    assert!(cluster.condition(ConditionCode::ScrubOverdue).is_some());
}

#[test]
fn a_scrub_that_was_stopped_does_not_count() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    restart_after(&mut cluster, 30);
    cluster.frozen.insert("h1".to_owned());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.ask(|reply| ScrubCommand::Stop(scrub, reply)).unwrap();
    cluster.frozen.clear();
    assert_eq!(cluster.condition(ConditionCode::ScrubOverdue), None, "the scrub before it is recent");
    restart_after(&mut cluster, 10);
    assert!(cluster.condition(ConditionCode::ScrubOverdue).is_some());
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    assert_eq!(cluster.condition(ConditionCode::ScrubOverdue), None);
}

/// A helper with several disks registers although one hangs, and does not list the blocks there.
#[test]
fn blocks_on_a_disk_that_hangs_are_neither_lost_nor_safe() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let home = file.layout[0].stripe.blocks[0].node.clone().unwrap();
    let register = |cluster: &mut TestCluster, why: Option<&str>| {
        let mut partial = hello(&home, &BTreeMap::new());
        if let FromNode::RegisterHelper { incomplete, .. } = &mut partial {
            *incomplete = why.map(str::to_owned);
        }
        cluster.kill(&home);
        cluster.join(&home, helper_role(&home), partial);
    };
    register(&mut cluster, Some("no answer from the disk of /d2"));
    cluster.play();
    let status = cluster.status();
    assert_eq!((status.stripes.intact, status.damage.lost_lately.len()), (1, 0), "{}", status.summary);
    let line = format!(
        "INCOMPLETE  the state of some blocks is unknown on {home}; no block of 1 stripe is known to be lost"
    );
    assert!(status.summary.starts_with(&line), "{}", status.summary);
    let condition = cluster.condition(ConditionCode::Incomplete).expect("some blocks are unknown");
    assert_eq!(condition.subjects, [&*home]);
    assert!(condition.details[0].contains("no answer from the disk of /d2"), "{condition:?}");
    let other = file.layout[0].stripe.blocks[1].node.clone().unwrap();
    let stop = cluster.ask(|reply| NodeCommand::OkToStop(vec![other], 0, reply)).unwrap();
    assert!(!stop.safe && stop.text.contains(&home), "{stop:?}");
    let stop = cluster.ask(|reply| NodeCommand::OkToStop(vec![home.clone()], 0, reply)).unwrap();
    assert!(stop.safe, "{stop:?}");

    cluster.kill(&home);
    cluster.start(&home);
    assert_eq!(cluster.condition(ConditionCode::Incomplete), None);
    register(&mut cluster, None);
    assert_eq!(cluster.status().stripes.intact, 0, "a complete list without the block");
}

/// Such a helper may have blocks that the catalog does not place on it.
#[test]
fn a_helper_that_cannot_list_all_of_its_blocks_is_not_safe_to_remove() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let is_empty = |name: &String| (0..4).all(|index| home(&file, index) != *name);
    let empty = (1..=5).map(|number| format!("h{number}")).find(is_empty).expect("a stripe has four blocks");
    let ask = |cluster: &mut TestCluster| {
        cluster.ask(|reply| NodeCommand::SafeToRemove(vec![empty.clone()], reply)).unwrap()
    };
    assert!(ask(&mut cluster).safe);
    cluster.kill(&empty);
    cluster.start_partly(&empty);
    let answer = ask(&mut cluster);
    assert!(!answer.safe && answer.text.contains("an unknown number of blocks"), "{answer:?}");
    cluster.kill(&empty);
    cluster.start(&empty);
    assert!(ask(&mut cluster).safe);

    // After a rebuild of the catalog, the helper counts as heard only when it has listed all of its blocks.
    let id = cluster.node(&empty).node.unwrap();
    cluster.kill(&empty);
    let record = NodeRecord { id, name: empty.clone(), address: None };
    cluster.handle(Event::Changed(vec![StoreChange::Node(record)]));
    cluster.start_partly(&empty);
    cluster.kill(&empty);
    let answer = ask(&mut cluster);
    assert!(!answer.safe && answer.text.contains("an unknown number of blocks"), "{answer:?}");
}
