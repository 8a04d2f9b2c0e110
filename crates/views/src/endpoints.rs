//! The endpoints of the API: method, path, parameters, body and answer of each, defined once.
//!
//! The coordinator mounts its routes from these definitions, the client calls them, and
//! `docs/reference/openapi.json` is generated from them. A new endpoint needs an entry here, a line in the
//! coordinator's `api.rs` and a method of the client.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, OpenApi};

use crate::{
    AcceptRequest, AcceptedView, AuditEntry, BlockPlace, CapsRequest, CapsView, Condition,
    ContradictoryStripes, ErrorBody, FileLayout, FileView, FileWorkReport, GivenStripe, HistoryEntry,
    MaintenanceRequest, MuteRequest, NodeView, OrphansView, PlanRequestView, PlanView, ProbeRequest,
    ProbeView, PushedEvent, PutRequest, PutView, RebalanceRequest, RebalanceView, RepairRequest, RepairView,
    ReplaceRequest, SafetyView, ScrubView, SettingsRequest, SettingsView, Status, StripeView, TopologyView,
};

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of HTTP")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// A right that a request needs. The role in the caller's certificate decides which rights the caller has
/// (`docs/reference/roles.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To read the state of the cluster, and where the bytes of files are.
    Read,
    /// To store and remove files.
    Store,
    /// To repair, drain, scrub and maintain, and to change settings, caps and mutes.
    Operate,
    /// To decide about the catalog and its orphans, to read the audit, and to remove helpers.
    Administer,
    /// To describe stripes of another system.
    Describe,
}

/// An endpoint of the API.
pub trait Endpoint {
    /// The HTTP method.
    const METHOD: Method;
    /// The path. A path parameter is written in braces.
    const PATH: &'static str;
    /// The right that the request needs.
    const RIGHT: Right;
    /// The type of the path parameter: a name, a number, or `()` if the path has none.
    type Parameter: PathParameter;
    /// The query parameters.
    type Query: Serialize + DeserializeOwned + Send;
    /// The request body.
    type Body: RequestBody;
    /// The body of a successful answer.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
}

/// The type of a path parameter.
pub trait PathParameter: Sized + Send {
    /// Parses the parameter. `text` is the parameter in the path, or `None` if the path has none.
    ///
    /// # Errors
    /// Returns the text if it does not parse as this type.
    fn read(text: Option<String>) -> Result<Self, String>;

    /// Returns the parameter as text, or `None` if the path has no parameter.
    fn text(&self) -> Option<String>;
}

impl PathParameter for () {
    fn read(_: Option<String>) -> Result<Self, String> {
        Ok(())
    }

    fn text(&self) -> Option<String> {
        None
    }
}

impl PathParameter for String {
    fn read(text: Option<String>) -> Result<Self, String> {
        Ok(text.unwrap_or_default())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl PathParameter for u64 {
    fn read(text: Option<String>) -> Result<Self, String> {
        let text = text.unwrap_or_default();
        text.parse().map_err(|_| text)
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The body of a request.
pub trait RequestBody: Serialize + DeserializeOwned + Send {
    /// The value to use when the request has no body; `None` if a body is required.
    const ABSENT: Option<Self>;
}

impl RequestBody for () {
    const ABSENT: Option<Self> = Some(());
}

/// An empty query.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoQuery {}

/// Selects the files to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Lists only files whose names start with this prefix.
    #[serde(default)]
    pub prefix: String,
}

/// How long to wait for a repair, and which of its stripes to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RepairQuery {
    /// Milliseconds to wait for the end of the repair, one minute at most. If absent, the answer is
    /// immediate.
    pub wait_ms: Option<u64>,
    /// Ends the wait as soon as the repair's `version` differs from this value.
    pub since: Option<u64>,
    /// The maximum number of stripes in the answer; all if absent.
    pub items: Option<usize>,
    /// Lists only stripes whose names come after this name.
    pub items_after: Option<String>,
}

/// Options of a scrub.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ScrubQuery {
    /// Whether to check the parity of whole stripes, after checking their blocks.
    #[serde(default)]
    pub parity: bool,
}

/// Selects helpers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NodesQuery {
    /// Names of helpers, separated by commas.
    pub nodes: String,
}

/// Helpers to be stopped, and the redundancy that must remain.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StopQuery {
    /// Names of helpers, separated by commas.
    pub nodes: String,
    /// The number of further helpers that each stripe must still be able to lose; 1 if absent.
    #[serde(default = "some_redundancy")]
    pub leave: u32,
}

