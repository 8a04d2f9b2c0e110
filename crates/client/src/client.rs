//! [`Client`]: the way to the coordinator, and its API with types.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{Address, Cluster, Identity, Role};
use helper::Ends;
use repair::wire::control::{ClientRequest, Ended};
use repair::{Caps, NodeId};
use stores::Sinks;
use tokio::task::JoinHandle;
use views::endpoints::*;

use crate::http::{Http, patiently};
use crate::session::DataSession;
use crate::target::write_whole;
use crate::{
    AcceptRequest, AcceptedView, BlockPlace, CapsRequest, CapsView, ClientError, FileLayout, FileView,
    GivenStripe, OrphansView, PlanRequestView, PlanView, ProbeRequest, ProbeView, ReadRequest, RepairRequest,
    RepairView, ScrubView, Status, StripeView, TopologyView,
};

/// Stripes of a repair in one answer.
const ITEMS_AT_ONCE: usize = 250;

/// A client of one cluster; cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// Where a client stands, and what it keeps to.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// What it moves at most.
    pub caps: Caps,
    /// Its rack, by a name of the cluster's configuration: plans count what lies between. Without one it is taken to stand outside all
    /// racks.
    pub rack: Option<String>,
    /// How long a coordinator that cannot be reached is dialled again: it may be starting. With any patience at all, one
    /// that says that it waits for its helpers is asked again until it has them.
    pub patience: Duration,
}

struct Inner {
    http: Http,
    control: Address,
    identity: Identity,
    /// Whether the cluster's configuration, as it is here, encrypts data edges.
    data_tls: bool,
    options: ClientOptions,
    /// Opened when bytes are to be moved, and again if it broke.
    session: tokio::sync::Mutex<Option<Arc<DataSession>>>,
    /// What still has to be tidied up; see [`Client::settle`].
    background: Mutex<Vec<JoinHandle<()>>>,
}

impl Client {
    /// A client with the identity of `role`. Nothing is dialled yet.
    ///
    /// # Errors
    /// [`ClientError::Identity`] if its certificate cannot be used.
    pub fn connect(cluster: &Cluster, role: &Role) -> Result<Self, ClientError> {
        Self::connect_with(cluster, role, ClientOptions::default())
    }

    /// The same for a client that says where it stands and what it keeps to.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(cluster: &Cluster, role: &Role, options: ClientOptions) -> Result<Self, ClientError> {
        let identity = cluster.identity(role)?;
        let coordinator = &cluster.config().coordinator;
        let inner = Inner {
            http: Http::new(coordinator.dial_api(), identity.clone(), options.patience),
            control: coordinator.dial_control(),
            identity,
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

    /// Our number as a node of plans.
    ///
    /// # Errors
    /// [`ClientError`]: there is no session to be had.
    pub async fn node(&self) -> Result<NodeId, ClientError> {
        Ok(self.session().await?.node)
    }

    /// Reads part of a stripe into `sinks`. Dropping the future gives the read up.
    ///
    /// # Errors
    /// [`ClientError::Failed`] with the coordinator's reason, after it tried all there is to try.
    pub async fn read(&self, request: ReadRequest, sinks: Arc<dyn Sinks>) -> Result<Ended, ClientError> {
        let stripe = request.stripe.0.clone();
        let kept = self.session().await?;
        let (request, ends) = (ClientRequest::from(request), Ends::Sinks(sinks));
        if let Some(ended) = kept.open_request(&stripe, request.clone(), ends.clone()).await? {
            return Ok(ended);
        }
        // A program that blocks between its calls answers no pings meanwhile, and learns only now that the
        // coordinator gave it up.
        let fresh = self.session().await?;
        fresh.open_request(&stripe, request, ends).await?.ok_or_else(|| fresh.lost())
    }

    /// The session, opened if there is none.
    pub(crate) async fn session(&self) -> Result<Arc<DataSession>, ClientError> {
        let mut kept = self.inner.session.lock().await;
        if let Some(session) = kept.as_ref().filter(|session| !session.is_closed()) {
            return Ok(session.clone());
        }
        let Inner { control, identity, data_tls, options, .. } = &*self.inner;
        let open = || DataSession::open(control.clone(), identity, *data_tls, options);
        let session = Arc::new(patiently(options.patience, open).await?);
        *kept = Some(session.clone());
        Ok(session)
    }

    /// The state of the cluster.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.http().ask::<GetStatus>(()).await
    }

