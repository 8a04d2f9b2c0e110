//! The rights of each role: every verb with the certificates of users, and every `GET` with those of programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;

/// Returns the verbs of `docs/reference/roles.md` with the right that each needs.
fn verbs_of_the_page() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/roles.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split("| right | verbs |").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let of_row = |(right, verbs): (&str, &str)| {
        let verbs: Vec<String> = verbs.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        verbs.into_iter().map(move |verb| (verb, right.to_owned())).collect::<Vec<_>>()
    };
    rows.flat_map(of_row).collect()
}

/// Returns each verb with arguments for the cluster of this test. None of them takes long.
fn calls(film: &str, out: &str, block: &str) -> Vec<(&'static str, Vec<String>)> {
    let calls: Vec<(&str, String)> = vec![
        ("ls", "ls".into()),
        ("stat", "stat film".into()),
        ("status", "status".into()),
        ("history", "history".into()),
        ("wait", "wait --for done --timeout 5s".into()),
        ("watch", "watch".into()),
        ("timeline", "timeline".into()),
        ("topology", "topology".into()),
        ("plan", format!("plan {block}")),
        ("node list", "node list".into()),
        ("node ok-to-stop", "node ok-to-stop h1".into()),
        ("node safe-to-remove", "node safe-to-remove h1".into()),
        ("node repair-after", "node repair-after".into()),
        ("caps", "caps".into()),
        ("put", format!("put {film} --name film --replace")),
        ("get", format!("get film -o {out}")),
        ("compare", format!("compare {block} --repeat 1")),
        ("mute", "mute DEGRADED".into()),
        ("unmute", "unmute DEGRADED".into()),
        ("repair", "repair --all".into()),
        ("pause", "pause 1".into()),
        ("resume", "resume 1".into()),
        ("cancel", "cancel 1".into()),
        ("scrub", "scrub".into()),
        ("rebalance", "rebalance --dry-run".into()),
        ("bench links", "bench links --stop".into()),
        ("node recover", "node recover h1".into()),
        ("node drain", "node drain h1 --stop".into()),
        ("node replace", "node replace h1 h1".into()),
        ("node maintenance", "node maintenance h1 --end".into()),
        ("node repair-after TIME", "node repair-after default".into()),
        ("caps --total", "caps --total none".into()),
        ("audit", "audit".into()),
        ("node remove", "node remove h1".into()),
        ("catalog backup", format!("catalog backup {out}.catalog")),
        ("catalog accept", "catalog accept".into()),
        ("scrub --remove-orphans", "scrub --remove-orphans".into()),
        ("rm", "rm film".into()),
    ];
    calls.into_iter().map(|(verb, call)| (verb, call.split(' ').map(str::to_owned).collect())).collect()
}

#[test]
fn each_verb_needs_the_right_that_the_page_states() {
    let cluster = Cluster::new(6, "rs-4-2", "64KiB");
    cluster.put("film", 100_000);
    for (role, name) in [("client", "ann"), ("operator", "olga"), ("admin", "ada")] {
        let issued = cluster.mend(&["issue", role, name]).ok();
        assert!(issued.out.contains(&format!("mend --as {name}")), "{issued:?}");
    }
    let needed = verbs_of_the_page();
    let film = cluster.path("film");
    let out = cluster.path("out");
    for (name, rights) in [
        ("ann", &["reads", "stores"][..]),
        ("olga", &["reads", "operates"]),
        ("ada", &["reads", "stores", "operates", "administers"]),
    ] {
        cluster.mend(&["put", film.to_str().unwrap(), "--name", "film", "--replace"]).ok();
        let file = cluster.mend(&["stat", "film", "--output", "json"]).ok().json();
        let block = file["layout"][0]["blocks"][0]["block"].as_str().unwrap().to_owned();
        let calls = calls(film.to_str().unwrap(), out.to_str().unwrap(), &block);
        let called: Vec<&str> = calls.iter().map(|(verb, _)| *verb).collect();
        assert!(needed.keys().all(|verb| called.contains(&verb.as_str())), "{needed:?}");
        let _ = fs::remove_file(&out);
        let _ = fs::remove_file(out.with_extension("catalog"));
        for (verb, call) in &calls {
            let arguments: Vec<&str> =
                ["--as", name].into_iter().chain(call.iter().map(String::as_str)).collect();
            let said = cluster.mend(&arguments);
            let text = format!("{}{}", said.out, said.err);
            let is_refused = text.contains("does not permit") || text.contains("may not store or read files");
            let right = needed.get(*verb).unwrap_or_else(|| panic!("{verb} is not on the page"));
            assert_eq!(
                is_refused,
                !rights.contains(&right.as_str()),
                "{name}: {verb} needs `{right}`: {said:#?}"
            );
        }
    }
}

/// Returns the HTTP status of a request with a member's certificate.
fn status(cluster: &Cluster, member: &str, method: &str, path: &str) -> String {
    let at = cluster.folder();
    let port = cluster.base_port();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]).arg(at.join("ca/ca.pem"));
    curl.arg("--cert").arg(at.join(member).join("cert.pem"));
    curl.arg("--key").arg(at.join(member).join("key.pem"));
    curl.args(["--resolve", &format!("coordinator.mend:{port}:127.0.0.1")]);
    match method {
        "HEAD" => curl.arg("--head"),
        method => curl.args(["-X", method]),
    };
    let output = curl.arg(format!("https://coordinator.mend:{port}{path}")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_may_read_only_what_the_page_states() {
    let cluster = Cluster::new(6, "rs-4-2", "64KiB");
    cluster.put("film", 100_000);
    for [role, name] in [["monitor", "prom"], ["plugin", "hdfs"]] {
        cluster.mend(&["issue", role, name]).ok();
    }
    for (member, status_of, contradictions, catalog) in [
        ("monitors/prom", "403", "403", "403"),
        ("plugins/hdfs", "403", "200", "403"),
        ("helpers/h1", "200", "200", "403"),
    ] {
        for method in ["GET", "HEAD"] {
            for (path, expected) in [
                ("/v1/status", status_of),
                ("/v1/files?prefix=film", status_of),
                ("/v1/contradictions", contradictions),
                ("/v1/audit", catalog),
                ("/v1/catalog", catalog),
                ("/metrics", "200"),
            ] {
                assert_eq!(status(&cluster, member, method, path), expected, "{member}: {method} {path}");
            }
        }
        for (method, path) in [("DELETE", "/v1/files/film"), ("POST", "/v1/scrubs")] {
            assert_eq!(status(&cluster, member, method, path), "403", "{member}: {method} {path}");
        }
    }
}

#[test]
fn a_name_of_several_users_is_ambiguous() {
    let cluster = Cluster::new(0, "rs-4-2", "64KiB");
    cluster.mend(&["issue", "client", "ann"]).ok();
    cluster.mend(&["issue", "operator", "ann"]).ok();
    cluster.mend(&["--as", "ann", "status"]).fails_with(&["client ann and operator ann", "mend issue"]);
}
