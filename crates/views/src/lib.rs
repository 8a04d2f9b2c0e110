//! Request and response types of the coordinator's API. Units are part of the field names.
//!
//! The types have a crate of their own because both the coordinator and the client need them, and neither may
//! import the other. `docs/reference/openapi.json` is generated from the same definitions.

#![forbid(unsafe_code)]

mod audit;
mod caps;
mod conditions;
pub mod endpoints;
mod events;
mod files;
mod history;
mod natural;
mod nodes;
mod probes;
mod states;
mod status;
mod topology;

pub use audit::*;
pub use caps::*;
pub use conditions::*;
pub use events::*;
pub use files::*;
pub use history::*;
pub use natural::natural;
pub use nodes::*;
pub use probes::*;
pub use repair::{JobPhase, ParityOutcome};
pub use states::*;
pub use status::*;
pub use topology::*;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The maximum length of an answer in bytes: clients refuse longer ones. Only the copy of the catalog may be
/// longer.
pub const MAX_ANSWER_BYTES: usize = 1 << 30;

/// A stripe whose state is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnjudgedStripe {
    /// The stripe's name.
    pub stripe: String,
    /// The reason why the stripe's state is unknown.
    pub why: String,
    /// The suggested next step.
    pub next_step: String,
}

/// Stripes with little redundancy left. Their grace period is shorter than usual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingStripes {
    /// Further blocks that each of these stripes can lose.
    pub survives: u32,
    /// Number of these stripes.
    pub stripes: u64,
    /// Milliseconds until the first repair of these stripes starts.
    pub starts_in_ms: u64,
    /// These facts as a sentence for people.
    pub text: String,
}

fn yes() -> bool {
    true
}

/// Progress of the background scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteadyScrubView {
    /// Read rate in bytes per second, summed over all helpers.
    pub rate_bytes_per_s: u64,
    /// Start of the current round, in milliseconds since 1970.
    pub round_began_unix_ms: Option<u64>,
    /// Blocks that remain to be read in this round; absent until the helpers have registered.
    pub left_in_round: Option<u64>,
    /// End of the last complete round, in milliseconds since 1970.
    pub last_round_ended_unix_ms: Option<u64>,
    /// Results of parity checks in this round, if `mend.toml` enables them.
    #[serde(default)]
    pub parity: Option<ParityScrubView>,
}

/// Progress and speed of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgressView {
    /// Bytes of blocks rebuilt per second: over the last minute while the repair runs, on average once it has
    /// ended. Absent while it is paused.
    pub rate_bytes_per_s: Option<u64>,
    /// Milliseconds until the end at the fastest recent rate; absent until enough progress has been observed.
    pub soonest_ms: Option<u64>,
    /// Milliseconds until the end at the slowest recent rate; absent if there was no progress for a while.
    pub latest_ms: Option<u64>,
    /// The bottleneck: the current one while the repair runs, the most frequent one once it has ended.
    pub limited_by: Option<String>,
    /// Milliseconds since the repair's stripes were determined. Pauses, and time before the last restart of
    /// the coordinator, are not counted.
    pub elapsed_ms: u64,
    /// Lower bound on the duration in milliseconds, computed at the start of the repair from the rates and
    /// the caps of links and disks. Absent for codes that read less than whole blocks, for repairs that ended
    /// incomplete, and for repairs that were faster than the bound.
    pub bound_ms: Option<u64>,
}

/// A part of a file that cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadablePart {
    /// The file's name; absent if the stripe belongs to no file.
    pub file: Option<String>,
    /// The stripe's name.
    pub stripe: String,
    /// The unreadable bytes of the file.
    pub ranges: Vec<FileRange>,
    /// Helpers that are down. The return of any one of these helpers would make this part readable again.
    pub any_of: Vec<String>,
    /// If no single helper suffices: a set of helpers that would make this part readable by returning
    /// together. Empty if no set of helpers would.
    pub together: Vec<String>,
    /// If no set of helpers is known to suffice: the helpers that have not registered since the catalog was
    /// rebuilt or restored. They may hold the missing blocks.
    #[serde(default)]
    pub perhaps: Vec<String>,
}

/// A range of bytes in a file, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileRange {
    /// Offset of the first byte, counted from 0.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
}

/// Names of all stripes whose blocks contradict each other, or in which a parity check has named a wrong block
/// that is not rebuilt yet. Plug-ins fetch this list because their own system must not rebuild blocks from
/// these stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictoryStripes {
    /// The stripes' names.
    pub stripes: Vec<String>,
}

