//! The network as the planner sees it: configured, observed and measured rates, and slow nodes.

use crate::commands::{NetworkCommand, StripeCommand};
use crate::control::facts;
use crate::jobs::link_tests::LinkTests;
use cluster::Network;
use repair::{Class, StatedRates};
use views::{PlanRequestView, ProbeRequest, RateSource, TopologyView};

use super::*;

impl TestCluster {
    fn topology(&mut self) -> TopologyView {
        self.ask(NetworkCommand::Topology).unwrap()
    }

    fn uplink(&mut self, name: &str) -> (u64, RateSource) {
        let view = self.topology();
        let node = view.nodes.iter().find(|node| node.node == name).expect("it is known");
        (node.uplink.bytes_per_s, node.uplink.source)
    }

    fn start_in(&mut self, name: &str, rack: &str, rates: StatedRates) {
        let mut hello = hello(name, &BTreeMap::new());
        if let FromNode::RegisterHelper { rack: its, rates: its_rates, .. } = &mut hello {
            (*its, *its_rates) = (Some(rack.into()), rates);
        }
        self.join(name, helper_role(name), hello);
        self.play();
    }
}

fn pair(from: &str, to: &str, rate: f64) -> ((String, String), f64) {
    ((from.into(), to.into()), rate)
}

fn note_slow(cluster: &mut TestCluster, nodes: &[(NodeId, f64)]) {
    let core = cluster.core();
    core.link_tests.note_slow(facts!(core), &nodes.iter().copied().collect(), &mut core.out);
    core.route();
}

#[test]
fn plans_follow_the_configured_links() {
    let mut cluster = TestCluster::new(0);
    for (number, rack) in [(1, "r1"), (2, "r1"), (3, "r2"), (4, "r2"), (5, "r3")] {
        let up = (number == 2).then_some(50_000_000);
        cluster.start_in(&format!("h{number}"), rack, StatedRates { up, ..StatedRates::default() });
    }
    let network = Network {
        regions: [("r1".into(), "west".into())].into(),
        trunks: [("r1".into(), [Some(1e6), None])].into(),
        pairs: [pair("h3", "client", 2e6), pair("h4", "h3", 3e6)].into(),
        between: [pair("r2", "r1", 4e6)].into(),
    };
    cluster.handle(Event::Network(Box::new(network)));
    let view = cluster.topology();
    assert_eq!(cluster.uplink("h2"), (50_000_000, RateSource::Configured));
    assert_eq!(cluster.uplink("h1").1, RateSource::Assumed);
    assert_eq!(view.racks.iter().map(|rack| rack.name.as_str()).collect::<Vec<_>>(), ["r1", "r2", "r3"]);
    assert_eq!((view.racks[0].up_bytes_per_s, view.racks[0].down_bytes_per_s), (Some(1_000_000), None));
    assert_eq!(view.racks[0].nodes, ["h1", "h2"]);
    assert_eq!(view.regions[0].nodes, ["h1", "h2"]);
    let links: Vec<_> = view.links.iter().map(|link| (link.from.as_str(), link.to.as_str())).collect();
    assert_eq!(links, [("h3", "client"), ("h4", "h3"), ("r2", "r1")]);

    let file = cluster.put("f", 1);
    let stripe = file.layout[0].stripe.clone();
    let on = |name: &str| stripe.blocks.iter().find(|block| block.node.as_deref() == Some(name));
    let outside = ["h3", "h4", "h5"].into_iter().find_map(on).expect("four of five helpers").index;
    let request = PlanRequestView {
        stripe: stripe.stripe.clone(),
        blocks: vec![outside],
        scheme: Some("conventional".into()),
        requestor: Some("client".into()),
        ..PlanRequestView::default()
    };
    // With the remaining bandwidth, some slices must leave r1 or use the thin link of h3.
    let plan = cluster.ask(|reply| StripeCommand::Explain(request, reply)).unwrap();
    assert!(
        plan.text.contains("bottleneck: trunk out of r1") || plan.text.contains("link from h3"),
        "{}",
        plan.text
    );
}

