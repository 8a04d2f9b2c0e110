//! The control session of a client, and the requests that it carries.

use std::ops::Range;
use std::sync::Arc;

use cluster::{Address, Identity};
use codes::BlockIndex;
use helper::{Ends, Engine, Incoming, Local, Rendezvous, Reports, Session, Workers, outbox};
use repair::wire::control::{self, ClientRequest, Ended, ExpectedBlock, FromNode, MAX_OPEN_REQUESTS, ToNode};
use repair::{NodeId, Pacing, Scheme, StripeId};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::requests::{NotEnded, Requests};
use crate::{ClientError, ClientOptions};

/// The part of a stripe to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stripe.
    pub stripe: StripeId,
    /// The blocks to read.
    pub blocks: Vec<BlockIndex>,
    /// The sub-blocks to read; all if absent.
    pub sub_blocks: Option<Range<u16>>,
    /// The offsets to read within each sub-block.
    pub window: Range<u64>,
    /// The scheme for decoding lost blocks.
    pub scheme: Scheme,
    /// Slice size in bytes; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// How nodes forward slices; the scheme's default if absent.
    pub pacing: Option<Pacing>,
    /// Whether to verify the result against one more block than decoding needs.
    pub verify: bool,
    /// Blocks to treat as lost, so that they are decoded from others.
    pub pretend_lost: Vec<BlockIndex>,
    /// The blocks as they were found. If one of them was replaced since then, the read fails with
    /// [`RequestFailure::Replaced`](crate::RequestFailure::Replaced).
    pub expected: Vec<ExpectedBlock>,
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
            expected: request.expected,
        }
    }
}

/// A client's participation in plans: an engine without a data port, and the control session whose messages
/// drive the engine.
pub(crate) struct DataSession {
    pub(crate) node: NodeId,
    address: Address,
    requests: Arc<Requests>,
    /// Limits the open requests to the coordinator's maximum; further requests wait for this semaphore.
    turns: Semaphore,
    reports: Reports,
    pump: JoinHandle<()>,
}

impl DataSession {
    /// Connects and registers as a client. With `data_tls`, unencrypted data edges are refused.
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
        // Other nodes never dial a client, so no listener passes connections to this rendezvous.
        let rendezvous = Rendezvous::default().secured(identity, data_tls);
        let engine =
            Engine::new(Local::Requests(requests.clone()), rendezvous, reports.clone(), Workers::here())
                .within(caps);
        let pump = tokio::spawn(pump(incoming, engine, requests.clone(), reports.clone()));
        let turns = Semaphore::new(MAX_OPEN_REQUESTS);
        Ok(Self { node, address, requests, turns, reports, pump })
    }

    /// Runs a request; dropping the future cancels it. Returns `None` if the session ended before the request
    /// began.
    pub(crate) async fn open_request(
        &self,
        stripe: &str,
        request: ClientRequest,
        ends: Ends,
    ) -> Result<Option<Ended>, ClientError> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
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

    /// Reports a block that arrived with wrong bytes.
    pub(crate) fn report_garbled(&self, stripe: StripeId, block: BlockIndex) {
        // If the connection is lost, the block is reported by a later read.
        let _ = self.reports.send(FromNode::Garbled { stripe, block });
    }

    /// Returns the error for callers whose session ended.
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

/// Closes the request at the coordinator if the caller drops the future before the request has ended.
struct CloseOnDrop<'a> {
    tag: u64,
    requests: &'a Requests,
    reports: &'a Reports,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if self.requests.forget(self.tag) {
            // If the connection is lost, the coordinator cancels the request by itself.
            let _ = self.reports.send(FromNode::Close { tag: self.tag });
        }
    }
}

async fn pump(mut incoming: Incoming, engine: Engine, requests: Arc<Requests>, reports: Reports) {
    let _jobs = engine.forget_on_drop();
    while let Some(message) = incoming.recv().await {
        match engine.handle(message) {
            None => {}
            Some(ToNode::Closed { tag, result }) => {
                requests.close(tag, result);
            }
            Some(ToNode::Ping) => {
                let _ =
                    reports.send(FromNode::Pong { free_bytes: 0, tasks: engine.jobs(), write_problem: None });
            }
            Some(other) => tracing::warn!(?other, "received a message that is not for clients"),
        }
    }
    requests.end();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use repair::{
        Assignment, BlockId, Chunking, Class, Dealing, Epoch, Geometry, JobId, Lanes, LocalBlock, SliceSet,
    };
    use tokio::sync::mpsc;
    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// An assignment of a read that belongs to no open request.
    fn assignment() -> Assignment {
        Assignment {
            job: JobId(1),
            epoch: Epoch(1),
            class: Class::Read,
            tag: None,
            geometry: Geometry { window: 0..1, slice_bytes: 1 },
            slices: SliceSet::all(1),
            pacing: Pacing::Pipelined,
            chunking: Chunking::new(1, 1, 1).unwrap(),
            lanes: Lanes { dealing: Dealing::even(1), tasks: vec![None] },
            locals: vec![LocalBlock {
                index: BlockIndex(0),
                id: BlockId("1.0".to_owned()),
                bytes: 1,
                digest: None,
            }],
            inlets: Vec::new(),
            outlets: Vec::new(),
            outputs: Vec::new(),
            sinks: Vec::new(),
            stall_ms: 1500,
        }
    }

    #[tokio::test]
    async fn jobs_end_with_the_session() {
        let (coordinator, incoming) = mpsc::channel(1);
        let (reports, mut outgoing) = outbox();
        let (requests, workers) = (Arc::new(Requests::default()), Workers::here());
        let local = Local::Requests(requests.clone());
        let engine = Engine::new(local, Rendezvous::default(), reports.clone(), workers);
        let pump = tokio::spawn(pump(incoming, engine, requests.clone(), reports));
        coordinator.send(ToNode::Assign(Box::new(assignment()))).await.unwrap();
        let refused = timeout(PATIENCE, outgoing.recv()).await.unwrap();
        assert!(matches!(refused, Some(FromNode::Report { .. })), "{refused:?}");
        pump.abort();
        let ended = async {
            while Arc::strong_count(&requests) > 1 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("the job lasts although no message can end it");
    }
}