/// A stripe whose blocks contradict each other: some block is wrong although its own checksums match. The
/// entry is removed once a parity check over all blocks that are considered good succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictionView {
    /// The stripe's name.
    pub stripe: String,
    /// The name of the stripe's file; absent if the stripe belongs to no file.
    pub file: Option<String>,
    /// The blocks in the equations that failed.
    pub blocks: Vec<String>,
    /// The operation that first found the contradiction.
    pub found_by: FoundBy,
    /// Time at which the contradiction was first found, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// The suggested next step.
    pub next_step: String,
}

/// Counts of stripes by remaining redundancy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Census {
    /// Number of stripes.
    pub stripes: u64,
    /// Stripes with every block healthy on a live helper.
    pub intact: u64,
    /// Blocks that are lost or on helpers that are down.
    pub blocks_lost: u64,
    /// Total size in bytes of the blocks counted in `blocks_lost`.
    pub bytes_lost: u64,
    /// Stripes with several blocks on one helper, in stores that place each block of a stripe on a different
    /// helper. If the shared helper fails, all of these blocks are lost together.
    #[serde(default)]
    pub misplaced: u64,
    /// Readable stripes, grouped by how many further helpers, hosts, racks and blocks each can lose,
    /// whichever they are. The groups that can lose the fewest helpers come first.
    pub redundancy: Vec<Redundancy>,
    /// Stripes that cannot be read now.
    pub unreadable: u64,
    /// Names of stripes that cannot be read now. The list may be truncated.
    pub unreadable_stripes: Vec<String>,
    /// Stripes whose blocks contradict each other: some are wrong although their own checksums match.
    #[serde(default)]
    pub contradictory: u64,
}

/// Stripes with equal redundancy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redundancy {
    /// Further blocks that each stripe can lose, whichever they are.
    pub survives: u32,
    /// Further helpers that each stripe can lose, whichever they are. Less than `survives` if some helper
    /// holds several blocks of a stripe.
    #[serde(default)]
    pub helpers: u32,
    /// Further hosts that each stripe can lose, whichever they are. Hosts are identified by the helpers'
    /// addresses. Absent if all helpers are on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// Further racks that each stripe can lose, whichever they are; absent if fewer than two racks are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub racks: Option<u32>,
    /// Number of stripes in this group.
    pub stripes: u64,
    /// Stripes of this group that lack a block.
    pub degraded: u64,
    /// Stripes of this group with several blocks on one helper, in stores that place each block of a stripe
    /// on a different helper.
    #[serde(default)]
    pub misplaced: u64,
}

/// Blocks on a helper that are newer than the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewerBlocks {
    /// The helper's name.
    pub node: String,
    /// Number of these blocks.
    pub blocks: u64,
    /// Names of some of these blocks.
    #[serde(default)]
    pub first: Vec<String>,
    /// Whether another helper also holds newer blocks of one of these stripes. If so, nothing is changed
    /// until an operator decides.
    #[serde(default)]
    pub confirmed: bool,
}

/// The operator's decision about a catalog that is older than blocks on some helpers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptRequest {
    /// A helper whose reports of newer blocks are ignored from now on; reports of other helpers are kept. If
    /// absent, the catalog is accepted and all newer blocks become orphans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject: Option<String>,
}

/// The outcome of a decision about blocks that are newer than the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedView {
    /// Number of blocks that were newer than the catalog and are orphans from now on.
    pub blocks: u64,
    /// The helpers that hold these blocks.
    #[serde(default)]
    pub claims: Vec<NewerBlocks>,
}

/// Orphans that are being checked for removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphansView {
    /// Number of blocks on helpers on which the catalog does not place them. An orphan is removed only if it
    /// is provably not needed.
    pub orphans: u64,
}

/// A block that was found bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostBlock {
    /// The block's name.
    pub block: String,
    /// The helper that held the block.
    pub node: String,
    /// The defect.
    pub problem: String,
    /// Time of the discovery, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// A block on a helper on which the catalog does not place it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanView {
    /// The helper's name.
    pub node: String,
    /// The block's name.
    pub block: String,
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// The job's number.
    pub job: u64,
    /// The purpose of the job.
    pub kind: JobKind,
    /// The stripe that the job works on.
    pub stripe: String,
    /// The phase of the job.
    pub phase: JobPhase,
    /// The repair scheme of the job's current plan.
    pub scheme: String,
    /// Slices delivered.
    pub delivered_slices: u32,
    /// Slices to deliver.
    pub slices: u32,
    /// Bytes per slice.
    pub slice_bytes: u32,
    /// The reasons why earlier plans of this job were dropped.
    pub replanned: Vec<String>,
}

