//! What the coordinator's API takes and gives: plain facts, with units in their names.
//!
//! A room of its own because the coordinator and the client both need it and must not import each other. The
//! same definitions make `docs/reference/openapi.json`.

#![forbid(unsafe_code)]

mod caps;
pub mod endpoints;
mod files;
mod history;
mod natural;
mod nodes;
mod probes;
mod states;
mod status;
mod topology;

pub use caps::*;
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

/// A stripe of which it is not known how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnjudgedStripe {
    /// The stripe.
    pub stripe: String,
    /// Why that is not known.
    pub why: String,
    /// What can be done about it.
    pub next_step: String,
}

/// Stripes whose lost blocks are waited for, and not for the whole grace period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingStripes {
    /// Blocks that each can still lose.
    pub survives: u32,
    /// How many there are.
    pub stripes: u64,
    /// Milliseconds until the first is repaired.
    pub starts_in_ms: u64,
    /// All that in a sentence.
    pub text: String,
}

fn yes() -> bool {
    true
}

/// How far the scrub is that goes on all the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteadyScrubView {
    /// What it reads in a second, all helpers together.
    pub rate_bytes_per_s: u64,
    /// When the round began that it is in, in milliseconds since 1970.
    pub round_began_unix_ms: Option<u64>,
    /// Blocks that it has still to read in this round; unknown until the helpers are there.
    pub left_in_round: Option<u64>,
    /// When the last whole round ended, in milliseconds since 1970.
    pub last_round_ended_unix_ms: Option<u64>,
    /// The results of parity checks in this round, if mend.toml wants them.
    #[serde(default)]
    pub parity: Option<ParityScrubView>,
}

/// How far a repair has come, and how fast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgressView {
    /// Bytes of blocks per second over the last minute, or in the mean once it has ended; absent while it is paused.
    pub rate_bytes_per_s: Option<u64>,
    /// Milliseconds until the end, at the fastest rate that was seen lately; absent until enough was seen to tell.
    pub soonest_ms: Option<u64>,
    /// Milliseconds until the end, at the slowest; absent if something stood still.
    pub latest_ms: Option<u64>,
    /// What limits it, or limited it most of the time.
    pub limited_by: Option<String>,
    /// How long it has taken, since this coordinator knows its stripes and without the time that it was paused.
    pub elapsed_ms: u64,
    /// The least that it can take, by what links and disks are taken to carry within their caps as it began; absent for
    /// codes that read less than whole blocks, for repairs that ended before all was done, and where it took less.
    pub bound_ms: Option<u64>,
}

/// A part of a file that cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadablePart {
    /// The file; none if the stripe is of no file.
    pub file: Option<String>,
    /// The stripe.
    pub stripe: String,
    /// The bytes of the file that cannot be read.
    pub ranges: Vec<FileRange>,
    /// Helpers of which any one would bring it back.
    pub any_of: Vec<String>,
    /// Otherwise helpers that would do so together; none if there are no such.
    pub together: Vec<String>,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileRange {
    /// The first, counted from 0.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// The names of all stripes whose blocks contradict each other, for a plug-in: its own system must not rebuild from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictoryStripes {
    /// Their names.
    pub stripes: Vec<String>,
}

/// A stripe whose blocks contradict each other: some block is wrong although its own checksums hold. It is forgotten when
/// parity was seen to hold over every block that counts as good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictionView {
    /// The stripe.
    pub stripe: String,
    /// Its file; none if the stripe is of no file.
    pub file: Option<String>,
    /// The blocks of the equations that do not hold.
    pub blocks: Vec<String>,
    /// What noticed it first.
    pub found_by: FoundBy,
    /// When, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// What to do about it.
    pub next_step: String,
}

