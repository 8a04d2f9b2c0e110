//! Tests a whole coordinator in this process through its two ports.

mod rebuilding;
mod refusals;
mod stuck;
mod unread;

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster::{Cluster, Identity, InitOptions, Role};
use coordinator::{CoordinatorConfig, Handle, RunError};
use dir::DirCatalog;
use repair::wire::control::{self, FromNode, ToNode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

struct Running {
    _folder: TempDir,
    cluster: Cluster,
    handle: Handle,
}

fn config(cluster: &Cluster) -> CoordinatorConfig {
    let mut config = CoordinatorConfig::from_cluster(cluster.clone());
    config.api.set_port(0);
    config.control.set_port(0);
    config
}

fn new_cluster() -> (TempDir, Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let options = InitOptions { helpers: 2, ..InitOptions::default() };
    let cluster = Cluster::init(&folder.path().join("demo"), &options).unwrap();
    (folder, cluster)
}

/// Returns the records' file, and the cluster's id.
fn records(cluster: &Cluster) -> (PathBuf, String) {
    (cluster.role_folder(&Role::Coordinator).join("catalog.redb"), cluster.config().cluster_id.to_string())
}

fn create_catalog(cluster: &Cluster) {
    let (path, id) = records(cluster);
    drop(DirCatalog::create(path, &id).unwrap());
}

async fn start(cluster: &Cluster, config: CoordinatorConfig) -> Result<Handle, RunError> {
    let (path, id) = records(cluster);
    coordinator::start(config, DirCatalog::open(path, &id).unwrap().into_storage()).await
}

async fn running() -> Running {
    let (folder, cluster) = new_cluster();
    create_catalog(&cluster);
    let handle = start(&cluster, config(&cluster)).await.unwrap();
    Running { _folder: folder, cluster, handle }
}

fn helper(name: &str) -> Role {
    Role::Helper(name.parse().unwrap())
}

async fn connect(address: SocketAddr, identity: &Identity) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(address).await.unwrap();
    let name = Role::Coordinator.server_name();
    TlsConnector::from(identity.client_config()).connect(name, socket).await.unwrap()
}

impl Running {
    fn identity(&self, role: &Role) -> Identity {
        self.cluster.identity(role).unwrap()
    }

    async fn http(&self, role: &Role, method: &str, path: &str, body: &str) -> (u16, Value) {
        answer(&mut self.ask(role, method, path, body).await).await
    }

    /// Sends a request and returns the stream before the answer arrives.
    async fn ask(&self, role: &Role, method: &str, path: &str, body: &str) -> TlsStream<TcpStream> {
        self.ask_with(role, "", method, path, body).await
    }

