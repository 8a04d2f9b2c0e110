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
    /// A stripe of the put has its place, and the client's request goes on.
    Allocated {
        client: NodeId,
        tag: u64,
        put: PutId,
        position: u32,
    },
    /// The file is visible.
    Committed {
        put: PutId,
        reply: Reply<FileView>,
    },
    Aborted {
        put: PutId,
        reply: Option<Reply<Value>>,
    },
}

/// A put whose beginning is being stored.
pub(crate) struct Begun {
    pub code: Arc<dyn Code>,
    pub bytes: u64,
    pub size: BlockSize,
    pub stripes: u64,
    pub reply: Reply<PutView>,
}

/// Follows the write that records blocks of a job.
pub(crate) struct Published {
    pub job: JobId,
    pub stripe: StripeId,
    pub blocks: Vec<BlockIndex>,
}
