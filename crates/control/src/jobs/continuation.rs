//! Continuations: what the control plane does once the storage has answered a write of a put or a job.

use std::sync::Arc;

use codes::{BlockIndex, Code};
use repair::{BlockId, Digest, JobId, NodeId, StripeId};
use serde_json::Value;
use store_api::BlockSize;
use store_api::PutId;
use views::{FileView, HistoryEvent, PutView};

use crate::effect::Reply;

/// The continuation of a write of a put.
pub(crate) enum PutThen {
    Begun(Begun),
    /// The catalog has allocated a stripe of the put, so the client can store the stripe.
    Allocated {
        client: NodeId,
        tag: u64,
        put: PutId,
        position: u32,
    },
    /// The file is visible to readers.
    Committed {
        put: PutId,
        reply: Reply<FileView>,
    },
    Aborted {
        put: PutId,
        reply: Option<Reply<Value>>,
    },
}

/// A put whose creation the storage has not answered yet.
pub(crate) struct Begun {
    /// The member that begins the put.
    pub member: String,
    pub code: Arc<dyn Code>,
    pub bytes: u64,
    pub size: BlockSize,
    pub stripes: u64,
    pub reply: Reply<PutView>,
}

/// The continuation of a write that records blocks of a job.
pub(crate) struct Published {
    pub job: JobId,
    pub stripe: StripeId,
    pub blocks: Vec<BlockIndex>,
    /// The recorded digest that the block replaces.
    pub replaced: Option<Box<ReplacedDigest>>,
}

/// A recorded digest that a rebuilt block does not have, because parity has refuted the digest.
pub(crate) struct ReplacedDigest {
    pub block: BlockId,
    pub recorded: Digest,
    pub found: Option<Digest>,
}

impl ReplacedDigest {
    /// Logs that another digest is recorded now, and returns the entry for the history.
    pub(crate) fn entry(self) -> HistoryEvent {
        let (block, recorded) = (self.block.to_string(), self.recorded.to_string());
        let found = self.found.map(|digest| digest.to_string()).unwrap_or_default();
        tracing::warn!(block, recorded, found, "replaced a recorded digest that parity has refuted");
        HistoryEvent::DigestReplaced { block, recorded, found }
    }
}
