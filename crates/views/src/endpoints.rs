//! The endpoints of the API: one definition each of method, path, parameters, body and answer.
//!
//! The coordinator mounts its routes by these definitions, the client calls them, and `docs/reference/openapi.json` is made from them.
//! A new endpoint is an entry here, a line in the coordinator's `api.rs` and a method of the client.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, OpenApi};

use crate::{
    AcceptRequest, AcceptedView, BlockPlace, CapsRequest, CapsView, ContradictoryStripes, ErrorBody,
    FileLayout, FileView, GivenStripe, HistoryEntry, MaintenanceRequest, NodeView, OrphansView,
    PlanRequestView, PlanView, ProbeRequest, ProbeView, PutRequest, PutView, RebalanceRequest, RebalanceView,
    RepairRequest, RepairView, ReplaceRequest, SafetyView, ScrubView, SettingsRequest, SettingsView, Status,
    StripeView, TopologyView,
};

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of HTTP")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// An endpoint of the API.
pub trait Endpoint {
    /// Its method.
    const METHOD: Method;
    /// Its path, with its parameter, if it has one, in braces.
    const PATH: &'static str;
    /// The parameter in the path: a name, a number or none.
    type Parameter: PathParameter;
    /// The parameters of the query.
    type Query: Serialize + DeserializeOwned + Send;
    /// The body of the request.
    type Body: RequestBody;
    /// The answer.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
}

/// The parameter of a path.
pub trait PathParameter: Sized + Send {
    /// Reads it, if there is one. An error returns the text.
    ///
    /// # Errors
    /// The text is not of this type.
    fn read(text: Option<String>) -> Result<Self, String>;

    /// Its text, if there is one.
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
    /// Stands in for a body that is not sent; `None` if it must be.
    const ABSENT: Option<Self>;
}

impl RequestBody for () {
    const ABSENT: Option<Self> = Some(());
}

/// No parameters in the query.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoQuery {}

/// Which files to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Only files whose names begin with this.
    #[serde(default)]
    pub prefix: String,
}

/// How long to wait for a repair, and which of its stripes to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RepairQuery {
    /// Milliseconds to wait for its end, a minute at most; it is answered at once if absent.
    pub wait_ms: Option<u64>,
    /// Ends the wait as soon as its `version` is not this one.
    pub since: Option<u64>,
    /// The most stripes in the answer; all if absent.
    pub items: Option<usize>,
    /// Leaves out stripes up to this one, by name.
    pub items_after: Option<String>,
}

/// What to scrub.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ScrubQuery {
    /// Whether whole stripes are held against their code's equations as well, after their blocks.
    #[serde(default)]
    pub parity: bool,
}

/// Which helpers are asked about.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NodesQuery {
    /// Names of helpers, separated by commas.
    pub nodes: String,
}

/// Which helpers are to be stopped.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StopQuery {
    /// Names of helpers, separated by commas.
    pub nodes: String,
    /// Further blocks that each stripe must still be able to lose; 1 if absent.
    #[serde(default = "some_redundancy")]
    pub leave: u32,
}

fn some_redundancy() -> u32 {
    1
}

/// How much of the history to answer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// How many entries at most; all that are kept if absent.
    pub most: Option<usize>,
}

/// The type of an answer: `[T]` is a list.
macro_rules! answer {
    ([$answer:ident]) => { Vec<$answer> };
    ($answer:ident) => { $answer };
}

/// The type that is given, or else the default.
macro_rules! or {
    ($default:ty;) => {
        $default
    };
    ($default:ty; $given:ty) => {
        $given
    };
}

/// Endpoints, each an [`Endpoint`] and an operation of the OpenAPI document.
macro_rules! endpoints {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $operation:ident = $method:ident $verb:ident $path:literal
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
                type Parameter = or!((); $($parameter_type)?);
                type Query = or!(NoQuery; $($query)?);
                type Body = or!((); $($body)?);
                type Answer = answer!($answer);
            }

            $(impl RequestBody for $body {
                const ABSENT: Option<Self> = None;
            })?
        )+

        /// The operations of the document.
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
                description = "Files, stripes, repairs and scrubs of a Mend cluster. All requests go over mutual TLS \
                               with a certificate of the cluster; a helper's certificate may only read, and not the catalog; a plug-in's is for stripes that it describes. A failed \
                               request is answered by an `ErrorBody` that says what is wrong and what to do.",
                license(name = "Apache-2.0", identifier = "Apache-2.0")
            ),
            paths($(operations::$operation),+),
            components(schemas(ErrorBody))
        )]
        struct Document;

        /// Method and path of every endpoint.
        pub const ENDPOINTS: &[(Method, &str)] = &[$(($name::METHOD, $name::PATH)),+];
    };
}

