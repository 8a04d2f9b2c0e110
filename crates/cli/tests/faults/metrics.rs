//! Metrics and health checks: what a real Prometheus reads from a real cluster.
//!
//! `scripts/prometheus` installs the unmodified programs. `MEND_SKIP=prometheus` skips the tests that need them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cluster::{Cluster, LIMIT};
use crate::ports::Ports;

/// Sends a GET request without encryption. Returns the status code and the body.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    // Only long answers come in chunks; their sizes are lines of their own.
    Some((status, body.to_owned()))
}

/// Returns the value of a metric in OpenMetrics text. `series` is its name with labels.
fn value(text: &str, series: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Starts a cluster whose coordinator serves metrics on a port of its own.
fn measured(helpers: u16) -> (Cluster, u16, Ports) {
    let ports = Ports::take(3);
    let cluster = Cluster::init(helpers, "rs-6-4", "64KiB");
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    let setting = format!("[coordinator]\nmetrics = \"127.0.0.1:{}\"\n", ports.first());
    fs::write(&config, text.replacen("[coordinator]\n", &setting, 1)).unwrap();
    (cluster, ports.first(), ports)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder of `prometheus` and `promtool`.
fn installed() -> Option<PathBuf> {
    if testbed::is_skipped("prometheus") {
        return None;
    }
    Some(testbed::installed("scripts/prometheus", "MEND_PROMETHEUS", "target/prometheus").unwrap())
}

#[test]
fn metrics_follow_the_state_of_the_cluster() {
    let (mut cluster, port, _ports) = measured(7);
    cluster.run_all(7);
    let scrape = || get(port, "/metrics").map(|(_, text)| text).unwrap_or_default();
    cluster.put("secret-name", 600_000);
    let text = scrape();
    assert_eq!(value(&text, "mend_helper_up{helper=\"h1\"}"), Some(1.0), "{text}");
    assert_eq!(value(&text, "mend_stripes{code=\"rs-6-4\",survives=\"2\"}"), Some(3.0), "{text}");
    assert_eq!(value(&text, "mend_files"), Some(1.0));
    assert!(!text.contains("secret-name"), "names of files are not for monitors");
    assert_eq!(get(port, "/healthz").unwrap(), (200, "ok\n".to_owned()));
    assert_eq!(get(port, "/readyz").unwrap(), (200, "ready\n".to_owned()));
    assert_eq!(get(port, "/v1/status").unwrap().0, 404, "the API needs a certificate");
    let lost = cluster.holder("1.0");
    cluster.kill(&lost);
    cluster.eventually("the loss is counted", |_| {
        let text = scrape();
        value(&text, &format!("mend_helper_up{{helper=\"{lost}\"}}")) == Some(0.0)
            && value(&text, "mend_lost_blocks").is_some_and(|blocks| blocks > 0.0)
    });
    let text = scrape();
    let condition = "mend_condition{code=\"DEGRADED\",severity=\"warning\",muted=\"false\"}";
    assert!(value(&text, condition).is_some_and(|stripes| stripes >= 1.0), "{text}");
    assert!(
        value(&text, "mend_degraded_since_timestamp_seconds").is_some_and(|since| since > 1.7e9),
        "{text}"
    );
    cluster.mend(&["node", "recover", &lost]).ok();
    let text = scrape();
    let ended = "mend_repairs_ended_total{trigger=\"request\",state=\"done\"}";
    assert_eq!(value(&text, ended), Some(1.0), "{text}");
    assert!(value(&text, "mend_rebuilt_blocks_total").is_some_and(|blocks| blocks >= 1.0), "{text}");
    assert_eq!(value(&text, "mend_repair_duration_seconds_count"), Some(1.0), "{text}");
    assert_eq!(value(&text, &format!("mend_helper_disconnects_total{{helper=\"{lost}\"}}")), Some(1.0));
    assert_eq!(value(&text, "mend_degraded_since_timestamp_seconds"), None, "{text}");
}

#[test]
fn a_coordinator_without_its_helpers_is_healthy_and_not_ready() {
    let (mut cluster, port, _ports) = measured(6);
    cluster.run_all(6);
    for daemon in ["h1", "h2", "h3", "h4", "h5", "h6", "coordinator"] {
        cluster.kill(daemon);
    }
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    // It waits ten seconds for the helpers that it knows.
    assert_eq!(get(port, "/healthz").unwrap(), (200, "ok\n".to_owned()));
    let (status, why) = get(port, "/readyz").unwrap();
    assert!(status == 503 && why.starts_with("STARTING: "), "{status} {why}");
    cluster.eventually("it is ready without them", |_| get(port, "/readyz").unwrap().0 == 200);
}

#[test]
fn metrics_without_encryption_stay_on_the_machine() {
    let (cluster, port, _ports) = measured(6);
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&format!("127.0.0.1:{port}"), &format!("0.0.0.0:{port}"))).unwrap();
    cluster.mend(&["coordinator"]).fails_with(&[
        "mend.toml",
        "metrics",
        "has no encryption",
        "mend issue monitor",
    ]);
}

