//! The pure core of Mend: plans of repairs and their execution slice by slice.
//!
//! A request becomes a [`Job`]; the planner turns a stripe, its losses and a topology into a [`Plan`]; the
//! plan is cut into one [`Assignment`] per node; on each node a [`Relay`] reads, receives, combines and sends
//! slices. `Job` and `Relay` are state machines: all input, time included, is an argument, and all output is
//! a value. This crate has no clock, socket, disk or thread; the daemons and the simulator drive the same
//! types.

#![forbid(unsafe_code)]

mod assignment;
mod buffer;
mod chunking;
mod cost;
mod dealing;
mod digest;
mod fingerprint;
mod forecast;
mod gathering;
mod heat;
mod ids;
mod job;
mod label;
mod limits;
mod parity;
mod part;
mod permit;
mod plan;
mod plan_text;
mod planner;
mod reading;
mod relay;
mod slices;
mod stripe;
mod topology;
mod transfer;
pub mod wire;

pub use assignment::{Assignment, Inlet, LaneTask, Lanes, LocalBlock, Outlet, Sink, SinkEnd};
pub use buffer::{Buffer, BufferPool};
pub use chunking::{Chunking, ChunkingError, Piece};
pub use cost::{Cost, NodeCost};
pub use dealing::{Dealing, DealingError};
pub use digest::{Digest, DigestError, MAX_DIGEST_BYTES, MAX_KIND_BYTES, Strength};
pub use fingerprint::{FINGERPRINT_BYTES, Fingerprint, Fingerprinter, fingerprints};
pub use forecast::Forecast;
pub use gathering::Gathering;
pub use heat::Heat;
pub use ids::{BlockId, EdgeKey, Epoch, JobId, NodeId, StripeId};
pub use job::{
    BlockProblem, Brought, Copies, Due, Job, JobAction, JobError, JobPhase, JobRequest, JobState, Outcome,
    ParityOutcome, Refusal, Report, Sent, SinkProblem, Verify,
};
pub use label::{FilePart, StripeLabel};
pub use limits::{Caps, Class, Grant, Limits, Meter, longest_caps};
pub use parity::{StripeParity, stripe_parity};
pub use part::{
    Errand, FingerprintErrand, MAX_WAITING_MESSAGES, Part, PartAction, WATCH_EVERY, too_many_messages,
};
pub use permit::{MAX_PERMIT_BYTES, Permit, PermitError};
pub use plan::{
    Combination, Input, Lane, Output, Pacing, Plan, PlanBuilder, Send, StreamRef, Summand, Task,
    WHOLE_BLOCK_BYTES,
};
pub use plan_text::{LaneSummary, PlanSummary, PlanText};
pub use planner::{
    Bound, Explanation, Limit, Missing, PacingProblem, PlanError, PlanRequest, Policy, Replacements, Scheme,
    Stretch, UnknownScheme, Wanted, explain, plan,
};
pub use reading::BlockRange;
pub use relay::{Action, Relay, RelayError};
pub use slices::{Geometry, SliceSet};
pub use stripe::{Stripe, StripeBlock};
pub use topology::{
    Accepts, NodeProfile, Rates, Reach, Resource, StatedRates, Topology, TopologyError, Trunk, host_of,
};
pub use transfer::Transfer;
