//! Metrics in the text format of OpenMetrics, which Prometheus scrapes, and health checks.
//!
//! The control plane answers one request with all figures ([`control::Metrics`]); this module encodes them.
//! `docs/reference/metrics.md` lists the metrics, and a test compares the two.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use control::{ClusterCommand, DURATION_BOUNDS, Durations, FileWorks, HelperMetrics, Metrics};
use prometheus_client::metrics::histogram::Histogram;
use serving::{CONTENT_TYPE, Caller, Figures, Writer, text};
use store_api::FileBacklog;
use tokio::net::TcpListener;
use views::{ConditionCode, FileWorkKind, RepairState, Severity};

use crate::api::asking::{ApiError, Asking, Kind};
use crate::incoming::Events;

/// The paths of this module.
pub(crate) const PATHS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];
/// A control plane that does not answer within this time is neither healthy nor ready.
const HEALTH_LIMIT: Duration = Duration::from_secs(1);
/// Prometheus scrapes with a limit of ten seconds by default.
const SCRAPE_LIMIT: Duration = Duration::from_secs(9);

/// The load of the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The seconds that events took.
    pub event_seconds: Histogram,
    /// The queue of events.
    pub events: Events,
}

/// Returns the routes of [`PATHS`].
pub(crate) fn router(core: Asking, load: Load) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .with_state((core, load))
}

/// Serves the routes without encryption, until the future is dropped. Only processes on this machine can connect.
pub(crate) async fn serve_plain(listener: TcpListener, load: Load) {
    serving::serve_plain(listener, router(Asking::new(load.events.clone()), load)).await;
}

async fn metrics(
    State((core, load)): State<(Asking, Load)>,
    ConnectInfo(caller): ConnectInfo<Caller>,
) -> Response {
    match within(SCRAPE_LIMIT, figures(&core, &caller)).await {
        Ok(metrics) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text(All(metrics, load))).into_response(),
        Err(why) => unavailable(&why),
    }
}

/// Asks for all figures, when it is the caller's turn.
async fn figures(core: &Asking, caller: &Caller) -> Result<Metrics, ApiError> {
    core.in_turn(caller, Kind::Read).await?.value(ClusterCommand::Metrics).await
}

/// Waits for an answer of the control plane. The error is text for an operator.
async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, String> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the coordinator did not answer within {} s", limit.as_secs())),
    }
}

/// Whether the control plane answers.
async fn health(State((core, _)): State<(Asking, Load)>) -> Response {
    match within(HEALTH_LIMIT, core.value(ClusterCommand::Settings)).await {
        Ok(_) => "ok\n".into_response(),
        Err(why) => unavailable(&why),
    }
}