    /// The files whose names begin with `prefix`, by name.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn files(&self, prefix: &str) -> Result<Vec<FileView>, ClientError> {
        self.http().query::<ListFiles>((), &FilesQuery { prefix: prefix.to_owned() }).await
    }

    /// A file and where its blocks are.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn file(&self, name: &str) -> Result<FileLayout, ClientError> {
        self.http().ask::<GetFile>(name.to_owned()).await
    }

    /// An answer that was read and cannot be right.
    pub(crate) fn unreadable(&self, error: &impl ToString) -> ClientError {
        self.inner.http.protocol(error.to_string())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove(&self, name: &str) -> Result<(), ClientError> {
        self.http().ask::<RemoveFile>(name.to_owned()).await.map(drop)
    }

    /// A stripe and where its blocks are.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stripe(&self, stripe: &str) -> Result<StripeView, ClientError> {
        self.http().ask::<GetStripe>(stripe.to_owned()).await
    }

    /// A block's stripe.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn block(&self, block: &str) -> Result<BlockPlace, ClientError> {
        self.http().ask::<GetBlock>(block.to_owned()).await
    }

    /// Describes a stripe of another system, so that it can be read and repaired by its name.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe(&self, stripe: &GivenStripe) -> Result<StripeView, ClientError> {
        self.http().send::<DescribeStripe>((), stripe).await
    }

    /// Asks for a repair, which goes on without us.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repair(&self, request: &RepairRequest) -> Result<RepairView, ClientError> {
        self.http().send::<QueueRepair>((), request).await
    }

    /// How far a repair is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repair_state(&self, repair: u64) -> Result<RepairView, ClientError> {
        self.http().query::<GetRepair>(repair, &RepairQuery::default()).await
    }

    /// A repair when it has ended, or after this long, a minute at most.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn await_repair(&self, repair: u64, limit: Duration) -> Result<RepairView, ClientError> {
        let query = RepairQuery { wait_ms: Some(limit.as_millis() as u64), ..RepairQuery::default() };
        self.http().query::<GetRepair>(repair, &query).await
    }

    /// A repair without its stripes, as soon as its version differs from `version`, or after this long, a minute at most.
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

    /// A repair with all its stripes, fetched page by page.
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

    /// All repairs that are remembered.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn repairs(&self) -> Result<Vec<RepairView>, ClientError> {
        self.http().ask::<ListRepairs>(()).await
    }

    /// Gives a repair up.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel_repair(&self, repair: u64) -> Result<(), ClientError> {
        self.http().ask::<CancelRepair>(repair).await.map(drop)
    }

    /// Nothing of a repair starts until it is resumed, or it goes on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pause_repair(&self, repair: u64, paused: bool) -> Result<RepairView, ClientError> {
        match paused {
            true => self.http().ask::<PauseRepair>(repair).await,
            false => self.http().ask::<ResumeRepair>(repair).await,
        }
    }

    /// A helper gets blocks again that was to be emptied; what empties it is called off.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_drain(&self, node: &str) -> Result<(), ClientError> {
        self.http().ask::<StopDrain>(node.to_owned()).await.map(drop)
    }

    /// The network as the planner sees it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn topology(&self) -> Result<TopologyView, ClientError> {
        self.http().ask::<GetTopology>(()).await
    }

    /// Begins to measure links.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probe(&self, request: &ProbeRequest) -> Result<ProbeView, ClientError> {
        self.http().send::<StartProbes>((), request).await
    }

    /// The measurement of links that runs, or the last one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probes(&self) -> Result<ProbeView, ClientError> {
        self.http().ask::<GetProbes>(()).await
    }

    /// Ends a measurement of links; what was found counts.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_probes(&self) -> Result<(), ClientError> {
        self.http().ask::<StopProbes>(()).await.map(drop)
    }

    /// The caps on what repairs may move.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn caps(&self) -> Result<CapsView, ClientError> {
        self.http().ask::<GetCaps>(()).await
    }

    /// Changes caps; what they are then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_caps(&self, request: &CapsRequest) -> Result<CapsView, ClientError> {
        self.http().send::<ChangeCaps>((), request).await
    }

    /// The plan that would be made, and its cost.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn plan(&self, request: &PlanRequestView) -> Result<PlanView, ClientError> {
        self.http().send::<ExplainPlan>((), request).await
    }

    /// Starts a scrub: every block is read and held against its checksums, and then, if `parity` says so, every stripe
    /// against its code's equations.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scrub(&self, parity: bool) -> Result<ScrubView, ClientError> {
        self.http().query::<StartScrub>((), &ScrubQuery { parity }).await
    }

    /// Stops a scrub; what it has found stays.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stop_scrub(&self, scrub: u64) -> Result<ScrubView, ClientError> {
        self.http().ask::<StopScrub>(scrub).await
    }

    /// How far a scrub is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scrub_state(&self, scrub: u64) -> Result<ScrubView, ClientError> {
        self.http().ask::<GetScrub>(scrub).await
    }

    /// Copies the catalog, as it is at this moment, to a file that appears when it is whole; its length.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn copy_catalog(&self, to: &Path) -> Result<u64, ClientError> {
        let copy = self.http().bytes::<GetCatalog>().await?;
        write_whole(to, &copy)?;
        Ok(copy.len() as u64)
    }

    /// Goes on with the catalog as it is, though some helper holds blocks that are newer; or does not believe one of
    /// those helpers.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn accept_catalog(&self, request: &AcceptRequest) -> Result<AcceptedView, ClientError> {
        self.http().send::<AcceptCatalog>((), request).await
    }

    /// Begins to remove the blocks that no stripe knows, if it can be shown of them that nothing refers to them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_orphans(&self) -> Result<OrphansView, ClientError> {
        self.http().ask::<RemoveOrphans>(()).await
    }

    /// Goes on in the background until [`settle`](Self::settle).
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime nothing can be sent; the coordinator tidies up when the session ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let task = runtime.spawn(work);
            self.inner.background.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        }
    }

    /// Waits until what was given up has been tidied away, such as a put whose future was dropped.
    pub async fn settle(&self) {
        loop {
            let task = self.inner.background.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match task {
                Some(task) => drop(task.await), // A panic in it has been printed.
                None => return,
            }
        }
    }
}
