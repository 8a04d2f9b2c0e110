//! Builds the commands that create and shape a network. This module is pure: it does not run the commands.
//!
//! The reasons for the settings (measurements are in `docs/reference/lab.md`): the MTU is 9000, because
//! headers cost 4% at 1500. The burst is 256 KiB, because a burst smaller than several full GSO packets loses
//! rate, and 1 MiB overshoots. Both ends of a link are shaped with tbf, because a node's downlink has the
//! same rate as its uplink.

use std::net::Ipv4Addr;

use cluster::Bandwidth;

use super::names::{LabNode, Names};
use crate::shell::Script;
use crate::topology::{Matrix, Topology};

const MTU: u32 = 9000;
const BURST: &str = "256kb";
/// The length of a shaped link's queue, which models the buffer of a switch: as many bytes as the link sends
/// in this time, but at least `QUEUE_BYTES`, a few GSO packets.
const QUEUE_SECONDS: f64 = 0.05;
const QUEUE_BYTES: u64 = 512 << 10;
/// The bytes that htb serves from one class before the next; the kernel warns if this number exceeds a GSO
/// packet.
const QUANTUM: u32 = 60_000;
/// The nominal rate of the htb class for unshaped traffic next to shaped classes.
const UNSHAPED_MBIT: u64 = 100_000;

/// Returns scripts that create every namespace, link and address, without shaping.
pub(super) fn build(names: &Names, topology: &Topology) -> Vec<Script> {
    let places = LabNode::all(topology.nodes);
    let mut scripts = vec![Script::new("ip -batch -").lines(links(names, topology))];
    let namespaces = std::iter::once(names.net()).chain(places.clone().map(|place| names.of(place)));
    scripts.extend(namespaces.map(|namespace| settings(&namespace)));
    scripts.push(Script::new(format!("ip -n {} -batch -", names.net())).lines(bridge_ports(topology)));
    scripts.extend(places.clone().map(|place| {
        let lines = host(place).into_iter().chain(neighbours(place, places.clone()));
        Script::new(format!("ip -n {} -batch -", names.of(place))).lines(lines)
    }));
    scripts
}

fn links(names: &Names, topology: &Topology) -> Vec<String> {
    let net = names.net();
    let mut lines = vec![format!("netns add {net}")];
    lines.extend(LabNode::all(topology.nodes).map(|place| format!("netns add {}", names.of(place))));
    lines.extend(bridges(topology).into_iter().map(|bridge| {
        format!("link add name {bridge} netns {net} mtu {MTU} type bridge stp_state 0 forward_delay 0 ageing_time 360000")
    }));
    lines.extend(LabNode::all(topology.nodes).map(|place| {
        let (namespace, mac) = (names.of(place), place.mac());
        format!("link add name eth0 netns {namespace} mtu {MTU} address {mac} type veth peer name {place} netns {net} mtu {MTU}")
    }));
    lines.extend(racks(topology).map(|rack| {
        format!("link add name up{rack} netns {net} mtu {MTU} type veth peer name down{rack} netns {net} mtu {MTU}")
    }));
    lines
}

/// Returns the numbers, from 1, of the racks, or of the places of a matrix if places share links.
fn racks(topology: &Topology) -> impl Iterator<Item = u16> + use<> {
    1..=topology.groups().unwrap_or(0)
}

fn bridges(topology: &Topology) -> Vec<String> {
    std::iter::once("core".to_owned()).chain(racks(topology).map(bridge)).collect()
}

fn bridge(rack: u16) -> String {
    format!("rack{rack}")
}

/// Returns the bridge of a node: the client is in rack 1, the coordinator at the core.
fn bridge_of(topology: &Topology, place: LabNode) -> String {
    let rack = match place {
        LabNode::Coordinator => None,
        LabNode::Client => topology.groups().map(|_| 0),
        LabNode::Helper(index) => topology.rack_of(index),
    };
    rack.map_or("core".to_owned(), |rack| bridge(rack + 1))
}

