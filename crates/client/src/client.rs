//! [`Client`]: a typed interface to the coordinator's API.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{Address, Cluster, Role};
use helper::Ends;
use http_body_util::BodyExt;
use repair::wire::control::{ClientRequest, Ended};
use repair::{Caps, NodeId};
use store_api::Sinks;
use tokio::task::JoinHandle;
use views::endpoints::*;

use crate::certificate::{Certificate, Presented};
use crate::get::waiting;
use crate::http::{Http, patiently};
use crate::session::DataSession;
use crate::target::WholeFile;
use crate::{
    AcceptRequest, AcceptedView, BlockPlace, CapsRequest, CapsView, ClientError, FileLayout, FileView,
    GivenStripe, OrphansView, PlanRequestView, PlanView, ProbeRequest, ProbeView, ReadRequest, RepairRequest,
    RepairView, ScrubView, Status, StripeView, TopologyView,
};

/// The number of stripes per page when a repair's stripes are fetched.
const ITEMS_AT_ONCE: usize = 250;

/// A client of one cluster; cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// A client's rack, bandwidth caps, and how long it retries.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Caps on the client's own bandwidth.
    pub caps: Caps,
    /// The client's rack, as named in the cluster's configuration. Plans then account for the links between
    /// racks. Without a rack, the client is taken to be outside all racks.
    pub rack: Option<String>,
    /// How long to keep dialling an unreachable coordinator, which may be starting. If this is not zero,
    /// requests are also repeated while the coordinator still waits for its helpers to register.
    pub patience: Duration,
    /// The address of the coordinator's API, if it differs from the one in `mend.toml`.
    pub api: Option<Address>,
    /// The address of the coordinator's control port, if it differs from the one in `mend.toml`.
    pub control: Option<Address>,
}

struct Inner {
    http: Http,
    control: Address,
    certificate: Certificate,
    /// Whether the cluster's configuration encrypts data edges.
    data_tls: bool,
    options: ClientOptions,
    /// The control session; opened on first use, and again if it has ended or its certificate expires soon.
    session: tokio::sync::Mutex<Option<Kept>>,
    /// Cleanup tasks; [`Client::settle`] waits for them.
    background: Mutex<Vec<JoinHandle<()>>>,
}

/// An open session.
struct Kept {
    session: Arc<DataSession>,
    presented: Presented,
}

impl Inner {
    /// Replaces an open session if it ends soon and the certificate was renewed. If no other session can be
    /// opened, the former one stays in use until the next check.
    async fn replace_if_renewed(&self, kept: &mut Kept) {
        if kept.presented.expires_soon() && self.certificate.was_renewed(&mut kept.presented).await {
            match self.open_session().await {
                Ok(successor) => *kept = successor,
                Err(error) => tracing::debug!(%error, "no session with the renewed certificate"),
            }
        }
    }

    /// Opens a session with the present certificate.
    async fn open_session(&self) -> Result<Kept, ClientError> {
        let Inner { control, certificate, data_tls, options, .. } = self;
        let presented = certificate.present().await;
        let session = DataSession::open(control.clone(), certificate.identity(), *data_tls, options).await?;
        Ok(Kept { session: Arc::new(session), presented })
    }
}

impl Client {
    /// Creates a client with the identity of `role`, without connecting yet. Connections present the
    /// certificate that is in the cluster folder when they are opened, so the client outlives renewals.
    ///
    /// # Errors
    /// [`ClientError::Identity`] if the certificate is unusable.
    pub fn connect(cluster: &Cluster, role: &Role) -> Result<Self, ClientError> {
        Self::connect_with(cluster, role, ClientOptions::default())
    }