endpoints! {
    /// Answers "am I safe?".
    GetStatus status = Get get "/v1/status"
        answer Status "The state of the cluster";

    /// The helpers.
    ListNodes nodes = Get get "/v1/nodes"
        answer [NodeView] "The helpers, as people sort their names";

    /// Takes a helper off the list that is down and holds nothing that is needed.
    RemoveNode remove_node = Delete delete "/v1/nodes/{node}"
        at "node": String "The helper's name",
        answer NodeView "The helper",
        404 "There is nothing of this name or number",
        409 "It is up, or holds blocks that the catalog needs",
        503 "It cannot be carried out now";

    /// Begins the maintenance of a helper, or makes it end at another time: what it holds is not rebuilt elsewhere before that.
    Maintain maintain = Put put "/v1/nodes/{node}/maintenance"
        at "node": String "The helper's name",
        body MaintenanceRequest,
        answer NodeView "The helper",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number";

    /// Ends the maintenance of a helper.
    EndMaintenance end_maintenance = Delete delete "/v1/nodes/{node}/maintenance"
        at "node": String "The helper's name",
        answer NodeView "The helper",
        404 "There is nothing of this name or number",
        409 "It is not in maintenance";

    /// Queues a repair that brings all that a helper has, or had, to another one.
    ReplaceNode replace_node = Post post "/v1/nodes/{node}/replace"
        at "node": String "The name of the helper that leaves",
        body ReplaceRequest,
        answer RepairView "The repair",
        404 "There is nothing of this name or number",
        409 "The other one is not up";

    /// Whether helpers may be stopped for a while: every stripe that can be read now still could, and lose another block.
    OkToStop ok_to_stop = Get get "/v1/checks/ok-to-stop"
        query StopQuery,
        answer SafetyView "Whether they may, and why not",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number";

    /// Whether helpers may be taken away for good: no stripe has a block there.
    SafeToRemove safe_to_remove = Get get "/v1/checks/safe-to-remove"
        query NodesQuery,
        answer SafetyView "Whether they may, and why not",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number";

    /// Moves blocks from full helpers to empty ones, or says what would move.
    Rebalance rebalance = Post post "/v1/rebalances"
        body RebalanceRequest,
        answer RebalanceView "What moves",
        503 "It cannot be carried out now";

    /// What the coordinator does by itself.
    GetSettings settings = Get get "/v1/settings"
        answer SettingsView "The settings as they are now";

    /// Changes what the coordinator does by itself; it holds until it is changed again.
    ChangeSettings change_settings = Patch patch "/v1/settings"
        body SettingsRequest,
        answer SettingsView "The settings as they are now",
        400 "The request can never be carried out";

    /// What has happened, oldest first.
    GetHistory history = Get get "/v1/history"
        query HistoryQuery,
        answer [HistoryEntry] "What has happened, oldest first";

    /// The files, by name.
    ListFiles files = Get get "/v1/files"
        query FilesQuery,
        answer [FileView] "The files";

    /// A file with its layout: where each of its bytes is.
    GetFile file = Get get "/v1/files/{name}"
        at "name": String "The file's name, percent-encoded, `/` included",
        answer FileLayout "The file and where its bytes are",
        404 "There is nothing of this name or number";

    /// Removes a file and its blocks.
    RemoveFile remove_file = Delete delete "/v1/files/{name}"
        at "name": String "The file's name, percent-encoded, `/` included",
        answer FileView "The file",
        404 "There is nothing of this name or number";

    /// Begins a put. Its stripes are then stored over a control connection.
    BeginPut begin_put = Post post "/v1/puts"
        body PutRequest,
        answer PutView "The put, and how the file is cut",
        400 "The request can never be carried out",
        409 "The name is taken",
        503 "Too few helpers are up";

    /// Makes a put's file visible, all at once.
    CommitPut commit_put = Post post "/v1/puts/{put}/commit"
        at "put": u64 "The put's number",
        answer FileView "The file",
        404 "There is nothing of this name or number",
        409 "A stripe is not stored, or the name is taken";

    /// Gives a put up and removes what was stored of it.
    AbortPut abort_put = Delete delete "/v1/puts/{put}"
        at "put": u64 "The put's number",
        answer Value "Nothing to say",
        404 "There is nothing of this name or number";

    /// Describes a stripe of another system, in place of an earlier description, so that it can be read and repaired by its
    /// name. It is forgotten ten minutes after it was last asked for.
    DescribeStripe describe = Post post "/v1/stripes"
        body GivenStripe,
        answer StripeView "The stripe",
        400 "The request can never be carried out",
        404 "A helper that is not known",
        409 "It is in the catalog",
        423 "It is being read or repaired according to its earlier description",
        503 "Too many are described, or their descriptions take too much memory";

    /// A stripe.
    GetStripe stripe = Get get "/v1/stripes/{stripe}"
        at "stripe": String "The stripe's name",
        answer StripeView "The stripe",
        404 "There is nothing of this name or number";

    /// The stripes whose blocks contradict each other: a plug-in keeps its own system from rebuilding from them.
    ListContradictions contradictions = Get get "/v1/contradictions"
        answer ContradictoryStripes "Their names";

    /// The stripe of a block, and its index there.
    GetBlock block = Get get "/v1/blocks/{block}"
        at "block": String "The block's name",
        answer BlockPlace "The stripe of the block, and its index",
        404 "There is nothing of this name or number";

    /// Queues a repair.
    QueueRepair repair = Post post "/v1/repairs"
        body RepairRequest,
        answer RepairView "The repair",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number";

    /// The repairs since the coordinator's start, without their stripes.
    ListRepairs repairs = Get get "/v1/repairs"
        answer [RepairView] "The repairs";

    /// A repair with its stripes.
    GetRepair repair_state = Get get "/v1/repairs/{repair}"
        at "repair": u64 "The repair's number",
        query RepairQuery,
        answer RepairView "The repair",
        404 "There is nothing of this name or number";

    /// Calls a repair off; blocks that were rebuilt stay.
    CancelRepair cancel_repair = Delete delete "/v1/repairs/{repair}"
        at "repair": u64 "The repair's number",
        answer RepairView "The repair",
        404 "There is nothing of this name or number",
        409 "It has ended";

    /// Nothing of a repair starts until it is resumed; what runs goes to its end.
    PauseRepair pause_repair = Post post "/v1/repairs/{repair}/pause"
        at "repair": u64 "The repair's number",
        answer RepairView "The repair",
        404 "There is none",
        409 "It has ended";

    /// A repair that was paused goes on.
    ResumeRepair resume_repair = Post post "/v1/repairs/{repair}/resume"
        at "repair": u64 "The repair's number",
        answer RepairView "The repair",
        404 "There is none",
        409 "It has ended";

    /// A helper gets blocks again that was to be emptied; what empties it is called off.
    StopDrain stop_drain = Delete delete "/v1/nodes/{name}/drain"
        at "name": String "The helper's name",
        answer NodeView "The helper",
        404 "There is none";

    /// The caps on what repairs may move.
    GetCaps caps = Get get "/v1/caps"
        answer CapsView "The caps";

    /// Changes caps, also while repairs run. What is not named stays.
    ChangeCaps change_caps = Post post "/v1/caps"
        body CapsRequest,
        answer CapsView "The caps from now on",
        400 "The request makes no sense",
        404 "There is no such helper";

    /// The network as the planner sees it: what ports, disks, racks and links carry, and how that is known.
    GetTopology topology = Get get "/v1/topology"
        answer TopologyView "The network";

    /// The measurement of links that runs, or the last one.
    GetProbes probes = Get get "/v1/probes"
        answer ProbeView "The measurement",
        404 "Nothing was measured since the coordinator was started";

    /// Begins to measure links: one helper sends to another as a repair would, one at a time.
    StartProbes probe = Post post "/v1/probes"
        body ProbeRequest,
        answer ProbeView "The measurement",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number",
        409 "One runs already, or a helper is down";

    /// Ends the measurement of links; what was found counts.
    StopProbes stop_probes = Delete delete "/v1/probes"
        answer ProbeView "The measurement",
        404 "Nothing was measured since the coordinator was started";

    /// Explains a plan without carrying it out.
    ExplainPlan explain = Post post "/v1/plans"
        body PlanRequestView,
        answer PlanView "The plan",
        400 "The request can never be carried out",
        404 "There is nothing of this name or number",
        409 "Too much is lost";

    /// Starts a scrub, or tells of the one that runs.
    StartScrub scrub = Post post "/v1/scrubs"
        query ScrubQuery,
        answer ScrubView "The scrub",
        409 "One runs that does not check parity";

    /// The scrub that runs or ran last.
    GetScrub scrub_state = Get get "/v1/scrubs/{scrub}"
        at "scrub": u64 "The scrub's number",
        answer ScrubView "The scrub",
        404 "There is nothing of this name or number";

    /// Stops a scrub; what it has found stays.
    StopScrub stop_scrub = Delete delete "/v1/scrubs/{scrub}"
        at "scrub": u64 "The scrub's number",
        answer ScrubView "The scrub",
        404 "There is nothing of this name or number",
        409 "It has ended";

    /// A copy of the catalog as it is now: a file for `mend catalog restore`.
    GetCatalog catalog_copy = Get get "/v1/catalog"
        answer [u8] as "application/octet-stream" "The catalog's file",
        500 "The coordinator's own disk fails, or the catalog is damaged";

    /// Goes on with the catalog as it is, though some helper holds blocks that are newer; those belong to no stripe then.
    /// Or a helper's claims are rejected.
    AcceptCatalog accept_catalog = Post post "/v1/catalog/accept"
        body AcceptRequest,
        answer AcceptedView "What was decided",
        404 "There is no such helper";

    /// Begins to remove the blocks that no stripe knows, if it can be shown of them that nothing refers to them: they say that
    /// they are of this cluster, and are older than the catalog.
    RemoveOrphans remove_orphans = Post post "/v1/orphans/remove"
        answer OrphansView "How many there are",
        409 "It contradicts what is there",
        503 "It cannot be carried out now";

    /// This document.
    GetOpenApi openapi_document = Get get "/v1/openapi.json"
        answer Value "The document";
}

/// The OpenAPI document of the API, as JSON text.
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("a document has string keys");
    text.push('\n');
    text
}