/// Returns a script with the network settings of a namespace: no IPv6, so that only our own bytes cross a
/// link; no metrics of earlier connections; no firewall on the bridge; and the same congestion control on
/// every machine. (bbr paces each packet with a timer, which takes much processor time, and cubic is not
/// allowed in a namespace.)
fn settings(namespace: &str) -> Script {
    Script::new(format!("ip netns exec {namespace} sh -e")).lines([
        "cd /proc/sys/net",
        "for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done",
        "echo 1 > ipv4/tcp_no_metrics_save",
        "echo reno > ipv4/tcp_congestion_control",
        "for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done",
    ])
}

fn bridge_ports(topology: &Topology) -> Vec<String> {
    let mut lines: Vec<_> =
        bridges(topology).into_iter().map(|bridge| format!("link set {bridge} up")).collect();
    for place in LabNode::all(topology.nodes) {
        lines.push(format!("link set {place} master {} up", bridge_of(topology, place)));
    }
    for rack in racks(topology) {
        lines.push(format!("link set up{rack} master rack{rack} up"));
        lines.push(format!("link set down{rack} master core up"));
    }
    lines
}

fn host(place: LabNode) -> Vec<String> {
    vec![
        "link set lo up".to_owned(),
        "link set eth0 up".to_owned(),
        format!("addr add {}/16 dev eth0", place.address()),
    ]
}

/// Returns static neighbour entries, so that no ARP request delays a measurement.
fn neighbours(place: LabNode, all: impl Iterator<Item = LabNode>) -> impl Iterator<Item = String> {
    all.filter(move |&other| other != place)
        .map(|other| format!("neigh add {} lladdr {} dev eth0 nud permanent", other.address(), other.mac()))
}

/// Returns scripts that shape both ends of every link of an unshaped network.
pub(super) fn shape(names: &Names, topology: &Topology) -> Vec<Script> {
    let shaped = LabNode::all(topology.nodes).filter(|&place| place != LabNode::Coordinator);
    let mut scripts = Vec::new();
    for place in shaped.clone() {
        let lines = uplink(topology, place);
        if !lines.is_empty() {
            scripts.push(Script::new(format!("tc -n {} -batch -", names.of(place))).lines(lines));
        }
    }
    let mut lines = Vec::new();
    lines.extend(shaped.filter_map(|place| Some(tbf(&place.to_string(), link_rate(topology, place)?))));
    if let Some(of_racks) = topology.racks {
        lines.extend(
            racks(topology)
                .flat_map(|rack| [format!("up{rack}"), format!("down{rack}")])
                .map(|device| tbf(&device, of_racks.rate)),
        );
    }
    if let Some(matrix) = topology.matrix.as_ref().filter(|_| topology.shared) {
        lines.extend(racks(topology).flat_map(|rack| trunks(topology, matrix, rack)));
    }
    if !lines.is_empty() {
        scripts.push(Script::new(format!("tc -n {} -batch -", names.net())).lines(lines));
    }
    scripts
}

/// Returns scripts that remove the shaping.
pub(super) fn unshape(names: &Names, topology: &Topology) -> Vec<Script> {
    let remove = |line: &String| line.strip_prefix("qdisc add dev ").map(|rest| rest.to_owned());
    shape(names, topology)
        .into_iter()
        .map(|script| {
            let devices = script.line_list().iter().filter_map(remove);
            let lines: Vec<_> = devices
                .filter_map(|rest| {
                    rest.split_whitespace().next().map(|device| format!("qdisc del dev {device} root"))
                })
                .collect();
            script.with_lines(lines)
        })
        .collect()
}

/// Returns scripts that change the rate of one helper's link in both directions, in a network of uniform
/// links.
pub(super) fn change(names: &Names, place: LabNode, rate: Bandwidth) -> Vec<Script> {
    let line = |device: &str| tbf(device, rate).replacen("add", "change", 1);
    vec![
        Script::new(format!("tc -n {} -batch -", names.of(place))).lines([line("eth0")]),
        Script::new(format!("tc -n {} -batch -", names.net())).lines([line(&place.to_string())]),
    ]
}