#[test]
fn a_helper_that_held_up_a_repair_is_slow_until_a_faster_transfer() {
    let mut cluster = TestCluster::new(3);
    let node = cluster.nodes["h2"].node.expect("it is registered");
    note_slow(&mut cluster, &[(node, 5e6)]);
    assert_eq!(cluster.uplink("h2"), (5_000_000, RateSource::Slow));
    assert_eq!(cluster.core().nodes.topology.rates(node).up, 5e6, "the planner knows");
    cluster.say("h2", FromNode::Seen { up: 80_000_000, down: 1 });
    assert_eq!(cluster.uplink("h2"), (125_000_000, RateSource::Assumed));
    let seen = cluster.topology().nodes[1].seen_up_bytes_per_s;
    assert_eq!(seen, Some(80_000_000));
}

#[test]
fn of_two_suspects_the_one_that_passes_its_trial_is_cleared() {
    let mut cluster = TestCluster::new(4);
    let [fast, slow] = ["h2", "h3"].map(|name| cluster.nodes[name].node.expect("it is registered"));
    cluster.frozen.insert("h3".into());
    note_slow(&mut cluster, &[(fast, 5e6), (slow, 5e6)]);
    assert_eq!(cluster.uplink("h2").1, RateSource::Slow, "until it is known better");
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.uplink("h2").1, RateSource::Assumed);
    assert_eq!(cluster.uplink("h3").1, RateSource::Slow);
    assert!(cluster.status().work.jobs.is_empty());
    assert!(cluster.ask(NetworkCommand::Probes).is_err(), "nobody asked for a measurement");
}

#[test]
fn a_suspect_under_trial_gets_no_second_trial() {
    let mut cluster = TestCluster::new(4);
    let [a, b, c] = ["h2", "h3", "h4"].map(|name| cluster.nodes[name].node.expect("it is registered"));
    note_slow(&mut cluster, &[(a, 5e6), (b, 5e6)]);
    note_slow(&mut cluster, &[(a, 5e6), (c, 5e6)]);
    cluster.wait(Duration::from_secs(10));
    for name in ["h2", "h3", "h4"] {
        assert_eq!(cluster.uplink(name).1, RateSource::Assumed, "{name}");
    }
    note_slow(&mut cluster, &[(a, 5e6), (b, 5e6)]);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.uplink("h2").1, RateSource::Assumed, "and again another time");
}

#[test]
fn probes_and_trials_do_not_overlap() {
    let mut cluster = TestCluster::new(4);
    let [a, b] = ["h2", "h3"].map(|name| cluster.nodes[name].node.expect("it is registered"));
    note_slow(&mut cluster, &[(a, 5e6), (b, 5e6)]);
    let probe = ProbeRequest { nodes: vec!["h1".into(), "h4".into()], pairs: true, bytes: None };
    let begun = cluster.ask(|reply| NetworkCommand::Probe(probe.clone(), reply)).unwrap();
    assert_eq!((begun.running, begun.left), (true, 2));
    cluster.wait(Duration::from_secs(10));
    let view = cluster.ask(NetworkCommand::Probes).unwrap();
    assert_eq!((view.running, view.links.len()), (false, 2), "{view:?}");
    assert_eq!(cluster.uplink("h2").1, RateSource::Assumed);
    assert_eq!(view.started_unix_ms, begun.started_unix_ms);
    // Now in the opposite order: first probes, then trials.
    let other = cluster.ask(|reply| NetworkCommand::Probe(probe, reply)).unwrap();
    assert_ne!(other.started_unix_ms, view.started_unix_ms, "it is another measurement");
    note_slow(&mut cluster, &[(a, 5e6), (b, 5e6)]);
    assert_eq!(cluster.status().work.jobs.len(), 1);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.uplink("h3").1, RateSource::Assumed);
    assert!(!cluster.ask(NetworkCommand::Probes).unwrap().running);
}

#[test]
fn a_single_suspect_gets_no_trial() {
    let mut cluster = TestCluster::new(3);
    let node = cluster.nodes["h2"].node.expect("it is registered");
    note_slow(&mut cluster, &[(node, 5e6)]);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.uplink("h2").1, RateSource::Slow);
    assert!(cluster.nodes.values().all(|node| node.assigned.is_empty()));
}

