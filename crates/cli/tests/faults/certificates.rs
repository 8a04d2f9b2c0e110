//! Expiring certificates and their renewal while the cluster runs.

use std::time::Duration;

use client::blocking;

use crate::cluster::Cluster;

fn is_up(cluster: &Cluster, helper: &str) -> bool {
    let status = cluster.mend(&["status", "--output", "json"]);
    status.code == 0
        && status.json()["nodes_up"].as_array().is_some_and(|up| up.iter().any(|name| name == helper))
}

#[test]
fn a_certificate_near_expiry_is_reported_until_it_is_renewed() {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    for role in [&["coordinator"][..], &["helper", "h1"]] {
        cluster.mend(&[&["issue"], role, &["--valid-for", "10d"]].concat()).ok();
    }
    cluster.start(&["coordinator"]);
    for helper in ["h1", "h2", "h3", "h4"] {
        cluster.start(&["helper", helper]);
    }
    cluster.await_ready();
    let told = |cluster: &Cluster, who: &str| {
        cluster.mend(&["status"]).out.contains(&format!("the certificate of {who} expires in 9 days"))
    };
    cluster.eventually("it is told", |cluster| told(cluster, "helper h1") && told(cluster, "coordinator"));
    let check = cluster.mend(&["status", "--check"]);
    assert_eq!(check.code, 1, "{check:?}");
    assert!(cluster.log("h1").contains("expires soon"), "{}", cluster.log("h1"));

    let pids = ["coordinator", "h1"].map(|name| cluster.pid(name));
    let renewed = cluster.mend(&["renew", "--valid-for", "365d"]).ok();
    assert!(renewed.out.contains("coordinator") && renewed.out.contains("helper h1"), "{renewed:?}");
    assert!(!renewed.out.contains("h2"), "{renewed:?}");
    cluster.eventually("both have taken up the new ones", |cluster| {
        !told(cluster, "helper h1") && !told(cluster, "coordinator")
    });
    assert_eq!(cluster.mend(&["status", "--check"]).code, 0);
    assert_eq!(pids, ["coordinator", "h1"].map(|name| cluster.pid(name)));
    assert!(cluster.runs("h1") && cluster.runs("coordinator"));
}

#[test]
fn a_helper_whose_certificate_has_expired_waits_for_a_new_one() {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    cluster.start(&["coordinator"]);
    for helper in ["h1", "h2", "h3", "h4"] {
        cluster.start(&["helper", helper]);
    }
    cluster.await_ready();
    let content = cluster.put("film", 100_000);
    cluster.kill("h1");
    cluster.mend(&["issue", "helper", "h1", "--valid-for", "20s"]).ok();
    cluster.start(&["helper", "h1"]);
    cluster.eventually("it has a connection", |cluster| cluster.log("h1").contains("registered"));
    for (client, period) in [("ann", "1s"), ("bob", "20s")] {
        cluster.mend(&["issue", "client", client, "--valid-for", period]).ok();
    }
    let bob = blocking::Options { client: Some("bob".parse().unwrap()), ..blocking::Options::default() };
    let bob = blocking::Connection::connect(&cluster.folder(), bob, &mut || true).unwrap();
    let film = bob.open_file("film", &mut || true).unwrap();
    std::thread::sleep(Duration::from_secs(22));
    bob.open_file("film", &mut || true).unwrap_err();
    cluster.mend(&["status", "--as", "ann"]).fails_with(&["expired", "mend renew"]);
    cluster.eventually("its connection is closed", |cluster| !is_up(cluster, "h1"));
    assert!(is_up(&cluster, "h2"));
    cluster.eventually("it says what it waits for", |cluster| {
        let log = cluster.log("h1").to_lowercase();
        log.contains("expired")
    });
    assert!(!is_up(&cluster, "h1") && cluster.runs("h1"), "{}", cluster.log("h1"));
    cluster.mend(&["renew", "--valid-for", "1d"]).ok();
    // A program that has run for longer than its certificate was valid reads on.
    let mut bytes = vec![0; content.len()];
    film.read(0, &mut bytes, &mut || true).unwrap();
    assert!(bytes == content, "other bytes");
    bob.open_file("film", &mut || true).unwrap();
    cluster.eventually("it is back", |cluster| is_up(cluster, "h1"));

    // A helper that starts with an expired certificate waits for a new one as well.
    cluster.kill("h1");
    cluster.mend(&["issue", "helper", "h1", "--valid-for", "1s"]).ok();
    std::thread::sleep(Duration::from_secs(2));
    cluster.start(&["helper", "h1"]);
    cluster.eventually("it says so", |cluster| cluster.log("h1").contains("mend renew"));
    assert!(cluster.runs("h1"));
    cluster.mend(&["issue", "helper", "h1"]).ok();
    cluster.eventually("it is up", |cluster| is_up(cluster, "h1"));

    // A certificate that is renewed in time is taken up by a new connection before the former one expires.
    cluster.kill("h1");
    cluster.mend(&["issue", "helper", "h1", "--valid-for", "60s"]).ok();
    cluster.start(&["helper", "h1"]);
    cluster.eventually("it is up again", |cluster| cluster.log("h1").contains("registered"));
    cluster.mend(&["renew", "--valid-for", "1d"]).ok();
    cluster.eventually("it registers with the new one", |cluster| {
        let log = cluster.log("h1");
        log.contains("registering again with the renewed certificate") && is_up(cluster, "h1")
    });
    assert!(!cluster.log("h1").contains("lost the connection"), "{}", cluster.log("h1"));
}
