//! Helpers that list blocks that are newer than the catalog.

use super::*;
use crate::commands::{CatalogCommand, NodeCommand};
use views::{AcceptRequest, AcceptedView};

/// Returns a cluster in which two helpers list blocks of a newer stripe, with the names of these helpers.
fn claimed() -> (TestCluster, [&'static str; 2]) {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 1);
    let claimants = ["h5", "h6"];
    for (name, index) in claimants.iter().zip(0..) {
        cluster.node(name).disk.insert(BlockId(format!("77-zzzzzz.{index}")), 4096);
        cluster.kill(name);
        cluster.start(name);
    }
    assert!(cluster.status().summary.contains("STOPPED"), "{}", cluster.status().summary);
    (cluster, claimants)
}

fn accept(cluster: &mut TestCluster) -> Result<AcceptedView, RequestError> {
    cluster.ask(|reply| CatalogCommand::Accept(AcceptRequest::default(), reply))
}

/// Two helpers list blocks of a newer stripe and go down, and the coordinator restarts.
#[test]
fn claims_count_while_their_helpers_are_down_and_the_coordinator_restarts() {
    let (mut cluster, claimants) = claimed();
    claimants.iter().for_each(|name| cluster.kill(name));
    cluster.restart();
    ["h1", "h2", "h3", "h4"].iter().for_each(|name| cluster.start(name));
    cluster.wait(Duration::from_secs(60));
    assert!(cluster.status().summary.contains("STOPPED"), "{}", cluster.status().summary);
    let error = cluster.begin("g", 8192).unwrap_err().to_string();
    assert!(error.contains("newer"), "{error}");
    let answer = cluster.ask(|reply| NodeCommand::SafeToRemove(vec!["h6".into()], reply)).unwrap();
    assert!(!answer.safe, "{answer:?}");
    accept(&mut cluster).unwrap();
    cluster.restart();
    let error = accept(&mut cluster).unwrap_err();
    assert!(
        matches!(error, RequestError::Settling { .. }),
        "it is not known which blocks helpers hold: {error}"
    );
    ["h1", "h2", "h3", "h4"].iter().for_each(|name| cluster.start(name));
    cluster.wait(Duration::from_secs(60));
    cluster.begin("g", 8192).unwrap();
}

/// A part of the disks of helpers with newer blocks fails, so they list only the rest.
#[test]
fn an_incomplete_list_takes_no_claim_back() {
    let (mut cluster, claimants) = claimed();
    for name in claimants {
        cluster.kill(name);
        cluster.start_partly(name);
        assert!(cluster.status().summary.contains("STOPPED"), "{}", cluster.status().summary);
    }
    for name in claimants {
        cluster.node(name).disk.retain(|block, _| !block.0.starts_with("77-"));
        cluster.kill(name);
        cluster.start(name);
    }
    assert!(!cluster.status().summary.contains("STOPPED"), "complete lists without these blocks");
}