    /// Sends a request with further header lines.
    async fn ask_with(
        &self,
        role: &Role,
        headers: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> TlsStream<TcpStream> {
        let mut stream = connect(self.handle.api_addr, &self.identity(role)).await;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: coordinator.mend\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    async fn say_hello(&self, role: &Role, hello: &FromNode) -> (TlsStream<TcpStream>, ToNode) {
        let mut stream = connect(self.handle.control_addr, &self.identity(role)).await;
        stream.write_all(&control::encode(hello)).await.unwrap();
        loop {
            match hear(&mut stream).await {
                ToNode::Ping => {} // A busy coordinator sends pings.
                answer => return (stream, answer),
            }
        }
    }

    fn hello(&self) -> FromNode {
        FromNode::RegisterHelper {
            version: control::VERSION,
            cluster_id: self.cluster.config().cluster_id.to_string(),
            address: "127.0.0.1:7410".into(),
            rack: None,
            rates: repair::StatedRates::default(),
            blocks: Vec::new(),
            more: false,
            incomplete: None,
            free_bytes: 1 << 30,
        }
    }
}

/// A handler of `GET` also answers `HEAD`, which shows at least whether a file exists.
#[tokio::test]
async fn head_needs_the_right_of_get() {
    let running = running().await;
    let monitor = Role::Monitor("prom".parse().unwrap());
    running.cluster.issue(&monitor).unwrap();
    let status = async |role: &Role, path: &str| {
        let mut answer = String::new();
        let mut stream = running.ask(role, "HEAD", path, "").await;
        let _ = stream.read_to_string(&mut answer).await; // As in `answer`.
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/v1/status", "/v1/files?prefix=", "/v1/audit", "/v1/catalog"] {
        assert_eq!(status(&Role::default_client(), path).await, "200", "{path}");
        assert_eq!(status(&monitor, path).await, "403", "{path}");
    }
    assert_eq!(status(&helper("h1"), "/v1/status").await, "200");
    assert_eq!(status(&helper("h1"), "/v1/catalog").await, "403");
    assert_eq!(status(&monitor, "/metrics").await, "200");
}

/// A stream of events begins with the open repairs, and with the entries of the history that the subscriber wants.
#[tokio::test]
async fn a_stream_of_events_begins_where_the_subscriber_wants() {
    let running = running().await;
    let admin = Role::default_client();
    let (_h1, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
    let (_, history) = running.http(&admin, "GET", "/v1/history", "").await;
    let newest = history.as_array().unwrap().last().expect("h1 has joined").clone();
    let (number, at) = (newest["number"].as_u64().unwrap(), newest["at_unix_ms"].as_u64().unwrap());
    let beginning = async |headers: &str, query: &str| {
        let path = format!("/v1/events{query}");
        let mut stream = running.ask_with(&admin, headers, "GET", &path, "").await;
        let mut text = Vec::new();
        // The stream does not end by itself.
        let _ = timeout(Duration::from_secs(2), stream.read_to_end(&mut text)).await;
        String::from_utf8(text).unwrap()
    };
    let entry = format!("id: {number}\n");
    for (headers, query, has_entry) in [
        ("", String::new(), false),
        ("", format!("?since_unix_ms={at}"), true),
        ("", format!("?since_unix_ms={}", at + 1), false),
        ("", "?since_unix_ms=0".to_owned(), true),
        (&*format!("last-event-id: {}\r\n", number - 1), String::new(), true),
        (&*format!("last-event-id: {number}\r\n"), "?since_unix_ms=0".to_owned(), false),
    ] {
        let text = beginning(headers, &query).await;
        assert!(text.contains("event: repairs\ndata: {\"kind\":\"repairs\",\"repairs\":[]}"), "{text}");
        assert_eq!(text.contains(&entry), has_entry, "{headers}{query}: {text}");
    }
}

/// A subscriber gets the history in parts.
#[tokio::test]
async fn a_stream_of_events_has_the_whole_history() {
    let running = running().await;
    let admin = Role::default_client();
    let files: Vec<String> = (0..150).map(|number| format!("/f{number}")).collect();
    for file in &files {
        let report = format!(r#"{{"file":"{file}","work":"encode","bytes":1,"took_ms":1}}"#);
        assert_eq!(running.http(&admin, "POST", "/v1/history", &report).await.0, 200);
    }
    let mut stream = running.ask(&admin, "GET", "/v1/events?since_unix_ms=0", "").await;
    let mut text = Vec::new();
    // The stream stays open.
    let _ = timeout(Duration::from_secs(2), stream.read_to_end(&mut text)).await;
    let text = String::from_utf8(text).unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let told: Vec<String> =
        events.filter_map(|event| Some(event["entry"]["file"].as_str()?.to_owned())).collect();
    assert_eq!(told, files);
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> (u16, Value) {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await; // Some servers close without a TLS close_notify.
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn hear(stream: &mut TlsStream<TcpStream>) -> ToNode {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.unwrap();
    let mut message = vec![0; control::decode_length(length).unwrap()];
    stream.read_exact(&mut message).await.unwrap();
    control::decode(&message).unwrap()
}

#[tokio::test]
async fn the_api_answers_clients_and_lets_helpers_look() {
    let running = running().await;
    let admin = Role::default_client();
    let (code, status) = running.http(&admin, "GET", "/v1/status", "").await;
    assert_eq!(
        (code, status["summary"].as_str()),
        (200, Some("safe  nothing is stored; no helper is up, never registered: h1, h2"))
    );

    let (code, error) = running.http(&admin, "GET", "/v1/files/a%2Fb", "").await;
    assert_eq!((code, error["error"].as_str()), (404, Some("there is no file `a/b`")));
    assert_eq!(error["next_step"], "list the files with `mend ls`");
    let put = r#"{"name":"empty","bytes":0}"#;
    let (code, put) = running.http(&admin, "POST", "/v1/puts", put).await;
    assert_eq!((code, &put["code"]), (200, &Value::from("rs-14-10")));
    let commit = format!("/v1/puts/{}/commit", put["put"]);
    assert_eq!(running.http(&admin, "POST", &commit, "").await.0, 200);
    let (_, files) = running.http(&admin, "GET", "/v1/files?prefix=em", "").await;
    assert_eq!(files[0]["name"], "empty");

    for (method, path, body, code) in [
        ("POST", "/v1/puts", r#"{"name":"f"}"#, 400),
        ("POST", "/v1/puts", r#"{"name":"f","bytes":1,"colour":"red"}"#, 400),
        ("POST", "/v1/puts", r#"{"name":"f","bytes":1}"#, 503),
        ("POST", "/v1/puts", r#"{"name":"empty","bytes":0}"#, 409),
        ("POST", "/v1/repairs", "{}", 400),
        ("GET", "/v1/repairs/x", "", 400),
        ("GET", "/v1/nothing", "", 404),
        ("PUT", "/v1/status", "", 405),
    ] {
        let (found, error) = running.http(&admin, method, path, body).await;
        assert_eq!(found, code, "{method} {path}: {error}");
        assert!(error["error"].is_string() && error["next_step"].is_string(), "{error}");
    }
    assert_eq!(running.http(&helper("h1"), "GET", "/v1/nodes", "").await.0, 200);
    let (code, error) = running.http(&helper("h1"), "POST", "/v1/scrubs", "").await;
    assert_eq!((code, error["error"].as_str().unwrap().contains("helper h1")), (403, true));
    assert_eq!(running.http(&Role::Coordinator, "GET", "/v1/status", "").await.0, 403);
    let plug_in = Role::Plugin("hdfs".parse().unwrap());
    running.cluster.issue(&plug_in).unwrap();
    for (method, path, body, code) in [
        ("POST", "/v1/stripes", r#"{"stripe":"g","code":"rs-3-2","block_bytes":64,"blocks":[]}"#, 400),
        ("POST", "/v1/repairs", r#"{"all":true}"#, 400),
        ("GET", "/v1/repairs/1", "", 404),
        ("GET", "/v1/files?prefix=", "", 403),
        ("GET", "/v1/status", "", 403),
        ("GET", "/v1/catalog", "", 403),
        ("POST", "/v1/scrubs", "", 403),
    ] {
        let (found, error) = running.http(&plug_in, method, path, body).await;
        assert_eq!(found, code, "{method} {path}: {error}");
    }
    let (_, document) = running.http(&admin, "GET", "/v1/openapi.json", "").await;
    assert!(document["paths"]["/v1/status"]["get"].is_object());
}

#[tokio::test]
async fn a_helper_registers_once_and_counts_as_lost_when_silent() {
    let running = running().await;
    let (first, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
    let (_second, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    let ToNode::Refused { reason, .. } = answer else { panic!("{answer:?}") };
    assert!(reason.contains("registered already, from 127.0.0.1:7410"), "{reason}");

    // The first helper keeps its connection open but sends nothing, not even pongs.
    let admin = Role::default_client();
    let start = Instant::now();
    loop {
        let (_, nodes) = running.http(&admin, "GET", "/v1/nodes", "").await;
        if nodes[0]["up"] == false {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(3));
    drop(first);
    let (_third, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_client_that_answers_pings_stays_connected() {
    let running = running().await;
    let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
    let (mut stream, answer) = running.say_hello(&Role::default_client(), &client).await;
    let ToNode::Registered { node } = answer else { panic!("{answer:?}") };
    assert!(node.0 >= 1 << 31);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(7) {
        let message = timeout(Duration::from_secs(3), hear(&mut stream)).await.unwrap();
        assert_eq!(message, ToNode::Ping);
        let pong = FromNode::Pong { free_bytes: 0, tasks: 0, write_problem: None };
        stream.write_all(&control::encode(&pong)).await.unwrap();
    }
}

#[tokio::test]
async fn a_helper_that_is_not_in_the_configuration_is_refused() {
    let running = running().await;
    running.cluster.issue(&helper("h9")).unwrap();
    let (_stream, answer) = running.say_hello(&helper("h9"), &running.hello()).await;
    let ToNode::Refused { reason, .. } = answer else { panic!("{answer:?}") };
    assert!(
        reason.starts_with("helper h9 is not in the coordinator's") && reason.contains("mend.toml"),
        "{reason}"
    );
}

#[tokio::test]
async fn nonsense_ends_the_connection_and_nothing_else() {
    let running = running().await;
    let admin = running.identity(&Role::default_client());
    for nonsense in [&b"\xff\xff\xff\xff"[..], &b"\0\0\0\x02{}"[..], &b"\0\x02\0\0"[..]] {
        let mut stream = connect(running.handle.control_addr, &admin).await;
        stream.write_all(nonsense).await.unwrap();
        let answer = hear(&mut stream).await;
        assert!(matches!(answer, ToNode::Refused { .. }), "{answer:?}");
    }
    assert_eq!(running.http(&Role::default_client(), "GET", "/v1/status", "").await.0, 200);
}

#[tokio::test]
async fn errors_at_the_start_name_the_cause() {
    let (_folder, cluster) = new_cluster();
    create_catalog(&cluster);
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&cluster);
    config.api = taken.local_addr().unwrap();
    let error = start(&cluster, config).await.unwrap_err().to_string();
    let expected = format!("cannot listen on {} ([coordinator] api in", taken.local_addr().unwrap());
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn a_coordinator_that_was_stopped_can_be_started_again() {
    let (_folder, cluster) = new_cluster();
    create_catalog(&cluster);
    let handle = start(&cluster, config(&cluster)).await.unwrap();
    let (path, id) = records(&cluster);
    let error = DirCatalog::open(path, &id).unwrap_err();
    assert!(error.to_string().contains("in use by another coordinator"), "{error}");
    handle.stop().await;
    start(&cluster, config(&cluster)).await.unwrap().stop().await;
}
