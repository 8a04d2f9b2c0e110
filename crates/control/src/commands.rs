//! API requests: one enum per topic. Each request carries a [`Reply`], which ties its answer to the request.

use std::time::Duration;

use repair::StripeId;
use serde_json::Value;
use store_api::{PutId, Snapshot};

use crate::answers::metrics::Metrics;
use crate::effect::Reply;
use crate::repairs::ItemPage;
use views::{
    AcceptRequest, AcceptedView, AuditEntry, AuditedRequest, BlockPlace, CapsRequest, CapsView, Condition,
    ContradictoryStripes, FileLayout, FileView, FileWorkReport, GivenStripe, HistoryEntry,
    MaintenanceRequest, MuteRequest, NodeView, OrphansView, PlanRequestView, PlanView, ProbeRequest,
    ProbeView, PutRequest, PutView, RebalanceRequest, RebalanceView, RepairRequest, RepairView,
    ReplaceRequest, SafetyView, ScrubView, SettingsRequest, SettingsView, Status, StripeView, TopologyView,
};

/// Declares the enums of requests and the enum that wraps them all.
macro_rules! commands {
    ($(#[doc = $doc:literal] $topic:ident $name:ident { $($(#[doc = $each:literal])* $command:ident($($what:ty),*)),+ $(,)? })+) => {
        /// A request of the API, by topic.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the variants are named after their topics")]
        pub enum Command {
            $($topic($name),)+
        }

        $(
            #[doc = $doc]
            #[derive(Debug)]
            #[allow(missing_docs, reason = "the names are those of the API's operations")]
            pub enum $name {
                $($(#[doc = $each])* $command($($what),*),)+
            }

            impl From<$name> for Command {
                fn from(command: $name) -> Self {
                    Self::$topic(command)
                }
            }
        )+
    };
}

commands! {
    /// Requests about the cluster as a whole.
    Cluster ClusterCommand {
        Status(Reply<Status>),
        /// Returns the last events since a time, at most this number of them.
        History(u64, usize, Reply<Vec<HistoryEntry>>),
        /// Returns the first events after the one with this number and since a time, at most this number of them.
        HistoryPage(u64, u64, usize, Reply<Vec<HistoryEntry>>),
        /// Records the end of a command's work on a file; the string names the member that has run the command.
        NoteFileWork(FileWorkReport, String, Reply<Value>),
        /// Returns the last audited requests since a time, at most this number of them.
        Audit(u64, usize, Reply<Vec<AuditEntry>>),
        /// Records an audited request.
        NoteAudit(Box<AuditedRequest>, Reply<()>),
        Settings(Reply<SettingsView>),
        ChangeSettings(SettingsRequest, Reply<SettingsView>),
        /// Mutes the condition with this code.
        Mute(String, MuteRequest, Reply<Condition>),
        Unmute(String, Reply<Condition>),
        /// Returns the figures for metrics.
        Metrics(Reply<Metrics>),
    }

    /// Requests about files and puts.
    File FileCommand {
        /// Lists the files whose names begin with this prefix.
        List(String, Reply<Vec<FileView>>),
        /// Opens a file for reading.
        Layout(String, Reply<FileLayout>),
        Remove(String, Reply<FileView>),
        /// Begins a put; the string names the member that begins it.
        BeginPut(PutRequest, String, Reply<PutView>),
        CommitPut(PutId, Reply<FileView>),
        AbortPut(PutId, Reply<Value>),
    }

    /// Requests about stripes and blocks.
    Stripe StripeCommand {
        View(StripeId, Reply<StripeView>),
        Contradictions(Reply<ContradictoryStripes>),
        Block(String, Reply<BlockPlace>),
        /// Describes a stripe; the string names the member that describes it.
        Describe(GivenStripe, String, Reply<StripeView>),
        /// Makes a plan without carrying it out.
        Explain(PlanRequestView, Reply<PlanView>),
    }

    /// Requests about repairs.
    Repair RepairCommand {
        Queue(Box<RepairRequest>, Reply<RepairView>),
        List(Reply<Vec<RepairView>>),
        State(u64, ItemPage, Reply<RepairView>),
        /// Like `State`, but answers only for repairs of stripes that plug-ins described.
        GivenState(u64, Reply<RepairView>),
        /// Waits until a repair ends, its version differs from the given version, or the given time has
        /// passed.
        Change(u64, Option<u64>, Duration, Reply<()>),
        Cancel(u64, Reply<RepairView>),
        CancelGiven(u64, Reply<RepairView>),
        /// Pauses or resumes a repair.
        Pause(u64, bool, Reply<RepairView>),
        Rebalance(RebalanceRequest, Reply<RebalanceView>),
    }

    /// Requests about helpers.
    Node NodeCommand {
        List(Reply<Vec<NodeView>>),
        Remove(String, Reply<NodeView>),
        Maintain(String, MaintenanceRequest, Reply<NodeView>),
        EndMaintenance(String, Reply<NodeView>),
        /// Checks whether these helpers can be stopped. The number is how many further helpers each stripe
        /// must be able to lose while these helpers are stopped.
        OkToStop(Vec<String>, u32, Reply<SafetyView>),
        SafeToRemove(Vec<String>, Reply<SafetyView>),
        Replace(String, ReplaceRequest, Reply<RepairView>),
        StopDrain(String, Reply<NodeView>),
    }

    /// Requests about links, their measurement and caps.
    Network NetworkCommand {
        Topology(Reply<TopologyView>),
        Probe(ProbeRequest, Reply<ProbeView>),
        Probes(Reply<ProbeView>),
        StopProbes(Reply<ProbeView>),
        Caps(Reply<CapsView>),
        ChangeCaps(CapsRequest, Reply<CapsView>),
    }

    /// Requests about scrubs.
    Scrub ScrubCommand {
        /// Starts a scrub; the flag adds a check of the parity of whole stripes.
        Start(bool, Reply<ScrubView>),
        Stop(u64, Reply<ScrubView>),
        State(u64, Reply<ScrubView>),
    }

    /// Requests about the catalog itself.
    Catalog CatalogCommand {
        Snapshot(Reply<Box<dyn Snapshot>>),
        Accept(AcceptRequest, Reply<AcceptedView>),
        RemoveOrphans(Reply<OrphansView>),
    }
}