/// Gives a helper an address for its metrics.
fn set_metrics(cluster: &Cluster, helper: &str, address: &str) {
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    let name = format!("name = \"{helper}\"\n");
    let text = text.replacen(&name, &format!("{name}metrics = \"{address}\"\n"), 1);
    assert!(text.contains(address), "{text}");
    testbed::replace_file(&config, text);
}

#[test]
fn a_helper_counts_its_bytes_by_purpose() {
    let (mut cluster, port, ports) = measured(7);
    let of_helper = ports.first() + 1;
    set_metrics(&cluster, "h1", &format!("127.0.0.1:{of_helper}"));
    cluster.start(&["helper", "h1"]);
    cluster.eventually("it serves its health", |_| get(of_helper, "/healthz").is_some());
    assert_eq!(get(of_helper, "/healthz").unwrap(), (200, "ok\n".to_owned()));
    cluster.eventually("it is not ready, because there is no coordinator", |_| {
        get(of_helper, "/readyz").is_some_and(|(status, why)| status == 503 && why.contains("not registered"))
    });
    cluster.kill("h1");
    cluster.run_all(7);
    cluster.eventually("it is ready", |_| get(of_helper, "/readyz").is_some_and(|(status, _)| status == 200));
    let scrape = || get(of_helper, "/metrics").map(|(_, text)| text).unwrap_or_default();
    let bytes = |kind: &str, purpose: &str| {
        let text = scrape();
        value(&text, &format!("mend_node_{kind}_bytes_total{{purpose=\"{purpose}\"}}"))
            .unwrap_or_else(|| panic!("{text}"))
    };
    let content = cluster.put("film", 40 * 64 * 1024);
    assert!(bytes("written", "put") > 0.0 && bytes("received", "put") > 0.0);
    assert_eq!(bytes("sent", "read"), 0.0);
    cluster.assert_reads("film", &content, &[]);
    assert!(bytes("sent", "read") > 0.0 && bytes("read", "read") > 0.0);
    assert_eq!(bytes("checked", "scrub"), 0.0);
    cluster.mend(&["scrub"]).ok();
    assert!(bytes("checked", "scrub") > 0.0);
    assert_eq!(bytes("read", "repair"), 0.0);
    cluster.kill("h2");
    cluster.eventually("the loss is known", |_| {
        let text = get(port, "/metrics").map(|(_, text)| text).unwrap_or_default();
        value(&text, "mend_helper_up{helper=\"h2\"}") == Some(0.0)
    });
    cluster.mend(&["node", "recover", "h2"]).ok();
    assert!(
        bytes("sent", "repair") + bytes("read", "repair") + bytes("written", "repair") > 0.0,
        "{}",
        scrape()
    );
    let text = scrape();
    assert_eq!(value(&text, "mend_node_registered"), Some(1.0), "{text}");
    assert!(value(&text, "mend_node_free_bytes").is_some_and(|bytes| bytes > 0.0), "{text}");
    cluster.kill("coordinator");
    cluster.eventually("it is not ready without the coordinator", |_| {
        get(of_helper, "/readyz").is_some_and(|(status, why)| status == 503 && why.contains("not registered"))
    });
    assert!(bytes("written", "put") > 0.0, "the counters go on");
}

/// Starts a cluster whose helper h1 serves metrics on the returned port.
fn measured_helper() -> (Cluster, u16, Ports) {
    let (mut cluster, _, ports) = measured(6);
    let port = ports.first() + 1;
    set_metrics(&cluster, "h1", &format!("127.0.0.1:{port}"));
    cluster.run_all(6);
    (cluster, port, ports)
}

/// Puts another folder in the place of h1's folder of blocks. Returns the other folder's lock file, which is locked
/// if another process uses the folder.
fn exchange_folder(cluster: &Cluster, is_used: bool) -> fs::File {
    let (blocks, other) = (cluster.folder().join("helpers/h1/blocks"), cluster.path("other"));
    fs::create_dir(&other).unwrap();
    let lock = fs::File::create(other.join(".lock")).unwrap();
    if is_used {
        lock.lock().unwrap();
    }
    fs::rename(&blocks, cluster.path("aside")).unwrap();
    fs::rename(&other, &blocks).unwrap();
    lock
}