/// Returns the rate of a node's link in each direction; `None` if the link is unshaped.
fn link_rate(topology: &Topology, place: LabNode) -> Option<Bandwidth> {
    match place {
        LabNode::Helper(index) => topology.link_rate(index),
        LabNode::Client | LabNode::Coordinator => topology.rate.bandwidth(),
    }
}

fn uplink(topology: &Topology, place: LabNode) -> Vec<String> {
    let LabNode::Helper(from) = place else {
        return topology.rate.bandwidth().map(|rate| tbf("eth0", rate)).into_iter().collect();
    };
    let mut classes: Vec<(Vec<Ipv4Addr>, Bandwidth)> = Vec::new();
    if let Some(matrix) = topology.matrix.as_ref().filter(|_| !topology.shared) {
        let others = (0..topology.nodes).filter(|&to| to != from);
        let rate_to = |to| topology.pair_rate(from, to).expect("a matrix gives every pair a rate");
        debug_assert!(matrix.places() > 0);
        classes.extend(others.map(|to| (vec![LabNode::Helper(to).address()], rate_to(Some(to)))));
        classes.push((vec![LabNode::Client.address()], rate_to(None)));
    } else if let Some(edge) = topology.edge {
        classes.push((vec![LabNode::Client.address()], edge));
    }
    match link_rate(topology, place) {
        Some(rate) if classes.is_empty() => vec![tbf("eth0", rate)],
        None if classes.is_empty() => Vec::new(),
        rate => htb("eth0", rate, &classes),
    }
}

fn tbf(device: &str, rate: Bandwidth) -> String {
    let bits = rate.bits_per_second();
    let queue = QUEUE_BYTES.max((bits as f64 / 8.0 * QUEUE_SECONDS) as u64);
    format!("qdisc add dev {device} root tbf rate {bits}bit burst {BURST} limit {queue}")
}

/// Returns the commands that shape the traffic out of a place of a matrix. Each destination place gets one
/// class, which all nodes of that place share.
fn trunks(topology: &Topology, matrix: &Matrix, rack: u16) -> Vec<String> {
    let others = (0..matrix.places()).filter(|&to| to != rack - 1);
    let classes: Vec<_> = others
        .map(|to| {
            let there =
                LabNode::all(topology.nodes).filter(|&place| bridge_of(topology, place) == bridge(to + 1));
            (there.map(LabNode::address).collect(), matrix.between(rack - 1, to))
        })
        .collect();
    htb(&format!("up{rack}"), None, &classes)
}

/// Returns the commands that shape a device with htb: one class for each set of destinations that share a
/// rate, and one for all other traffic. Together, the classes stay below the link's rate.
fn htb(device: &str, link: Option<Bandwidth>, classes: &[(Vec<Ipv4Addr>, Bandwidth)]) -> Vec<String> {
    let whole = link.map_or(UNSHAPED_MBIT * 1_000_000, Bandwidth::bits_per_second);
    let class = |parent: &str, id: usize, rate: u64, ceiling: u64| {
        format!(
            "class add dev {device} parent {parent} classid 1:{id:x} htb rate {rate}bit ceil {ceiling}bit burst {BURST} cburst {BURST} quantum {QUANTUM}"
        )
    };
    // Each class has a small guaranteed rate and borrows up to its ceiling. So the total stays below the
    // link's rate even if the sum of the ceilings is larger.
    let own = (whole / (classes.len() as u64 + 1)).max(1);
    let mut lines = vec![format!("qdisc add dev {device} root handle 1: htb default 2")];
    lines.push(class("1:", 1, whole, whole));
    lines.push(class("1:1", 2, own, whole));
    for ((addresses, ceiling), id) in classes.iter().zip(3..) {
        let ceiling = ceiling.bits_per_second().min(whole);
        lines.push(class("1:1", id, own.min(ceiling), ceiling));
        lines.extend(addresses.iter().map(|address| {
            format!(
                "filter add dev {device} parent 1: protocol ip prio 1 u32 match ip dst {address}/32 flowid 1:{id:x}"
            )
        }));
    }
    lines
}