/// Stripes by what they can still lose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Census {
    /// All stripes.
    pub stripes: u64,
    /// Stripes of which every block is healthy on a live helper.
    pub intact: u64,
    /// Blocks that are lost or on helpers that are down.
    pub blocks_lost: u64,
    /// Bytes of those blocks.
    pub bytes_lost: u64,
    /// Stripes of which a helper holds several blocks, in stores that keep one on each: that helper's death loses all
    /// of these at once.
    #[serde(default)]
    pub misplaced: u64,
    /// Stripes by the number of further helpers that they can surely lose and stay readable, fewest first.
    pub redundancy: Vec<Redundancy>,
    /// Stripes that cannot be read now.
    pub unreadable: u64,
    /// The first of them.
    pub unreadable_stripes: Vec<String>,
    /// Stripes whose blocks contradict each other: some are wrong although their own checksums hold.
    #[serde(default)]
    pub contradictory: u64,
}

/// Stripes that can lose as much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redundancy {
    /// Further blocks that they can surely lose.
    pub survives: u32,
    /// Further helpers that they can surely lose: fewer than blocks if some helper holds several of a stripe.
    #[serde(default)]
    pub helpers: u32,
    /// Further hosts that they can surely lose, by the addresses of helpers; absent if all are on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// Further racks that they can surely lose; absent unless several are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub racks: Option<u32>,
    /// How many stripes.
    pub stripes: u64,
    /// How many of them lack a block.
    pub degraded: u64,
    /// How many of them have several blocks on one helper, in stores that keep one on each.
    #[serde(default)]
    pub misplaced: u64,
}

/// Blocks on a helper that are newer than the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewerBlocks {
    /// The helper.
    pub node: String,
    /// How many.
    pub blocks: u64,
    /// The first of them.
    #[serde(default)]
    pub first: Vec<String>,
    /// Whether another helper holds blocks of one of their stripes, too: then nothing is changed until somebody decides.
    #[serde(default)]
    pub confirmed: bool,
}

/// How to go on with a catalog that is older than blocks on some helpers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptRequest {
    /// A helper whose claims are not believed from now on; all others stand. Without it, nothing that is newer is missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject: Option<String>,
}

/// What was decided about blocks that are newer than the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedView {
    /// How many blocks were newer, and belong to no stripe from now on.
    pub blocks: u64,
    /// The helpers that had claimed them.
    #[serde(default)]
    pub claims: Vec<NewerBlocks>,
}

/// Orphans that are looked at, to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphansView {
    /// How many blocks no stripe knows. Those go of which it can be shown that nothing refers to them.
    pub orphans: u64,
}

/// A block found bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostBlock {
    /// The block.
    pub block: String,
    /// The node it was on.
    pub node: String,
    /// What is wrong with it.
    pub problem: String,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// A block on a helper that no stripe knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanView {
    /// The helper.
    pub node: String,
    /// The block's name.
    pub block: String,
}

/// A job that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its number.
    pub job: u64,
    /// What it is for.
    pub kind: JobKind,
    /// The stripe it works on.
    pub stripe: String,
    /// What it is doing.
    pub phase: JobPhase,
    /// The scheme of its plan.
    pub scheme: String,
    /// Slices delivered.
    pub delivered_slices: u32,
    /// Slices to deliver.
    pub slices: u32,
    /// Bytes of a slice.
    pub slice_bytes: u32,
    /// Why plans were dropped so far.
    pub replanned: Vec<String>,
}

/// A stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StripeView {
    /// Its name.
    pub stripe: String,
    /// Its code.
    pub code: String,
    /// Bytes of each of its blocks.
    pub block_bytes: u64,
    /// Bytes of the chunks that its blocks are encoded in; absent if each is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether it can be read now.
    pub readable: bool,
    /// Further blocks that it can surely lose.
    pub survives: u32,
    /// Further helpers that it can surely lose: fewer than blocks if some helper holds several of them.
    #[serde(default)]
    pub helpers: u32,
    /// Its blocks, by index.
    pub blocks: Vec<BlockView>,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// Its name.
    pub block: String,
    /// Its index in the stripe; the first k are data.
    pub index: u16,
    /// Its bytes.
    pub bytes: u64,
    /// The helper that holds it, or held it last; none if nobody is known to.
    pub node: Option<String>,
    /// How it is.
    pub state: BlockState,
    /// Its digest, `kind:hexadecimal`, once it is stored, if its store has digests.
    pub digest: Option<String>,
    /// Further helpers that have it, in stores where that can be; any good one does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaView>,
}