/// Renews the certificate of h1, and waits until its metrics at `port` show that.
fn await_renewal(cluster: &Cluster, port: u16) {
    let expires = || {
        let text = get(port, "/metrics").map(|(_, text)| text).unwrap_or_default();
        value(&text, "mend_node_certificate_expires_timestamp_seconds")
    };
    let first = expires();
    assert!(first.is_some());
    cluster.mend(&["issue", "helper", "h1", "--valid-for", "900d"]).ok();
    cluster.eventually("the new certificate is in the metrics", |_| {
        let now = expires();
        now.is_some() && now != first
    });
}

/// The helper opens its folder again when another disk is mounted there.
#[test]
fn the_metrics_of_a_helper_follow_its_certificate_after_its_folder_was_exchanged() {
    let (cluster, port, _ports) = measured_helper();
    exchange_folder(&cluster, false);
    cluster.eventually("it opens the other folder", |cluster| {
        cluster.log("h1").contains("the folders of blocks have changed")
    });
    await_renewal(&cluster, port);
}

#[test]
fn the_metrics_of_a_helper_follow_its_certificate_while_its_folder_cannot_be_opened() {
    let (cluster, port, _ports) = measured_helper();
    let _lock = exchange_folder(&cluster, true);
    cluster.eventually("it cannot open the other folder", |cluster| {
        cluster.log("h1").contains("cannot open the folder of blocks")
    });
    await_renewal(&cluster, port);
}

/// On an address that other machines can reach, only a monitor or a client may read a helper's metrics.
#[test]
fn the_metrics_of_a_helper_on_other_addresses_need_a_certificate() {
    let (mut cluster, _, ports) = measured(6);
    let port = ports.first() + 1;
    set_metrics(&cluster, "h1", &format!("0.0.0.0:{port}"));
    cluster.run_all(6);
    cluster.mend(&["issue", "monitor", "prom"]).ok();
    let ask = |member: &str| {
        let at = cluster.folder();
        let of = |file: &str| at.join(member).join(file);
        let output = Command::new("curl")
            .args(["-sS", "-w", "%{http_code}", "--cacert"])
            .arg(at.join("ca/ca.pem"))
            .args(["--resolve", &format!("h1.helper.mend:{port}:127.0.0.1"), "--cert"])
            .arg(of("cert.pem"))
            .arg("--key")
            .arg(of("key.pem"))
            .arg(format!("https://h1.helper.mend:{port}/metrics"))
            .output()
            .unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let said = ask("monitors/prom");
    assert!(said.contains("mend_node_registered 1") && said.ends_with("200"), "{said}");
    let said = ask("helpers/h2");
    assert!(said.contains("mend issue monitor") && said.ends_with("403"), "{said}");
    assert!(get(port, "/metrics").is_none_or(|(status, _)| status != 200), "nothing without encryption");
}

/// Each metric that the coordinator or a helper can write is described in `docs/reference/metrics.md`, and no other.
#[test]
fn the_page_lists_the_metrics() {
    let sources = [
        "crates/coordinator/src/metrics.rs",
        "crates/cli/src/helper_metrics.rs",
        "crates/serving/src/openmetrics.rs",
    ];
    let source: String = sources.iter().map(|path| fs::read_to_string(root().join(path)).unwrap()).collect();
    let mut named: Vec<&str> =
        source.split('"').filter(|text| text.starts_with("mend_") && !text.contains(' ')).collect();
    named.sort_unstable();
    named.dedup();
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `mend_")?.split('`').next());
    let mut listed: Vec<String> =
        rows.map(|name| format!("mend_{}", name.trim_end_matches("_total"))).collect();
    listed.sort_unstable();
    assert_eq!(listed, named);
    for file in ["ops/grafana/mend.json", "ops/prometheus/mend.rules.yml"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        for used in text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("mend_")) {
            let name = used.trim_end_matches("_total").trim_end_matches("_bucket");
            assert!(listed.iter().any(|listed| listed == name), "{file}: {used}");
        }
    }
}

/// The tests of the alerts have a case for each condition, with its severity.
#[test]
fn each_condition_has_a_case_in_the_tests_of_the_alerts() {
    let cases = fs::read_to_string(root().join("ops/prometheus/mend.test.yml")).unwrap();
    let (_, cases) = cases.split_once("# Each condition").unwrap();
    for code in client::ConditionCode::ALL {
        let severity = code.definition().severity.name();
        let series = format!("mend_condition{{code=\"{code}\", severity=\"{severity}\", muted=\"false\"}}");
        assert!(cases.contains(&series), "{series}");
        assert!(cases.contains(&format!("runbook for {code}\"")), "{code} is in no alert");
    }
}