/// A stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StripeView {
    /// The stripe's name.
    pub stripe: String,
    /// The code of the stripe.
    pub code: String,
    /// Size of each block in bytes.
    pub block_bytes: u64,
    /// Size in bytes of the chunks in which blocks are encoded; absent if each block is a single chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether the stripe can be read now.
    pub readable: bool,
    /// Further blocks that the stripe can lose, whichever they are.
    pub survives: u32,
    /// Further helpers that the stripe can lose, whichever they are. Less than `survives` if some helper
    /// holds several blocks of the stripe.
    #[serde(default)]
    pub helpers: u32,
    /// The blocks, by index.
    pub blocks: Vec<BlockView>,
}

/// A block of a stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// The block's name.
    pub block: String,
    /// The block's index in the stripe; the first k are data blocks.
    pub index: u16,
    /// The block's size in bytes.
    pub bytes: u64,
    /// The helper that holds the block or held it last; absent if none is known.
    pub node: Option<String>,
    /// The state of the block.
    pub state: BlockState,
    /// The block's digest as `kind:hexadecimal`; absent until the block is stored, and in stores without
    /// digests.
    pub digest: Option<String>,
    /// Further helpers with a copy of the block, in stores that allow copies. Any good copy can be read
    /// instead of the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaView>,
}

/// A copy of a block on a further helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaView {
    /// The helper's name.
    pub node: String,
    /// The state of this copy.
    pub state: BlockState,
}

/// The stripe and index of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockPlace {
    /// The block's index in the stripe.
    pub index: u16,
    /// The stripe.
    pub stripe: StripeView,
}

/// A stripe of another system, described by that system's plug-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenStripe {
    /// The name under which the stripe is read and repaired from now on. It must differ from the names of
    /// this cluster's own stripes.
    pub stripe: String,
    /// The code of the stripe.
    pub code: String,
    /// Size of a full block in bytes. The code pads shorter blocks with zeros.
    pub block_bytes: u64,
    /// Size in bytes of the chunks in which blocks are encoded; each chunk is cut into the code's sub-blocks.
    /// If absent, each block is a single chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// All blocks of the stripe, by index.
    pub blocks: Vec<GivenBlock>,
}

/// A block of a stripe of another system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenBlock {
    /// The name by which the helper finds the block.
    pub block: String,
    /// The block's size in bytes, at most the stripe's `block_bytes`. The code pads a shorter block with
    /// zeros.
    pub bytes: u64,
    /// The helper that holds the block; absent if the block is lost.
    pub node: Option<String>,
    /// The block's digest as `kind:hexadecimal`, if the other system has digests. A block with another digest
    /// is not read.
    pub digest: Option<String>,
}

/// The helper on which a lost block is to be rebuilt, in a stripe that was described by `POST /v1/stripes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The block's index.
    pub index: u16,
    /// The helper's name.
    pub node: String,
}

/// A request to repair. It sets exactly one of `block`, `stripe`, `node`, `drain` and `all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// Repair this block.
    pub block: Option<String>,
    /// Repair all lost blocks of this stripe.
    pub stripe: Option<String>,
    /// Rebuild all blocks of this helper, which is down.
    pub node: Option<String>,
    /// Move all blocks of this helper elsewhere because it is about to fail or to be removed. The helper
    /// receives no blocks from now on.
    pub drain: Option<String>,
    /// The method of emptying a helper: `both` (the default), `migrate` or `rebuild`.
    pub way: Option<String>,
    /// Repair all lost blocks.
    #[serde(default)]
    pub all: bool,
    /// The policy that chooses helpers: even (the default), free-budget, lowest-index, least-recently-used,
    /// load-greedy, m-ppr, push-rep or push-sur.
    pub policy: Option<String>,
    /// The only helpers that may receive blocks; any helper if empty.
    #[serde(default)]
    pub requestors: Vec<String>,
    /// For a stripe that was described by `POST /v1/stripes`: the lost blocks to rebuild, each with its
    /// target helper.
    #[serde(default)]
    pub homes: Vec<Home>,
    /// The repair scheme. If absent, `ppr` for the policy `m-ppr`, and the cluster's default for other policies.
    pub scheme: Option<String>,
    /// Bytes per slice; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Whether to check rebuilt blocks against parity equations; true if absent.
    pub verify_parity: Option<bool>,
    /// When jobs of the repair start: `normal` (the default), or `background` to start after those of all
    /// other repairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Cancel the repair once nobody has requested its state for this many milliseconds. If absent, it goes
    /// on without its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Together with `homes`: rebuild one of the blocks first and then the others, so that the parity check
    /// of the others has a spare block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_first: bool,
}