/// Whether the coordinator can carry out changes and repairs.
async fn readiness(
    State((core, _)): State<(Asking, Load)>,
    ConnectInfo(caller): ConnectInfo<Caller>,
) -> Response {
    let metrics = match within(HEALTH_LIMIT, figures(&core, &caller)).await {
        Ok(metrics) => metrics,
        Err(why) => return unavailable(&why),
    };
    let stops = metrics.conditions.iter().find(|condition| match condition.code {
        ConditionCode::Starting | ConditionCode::CatalogFailing | ConditionCode::StoreUnlisted => true,
        ConditionCode::CatalogOld => condition.severity == Severity::Critical,
        _ => false,
    });
    match stops {
        None => "ready\n".into_response(),
        Some(condition) => unavailable(&format!("{}: {}", condition.code, condition.text)),
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", why.replace('\n', " "))).into_response()
}

#[derive(Debug)]
struct All(Metrics, Load);

impl Figures for All {
    fn write(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let metrics = &self.0;
        let uptime = Some(metrics.uptime.as_secs_f64());
        writer.gauge("mend_uptime_seconds", "Time since the start of the coordinator", uptime)?;
        let Load { event_seconds, events } = &self.1;
        let help = "Times that the control plane took for an event";
        writer.observed("mend_event_seconds", help, event_seconds)?;
        let help = "Time from an event's arrival until its handling began";
        writer.observed("mend_event_wait_seconds", help, events.wait_seconds())?;
        let waiting = Some(events.waiting() as f64);
        writer.gauge("mend_events_waiting", "Events that wait for the control plane", waiting)?;
        conditions(metrics, writer)?;
        data(metrics, writer)?;
        helpers(&metrics.helpers, metrics, writer)?;
        repairs(metrics, writer)?;
        files(metrics, writer)?;
        checks(metrics, writer)
    }
}

fn conditions(metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let labels = |condition: &views::Condition| {
        vec![
            ("code", condition.code.name().to_owned()),
            ("severity", condition.severity.name().to_owned()),
            ("muted", condition.muted.to_string()),
        ]
    };
    let all = || metrics.conditions.iter();
    let counts = all().map(|condition| (labels(condition), condition.count as f64));
    let help = "Number of stripes, helpers or other things that a condition concerns";
    writer.gauges("mend_condition", help, counts)?;
    let since = all().map(|condition| {
        (vec![("code", condition.code.name().to_owned())], condition.since_unix_ms as f64 / 1000.0)
    });
    writer.gauges("mend_condition_since_timestamp_seconds", "When a condition began", since)?;
    let help = "Since when blocks are lost; absent if none are";
    let degraded = metrics.loss.since_unix_ms.map(|ms| ms as f64 / 1000.0);
    writer.gauge("mend_degraded_since_timestamp_seconds", help, degraded)?;
    let help = "Times from the first loss of a block until no block was lost";
    durations(writer, "mend_time_to_whole_seconds", help, &metrics.loss.whole_again)
}

fn durations(writer: &mut Writer<'_>, name: &str, help: &str, durations: &Durations) -> fmt::Result {
    let mut bounds: Vec<(f64, u64)> = DURATION_BOUNDS.into_iter().zip(durations.buckets).collect();
    bounds.push((f64::INFINITY, durations.buckets[DURATION_BOUNDS.len()]));
    writer.histogram(name, help, durations.sum_s, &bounds)
}

fn data(metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let stripes = metrics.data.stripes.iter().map(|((code, survives), &stripes)| {
        let survives = survives.map_or_else(|| "unreadable".to_owned(), |blocks| blocks.to_string());
        (vec![("code", code.clone()), ("survives", survives)], stripes as f64)
    });
    let help = "Number of stripes by code and by how many further blocks they can lose";
    writer.gauges("mend_stripes", help, stripes)?;
    writer.gauge("mend_lost_blocks", "Number of lost blocks", Some(metrics.data.lost_blocks as f64))?;
    writer.gauge("mend_lost_bytes", "Bytes of the lost blocks", Some(metrics.data.lost_bytes as f64))?;
    let contradictory = Some(metrics.data.contradictory_stripes as f64);
    let help = "Number of stripes whose blocks contradict each other";
    writer.gauge("mend_contradictory_stripes", help, contradictory)?;
    let help = "Number of stripes with several blocks on one helper";
    writer.gauge("mend_misplaced_stripes", help, Some(metrics.data.misplaced_stripes as f64))?;
    writer.gauge("mend_files", "Number of files", metrics.data.files.map(|files| files as f64))?;
    let help = "Writes that the storage has not acknowledged yet";
    writer.gauge("mend_writes_in_flight", help, Some(metrics.catalog.writes_in_flight as f64))?;
    let at = |unix_ms: Option<u64>| unix_ms.map(|ms| ms as f64 / 1000.0);
    let help = "When the catalog was last written; absent until the first write after the start";
    writer.gauge("mend_catalog_written_timestamp_seconds", help, at(metrics.catalog.written_unix_ms))?;
    let help = "When the catalog was last copied; absent until the first copy after the start";
    writer.gauge("mend_catalog_copied_timestamp_seconds", help, at(metrics.catalog.copied_unix_ms))
}

fn helpers(helpers: &[HelperMetrics], metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, value: fn(&HelperMetrics) -> Option<f64>| {
        let values = helpers.iter().filter_map(|helper| Some((of(&helper.name), value(helper)?)));
        writer.gauges(name, help, values)
    };
    gauge("mend_helper_up", "Whether a helper is connected", |it| Some(f64::from(u8::from(it.up))))?;
    gauge("mend_helper_slow", "Whether a helper counts as slow", |it| Some(f64::from(u8::from(it.slow))))?;
    let help = "Free space on a helper; absent while it is down";
    gauge("mend_helper_free_bytes", help, |it| it.free_bytes.map(|bytes| bytes as f64))?;
    gauge("mend_helper_blocks", "Number of blocks on a helper", |it| Some(it.blocks as f64))?;
    gauge("mend_helper_block_bytes", "Bytes of the blocks on a helper", |it| Some(it.block_bytes as f64))?;
    let help = "Blocks in a helper's memory that clients do not read often";
    gauge("mend_helper_hot_blocks", help, |it| it.hot_blocks.map(|blocks| blocks as f64))?;
    let help = "Blocks on a helper that clients read often";
    gauge("mend_helper_very_hot_blocks", help, |it| it.very_hot_blocks.map(|blocks| blocks as f64))?;
    let help = "Bytes per second that clients read from a helper";
    gauge("mend_helper_user_bytes_per_second", help, |it| it.user_bytes_per_s.map(|rate| rate as f64))?;
    let lost = |helper: &HelperMetrics| metrics.totals.disconnects.get(&helper.name).copied().unwrap_or(0);
    let disconnects = helpers.iter().map(|helper| (of(&helper.name), lost(helper)));
    writer.counters("mend_helper_disconnects", "How often a helper was lost", disconnects)
}

fn of(helper: &str) -> Vec<(&'static str, String)> {
    vec![("helper", helper.to_owned())]
}

fn repairs(metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let open = metrics.repairs.open.iter();
    let open = open.map(|(state, &repairs)| (vec![("state", state.name().to_owned())], repairs as f64));
    writer.gauges("mend_repairs", "Number of repairs that have not ended, by state", open)?;
    let rate = Some(metrics.repairs.bytes_per_s as f64);
    writer.gauge("mend_repair_rate_bytes_per_second", "Bytes of blocks rebuilt per second", rate)?;
    let left = Some(metrics.repairs.bytes_left as f64);
    writer.gauge("mend_repair_left_bytes", "Bytes that open repairs have yet to rebuild", left)?;
    let help = "Estimated time until the last repair ends; absent if none runs or nothing can be estimated";
    let left = metrics.repairs.time_left.map(|left| left.as_secs_f64());
    writer.gauge("mend_repair_left_seconds", help, left)?;
    let help = "The shortest time that links and disks permit for the open repairs, from their start";
    let bound = metrics.repairs.bound.map(|bound| bound.as_secs_f64());
    writer.gauge("mend_repair_bound_seconds", help, bound)?;
    let limited = metrics.repairs.limited_by.iter();
    let limited = limited.map(|(by, &repairs)| (vec![("resource", (*by).to_owned())], repairs as f64));
    writer.gauges(
        "mend_repairs_limited",
        "Number of running repairs by the kind of resource that limits them",
        limited,
    )?;
    let totals = &metrics.totals;
    // Every series exists from the start, so that the first repair counts as an increase.
    let series = [true, false].into_iter().flat_map(|by_itself| {
        RepairState::ALL.iter().filter(|state| state.has_ended()).map(move |&state| (by_itself, state))
    });
    let ended = series.map(|(by_itself, state)| {
        let trigger = if by_itself { "automatic" } else { "request" };
        let repairs = totals.repairs.get(&(by_itself, state)).copied().unwrap_or(0);
        (vec![("trigger", trigger.to_owned()), ("state", state.name().to_owned())], repairs)
    });
    writer.counters("mend_repairs_ended", "Repairs that have ended, by trigger and final state", ended)?;
    let (mut rebuilt, mut moved) = (totals.rebuilt, totals.moved);
    rebuilt += metrics.repairs.rebuilt;
    moved += metrics.repairs.moved;
    writer.counter("mend_rebuilt_blocks", "Blocks rebuilt or moved by repairs", rebuilt.blocks)?;
    writer.counter("mend_rebuilt_bytes", "Bytes of the rebuilt or moved blocks", rebuilt.bytes)?;
    writer.counter("mend_moved_blocks", "Blocks moved by drains and rebalances", moved.blocks)?;
    writer.counter("mend_moved_bytes", "Bytes of the moved blocks", moved.bytes)?;
    let help = "Durations of repairs that ended as done, without pauses";
    durations(writer, "mend_repair_duration_seconds", help, &totals.durations)
}

/// Writes the metrics of the store's work on files.
fn files(metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let works = |kind: FileWorkKind| metrics.totals.file_works.get(&kind).copied().unwrap_or_default();
    let of = |kind: FileWorkKind| ("work", kind.name().to_owned());
    // Every series exists from the start, so that the first file counts as an increase.
    let ended = FileWorkKind::ALL.iter().flat_map(|&kind| {
        let FileWorks { done, failed, .. } = works(kind);
        [("done", done), ("failed", failed)]
            .map(|(state, files)| (vec![of(kind), ("state", state.to_owned())], files))
    });
    writer.counters(
        "mend_file_works_ended",
        "Files on which the store's work has ended, by the result",
        ended,
    )?;
    let bytes = FileWorkKind::ALL.iter().map(|&kind| (vec![of(kind)], works(kind).bytes));
    writer.counters("mend_file_work_bytes", "Bytes of files on which the store's work is done", bytes)?;
    let backlog = metrics.file_backlog.as_ref();
    let left = |value: fn(&FileBacklog) -> u64| backlog.map(|backlog| value(backlog) as f64);
    let help = "Files on which the store has yet to work; absent if it does not work on files";
    writer.gauge("mend_file_work_left_files", help, left(|it| it.files))?;
    writer.gauge("mend_file_work_left_bytes", "Bytes of these files", left(|it| it.bytes))?;
    let help = "Files on which the store's last attempt to work failed";
    writer.gauge("mend_file_work_failed_files", help, left(|it| it.failed))?;
    let encoded = backlog.and_then(|backlog| backlog.encoded);
    let help = "Encoded files with valid parity, as of the store's last listing; absent before it";
    writer.gauge("mend_encoded_files", help, encoded.map(|it| it.files as f64))?;
    writer.gauge(
        "mend_encoded_bytes",
        "Bytes of these files, each counted once",
        encoded.map(|it| it.bytes as f64),
    )?;
    let help = "Bytes by which replicas and parity of these files take less space than their former replicas";
    writer.gauge("mend_encoded_saved_bytes", help, encoded.map(|it| it.saved_bytes as f64))
}

fn checks(metrics: &Metrics, writer: &mut Writer<'_>) -> fmt::Result {
    let help = "Blocks that were found bad or missing on helpers that were up";
    writer.counter("mend_bad_blocks", help, metrics.totals.bad_blocks)?;
    let scrub = metrics.last_scrub.as_ref();
    let ended = scrub.and_then(|scrub| scrub.ended_unix_ms).map(|ms| ms as f64 / 1000.0);
    writer.gauge(
        "mend_scrub_ended_timestamp_seconds",
        "When the last scrub ended; absent while it runs",
        ended,
    )?;
    let checked = scrub.map(|scrub| scrub.checked as f64);
    writer.gauge("mend_scrub_checked_blocks", "Blocks that the last scrub has checked", checked)?;
    let blocks = scrub.map(|scrub| scrub.blocks as f64);
    writer.gauge("mend_scrub_blocks", "Blocks that the last scrub has to check", blocks)?;
    let steady = metrics.steady_scrub.as_ref();
    let round = steady.and_then(|steady| steady.last_round_ended_unix_ms).map(|ms| ms as f64 / 1000.0);
    let help = "When the background scrub last completed a round";
    writer.gauge("mend_background_scrub_ended_timestamp_seconds", help, round)?;
    let left = steady.and_then(|steady| steady.left_in_round).map(|left| left as f64);
    let help = "Blocks that the background scrub has left in this round";
    writer.gauge("mend_background_scrub_left_blocks", help, left)?;
    let expiries = metrics
        .certificates
        .iter()
        .map(|(member, expires)| (vec![("member", member.clone())], seconds(*expires)));
    let help = "When the certificate of a member, or the first of a role, expires";
    writer.gauges("mend_certificate_expires_timestamp_seconds", help, expiries)
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use control::{Amount, CatalogMetrics, DataMetrics, LossMetrics, RepairMetrics, Totals};

    use super::*;
    use crate::incoming::{event_queue, event_seconds};

    /// `cargo test --release -p coordinator thousand -- --nocapture` prints how long it takes.
    #[test]
    fn the_metrics_of_a_thousand_helpers_fit_in_a_megabyte() {
        let name = |helper: u32| format!("storage-{helper}");
        let helper = |number: u32| HelperMetrics {
            name: name(number),
            up: true,
            slow: false,
            free_bytes: Some(12_345_678_901_234),
            blocks: 123_456,
            block_bytes: 8_285_087_072_256,
            hot_blocks: Some(1024),
            very_hot_blocks: Some(0),
            user_bytes_per_s: Some(125_000_000),
        };
        let expires = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let metrics = Metrics {
            uptime: Duration::from_secs(86_400),
            conditions: Vec::new(),
            data: DataMetrics {
                stripes: BTreeMap::from([(("rs-14-10".to_owned(), Some(4)), 100_000)]),
                lost_blocks: 0,
                lost_bytes: 0,
                contradictory_stripes: 0,
                misplaced_stripes: 0,
                files: Some(1),
            },
            helpers: (0..1000).map(helper).collect(),
            repairs: RepairMetrics {
                open: BTreeMap::new(),
                bytes_per_s: 0,
                bytes_left: 0,
                time_left: None,
                bound: None,
                limited_by: BTreeMap::new(),
                rebuilt: Amount::default(),
                moved: Amount::default(),
            },
            totals: Totals::default(),
            last_scrub: None,
            steady_scrub: None,
            certificates: (0..1000).map(|helper| (format!("helper {}", name(helper)), expires)).collect(),
            catalog: CatalogMetrics::default(),
            loss: LossMetrics::default(),
            file_backlog: None,
        };
        let begun = Instant::now();
        let text = text(All(metrics, Load { event_seconds: event_seconds(), events: event_queue().0 }));
        println!("{} bytes in {:?}", text.len(), begun.elapsed());
        assert!((100_000..1 << 20).contains(&text.len()), "{}", text.len());
        let histograms = [
            "mend_repair_duration_seconds",
            "mend_time_to_whole_seconds",
            "mend_event_seconds",
            "mend_event_wait_seconds",
        ];
        for histogram in histograms {
            assert!(text.contains(&format!("{histogram}_bucket{{le=\"+Inf\"}} 0\n")), "{histogram}");
        }
    }
}