#[test]
fn the_alert_rules_do_as_their_tests_say() {
    let Some(folder) = installed() else { return };
    for arguments in [["check", "rules", "mend.rules.yml"], ["test", "rules", "mend.test.yml"]] {
        let mut command = Command::new(folder.join("promtool"));
        let output = command.args(arguments).current_dir(root().join("ops/prometheus")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

/// A Prometheus process that is killed when the test ends.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn ask(&self, path: &str) -> Option<Value> {
        let (_, body) = get(self.port, path)?;
        // The answer may come in chunks: take what is between the first and the last brace.
        let json = &body[body.find('{')?..=body.rfind('}')?];
        let json: String = json.lines().filter(|line| !is_chunk_size(line)).collect();
        serde_json::from_str(&json).ok()
    }

    /// Returns the health and the last error of a scrape job.
    fn target(&self, job: &str) -> Option<(String, String)> {
        let targets = self.ask("/api/v1/targets")?;
        let all = targets["data"]["activeTargets"].as_array()?.clone();
        let found = all.iter().find(|target| target["labels"]["job"] == job)?.clone();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Some((text("health"), text("lastError")))
    }
}

fn is_chunk_size(line: &str) -> bool {
    let line = line.trim_end();
    !line.is_empty() && line.len() <= 8 && line.chars().all(|digit| digit.is_ascii_hexdigit())
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The queries of the dashboard that have no value while nothing is damaged and no repair is running. The catalog is
/// copied for the first time ten minutes after the coordinator's start.
const WITHOUT_VALUE: [&str; 6] = [
    "mend_condition{severity!=\"ok\"}",
    "time() - mend_degraded_since_timestamp_seconds",
    "mend_repair_left_seconds",
    "mend_repairs",
    "mend_repairs_limited",
    "time() - mend_catalog_copied_timestamp_seconds",
];

/// Prometheus scrapes the coordinator on loopback, and the API with a monitor's certificate. It answers every query of
/// the Grafana dashboard. The monitor's certificate does not open the rest of the API.
#[test]
fn prometheus_scrapes_a_cluster_and_answers_the_dashboard() {
    let Some(folder) = installed() else { return };
    let (mut cluster, plain, ports) = measured(6);
    let of_helper = ports.first() + 2;
    set_metrics(&cluster, "h1", &format!("127.0.0.1:{of_helper}"));
    cluster.run_all(6);
    cluster.put("film", 300_000);
    cluster.mend(&["scrub"]).ok();
    cluster.mend(&["issue", "monitor", "prom"]).ok();
    let (web, api, at) = (ports.first() + 1, cluster.base_port(), cluster.folder());
    let tls = format!(
        "scheme: https\n    tls_config: {{ca_file: {at}/ca/ca.pem, cert_file: {at}/monitors/prom/cert.pem, key_file: \
         {at}/monitors/prom/key.pem, server_name: coordinator.mend}}\n    static_configs: [{{targets: \
         ['127.0.0.1:{api}']}}]\n",
        at = at.display()
    );
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: mend\n    \
         static_configs: [{{targets: ['127.0.0.1:{plain}']}}]\n  - job_name: mend-helpers\n    \
         static_configs: [{{targets: ['127.0.0.1:{of_helper}']}}]\n  - job_name: encrypted\n    {tls}  - job_name: \
         status\n    metrics_path: /v1/status\n    {tls}"
    );
    let path = cluster.path("prometheus.yml");
    fs::write(&path, config).unwrap();
    let child = Command::new(folder.join("prometheus"))
        .arg(format!("--config.file={}", path.display()))
        .arg(format!("--storage.tsdb.path={}", cluster.path("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{web}"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(cluster.path("prometheus.log")).unwrap())
        .spawn()
        .unwrap();
    let prometheus = Prometheus { child, port: web };
    cluster.eventually("both are scraped", |_| {
        ["mend", "encrypted"]
            .iter()
            .all(|job| prometheus.target(job).is_some_and(|(health, _)| health == "up"))
    });
    cluster.eventually("the API refuses the monitor", |_| {
        prometheus.target("status").is_some_and(|(health, why)| health == "down" && why.contains("403"))
    });
    let dashboard = fs::read_to_string(root().join("ops/grafana/mend.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        let path = format!("/api/v1/query?query={}", percent_encoded(query));
        let answer = prometheus.ask(&path);
        assert_eq!(
            answer.as_ref().map(|answer| &answer["status"]),
            Some(&"success".into()),
            "{query}: {answer:?}"
        );
        // Rates need two samples.
        let has_values = || {
            let answer = prometheus.ask(&path)?;
            answer["data"]["result"].as_array().map(|values| !values.is_empty())
        };
        if !WITHOUT_VALUE.contains(&query) {
            cluster.eventually(query, |_| has_values() == Some(true));
        }
    }
    let up = prometheus.ask("/api/v1/query?query=sum(mend_helper_up)").unwrap();
    assert!(up["data"]["result"][0]["value"][1].as_str().is_some_and(|up| up != "0"), "{up}");
}