#[test]
fn links_are_measured_one_after_another_and_recorded() {
    let mut cluster = TestCluster::new(4);
    let probe = ProbeRequest { nodes: vec!["h1".into(), "h2".into(), "h3".into()], pairs: true, bytes: None };
    let begun = cluster.ask(|reply| NetworkCommand::Probe(probe.clone(), reply)).unwrap();
    assert_eq!((begun.running, begun.left), (true, 6));
    let again = cluster.ask(|reply| NetworkCommand::Probe(probe, reply)).unwrap_err();
    assert_eq!(again.to_string(), "links are being measured already");
    cluster.play();
    let view = cluster.ask(NetworkCommand::Probes).unwrap();
    assert_eq!((view.running, view.left, view.links.len()), (false, 0, 6));
    assert!(view.links.iter().all(|link| link.error.is_none() && link.bytes_per_s > Some(0)), "{view:?}");
    let assigned = &cluster.nodes["h1"].assigned;
    assert!(assigned.iter().all(|assignment| assignment.class == Class::Probe));
    assert_eq!(assigned.len(), 2 * 4, "few bytes and many, to two others and from them");
    let (rate, source) = cluster.uplink("h1");
    assert_eq!(source, RateSource::Measured);
    assert_eq!(cluster.uplink("h4").1, RateSource::Assumed, "it took no part");
    assert_eq!(cluster.topology().links.len(), 6);
    assert!(cluster.status().work.jobs.is_empty());

    cluster.restart();
    ["h1", "h2", "h3", "h4"].into_iter().for_each(|name| cluster.start(name));
    assert_eq!(cluster.uplink("h1"), (rate, RateSource::Measured));
    assert_eq!(cluster.topology().links.len(), 6);
}

#[test]
fn measuring_absent_helpers_is_refused_and_a_disconnect_ends_a_probe() {
    let mut cluster = TestCluster::new(3);
    let mut refused = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|&name| name.into()).collect();
        let probe = ProbeRequest { nodes, ..ProbeRequest::default() };
        cluster.ask(|reply| NetworkCommand::Probe(probe, reply)).unwrap_err().to_string()
    };
    assert_eq!(refused(&["h1"]), "measuring links needs at least two helpers, but only 1 can be measured");
    assert!(refused(&["h1", "h9"]).contains("no helper `h9`"));
    cluster.kill("h3");
    let probe = ProbeRequest { nodes: vec!["h1".into(), "h3".into()], ..ProbeRequest::default() };
    let down = cluster.ask(|reply| NetworkCommand::Probe(probe, reply)).unwrap_err();
    assert_eq!(down.to_string(), "helper h3 is down");

    cluster.frozen.insert("h2".into());
    let probe = ProbeRequest { nodes: vec!["h1".into(), "h2".into()], ..ProbeRequest::default() };
    cluster.ask(|reply| NetworkCommand::Probe(probe, reply)).unwrap();
    cluster.kill("h2");
    cluster.wait(Duration::from_secs(30));
    let view = cluster.ask(NetworkCommand::Probes).unwrap();
    assert!(!view.running, "{view:?}");
    assert!(view.links.iter().all(|link| link.error.is_some()), "{view:?}");
}

#[test]
fn a_transfer_of_no_bytes_is_refused() {
    let mut cluster = TestCluster::new(2);
    let core = cluster.core();
    let request = |bytes| LinkTests::probe_request(facts!(core), JobId(1), (NodeId(1), NodeId(2)), bytes);
    assert!(matches!(request(0), Err(RequestError::Layout(_))));
    assert!(request(1).is_ok());
}

/// With a higher rate than the helpers, the client would seem to have the best link of all nodes, and plans
/// would have all helpers send it raw blocks.
#[test]
fn a_client_without_a_stated_bandwidth_gets_the_assumed_rate() {
    let mut cluster = TestCluster::new(0);
    let hello = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
    cluster.join("c", Role::Client("c".parse().unwrap()), hello);
    cluster.play();
    let node = cluster.node("c").node.unwrap();
    let down = |cluster: &mut TestCluster| cluster.core().nodes.topology.get(node).unwrap().rates.down;
    assert_eq!(down(&mut cluster), 125e6);
    let (up, down_of_helper) = (Some(20_000_000), Some(25_000_000));
    let rates = StatedRates { up, down: down_of_helper, ..Default::default() };
    cluster.start_in("h1", "r1", rates);
    assert_eq!(down(&mut cluster), 25e6);
}