fn some_redundancy() -> u32 {
    1
}

/// Limits the history or the audit in the answer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// The maximum number of entries; all that are kept if absent.
    pub most: Option<usize>,
    /// Lists only entries since this time, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
}

/// The beginning of the stream of events.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Begins with the entries of the history since this time, in milliseconds since 1970. If absent, only new entries
    /// are sent.
    pub since_unix_ms: Option<u64>,
}

/// Expands to the type of an answer; `[T]` stands for a list.
macro_rules! answer {
    ([$answer:ident]) => { Vec<$answer> };
    ($answer:ident) => { $answer };
}

/// Expands to the given type, or to the default if none is given.
macro_rules! or {
    ($default:ty;) => {
        $default
    };
    ($default:ty; $given:ty) => {
        $given
    };
}

/// Defines endpoints: for each an [`Endpoint`] and an operation of the OpenAPI document.
macro_rules! endpoints {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $operation:ident ($right:ident) = $method:ident $verb:ident $path:literal
        $(at $parameter:literal: $parameter_type:ident $about:literal,)?
        $(query $query:ident,)?
        $(body $body:ident,)?
        answer $answer:tt $(as $content_type:literal)? $ok:literal
        $(, $status:literal $why:literal)*;
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Endpoint for $name {
                const METHOD: Method = Method::$method;
                const PATH: &'static str = $path;
                const RIGHT: Right = Right::$right;
                type Parameter = or!((); $($parameter_type)?);
                type Query = or!(NoQuery; $($query)?);
                type Body = or!((); $($body)?);
                type Answer = answer!($answer);
            }

            $(impl RequestBody for $body {
                const ABSENT: Option<Self> = None;
            })?
        )+

        /// The operations of the OpenAPI document.
        #[allow(dead_code, reason = "utoipa needs functions to describe; they are never called")]
        mod operations {
            use super::*;

            $(
                $(#[doc = $doc])+
                #[utoipa::path(
                    $verb,
                    path = $path,
                    params($(($parameter = $parameter_type, Path, description = $about),)? $($query,)?),
                    $(request_body = $body,)?
                    responses(
                        (status = 200, description = $ok, body = $answer $(, content_type = $content_type)?),
                        $((status = $status, description = $why, body = ErrorBody),)*
                    )
                )]
                pub(super) fn $operation() {}
            )+
        }

        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Mend coordinator",
                description = "Files, stripes, repairs and scrubs of a Mend cluster. All requests use mutual TLS \
                               and need a certificate of the cluster, whose role decides which requests it \
                               permits (docs/reference/roles.md). A failed request is answered by an \
                               `ErrorBody` with the problem and the suggested next step.",
                license(name = "Apache-2.0", identifier = "Apache-2.0")
            ),
            paths($(operations::$operation),+),
            components(schemas(ErrorBody))
        )]
        struct Document;

        /// Method and path of every endpoint, and the right that it needs.
        pub const ENDPOINTS: &[(Method, &str, Right)] = &[$(($name::METHOD, $name::PATH, $name::RIGHT)),+];
    };
}