/// A block on one more helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaView {
    /// The helper.
    pub node: String,
    /// How it is there.
    pub state: BlockState,
}

/// Where a block belongs.
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
    /// The name by which it is asked for from now on; none of this cluster's own.
    pub stripe: String,
    /// Its code.
    pub code: String,
    /// Bytes of a block for the purpose of coding.
    pub block_bytes: u64,
    /// Bytes of the chunks that a block is encoded in, each cut into the code's sub-blocks; a single one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// All its blocks, by index.
    pub blocks: Vec<GivenBlock>,
}

/// A block of another system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenBlock {
    /// Its name, by which its helper finds it.
    pub block: String,
    /// Its bytes, at most the stripe's `block_bytes`; zeros follow in coding.
    pub bytes: u64,
    /// The helper that holds it; none if it is lost.
    pub node: Option<String>,
    /// Its digest, `kind:hexadecimal`, if that system has digests: a helper that holds something else is not read.
    pub digest: Option<String>,
}

/// Where a block of a given stripe shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The block's index.
    pub index: u16,
    /// The helper.
    pub node: String,
}

/// What to repair: exactly one of `block`, `stripe`, `node`, `drain` and `all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// This block.
    pub block: Option<String>,
    /// Every lost block of this stripe.
    pub stripe: Option<String>,
    /// Every block of this helper, which is down.
    pub node: Option<String>,
    /// Every block of this helper goes elsewhere, as it is about to fail or to be taken away; it gets none from now on.
    pub drain: Option<String>,
    /// How a helper is emptied: both (if absent), migrate or rebuild.
    pub way: Option<String>,
    /// Every lost block.
    #[serde(default)]
    pub all: bool,
    /// How helpers are chosen: even (if absent), free-budget, lowest-index, least-recently-used, load-greedy, m-ppr, push-rep
    /// or push-sur.
    pub policy: Option<String>,
    /// The only helpers that get blocks; any if empty.
    #[serde(default)]
    pub requestors: Vec<String>,
    /// With a stripe that was described (`POST /v1/stripes`): the lost blocks to rebuild, each with the helper that shall
    /// have it.
    #[serde(default)]
    pub homes: Vec<Home>,
    /// The scheme; the cluster's default if absent.
    pub scheme: Option<String>,
    /// Bytes of a slice; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Whether parity equations of what was rebuilt are checked; true if absent.
    pub verify_parity: Option<bool>,
}

/// A repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairView {
    /// Its number.
    pub repair: u64,
    /// block NAME, stripe NAME, node NAME, drain NAME or all.
    pub target: String,
    /// Whether nobody asked for it, but a helper was gone for too long.
    pub by_itself: bool,
    /// The scheme asked for.
    pub scheme: String,
    /// How helpers are chosen.
    pub policy: String,
    /// How far it is.
    pub state: RepairState,
    /// Its counters.
    #[serde(flatten)]
    pub counts: RepairCounts,
    /// When it was asked for, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// How it goes; absent until its stripes are known.
    pub progress: Option<ProgressView>,
    /// Why stripes of it were not repaired, the most frequent reason first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<RepairReason>,
    /// Changes with its state and its counters, not with estimates; for `since`.
    #[serde(default)]
    pub version: u64,
    /// Its stripes, by name; left out in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<RepairItem>,
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
    /// The stripe.
    pub stripe: String,
    /// How far it is.
    pub state: ItemState,
    /// The blocks to rebuild.
    pub blocks: Vec<String>,
    /// Where blocks were rebuilt.
    pub rebuilt: Vec<RebuiltBlock>,
    /// The scheme used.
    pub scheme: Option<String>,
    /// What came of the check of a parity equation.
    pub parity: Option<ParityOutcome>,
    /// Why it failed, or what is worth knowing.
    pub reason: Option<String>,
    /// What to do about it.
    pub next_step: Option<String>,
    /// Plans that were dropped on the way, and why.
    pub replanned: Vec<String>,
    /// Its job, while it runs.
    pub job: Option<JobView>,
}

