//! Registration of helpers and clients, and the blocks that helpers list.

use super::*;

#[test]
fn a_name_registers_once_at_a_time() {
    let mut cluster = TestCluster::new(1);
    let disk = BTreeMap::new();
    let first = cluster.nodes.remove("h1").unwrap();
    cluster.join("h1", helper_role("h1"), hello("h1", &disk));
    cluster.play();
    let reason = cluster.node("h1").refused.take().unwrap();
    assert!(reason.starts_with("helper h1 is registered already, from h1.example:7410; stop"), "{reason}");

    // Once the first h1 is disconnected, another h1 can register and gets the same number.
    cluster.handle(Event::Left { connection: first.connection, why: "killed".into() });
    cluster.start("h1");
    assert_eq!(cluster.node("h1").refused, None);
    assert_eq!(cluster.node("h1").node, first.node);
}

#[test]
fn foreign_members_are_refused_with_the_reason() {
    let mut cluster = TestCluster::new(0);
    let helper = |version, cluster_id: &str| FromNode::RegisterHelper {
        version,
        cluster_id: cluster_id.into(),
        address: "h1.example:7410".into(),
        rack: None,
        rates: repair::StatedRates::default(),
        blocks: Vec::new(),
        more: false,
        incomplete: None,
        free_bytes: 0,
    };
    let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
    let admin = Role::Client("admin".parse().unwrap());
    for (role, hello, reason) in [
        (helper_role("h1"), helper(control::VERSION + 1, CLUSTER), "run the same version of mend on both"),
        (helper_role("h1"), helper(control::VERSION, "another"), "belong to cluster another"),
        (helper_role("h1"), client.clone(), "helper h1 must register in the role of its certificate"),
        (admin.clone(), helper(control::VERSION, CLUSTER), "client admin must register"),
        (admin, FromNode::RegisterClient { version: 0, bandwidth: None, rack: None }, "uses version 0"),
        (Role::Coordinator, client, "certificate of a coordinator"),
    ] {
        cluster.join("x", role, hello);
        cluster.play();
        let refused = cluster.node("x").refused.take().unwrap();
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(cluster.status().helpers.nodes_up, [""; 0]);
}

/// Plans need both values that a client states: its rack, for the trunk between the helpers and the client,
/// and its own rate limits.
#[test]
fn a_client_is_placed_in_its_stated_rack() {
    let mut cluster = TestCluster::new(1);
    for (name, rack) in [("in-r1", Some("r1")), ("anywhere", None)] {
        let rack = rack.map(str::to_owned);
        let hello = FromNode::RegisterClient {
            version: control::VERSION,
            bandwidth: Some(5_000),
            rack: rack.clone(),
        };
        cluster.join(name, Role::Client(name.parse().unwrap()), hello);
        cluster.play();
        let node = cluster.node(name).node.unwrap();
        let profile = cluster.core().nodes.topology.get(node).unwrap();
        assert_eq!((&profile.rack, profile.rates.up, profile.rates.down), (&rack, 5_000.0, 5_000.0));
    }
}

#[test]
fn a_missing_block_counts_again_only_after_verification() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let (name, lost) = (home(&file, 1), block(&file, 1));
    cluster.kill(&name);
    assert_eq!(states(&cluster.file("f")), ["healthy", "down", "healthy", "healthy"]);

    let bytes = cluster.node(&name).disk.remove(&lost).unwrap();
    cluster.start(&name);
    assert_eq!(states(&cluster.file("f")), ["healthy", "missing", "healthy", "healthy"]);
    assert_eq!(cluster.status().damage.lost_lately[0].block, lost.0);

    cluster.kill(&name);
    cluster.node(&name).disk.insert(lost.clone(), bytes);
    cluster.rotten.insert(lost.clone());
    cluster.start(&name);
    assert_eq!(states(&cluster.file("f"))[1], "corrupt", "there again, but not the same");

    cluster.kill(&name);
    cluster.rotten.clear();
    cluster.start(&name);
    assert_eq!(states(&cluster.file("f"))[1], "healthy");

    cluster.kill(&name);
    cluster.node(&name).disk.insert(lost, bytes - 1);
    cluster.start(&name);
    assert_eq!(states(&cluster.file("f"))[1], "corrupt", "truncated");
}

#[test]
fn a_status_lists_ten_thousand_orphans_and_counts_the_others() {
    let mut cluster = TestCluster::new(4);
    cluster.kill("h2");
    let orphans = (0..10_003).map(|number| (BlockId(format!("99.{number}")), 5));
    cluster.node("h2").disk.extend(orphans);
    cluster.start("h2");
    let catalog = cluster.status().catalog;
    assert_eq!((catalog.orphans.len(), catalog.more_orphans), (10_000, 3));
}

#[test]
fn unknown_blocks_are_reported_and_never_removed() {
    let mut cluster = TestCluster::new(4);
    cluster.kill("h2");
    cluster.node("h2").disk.insert(BlockId("99.0".into()), 5);
    cluster.start("h2");
    let orphans = cluster.status().catalog.orphans;
    assert_eq!((orphans[0].node.as_str(), orphans[0].block.as_str()), ("h2", "99.0"));
    assert!(cluster.node("h2").disk.contains_key(&BlockId("99.0".into())));
}