endpoints! {
    /// Returns the state of the cluster: the answer to "am I safe?".
    GetStatus status (Read) = Get get "/v1/status"
        answer Status "The state of the cluster";

    /// Lists the helpers.
    ListNodes nodes (Read) = Get get "/v1/nodes"
        answer [NodeView] "The helpers in natural order of their names: h2 before h10";

    /// Removes a helper that is down and holds no needed blocks.
    RemoveNode remove_node (Administer) = Delete delete "/v1/nodes/{node}"
        at "node": String "The helper's name",
        answer NodeView "The removed helper",
        404 "No helper has this name",
        409 "The helper is up, or holds blocks that may be needed",
        503 "Temporarily impossible, for the reason in the error; a later attempt can succeed";

    /// Begins the maintenance of a helper, or changes the end of its maintenance. Until that end the helper's
    /// blocks are not rebuilt elsewhere.
    Maintain maintain (Operate) = Put put "/v1/nodes/{node}/maintenance"
        at "node": String "The helper's name",
        body MaintenanceRequest,
        answer NodeView "The helper",
        400 "The duration of the maintenance is invalid",
        404 "No helper has this name";

    /// Ends the maintenance of a helper.
    EndMaintenance end_maintenance (Operate) = Delete delete "/v1/nodes/{node}/maintenance"
        at "node": String "The helper's name",
        answer NodeView "The helper",
        404 "No helper has this name",
        409 "The helper is not in maintenance";

    /// Queues a repair that moves all blocks of a helper to another helper, or rebuilds them there.
    ReplaceNode replace_node (Operate) = Post post "/v1/nodes/{node}/replace"
        at "node": String "The name of the helper to replace",
        body ReplaceRequest,
        answer RepairView "The repair that moves the blocks",
        404 "One of the two helpers does not exist",
        409 "The new helper is down, or is the helper to replace";

    /// Checks whether helpers may be stopped for a while: without them every stripe that is readable now must
    /// remain readable and must be able to lose `leave` further helpers.
    OkToStop ok_to_stop (Read) = Get get "/v1/checks/ok-to-stop"
        query StopQuery,
        answer SafetyView "Whether the helpers may be stopped, with the reason",
        400 "The request names no helper",
        404 "No helper has this name";

    /// Checks whether helpers may be removed for good: no stripe may have a block on these helpers.
    SafeToRemove safe_to_remove (Read) = Get get "/v1/checks/safe-to-remove"
        query NodesQuery,
        answer SafetyView "Whether the helpers may be removed, with the reason",
        400 "The request names no helper",
        404 "No helper has this name";

    /// Moves blocks from full helpers to empty ones. With `dry_run`, only lists the moves.
    Rebalance rebalance (Operate) = Post post "/v1/rebalances"
        body RebalanceRequest,
        answer RebalanceView "The moves, and the repair that carries them out",
        503 "Temporarily impossible, for the reason in the error; a later attempt can succeed";

    /// Returns the settings of automatic repair.
    GetSettings settings (Read) = Get get "/v1/settings"
        answer SettingsView "The current settings";

    /// Changes the settings of automatic repair. The new settings stay in force until they are changed again.
    ChangeSettings change_settings (Operate) = Patch patch "/v1/settings"
        body SettingsRequest,
        answer SettingsView "The changed settings",
        400 "The grace period is invalid";

    /// Mutes a condition: it no longer counts for the severity of the status. The mute ends after `for_ms`, when the
    /// condition ends, or when its severity or its count grows.
    Mute mute (Operate) = Put put "/v1/mutes/{code}"
        at "code": String "The code of the condition",
        body MuteRequest,
        answer Condition "The muted condition",
        404 "There is no such code, or the cluster does not have the condition now";

    /// Ends the mute of a condition.
    Unmute unmute (Operate) = Delete delete "/v1/mutes/{code}"
        at "code": String "The code of the condition",
        answer Condition "The condition",
        404 "There is no such code, or the cluster does not have the condition now",
        409 "The condition is not muted";

    /// Lists past events, oldest first.
    GetHistory history (Read) = Get get "/v1/history"
        query HistoryQuery,
        answer [HistoryEntry] "Past events, oldest first";

    /// Records in the history that a command's work on a file of the store has ended. The entry names the caller.
    NoteFileWork note_file_work (Operate) = Post post "/v1/history"
        body FileWorkReport,
        answer Value "An empty answer";

    /// Lists the requests that changed something or tried to, oldest first: by whom, from where, with which arguments
    /// and which result. Puts of new files, reports for the history and the requests of plug-ins are not listed.
    GetAudit audit (Administer) = Get get "/v1/audit"
        query HistoryQuery,
        answer [AuditEntry] "The requests, oldest first";

    /// Pushes the conditions, new entries of the history, and the progress of repairs, as server-sent events. The data of
    /// each event is a `PushedEvent`. The id of an entry of the history is its number; a request with `Last-Event-ID`
    /// begins with the entries after that one. The stream ends when the coordinator stops.
    GetEvents events (Read) = Get get "/v1/events"
        query EventsQuery,
        answer PushedEvent as "text/event-stream" "The stream of events";

    /// Lists files by name.
    ListFiles files (Read) = Get get "/v1/files"
        query FilesQuery,
        answer [FileView] "The files in order of their names";

    /// Returns a file with its layout: the stripe and block of each of its bytes.
    GetFile file (Read) = Get get "/v1/files/{name}"
        at "name": String "The file's name, percent-encoded, `/` included",
        answer FileLayout "The file, with the stripes and blocks that hold its bytes",
        404 "No file has this name";

    /// Removes a file and its blocks.
    RemoveFile remove_file (Store) = Delete delete "/v1/files/{name}"
        at "name": String "The file's name, percent-encoded, `/` included",
        answer FileView "The removed file",
        404 "No file has this name";

    /// Begins a put. The client then stores the file's stripes over a control connection.
    BeginPut begin_put (Store) = Post post "/v1/puts"
        body PutRequest,
        answer PutView "The put's number, and the layout of the file's stripes",
        400 "The name, the code or a size is invalid",
        409 "A file of this name exists, and the request does not replace it",
        503 "Too few helpers are up or have room, or the caller has too many open puts";

    /// Commits a put: makes the file visible atomically.
    CommitPut commit_put (Store) = Post post "/v1/puts/{put}/commit"
        at "put": u64 "The put's number",
        answer FileView "The stored file",
        404 "There is no put with this number",
        409 "A stripe of the put is not stored yet, or a file of this name exists";

    /// Aborts a put and removes its blocks.
    AbortPut abort_put (Store) = Delete delete "/v1/puts/{put}"
        at "put": u64 "The put's number",
        answer Value "An empty answer",
        404 "There is no put with this number";

    /// Describes a stripe of another system, so that the stripe can be read and repaired by its name.
    /// Replaces an earlier description. The description expires ten minutes after its last use.
    DescribeStripe describe (Describe) = Post post "/v1/stripes"
        body GivenStripe,
        answer StripeView "The described stripe",
        400 "The description is invalid",
        404 "A named helper does not exist",
        409 "The name belongs to a stripe of this cluster's own catalog",
        423 "The stripe is being read or repaired according to its earlier description",
        503 "Too many stripes are described, or their descriptions use too much memory";

    /// Returns a stripe with its blocks.
    GetStripe stripe (Read) = Get get "/v1/stripes/{stripe}"
        at "stripe": String "The stripe's name",
        answer StripeView "The stripe",
        404 "No stripe has this name";

    /// Lists the stripes whose blocks contradict each other, or in which a parity check has named a wrong block
    /// that is not rebuilt yet. Plug-ins keep their own system from rebuilding
    /// blocks from these stripes.
    ListContradictions contradictions (Read) = Get get "/v1/contradictions"
        answer ContradictoryStripes "The names of the stripes";

    /// Returns the stripe of a block, and the block's index in it.
    GetBlock block (Read) = Get get "/v1/blocks/{block}"
        at "block": String "The block's name",
        answer BlockPlace "The stripe of the block, and the block's index in it",
        404 "No block has this name";

    /// Queues a repair.
    QueueRepair repair (Operate) = Post post "/v1/repairs"
        body RepairRequest,
        answer RepairView "The queued repair",
        400 "The request is invalid; repeating it cannot succeed",
        404 "The named block, stripe or helper does not exist";

    /// Lists the open repairs and the repairs that ended recently, without their stripes.
    ListRepairs repairs (Read) = Get get "/v1/repairs"
        answer [RepairView] "The repairs, without their stripes";

    /// Returns a repair with its stripes.
    GetRepair repair_state (Read) = Get get "/v1/repairs/{repair}"
        at "repair": u64 "The repair's number",
        query RepairQuery,
        answer RepairView "The repair",
        404 "There is no repair with this number";

    /// Cancels a repair. Blocks that were rebuilt are kept.
    CancelRepair cancel_repair (Operate) = Delete delete "/v1/repairs/{repair}"
        at "repair": u64 "The repair's number",
        answer RepairView "The cancelled repair",
        404 "There is no repair with this number",
        409 "The repair has ended already";

    /// Pauses a repair until it is resumed. The repair stays paused across a restart of the coordinator, but
    /// the delivered slices of unfinished blocks are kept only until such a restart.
    PauseRepair pause_repair (Operate) = Post post "/v1/repairs/{repair}/pause"
        at "repair": u64 "The repair's number",
        answer RepairView "The paused repair",
        404 "There is no repair with this number",
        409 "The repair has ended already";

    /// Resumes a paused repair.
    ResumeRepair resume_repair (Operate) = Post post "/v1/repairs/{repair}/resume"
        at "repair": u64 "The repair's number",
        answer RepairView "The resumed repair",
        404 "There is no repair with this number",
        409 "The repair has ended already";

    /// Cancels the drain of a helper, which then receives blocks again.
    StopDrain stop_drain (Operate) = Delete delete "/v1/nodes/{name}/drain"
        at "name": String "The helper's name",
        answer NodeView "The helper",
        404 "No helper has this name";

    /// Returns the bandwidth caps of repairs.
    GetCaps caps (Read) = Get get "/v1/caps"
        answer CapsView "The caps";

    /// Changes bandwidth caps, even while repairs run. Caps that the request does not name stay unchanged.
    ChangeCaps change_caps (Operate) = Post post "/v1/caps"
        body CapsRequest,
        answer CapsView "The changed caps",
        400 "The request is invalid; repeating it cannot succeed",
        404 "A named helper or rack does not exist";

    /// Returns the network as the planner sees it: rates of ports, disks, racks and links, and the source of
    /// each rate.
    GetTopology topology (Read) = Get get "/v1/topology"
        answer TopologyView "The rates of the network and of the disks";

    /// Returns the running measurement of links. If none is running, returns the last one.
    GetProbes probes (Read) = Get get "/v1/probes"
        answer ProbeView "The measurement",
        404 "No link was measured since the start of the coordinator";

    /// Begins a measurement of links: one helper at a time sends to another, as it would in a repair.
    StartProbes probe (Operate) = Post post "/v1/probes"
        body ProbeRequest,
        answer ProbeView "The measurement",
        400 "The request names too few helpers or too many links",
        404 "No helper has this name",
        409 "A measurement is running, or a named helper is down";

    /// Ends the measurement of links. The rates measured so far are kept.
    StopProbes stop_probes (Operate) = Delete delete "/v1/probes"
        answer ProbeView "The measurement",
        404 "No link was measured since the start of the coordinator";

    /// Makes and explains a plan without carrying it out.
    ExplainPlan explain (Read) = Post post "/v1/plans"
        body PlanRequestView,
        answer PlanView "The plan",
        400 "The request is invalid; repeating it cannot succeed",
        404 "The stripe or the named helper does not exist",
        409 "The stripe has lost more blocks than its code tolerates";

    /// Starts a scrub, or returns the running one.
    StartScrub scrub (Operate) = Post post "/v1/scrubs"
        query ScrubQuery,
        answer ScrubView "The scrub",
        409 "The running scrub does not check parity";

    /// Returns the state of a scrub. Only the last scrubs since the start of the coordinator are kept.
    GetScrub scrub_state (Read) = Get get "/v1/scrubs/{scrub}"
        at "scrub": u64 "The scrub's number",
        answer ScrubView "The scrub",
        404 "There is no scrub with this number";

    /// Stops a scrub. Its findings are kept.
    StopScrub stop_scrub (Operate) = Delete delete "/v1/scrubs/{scrub}"
        at "scrub": u64 "The scrub's number",
        answer ScrubView "The stopped scrub",
        404 "There is no scrub with this number",
        409 "The scrub has ended already";

    /// Returns a copy of the current catalog, as a file for `mend catalog restore`.
    GetCatalog catalog_copy (Administer) = Get get "/v1/catalog"
        answer [u8] as "application/octet-stream" "The catalog file",
        500 "The coordinator's disk fails, or the catalog is damaged";

    /// Accepts the catalog although some helpers hold newer blocks, which become orphans. With `reject`, only
    /// ignores what the named helper reports about newer blocks, and does not accept the catalog.
    AcceptCatalog accept_catalog (Administer) = Post post "/v1/catalog/accept"
        body AcceptRequest,
        answer AcceptedView "The blocks that are orphans from now on",
        404 "No helper has this name";

    /// Begins to remove orphans: blocks on helpers on which the catalog does not place them. An orphan is
    /// removed only if it carries this cluster's identity, is not newer than the catalog, and is provably
    /// not needed.
    RemoveOrphans remove_orphans (Administer) = Post post "/v1/orphans/remove"
        answer OrphansView "The number of orphans to check",
        409 "The catalog is older than blocks on some helpers; decide with `mend catalog accept`",
        503 "Temporarily impossible, for the reason in the error; a later attempt can succeed";

    /// Returns this OpenAPI document.
    GetOpenApi openapi_document (Read) = Get get "/v1/openapi.json"
        answer Value "The OpenAPI document";
}

/// Returns the OpenAPI document of the API, as JSON text.
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("a document has string keys");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_OPENAPI=1 cargo test -p views openapi` rewrites the document.
    #[test]
    fn the_openapi_document_is_kept_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, openapi()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == openapi(),
            "docs/reference/openapi.json is stale: run the tests once with UPDATE_OPENAPI=1"
        );
    }
}
