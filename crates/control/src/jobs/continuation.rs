//! Continuations of the writes of puts and jobs.

use std::sync::Arc;

use codes::{BlockIndex, Code};
use repair::{JobId, NodeId, StripeId};
use serde_json::Value;
use store_api::BlockSize;
use store_api::PutId;
use views::{FileView, PutView};

use crate::effect::Reply;

/// The continuation of a write of a put.
pub(crate) enum PutThen {
    Begun(Begun),
    /// The catalog has a place for a stripe of the put, and the client's request continues.
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

/// A put whose creation is being stored.
pub(crate) struct Begun {
    pub code: Arc<dyn Code>,
    pub bytes: u64,
    pub size: BlockSize,
    pub stripes: u64,
    pub reply: Reply<PutView>,
}

/// The continuation of the write that records blocks of a job.
pub(crate) struct Published {
    pub job: JobId,
    pub stripe: StripeId,
    pub blocks: Vec<BlockIndex>,
}