/// Returns scripts that try the required kernel features in a separate namespace; an error names the failing
/// line.
pub(super) fn probe(names: &Names) -> Vec<Script> {
    let namespace = names.namespace("probe");
    vec![
        Script::new("ip -batch -").lines([
            format!("netns add {namespace}"),
            format!("link add name b netns {namespace} type bridge"),
            format!("link add name v netns {namespace} type veth peer name w netns {namespace}"),
        ]),
        Script::new(format!("tc -n {namespace} -batch -")).lines([
            "qdisc add dev v root tbf rate 1000000bit burst 256kb limit 524288",
            "qdisc add dev w root handle 1: htb",
            "class add dev w parent 1: classid 1:1 htb rate 1000000bit",
            "filter add dev w parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.1/32 flowid 1:1",
        ]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scripts: Vec<Script>, expected: &str) {
        let shown: Vec<_> = scripts.iter().map(Script::to_string).collect();
        let trimmed: Vec<_> = expected
            .trim_matches('\n')
            .lines()
            .map(|line| line.strip_prefix("        ").unwrap_or(line))
            .collect();
        assert_eq!(shown.join("\n"), trimmed.join("\n").trim_end());
    }

    fn topology(nodes: u16, rate: &str) -> Topology {
        Topology::flat(nodes, rate.parse().unwrap())
    }

    #[test]
    fn a_network_of_two() {
        check(
            build(&Names::default(), &topology(2, "200mbit")),
            "
        ip -batch -
          netns add mendlab-net
          netns add mendlab-coord
          netns add mendlab-client
          netns add mendlab-h1
          netns add mendlab-h2
          link add name core netns mendlab-net mtu 9000 type bridge stp_state 0 forward_delay 0 ageing_time 360000
          link add name eth0 netns mendlab-coord mtu 9000 address 02:4d:4c:00:00:01 type veth peer name coord netns mendlab-net mtu 9000
          link add name eth0 netns mendlab-client mtu 9000 address 02:4d:4c:00:00:02 type veth peer name client netns mendlab-net mtu 9000
          link add name eth0 netns mendlab-h1 mtu 9000 address 02:4d:4c:00:01:01 type veth peer name h1 netns mendlab-net mtu 9000
          link add name eth0 netns mendlab-h2 mtu 9000 address 02:4d:4c:00:01:02 type veth peer name h2 netns mendlab-net mtu 9000
        ip netns exec mendlab-net sh -e
          cd /proc/sys/net
          for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done
          echo 1 > ipv4/tcp_no_metrics_save
          echo reno > ipv4/tcp_congestion_control
          for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done
        ip netns exec mendlab-coord sh -e
          cd /proc/sys/net
          for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done
          echo 1 > ipv4/tcp_no_metrics_save
          echo reno > ipv4/tcp_congestion_control
          for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done
        ip netns exec mendlab-client sh -e
          cd /proc/sys/net
          for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done
          echo 1 > ipv4/tcp_no_metrics_save
          echo reno > ipv4/tcp_congestion_control
          for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done
        ip netns exec mendlab-h1 sh -e
          cd /proc/sys/net
          for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done
          echo 1 > ipv4/tcp_no_metrics_save
          echo reno > ipv4/tcp_congestion_control
          for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done
        ip netns exec mendlab-h2 sh -e
          cd /proc/sys/net
          for all in ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done
          echo 1 > ipv4/tcp_no_metrics_save
          echo reno > ipv4/tcp_congestion_control
          for filter in bridge/bridge-nf-call-*; do [ ! -e $filter ] || echo 0 > $filter; done
        ip -n mendlab-net -batch -
          link set core up
          link set coord master core up
          link set client master core up
          link set h1 master core up
          link set h2 master core up
        ip -n mendlab-coord -batch -
          link set lo up
          link set eth0 up
          addr add 10.77.0.1/16 dev eth0
          neigh add 10.77.0.2 lladdr 02:4d:4c:00:00:02 dev eth0 nud permanent
          neigh add 10.77.1.1 lladdr 02:4d:4c:00:01:01 dev eth0 nud permanent
          neigh add 10.77.1.2 lladdr 02:4d:4c:00:01:02 dev eth0 nud permanent
        ip -n mendlab-client -batch -
          link set lo up
          link set eth0 up
          addr add 10.77.0.2/16 dev eth0
          neigh add 10.77.0.1 lladdr 02:4d:4c:00:00:01 dev eth0 nud permanent
          neigh add 10.77.1.1 lladdr 02:4d:4c:00:01:01 dev eth0 nud permanent
          neigh add 10.77.1.2 lladdr 02:4d:4c:00:01:02 dev eth0 nud permanent
        ip -n mendlab-h1 -batch -
          link set lo up
          link set eth0 up
          addr add 10.77.1.1/16 dev eth0
          neigh add 10.77.0.1 lladdr 02:4d:4c:00:00:01 dev eth0 nud permanent
          neigh add 10.77.0.2 lladdr 02:4d:4c:00:00:02 dev eth0 nud permanent
          neigh add 10.77.1.2 lladdr 02:4d:4c:00:01:02 dev eth0 nud permanent
        ip -n mendlab-h2 -batch -
          link set lo up
          link set eth0 up
          addr add 10.77.1.2/16 dev eth0
          neigh add 10.77.0.1 lladdr 02:4d:4c:00:00:01 dev eth0 nud permanent
          neigh add 10.77.0.2 lladdr 02:4d:4c:00:00:02 dev eth0 nud permanent
          neigh add 10.77.1.1 lladdr 02:4d:4c:00:01:01 dev eth0 nud permanent
        ",
        );
    }

    #[test]
    fn both_ends_are_shaped_and_the_coordinator_is_not() {
        check(
            shape(&Names::default(), &topology(2, "200mbit")),
            "
        tc -n mendlab-client -batch -
          qdisc add dev eth0 root tbf rate 200000000bit burst 256kb limit 1250000
        tc -n mendlab-h1 -batch -
          qdisc add dev eth0 root tbf rate 200000000bit burst 256kb limit 1250000
        tc -n mendlab-h2 -batch -
          qdisc add dev eth0 root tbf rate 200000000bit burst 256kb limit 1250000
        tc -n mendlab-net -batch -
          qdisc add dev client root tbf rate 200000000bit burst 256kb limit 1250000
          qdisc add dev h1 root tbf rate 200000000bit burst 256kb limit 1250000
          qdisc add dev h2 root tbf rate 200000000bit burst 256kb limit 1250000
        ",
        );
        assert_eq!(shape(&Names::default(), &topology(2, "unshaped")), []);
    }

    #[test]
    fn racks_have_bridges_and_a_shaped_link_to_the_core() {
        let racked = Topology { racks: Some("2:100mbit".parse().unwrap()), ..topology(2, "unshaped") };
        let built: Vec<_> = build(&Names::default(), &racked).iter().map(Script::to_string).collect();
        let built = built.join("\n");
        for line in [
            "link add name rack2 netns mendlab-net mtu 9000 type bridge",
            "link add name up1 netns mendlab-net mtu 9000 type veth peer name down1 netns mendlab-net mtu 9000",
            "link set h1 master rack1 up",
            "link set h2 master rack2 up",
            "link set client master rack1 up",
            "link set coord master core up",
            "link set up2 master rack2 up",
            "link set down2 master core up",
        ] {
            assert!(built.contains(line), "{line} is not in\n{built}");
        }
        check(
            shape(&Names::default(), &racked),
            "
        tc -n mendlab-net -batch -
          qdisc add dev up1 root tbf rate 100000000bit burst 256kb limit 625000
          qdisc add dev down1 root tbf rate 100000000bit burst 256kb limit 625000
          qdisc add dev up2 root tbf rate 100000000bit burst 256kb limit 625000
          qdisc add dev down2 root tbf rate 100000000bit burst 256kb limit 625000
        ",
        );
    }

    #[test]
    fn an_edge_is_a_class_at_every_helper() {
        let edge = Topology { edge: Some("100mbit".parse().unwrap()), ..topology(2, "1gbit") };
        let shaped = shape(&Names::default(), &edge);
        check(
            vec![shaped[1].clone()],
            "
        tc -n mendlab-h1 -batch -
          qdisc add dev eth0 root handle 1: htb default 2
          class add dev eth0 parent 1: classid 1:1 htb rate 1000000000bit ceil 1000000000bit burst 256kb cburst 256kb quantum 60000
          class add dev eth0 parent 1:1 classid 1:2 htb rate 500000000bit ceil 1000000000bit burst 256kb cburst 256kb quantum 60000
          class add dev eth0 parent 1:1 classid 1:3 htb rate 100000000bit ceil 100000000bit burst 256kb cburst 256kb quantum 60000
          filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.2/32 flowid 1:3
        ",
        );
    }

    #[test]
    fn places_that_share_links_have_a_class_for_every_other_place() {
        let asia = Topology { matrix: Some("asia".parse().unwrap()), ..topology(8, "1gbit") };
        let shaped = shape(&Names::default(), &Topology { shared: true, ports: true, ..asia });
        let text: Vec<_> = shaped.iter().map(Script::to_string).collect();
        assert!(text[1].contains("qdisc add dev eth0 root tbf rate 624800000bit"), "{}", text[1]);
        let net = text.last().expect("the bridges' namespace");
        for line in [
            "qdisc add dev up4 root handle 1: htb default 2",
            "class add dev up4 parent 1:1 classid 1:4 htb rate 181000000bit ceil 181000000bit burst 256kb cburst 256kb quantum 60000",
            "filter add dev up4 parent 1: protocol ip prio 1 u32 match ip dst 10.77.1.3/32 flowid 1:4",
            "filter add dev up4 parent 1: protocol ip prio 1 u32 match ip dst 10.77.1.4/32 flowid 1:4",
            "filter add dev up4 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.2/32 flowid 1:3",
        ] {
            assert!(net.contains(line), "{line} is not in\n{net}");
        }
        assert!(!net.contains("dev down"), "what comes in was shaped where it left");
    }

    #[test]
    fn a_matrix_is_a_class_for_every_pair() {
        let asia = Topology { matrix: Some("asia".parse().unwrap()), ..topology(4, "unshaped") };
        let shaped = shape(&Names::default(), &asia);
        assert_eq!(shaped.len(), 4, "nothing is shaped at the bridge");
        let text = shaped[0].to_string();
        assert!(text.contains("ceil 62300000bit"), "{text}");
        assert!(text.contains("match ip dst 10.77.1.4/32 flowid 1:5"), "{text}");
        assert!(text.contains("match ip dst 10.77.0.2/32 flowid 1:6"), "{text}");
    }

    #[test]
    fn shaping_is_undone_device_by_device() {
        let edge = Topology { edge: Some("100mbit".parse().unwrap()), ..topology(2, "1gbit") };
        let undone = unshape(&Names::default(), &edge);
        check(
            undone[1..].to_vec(),
            "
        tc -n mendlab-h1 -batch -
          qdisc del dev eth0 root
        tc -n mendlab-h2 -batch -
          qdisc del dev eth0 root
        tc -n mendlab-net -batch -
          qdisc del dev client root
          qdisc del dev h1 root
          qdisc del dev h2 root
        ",
        );
    }
}