/// A repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairView {
    /// The repair's number.
    pub repair: u64,
    /// The target: `block NAME`, `stripe NAME`, `node NAME`, `drain NAME` or `all`.
    pub target: String,
    /// True if the coordinator started the repair automatically, false if it was requested.
    pub by_itself: bool,
    /// The requested repair scheme.
    pub scheme: String,
    /// The policy that chooses helpers.
    pub policy: String,
    /// The state of the repair.
    pub state: RepairState,
    /// The repair's counters.
    #[serde(flatten)]
    pub counts: RepairCounts,
    /// Time of the request, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// End of the repair, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
    /// Progress and speed; absent until the stripes of the repair are known.
    pub progress: Option<ProgressView>,
    /// The reasons why some stripes were not repaired, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<RepairReason>,
    /// The conditions at the end of the repair under which the state of some blocks was unknown (`CATALOG_OLD`,
    /// `STORE_UNLISTED`, `NOT_JUDGED`, `INCOMPLETE`), each with at most 5 details. Other blocks may then be lost
    /// although the repair is done. Recorded for repairs of all lost blocks and for those that found none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Condition>,
    /// A number that changes with the state and the counters of the repair, but not with the estimates of its
    /// duration. Pass the number as `since` to wait for a change.
    #[serde(default)]
    pub version: u64,
    /// The stripes of the repair, by name; omitted in lists. The answer to a change has only the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<RepairItem>,
}

impl RepairView {
    /// Whether the repair is done because it found no lost block. Blocks may still be lost if some are [`unknown`].
    ///
    /// [`unknown`]: Self::unknown
    pub fn found_nothing(&self) -> bool {
        self.state == RepairState::Done && self.counts.stripes == 0 && self.counts.blocks_rebuilt == 0
    }
}

/// The counters of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct RepairCounts {
    /// Stripes to repair.
    pub stripes: u64,
    /// Repaired stripes.
    pub stripes_done: u64,
    /// Stripes that failed or cannot be repaired.
    pub stripes_failed: u64,
    /// Rebuilt blocks.
    pub blocks_rebuilt: u64,
    /// Rebuilt bytes, including those of blocks in progress.
    pub bytes_rebuilt: u64,
    /// Bytes to rebuild.
    pub bytes: u64,
}

/// One stripe of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairItem {
    /// The stripe's name.
    pub stripe: String,
    /// The state of this stripe's repair.
    pub state: ItemState,
    /// The blocks to rebuild.
    pub blocks: Vec<String>,
    /// The blocks that were rebuilt, with their helpers.
    pub rebuilt: Vec<RebuiltBlock>,
    /// The repair scheme that was used.
    pub scheme: Option<String>,
    /// The result of the parity check.
    pub parity: Option<ParityOutcome>,
    /// The reason of a failure, or a remark.
    pub reason: Option<String>,
    /// The suggested next step.
    pub next_step: Option<String>,
    /// The reasons why earlier plans were dropped.
    pub replanned: Vec<String>,
    /// The job that works on this stripe, while it runs.
    pub job: Option<JobView>,
    /// When the last attempt reached its steps, in microseconds since the repair's stripes were queued.
    #[serde(default)]
    pub timeline_us: BTreeMap<RepairStep, u64>,
}

/// A block that was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuiltBlock {
    /// The block's name.
    pub block: String,
    /// The helper that holds the block now.
    pub node: String,
}

/// A request to explain a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequestView {
    /// The stripe's name.
    pub stripe: String,
    /// Indices of the wanted blocks; all lost blocks if empty.
    #[serde(default)]
    pub blocks: Vec<u16>,
    /// The repair scheme; the cluster's default if absent.
    pub scheme: Option<String>,
    /// Bytes per slice; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Indices of blocks to treat as lost even if they are available. Wanted blocks are always treated as
    /// lost.
    #[serde(default)]
    pub lost: Vec<u16>,
    /// The helper that receives the wanted blocks, or `client` for a reading client. If absent, the planner
    /// uses the helpers that a repair would choose.
    pub requestor: Option<String>,
}