/// A block that was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuiltBlock {
    /// The block.
    pub block: String,
    /// The helper that holds it now.
    pub node: String,
}

/// What to explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequestView {
    /// The stripe.
    pub stripe: String,
    /// Indices of the wanted blocks; the lost ones if empty.
    #[serde(default)]
    pub blocks: Vec<u16>,
    /// The scheme; the cluster's default if absent.
    pub scheme: Option<String>,
    /// Bytes of a slice; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Indices of blocks to be taken as lost, beside those that are; the wanted ones always are.
    #[serde(default)]
    pub lost: Vec<u16>,
    /// The helper that gets the wanted blocks, or `client` for a client that reads them; helpers that a
    /// repair would choose if absent.
    pub requestor: Option<String>,
}

/// A plan, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// For people.
    pub text: String,
    /// For machines: outputs, lanes, tasks and cost.
    pub summary: serde_json::Value,
    /// Names of the nodes in the summary, by number.
    pub nodes: BTreeMap<String, String>,
    /// The scheme that shaped it.
    pub scheme: String,
    /// Who gets the wanted blocks, in their order.
    pub requestors: Vec<String>,
    /// What the prediction goes by.
    pub rates: PlanRates,
    /// The predicted time in milliseconds, from what is known of links and disks.
    pub predicted_ms: u64,
}

/// What the links and disks of a plan's nodes are taken to carry, in bytes per second.
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
    /// Nodes whose link nobody has configured, so that 1 Gb/s is assumed.
    pub assumed_links: u64,
}

/// A scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubView {
    /// Its number.
    pub scrub: u64,
    /// How far it is.
    pub state: ScrubState,
    /// Blocks to check.
    pub blocks: u64,
    /// Blocks checked.
    pub checked: u64,
    /// Bytes to check.
    pub bytes: u64,
    /// Bytes checked.
    pub checked_bytes: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// Helpers that were not or not wholly checked, since they are down or do not answer.
    pub skipped: Vec<SkippedNode>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Blocks that no stripe knows.
    pub orphans: Vec<OrphanView>,
    /// The results of parity checks, if they were asked for.
    #[serde(default)]
    pub parity: Option<ParityScrubView>,
}

/// Whole stripes that a scrub holds against their code's equations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParityScrubView {
    /// Stripes to check; of the steady scrub those that it has come to in this round.
    pub stripes: u64,
    /// Stripes whose equations were evaluated.
    pub checked: u64,
    /// Stripes that could not be checked, by the reason.
    pub unchecked: Vec<UncheckedStripes>,
    /// Stripes whose blocks contradict each other, with nothing to tell which of them is wrong; the first of them.
    pub contradictory: Vec<ContradictoryStripe>,
}

/// Stripes whose parity could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncheckedStripes {
    /// Why.
    pub why: String,
    /// How many.
    pub stripes: u64,
    /// The first of them.
    pub first: Vec<String>,
}

/// A stripe whose blocks contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContradictoryStripe {
    /// The stripe.
    pub stripe: String,
    /// Its blocks of which some are wrong.
    pub suspects: Vec<SuspectBlock>,
}

/// A block that may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuspectBlock {
    /// The block.
    pub block: String,
    /// The helper that was asked about it.
    pub node: String,
}

/// A helper that a scrub could not ask, or not about everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedNode {
    /// The helper.
    pub node: String,
    /// Blocks on it that were not checked.
    pub blocks: u64,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// A bad block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// The block.
    pub block: String,
    /// Its stripe.
    pub stripe: String,
    /// The helper.
    pub node: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, with names and numbers.
    pub error: String,
    /// What to do about it.
    pub next_step: String,
}
