//! Serves the metrics and the health of a helper: on loopback without encryption, elsewhere over mutual TLS.
//!
//! `docs/reference/metrics.md` lists the metrics, and a test compares the two.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cluster::{HelperConfig, Identity, Role};
use helper::{Activity, Moved, Purpose, Traffic};
use serving::{CONTENT_TYPE, Caller, Door, Figures, Writer};
use store_api::Blocks;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::failure::Failure;

/// A disk that does not tell its free space within this time hangs.
const DISK_LIMIT: Duration = Duration::from_secs(2);

/// The address where a helper serves its metrics.
pub struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
}

/// The sources of the metrics.
#[derive(Clone)]
struct Subject {
    activity: Activity,
    blocks: SharedBlocks,
    /// Admits one question to the disk at a time, so that a disk that hangs occupies one thread.
    asking: Arc<Semaphore>,
    identity: Identity,
    started: Instant,
}

/// The helper's blocks; `None` until their folder is open.
pub type SharedBlocks = Arc<Mutex<Option<Arc<dyn Blocks>>>>;

impl Metrics {
    /// Listens at the helper's `metrics` address, if it has one.
    pub async fn bind(config: &HelperConfig) -> Result<Option<Self>, Failure> {
        let Some(address) = config.metrics else { return Ok(None) };
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(format!("cannot listen on {address}: {error}")).help(format!(
                "change `metrics` of {} in mend.toml, or stop the program that uses the port",
                config.name
            ))
        })?;
        Ok(Some(Self { listener, address }))
    }

    /// Serves until the future is dropped.
    pub async fn serve(self, activity: Activity, blocks: SharedBlocks, identity: Identity, descriptors: u64) {
        let (tls, asking) = (identity.server_config(), Arc::new(Semaphore::new(1)));
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readiness))
            .with_state(Subject { activity, blocks, asking, identity, started: Instant::now() });
        if self.address.ip().is_loopback() {
            return serving::serve_plain(self.listener, router).await;
        }
        let door = Door::new("metrics", tls, descriptors);
        serving::serve(self.listener, door, router.layer(middleware::from_fn(authorize))).await;
    }
}

/// Only monitors and users may read metrics.
async fn authorize(ConnectInfo(caller): ConnectInfo<Caller>, request: Request, next: Next) -> Response {
    match caller.role {
        Some(Role::Monitor(_) | Role::Client(_) | Role::Operator(_) | Role::Admin(_)) => {
            next.run(request).await
        }
        _ => {
            (StatusCode::FORBIDDEN, "use a monitor's certificate (mend issue monitor NAME)\n").into_response()
        }
    }
}

async fn metrics(State(subject): State<Subject>) -> Response {
    let figures = HelperFigures {
        uptime: subject.started.elapsed(),
        is_registered: subject.activity.is_registered(),
        jobs: subject.activity.jobs(),
        free_bytes: subject.free_bytes().await.ok(),
        traffic: subject.activity.traffic().clone(),
        certificate_expires: subject.identity.expires(),
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], serving::text(figures)).into_response()
}

/// Whether the helper serves blocks: it is registered with the coordinator, and its disk answers.
async fn readiness(State(subject): State<Subject>) -> Response {
    let problem = match subject.free_bytes().await {
        Err(why) => Some(why),
        Ok(_) if !subject.activity.is_registered() => {
            Some("the helper is not registered with the coordinator".to_owned())
        }
        Ok(_) => None,
    };
    match problem {
        None => "ready\n".into_response(),
        Some(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", why.replace('\n', " "))).into_response()
        }
    }
}

impl Subject {
    /// Returns the free space for blocks, or why it is unknown.
    async fn free_bytes(&self) -> Result<u64, String> {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let blocks = blocks.ok_or("the folder of blocks is not open")?;
        let asking = self.asking.clone();
        let answer = async {
            let permit = asking.acquire_owned().await;
            let ask = move || {
                let _permit = permit;
                blocks.free_bytes()
            };
            tokio::task::spawn_blocking(ask).await
        };
        match timeout(DISK_LIMIT, answer).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the disk has not answered for {} s", DISK_LIMIT.as_secs())),
        }
    }
}

#[derive(Debug)]
struct HelperFigures {
    uptime: Duration,
    is_registered: bool,
    jobs: u32,
    free_bytes: Option<u64>,
    traffic: Traffic,
    certificate_expires: SystemTime,
}

impl Figures for HelperFigures {
    fn write(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let uptime = Some(self.uptime.as_secs_f64());
        writer.gauge("mend_node_uptime_seconds", "Time since the start of the helper", uptime)?;
        let registered = Some(f64::from(u8::from(self.is_registered)));
        let help = "Whether the helper is registered with the coordinator";
        writer.gauge("mend_node_registered", help, registered)?;
        writer.gauge("mend_node_jobs", "Number of running jobs", Some(f64::from(self.jobs)))?;
        let free = self.free_bytes.map(|bytes| bytes as f64);
        writer.gauge(
            "mend_node_free_bytes",
            "Free space for blocks; absent if the disk does not answer",
            free,
        )?;
        let expires = self.certificate_expires.duration_since(UNIX_EPOCH).unwrap_or_default();
        let help = "When the helper's certificate expires";
        writer.gauge("mend_node_certificate_expires_timestamp_seconds", help, Some(expires.as_secs_f64()))?;
        let mut moved = |name: &str, help: &str, bytes: fn(Moved) -> u64| {
            let by_purpose = Purpose::ALL.map(|purpose| {
                (vec![("purpose", purpose.name().to_owned())], bytes(self.traffic.of(purpose)))
            });
            writer.counters(name, help, by_purpose)
        };
        moved("mend_node_sent_bytes", "Bytes of blocks sent to other nodes", |moved| moved.sent)?;
        moved("mend_node_received_bytes", "Bytes of blocks received from other nodes", |it| it.received)?;
        moved("mend_node_read_bytes", "Bytes read from blocks to send or compute others", |it| it.read)?;
        moved("mend_node_written_bytes", "Bytes written to new blocks", |it| it.delivered)?;
        moved("mend_node_checked_bytes", "Bytes read to check blocks", |it| it.checked)?;
        let help = "Time for which repairs and drains waited for their turn because clients read";
        writer.seconds("mend_node_held_back_seconds", help, self.traffic.held_back())?;
        let help = "Durations of reads from the disk, up to 1 MiB each";
        writer.observed("mend_node_disk_read_seconds", help, self.traffic.disk_reads())?;
        let help = "Durations of writes that may wait for the disk, up to 1 MiB each";
        writer.observed("mend_node_disk_write_seconds", help, self.traffic.disk_writes())
    }
}