    /// Like [`connect`](Self::connect), with options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(cluster: &Cluster, role: &Role, options: ClientOptions) -> Result<Self, ClientError> {
        let certificate = Certificate::new(cluster.identity(role)?);
        let coordinator = &cluster.config().coordinator;
        let api = options.api.clone().unwrap_or_else(|| coordinator.dial_api());
        let inner = Inner {
            http: Http::new(api, certificate.clone(), options.patience),
            control: options.control.clone().unwrap_or_else(|| coordinator.dial_control()),
            certificate,
            data_tls: cluster.config().encrypts_data_edges(),
            options,
            session: tokio::sync::Mutex::default(),
            background: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn http(&self) -> &Http {
        &self.inner.http
    }

    /// Returns this client's node id in plans.
    ///
    /// # Errors
    /// [`ClientError`] if no session can be opened.
    pub async fn node(&self) -> Result<NodeId, ClientError> {
        Ok(self.session().await?.node)
    }

    /// Reads part of a stripe into `sinks`. Dropping the future cancels the read.
    ///
    /// # Errors
    /// [`ClientError::Failed`] with the coordinator's reason, after the coordinator's retries have failed.
    pub async fn read(&self, request: ReadRequest, sinks: Arc<dyn Sinks>) -> Result<Ended, ClientError> {
        let stripe = request.stripe.0.clone();
        let kept = self.session().await?;
        let (request, ends) = (ClientRequest::from(request), Ends::Sinks(sinks));
        if let Some(ended) = kept.open_request(&stripe, request.clone(), ends.clone()).await? {
            return Ok(ended);
        }
        // A program that blocks between calls cannot answer pings, so the coordinator may have closed the old
        // session. Retry once with a new session.
        let fresh = self.session().await?;
        fresh.open_request(&stripe, request, ends).await?.ok_or_else(|| fresh.lost())
    }

    /// Returns the session, opening one if needed.
    pub(crate) async fn session(&self) -> Result<Arc<DataSession>, ClientError> {
        let mut kept = self.inner.session.lock().await;
        if let Some(kept) = kept.as_mut()
            && !kept.session.is_closed()
        {
            self.inner.replace_if_renewed(kept).await;
            if !kept.session.is_closed() {
                return Ok(kept.session.clone());
            }
        }
        let opened = patiently(self.inner.options.patience, || self.inner.open_session()).await?;
        Ok(kept.insert(opened).session.clone())
    }

    /// Returns whether the coordinator has answered a change since the last call that is in effect, but not recorded,
    /// because its catalog cannot be written or its disk is slow. A restart of the coordinator may undo such a change. This
    /// concerns pauses, cancellations, the ends of drains, maintenance, mutes, settings and rejected helpers; other changes
    /// are recorded before they are answered.
    pub fn take_unrecorded(&self) -> bool {
        self.http().take_unrecorded()
    }

    /// Returns the state of the cluster.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.http().ask::<GetStatus>(()).await
    }

