//! Tests a coordinator whose storage hangs, as on a stuck disk: the number of waiting requests is bounded,
//! further requests are refused with the reason, and no accepted request is lost.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use store_api::{Done, Files, Storage, StoreChange, StoreError, Term, Transaction, Write};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;

/// The maximum number of waiting requests, as in `docs/explanation/limits.md`.
const WAITING: usize = 4096;
/// The number of requests in the batch that hangs.
const UNDER_WAY: usize = 256;
/// The number of concurrent requests.
const AT_ONCE: usize = 100;

/// The number of clients that send them, so that none reaches a limit of its own.
const CLIENTS: usize = 16;

/// The number of changes of a member that are carried out at once, as in `docs/explanation/limits.md`.
const CHANGES_AT_ONCE: usize = 64;

/// A storage whose transactions block while `hangs` is set.
struct Hanging {
    catalog: Arc<Mutex<DirCatalog>>,
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

fn set(hangs: &(Mutex<bool>, Condvar), to: bool) {
    *hangs.0.lock().unwrap() = to;
    hangs.1.notify_all();
}

impl Transaction for Hanging {
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        drop(self.hangs.1.wait_while(self.hangs.0.lock().unwrap(), |hangs| *hangs).unwrap());
        self.catalog.carry_out(term, writes)
    }
}

fn hanging(catalog: DirCatalog, hangs: &Arc<(Mutex<bool>, Condvar)>) -> Storage {
    let catalog = Arc::new(Mutex::new(catalog));
    let hanging = Hanging { catalog: Arc::clone(&catalog), hangs: Arc::clone(hangs) };
    DirCatalog::share(catalog).with_transaction(hanging)
}

fn client(number: usize) -> Role {
    Role::Client(format!("c{}", number % CLIENTS).parse().unwrap())
}

