//! Invalid input: every error names the cause and the next step, and nothing is lost.

use crate::cluster::Cluster;

#[test]
fn wrong_arguments() {
    let cluster = Cluster::new(5, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_000);
    let film = cluster.path("film");
    let film = film.to_str().unwrap();
    for (arguments, texts) in [
        (&["put", film, "--name", "x", "--code", "rs-4-4"][..], &["4"][..]),
        (&["put", film, "--name", "x", "--code", "rs-256-10"], &["255"]),
        (&["put", film, "--name", "x", "--code", "raid5"], &["rs-14-10", "clay"]),
        (&["put", film, "--name", "x", "--code", "rs-9-6"], &["9", "5"]),
        (&["put", film, "--name", "x", "--block-size", "0"], &["block"]),
        (&["put", film, "--name", "x", "--block-size", "1000"], &["4096"]),
        (&["put", film, "--name", "film"], &["film", "--replace"]),
        (&["put", "/no/such/file"], &["/no/such/file"]),
        (&["put", "/tmp", "--name", "x"], &["/tmp"]),
        (&["get", "nothing", "-o", "-"], &["nothing"]),
        (&["get", "film", "-o", "-", "--scheme", "magic"], &["magic", "pipelined", "conventional"]),
        (&["get", "film", "-o", "-", "--range", "299999+2"], &["300000"]),
        (&["get", "film", "-o", "/no/such/folder/x"], &["/no/such/folder"]),
        (&["repair", "77"], &["77"]),
        (&["repair", "77.1"], &["77.1"]),
        (&["repair", "1.9"], &["1.9"]),
        (&["stat", "nothing"], &["nothing"]),
        (&["rm", "nothing"], &["nothing"]),
        (&["plan", "1", "--scheme", "magic"], &["magic", "pipelined"]),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        cluster.mend(arguments).fails_with(texts);
    }
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn daemons_that_cannot_start() {
    let mut cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_000);
    // Start a second instance of a helper. Its folder is locked.
    cluster.mend(&["helper", "h1"]).fails_with(&["h1"]);
    // Start a second coordinator.
    cluster.mend(&["coordinator"]).fails_with(&["in use by another coordinator", "stop that one"]);
    cluster.mend(&["helper", "h77"]).fails_with(&["h77"]);
    // Start a helper whose port is in use.
    cluster.kill("h2");
    let port = std::net::TcpListener::bind(("127.0.0.1", cluster.base_port() + 3)).unwrap();
    cluster.mend(&["helper", "h2"]).fails_with(&["listen", &(cluster.base_port() + 3).to_string()]);
    drop(port);
    // Stop the coordinator. It cannot start again while its port is in use, and verbs suggest starting it.
    cluster.kill("coordinator");
    let port = std::net::TcpListener::bind(("127.0.0.1", cluster.base_port() + 1)).unwrap();
    cluster.mend(&["coordinator"]).fails_with(&["listen", &(cluster.base_port() + 1).to_string()]);
    drop(port);
    cluster.mend(&["ls"]).fails_with(&["mend coordinator"]);
    // A missing catalog is not recreated; the blocks are kept.
    let catalog = cluster.folder().join("coordinator/catalog.redb");
    let aside = cluster.path("aside");
    std::fs::rename(&catalog, &aside).unwrap();
    cluster.mend(&["coordinator"]).fails_with(&["catalog.redb", "mend catalog restore"]);
    std::fs::rename(&aside, &catalog).unwrap();
    cluster.start(&["coordinator"]);
    cluster.start(&["helper", "h2"]);
    cluster.await_ready();
    cluster.eventually("the helpers are back", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_helper_of_another_cluster_is_refused() {
    let ours = Cluster::new(4, "rs-4-2", "64KiB");
    let theirs = Cluster::init(4, "rs-4-2", "64KiB");
    // The other cluster's helper, with its own certificate, dials our coordinator.
    let toml = theirs.folder().join("mend.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    let (mine, other) = (ours.base_port(), theirs.base_port());
    let text = text
        .replace(&format!("127.0.0.1:{other}\""), &format!("127.0.0.1:{mine}\""))
        .replace(&format!("127.0.0.1:{}\"", other + 1), &format!("127.0.0.1:{}\"", mine + 1));
    std::fs::write(toml, text).unwrap();
    theirs.mend(&["helper", "h1"]).fails_with(&["certificate"]);
    theirs.mend(&["ls"]).fails_with(&["certificate"]);
    ours.mend(&["status"]).ok();
}