    /// Lists the files whose names begin with `prefix`, sorted by name.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn files(&self, prefix: &str) -> Result<Vec<FileView>, ClientError> {
        self.http().query::<ListFiles>((), &FilesQuery { prefix: prefix.to_owned() }).await
    }

    /// Returns a file and the locations of its blocks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn file(&self, name: &str) -> Result<FileLayout, ClientError> {
        self.http().ask::<GetFile>(name.to_owned()).await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove(&self, name: &str) -> Result<(), ClientError> {
        self.http().ask::<RemoveFile>(name.to_owned()).await.map(drop)
    }

    /// Returns a stripe and the locations of its blocks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stripe(&self, stripe: &str) -> Result<StripeView, ClientError> {
        self.http().ask::<GetStripe>(stripe.to_owned()).await
    }

    /// Returns the stripe and index of a block.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn block(&self, block: &str) -> Result<BlockPlace, ClientError> {
        self.http().ask::<GetBlock>(block.to_owned()).await
    }

    /// Describes to the coordinator a stripe of another storage system, so that the stripe can be read and
    /// repaired by name.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe(&self, stripe: &GivenStripe) -> Result<StripeView, ClientError> {
        self.http().send::<DescribeStripe>((), stripe).await
    }

    /// Queues a repair. The coordinator completes it even if the client disconnects.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repair(&self, request: &RepairRequest) -> Result<RepairView, ClientError> {
        self.http().send::<QueueRepair>((), request).await
    }

    /// Returns the current state of a repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repair_state(&self, repair: u64) -> Result<RepairView, ClientError> {
        self.http().query::<GetRepair>(repair, &RepairQuery::default()).await
    }

    /// Waits until a repair ends, for at most `limit` and at most a minute, and returns the repair's state.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn await_repair(&self, repair: u64, limit: Duration) -> Result<RepairView, ClientError> {
        let query = RepairQuery { wait_ms: Some(limit.as_millis() as u64), ..RepairQuery::default() };
        self.http().query::<GetRepair>(repair, &query).await
    }

    /// Waits until a repair's version differs from `version`, for at most `limit` and at most a minute.
    /// Returns the repair without its stripes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn await_progress(
        &self,
        repair: u64,
        version: u64,
        limit: Duration,
    ) -> Result<RepairView, ClientError> {
        let wait_ms = Some(limit.as_millis() as u64);
        let query = RepairQuery { wait_ms, since: Some(version), items: Some(0), items_after: None };
        self.http().query::<GetRepair>(repair, &query).await
    }

    /// Returns a repair with all its stripes, which are fetched page by page.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn whole_repair(&self, repair: u64) -> Result<RepairView, ClientError> {
        let mut query = RepairQuery { items: Some(ITEMS_AT_ONCE), ..RepairQuery::default() };
        let mut whole = self.http().query::<GetRepair>(repair, &query).await?;
        let mut page_items = whole.items.len();
        while page_items == ITEMS_AT_ONCE {
            query.items_after = whole.items.last().map(|last| last.stripe.clone());
            let mut page = self.http().query::<GetRepair>(repair, &query).await?;
            page_items = page.items.len();
            whole.items.append(&mut page.items);
            whole = RepairView { items: whole.items, ..page };
        }
        Ok(whole)
    }

    /// Lists all repairs that the coordinator still keeps.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repairs(&self) -> Result<Vec<RepairView>, ClientError> {
        self.http().ask::<ListRepairs>(()).await
    }

    /// Cancels a repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel_repair(&self, repair: u64) -> Result<(), ClientError> {
        self.http().ask::<CancelRepair>(repair).await.map(drop)
    }

    /// Pauses a repair, or resumes it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pause_repair(&self, repair: u64, paused: bool) -> Result<RepairView, ClientError> {
        match paused {
            true => self.http().ask::<PauseRepair>(repair).await,
            false => self.http().ask::<ResumeRepair>(repair).await,
        }
    }

    /// Stops the drain of a helper, which then receives new blocks again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_drain(&self, node: &str) -> Result<(), ClientError> {
        self.http().ask::<StopDrain>(node.to_owned()).await.map(drop)
    }

    /// Returns the network as the planner sees it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn topology(&self) -> Result<TopologyView, ClientError> {
        self.http().ask::<GetTopology>(()).await
    }

    /// Starts a measurement of links.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probe(&self, request: &ProbeRequest) -> Result<ProbeView, ClientError> {
        self.http().send::<StartProbes>((), request).await
    }

    /// Returns the running measurement of links, or the last one if none is running.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probes(&self) -> Result<ProbeView, ClientError> {
        self.http().ask::<GetProbes>(()).await
    }

    /// Stops a measurement of links and keeps its results.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_probes(&self) -> Result<ProbeView, ClientError> {
        self.http().ask::<StopProbes>(()).await
    }

    /// Returns the bandwidth caps on repairs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn caps(&self) -> Result<CapsView, ClientError> {
        self.http().ask::<GetCaps>(()).await
    }

    /// Changes bandwidth caps and returns all current caps.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_caps(&self, request: &CapsRequest) -> Result<CapsView, ClientError> {
        self.http().send::<ChangeCaps>((), request).await
    }

    /// Returns the plan that a repair would use, and the plan's cost, without running the plan.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn plan(&self, request: &PlanRequestView) -> Result<PlanView, ClientError> {
        self.http().send::<ExplainPlan>((), request).await
    }

    /// Starts a scrub, which verifies the checksums of every block. With `parity`, the scrub also checks
    /// every stripe against the parity equations of the stripe's code. If a scrub is running already, the
    /// request joins it ([`ScrubView::joined`]).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scrub(&self, parity: bool) -> Result<ScrubView, ClientError> {
        self.http().query::<StartScrub>((), &ScrubQuery { parity }).await
    }

    /// Stops a scrub and keeps its findings.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_scrub(&self, scrub: u64) -> Result<ScrubView, ClientError> {
        self.http().ask::<StopScrub>(scrub).await
    }

    /// Returns the current state of a scrub.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scrub_state(&self, scrub: u64) -> Result<ScrubView, ClientError> {
        self.http().ask::<GetScrub>(scrub).await
    }

    /// Writes a consistent copy of the catalog to a file, which appears only when complete. Returns the
    /// copy's size in bytes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn copy_catalog(&self, to: &Path) -> Result<u64, ClientError> {
        let mut copy = self.http().download::<GetCatalog>().await?;
        let to = to.to_owned();
        let mut whole = waiting(move || WholeFile::create(&to)).await?;
        while let Some(frame) = copy.frame().await {
            let Ok(bytes) = frame.map_err(|error| self.http().lost(error))?.into_data() else { continue };
            whole = waiting(move || whole.and_write(&bytes)).await?;
        }
        Ok(waiting(move || whole.finish()).await?)
    }

    /// Accepts the current catalog although helpers report blocks that are newer than it. If the request
    /// rejects a helper, only makes the coordinator ignore this helper's report.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn accept_catalog(&self, request: &AcceptRequest) -> Result<AcceptedView, ClientError> {
        self.http().send::<AcceptCatalog>((), request).await
    }

    /// Starts the removal of blocks that provably belong to no stripe.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_orphans(&self) -> Result<OrphansView, ClientError> {
        self.http().ask::<RemoveOrphans>(()).await
    }

    /// Runs `work` in the background; [`settle`](Self::settle) waits for it.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without an async runtime, nothing can be sent; the coordinator then cleans up some time after the
        // session ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let task = runtime.spawn(work);
            self.inner.background.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        }
    }

    /// Waits for the cleanup of abandoned operations, such as a put whose future was dropped.
    pub async fn settle(&self) {
        loop {
            let task = self.inner.background.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match task {
                Some(task) => drop(task.await), // The task's panic message has been printed already.
                None => return,
            }
        }
    }
}