fn begin(name: &str) -> String {
    format!(r#"{{"name":"{name}","bytes":0}}"#)
}

/// Sends requests until one is refused. Returns the refusal and the number of requests. Each client
/// disconnects once [`AT_ONCE`] later requests were sent; the coordinator still carries out that client's
/// request.
async fn fill(running: &Arc<Running>) -> (Value, usize) {
    let (mut asking, mut made) = (JoinSet::new(), 0);
    let mut oldest = VecDeque::new();
    loop {
        assert!(made < 4 * WAITING, "nothing bounds what waits");
        let (sent, is_sent) = oneshot::channel();
        let (running, client, name) = (running.clone(), client(made), begin(&format!("waits-{made}")));
        let asked = asking.spawn(async move {
            let mut stream = running.ask(&client, "POST", "/v1/puts", &name).await;
            let _ = sent.send(());
            answer(&mut stream).await
        });
        oldest.push_back((asked, is_sent));
        made += 1;
        if oldest.len() >= AT_ONCE {
            let (asked, is_sent) = oldest.pop_front().unwrap();
            is_sent.await.unwrap();
            // The request has reached the coordinator's socket, but may not have been read yet. Wait briefly,
            // so that it is read.
            tokio::time::sleep(Duration::from_millis(1)).await;
            asked.abort();
        }
        while let Some(ended) = asking.try_join_next() {
            if let Ok((code, answer)) = ended {
                assert_eq!(code, 503, "{answer}");
                asking.shutdown().await;
                return (answer, made);
            }
        }
    }
}

/// Returns the names of the open puts that are stored in the catalog file.
fn begun(path: &std::path::Path, cluster: &str) -> Vec<String> {
    let mut begun = Vec::new();
    let visit = &mut |change| {
        if let StoreChange::Put(put) = change {
            begun.push(put.name);
        }
    };
    DirCatalog::open(path, cluster).unwrap().each_file(visit).unwrap();
    begun
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_storage_refuses_excess_requests_and_loses_none() {
    let (folder, cluster) = new_cluster();
    (0..CLIENTS).for_each(|number| cluster.issue(&client(number)).unwrap());
    create_catalog(&cluster);
    let config = config(&cluster);
    let (path, id) = records(&cluster);
    let hangs = Arc::<(Mutex<bool>, Condvar)>::default();
    let storage = hanging(DirCatalog::open(&path, &id).unwrap(), &hangs);
    let handle = coordinator::start(config, storage).await.unwrap();
    let running = Arc::new(Running { _folder: folder, cluster, handle });
    let admin = Role::default_client();
    let (code, _) = running.http(&admin, "POST", "/v1/puts", &begin("before")).await;
    assert_eq!(code, 200);

    set(&hangs, true);
    let patient = running.clone();
    let patient = tokio::spawn(async move {
        patient.http(&Role::default_client(), "POST", "/v1/puts", &begin("patient")).await
    });
    let (refused, made) = fill(&running).await;
    let said = refused["error"].as_str().unwrap();
    assert!(said.contains("too slow") && said.contains("waiting"), "{said}");
    let number =
        said.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<usize>().ok()).max();
    assert!(number.is_some_and(|waiting| (WAITING..WAITING + UNDER_WAY).contains(&waiting)), "{said}");
    assert!(refused["next_step"].as_str().unwrap().contains("try again later"), "{refused}");
    // The coordinator's own records, such as that a condition has begun, occupy some of the places.
    assert!(made >= WAITING - UNDER_WAY, "{made}");
    let (code, _) = running.http(&admin, "GET", "/v1/status", "").await;
    assert_eq!(code, 200, "what needs nothing stored goes on");
    assert!(!patient.is_finished(), "nothing is acknowledged before it is stored");

    set(&hangs, false);
    assert_eq!(patient.await.unwrap().0, 200);
    loop {
        // The requests that arrived earlier are stored first. Until some of them are stored, this request is
        // refused.
        match running.http(&admin, "POST", "/v1/puts", &begin("after")).await {
            (200, _) => break,
            (code, answer) => assert_eq!(code, 503, "{answer}"),
        }
    }
    let Ok(running) = Arc::try_unwrap(running).map_err(|_| ()) else { panic!("nobody asks any more") };
    let Running { _folder, handle, .. } = running;
    handle.stop().await;
    let begun = begun(&path, &id);
    for name in ["before", "patient", "after"] {
        assert!(begun.iter().any(|begun| begun == name), "{name} was acknowledged");
    }
    // Accepted requests are carried out even if the client disconnected; refused ones are not.
    let waited = begun.iter().filter(|name| name.starts_with("waits-")).count();
    assert!((WAITING - AT_ONCE..=WAITING).contains(&waited), "{waited}");
}

/// Starts a coordinator whose storage can be made to hang.
async fn with_hanging_storage() -> (Running, Arc<(Mutex<bool>, Condvar)>) {
    let (folder, cluster) = new_cluster();
    create_catalog(&cluster);
    let (path, id) = records(&cluster);
    let hangs = Arc::<(Mutex<bool>, Condvar)>::default();
    let storage = hanging(DirCatalog::open(&path, &id).unwrap(), &hangs);
    let handle = coordinator::start(config(&cluster), storage).await.unwrap();
    let running = Running { _folder: folder, cluster, handle };
    (running, hangs)
}

/// A caller may send a change and disconnect, for instance to hide it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_audited_although_its_caller_disconnects() {
    let (running, hangs) = with_hanging_storage().await;
    let admin = Role::default_client();
    let (_, put) = running.http(&admin, "POST", "/v1/puts", &begin("film")).await;
    let commit = format!("/v1/puts/{}/commit", put["put"]);
    assert_eq!(running.http(&admin, "POST", &commit, "").await.0, 200);

    set(&hangs, true);
    let stream = running.ask(&admin, "DELETE", "/v1/files/film", "").await;
    tokio::time::sleep(Duration::from_millis(300)).await; // The command reaches the storage.
    drop(stream);
    tokio::time::sleep(Duration::from_millis(300)).await; // The coordinator notices the end of the connection.
    set(&hangs, false);
    let start = Instant::now();
    loop {
        let (_, entries) = running.http(&admin, "GET", "/v1/audit", "").await;
        if entries.as_array().unwrap().iter().any(|entry| entry["request"] == "DELETE /v1/files/film") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{entries}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(running.http(&admin, "GET", "/v1/files/film", "").await.0, 404);
}

/// As with a script that repeats `timeout 10 mend rm FILE`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_wait_for_the_disk_do_not_keep_others_waiting() {
    let (running, hangs) = with_hanging_storage().await;
    let admin = Role::default_client();
    let (_h1, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
    let files: Vec<String> = (0..CHANGES_AT_ONCE + 8).map(|number| format!("f{number}")).collect();
    for file in &files {
        let (_, put) = running.http(&admin, "POST", "/v1/puts", &begin(file)).await;
        let commit = format!("/v1/puts/{}/commit", put["put"]);
        assert_eq!(running.http(&admin, "POST", &commit, "").await.0, 200);
    }

    set(&hangs, true);
    let mut abandoned = Vec::new();
    for file in &files {
        abandoned.push(running.ask(&admin, "DELETE", &format!("/v1/files/{file}"), "").await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await; // The commands reach the storage.
    drop(abandoned);
    let maintain = running.http(&admin, "PUT", "/v1/nodes/h1/maintenance", r#"{"for_ms":60000}"#);
    let (code, answer) = timeout(Duration::from_secs(4), maintain).await.expect("it needs no disk");
    assert_eq!(code, 200, "{answer}");

    set(&hangs, false);
    let start = Instant::now();
    loop {
        let (_, left) = running.http(&admin, "GET", "/v1/files?prefix=", "").await;
        if left.as_array().unwrap().len() <= files.len() - CHANGES_AT_ONCE {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "accepted changes are carried out: {left}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
