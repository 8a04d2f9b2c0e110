//! The control session of a client, and requests over it.

use std::ops::Range;
use std::sync::Arc;

use cluster::{Address, Identity};
use codes::BlockIndex;
use helper::{Ends, Engine, Incoming, Local, Rendezvous, Reports, Session, Workers, outbox};
use repair::wire::control::{self, ClientRequest, Ended, FromNode, MAX_OPEN_REQUESTS, ToNode};
use repair::{NodeId, Pacing, Scheme, StripeId};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::requests::{NotEnded, Requests};
use crate::{ClientError, ClientOptions};

/// What is to be read of one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stripe.
    pub stripe: StripeId,
    /// The blocks.
    pub blocks: Vec<BlockIndex>,
    /// Only these of their sub-blocks; all if absent.
    pub sub_blocks: Option<Range<u16>>,
    /// Offsets inside each sub-block.
    pub window: Range<u64>,
    /// The scheme for what is lost.
    pub scheme: Scheme,
    /// Bytes of a slice, if the caller cares.
    pub slice_bytes: Option<u32>,
    /// How nodes move slices on; the scheme's own way if absent.
    pub pacing: Option<Pacing>,
    /// Whether what is delivered must agree with one block more than is needed to decode it.
    pub verify: bool,
    /// Read as if these blocks were lost.
    pub pretend_lost: Vec<BlockIndex>,
}

impl From<ReadRequest> for ClientRequest {
    fn from(request: ReadRequest) -> Self {
        Self::Read {
            stripe: request.stripe,
            blocks: request.blocks,
            sub_blocks: request.sub_blocks.map(|subs| (subs.start, subs.end)),
            window: (request.window.start, request.window.end),
            scheme: request.scheme,
            slice_bytes: request.slice_bytes,
            pacing: request.pacing,
            verify: request.verify,
            pretend_lost: request.pretend_lost,
        }
    }
}

/// A client's part in plans: an engine without a data port, and the session that feeds it.
pub(crate) struct DataSession {
    pub(crate) node: NodeId,
    address: Address,
    requests: Arc<Requests>,
    /// More requests than the coordinator takes wait here for their turn.
    turns: Semaphore,
    reports: Reports,
    pump: JoinHandle<()>,
}

impl DataSession {
    /// `data_tls`: plain data edges are refused.
    pub(crate) async fn open(
        address: Address,
        identity: &Identity,
        data_tls: bool,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let (reports, outgoing) = outbox();
        let ClientOptions { caps, rack, .. } = options.clone();
        let bandwidth = caps.down.or(caps.up);
        let hello = FromNode::RegisterClient { version: control::VERSION, bandwidth, rack };
        let Session { node, incoming } = Session::open(&address, identity, vec![hello], outgoing).await?;
        let requests = Arc::new(Requests::default());
        // Nobody dials a client, so nobody listens on this rendezvous.
        let rendezvous = Rendezvous::default().secured(identity, data_tls);
        let engine =
            Engine::new(Local::Requests(requests.clone()), rendezvous, reports.clone(), Workers::here())
                .within(caps);
        let pump = tokio::spawn(pump(incoming, engine, requests.clone(), reports.clone()));
        let turns = Semaphore::new(MAX_OPEN_REQUESTS);
        Ok(Self { node, address, requests, turns, reports, pump })
    }

    /// Carries a request out; dropping the future gives it up. `None` if the session ended before anything of the
    /// request began.
    pub(crate) async fn open_request(
        &self,
        stripe: &str,
        request: ClientRequest,
        ends: Ends,
    ) -> Result<Option<Ended>, ClientError> {
        let _turn = self.turns.acquire().await.expect("it is never closed");
        let Some((tag, closed)) = self.requests.open(ends) else { return Ok(None) };
        let _given_up = CloseOnDrop { tag, requests: &self.requests, reports: &self.reports };
        if self.reports.send(FromNode::Open { tag, request }).is_err() {
            return Ok(None);
        }
        match closed.await {
            Ok(Ok(ended)) => Ok(Some(ended)),
            Ok(Err(NotEnded::Failed(failure))) => {
                Err(ClientError::Failed { stripe: stripe.to_owned(), failure })
            }
            Ok(Err(NotEnded::LostBeforeIt)) => Ok(None),
            Ok(Err(NotEnded::LostWithin)) | Err(_) => Err(self.lost()),
        }
    }

    /// What a caller is told of a session that ended.
    pub(crate) fn lost(&self) -> ClientError {
        let detail = "the control session ended".to_owned();
        ClientError::Lost { address: self.address.clone(), detail }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.requests.have_ended() || self.pump.is_finished() || self.reports.is_closed()
    }
}

impl Drop for DataSession {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Tells the coordinator of a request that its caller gave up.
struct CloseOnDrop<'a> {
    tag: u64,
    requests: &'a Requests,
    reports: &'a Reports,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if self.requests.forget(self.tag) {
            let _ = self.reports.send(FromNode::Close { tag: self.tag }); // A lost coordinator knows.
        }
    }
}

async fn pump(mut incoming: Incoming, engine: Engine, requests: Arc<Requests>, reports: Reports) {
    while let Some(message) = incoming.recv().await {
        match engine.handle(message) {
            None => {}
            Some(ToNode::Closed { tag, result }) => {
                requests.close(tag, result);
            }
            Some(ToNode::Ping) => {
                let _ = reports.send(FromNode::Pong { free_bytes: 0, tasks: engine.jobs() });
            }
            Some(other) => tracing::warn!(?other, "a message that is not for a client"),
        }
    }
    requests.end();
    engine.forget_all();
}