/// An explained plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// The plan as text for people.
    pub text: String,
    /// The plan for programs: outputs, lanes, tasks and cost.
    pub summary: serde_json::Value,
    /// Names of the nodes in the summary, by their number.
    pub nodes: BTreeMap<String, String>,
    /// The repair scheme of the plan.
    pub scheme: String,
    /// The requestors of the wanted blocks, in the order of these blocks.
    pub requestors: Vec<String>,
    /// The rates on which the prediction is based.
    pub rates: PlanRates,
    /// Predicted duration in milliseconds, based on the known rates of links and disks.
    pub predicted_ms: u64,
}

/// Rates of the links and disks in a plan as the planner sees them, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanRates {
    /// The slowest link.
    pub slowest_link: u64,
    /// The fastest link.
    pub fastest_link: u64,
    /// The slowest disk.
    pub slowest_disk: u64,
    /// The fastest disk.
    pub fastest_disk: u64,
    /// Number of nodes without a configured link rate. The planner assumes 1 Gb/s for these nodes.
    pub assumed_links: u64,
}

/// A scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubView {
    /// The scrub's number.
    pub scrub: u64,
    /// The state of the scrub.
    pub state: ScrubState,
    /// True if a request to start a scrub found this one running and joined it. Only the answer to that request
    /// sets it. The scrub does not read again what it had read before the request, nor blocks stored since it
    /// began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// Blocks to check.
    pub blocks: u64,
    /// Blocks checked.
    pub checked: u64,
    /// Checked blocks that have no checksums in the store. They were read, but compared with nothing; only
    /// parity shows whether they are right.
    #[serde(default)]
    pub without_checksums: u64,
    /// Bytes to check.
    pub bytes: u64,
    /// Bytes checked.
    pub checked_bytes: u64,
    /// Time of the request, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// End of the scrub, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
    /// Helpers that were not checked, or checked only in part, because they are down or do not answer, or because the
    /// state of stripes with blocks there is unknown.
    pub skipped: Vec<SkippedNode>,
    /// Bad blocks that were found.
    pub findings: Vec<Finding>,
    /// Orphans: blocks on helpers on which the catalog does not place them.
    pub orphans: Vec<OrphanView>,
    /// The number of further orphans, which are not listed.
    #[serde(default)]
    pub more_orphans: u64,
    /// Results of parity checks, if the request asked for them.
    #[serde(default)]
    pub parity: Option<ParityScrubView>,
}

/// Progress and results of a scrub's parity checks, which evaluate the code's equations over whole stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParityScrubView {
    /// Stripes to check. For the background scrub: stripes reached so far in this round.
    pub stripes: u64,
    /// Stripes whose equations were evaluated.
    pub checked: u64,
    /// Stripes that could not be checked, grouped by reason.
    pub unchecked: Vec<UncheckedStripes>,
    /// Stripes whose blocks contradict each other without any evidence which block is wrong. The list may be
    /// truncated.
    pub contradictory: Vec<ContradictoryStripe>,
}

/// Stripes whose parity could not be checked, all for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncheckedStripes {
    /// The reason.
    pub why: String,
    /// Number of these stripes.
    pub stripes: u64,
    /// Names of some of these stripes.
    pub first: Vec<String>,
}

/// A stripe whose blocks contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictoryStripe {
    /// The stripe's name.
    pub stripe: String,
    /// The blocks that may be wrong; at least one of them is.
    pub suspects: Vec<SuspectBlock>,
}

/// A block that may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuspectBlock {
    /// The block's name.
    pub block: String,
    /// The helper whose copy of the block was checked.
    pub node: String,
}

/// A helper that a scrub could not check, or could check only in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedNode {
    /// The helper's name; empty if no helper with the blocks is known.
    pub node: String,
    /// Number of the helper's blocks that were not checked. Of each stripe of unknown state, one block is counted.
    pub blocks: u64,
    /// The reason.
    #[serde(default)]
    pub why: String,
}

/// A bad block that a scrub found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// The block's name.
    pub block: String,
    /// The name of the block's stripe.
    pub stripe: String,
    /// The helper that holds the block; empty if no helper has it.
    pub node: String,
    /// The defect.
    pub problem: String,
}

/// The error body of a failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The problem, with names and numbers.
    pub error: String,
    /// The suggested next step.
    pub next_step: String,
}
