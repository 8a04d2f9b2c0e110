//! The API's view of a stripe.

use codes::BlockIndex;
use repair::NodeId;
use store_api::{BlockRecord, BlockState, Replica, StripeRecord};
use views::{BlockView, ReplicaView, StripeView};

use crate::error::RequestError;
use crate::facts::Facts;
use crate::stripes::indices::indexed;

/// The API's views of the blocks of a stripe.
struct BlockViews<'a> {
    facts: Facts<'a>,
}

impl BlockViews<'_> {
    fn state_on(&self, block: &BlockRecord, node: Option<NodeId>, state: BlockState) -> views::BlockState {
        let found = node.and_then(|node| self.facts.stripes.unrecorded.bad(&block.id, node));
        match found.unwrap_or(state) {
            BlockState::Missing => views::BlockState::Missing,
            BlockState::Corrupt => views::BlockState::Corrupt,
            BlockState::Unreadable => views::BlockState::Unreadable,
            BlockState::NotStored => views::BlockState::NotStored,
            BlockState::Healthy if self.facts.readers(block).any(|reader| Some(reader) == node) => {
                views::BlockState::Healthy
            }
            BlockState::Healthy
                if self.facts.base.store.reports_service()
                    && node.is_some_and(|node| self.facts.stripes.picture.is_up(node)) =>
            {
                views::BlockState::OutOfReach
            }
            BlockState::Healthy => views::BlockState::Down,
        }
    }

    fn state_of(&self, block: &BlockRecord) -> views::BlockState {
        self.state_on(block, block.node, block.state)
    }

    fn replica_view(&self, block: &BlockRecord, replica: Replica) -> ReplicaView {
        ReplicaView {
            node: self.facts.nodes.name(replica.node),
            state: self.state_on(block, Some(replica.node), replica.state),
        }
    }

    fn block_view(&self, index: BlockIndex, block: &BlockRecord) -> BlockView {
        BlockView {
            block: block.id.to_string(),
            index: index.0,
            bytes: block.bytes,
            node: block.node.map(|node| self.facts.nodes.name(node)),
            state: self.state_of(block),
            digest: block.digest.map(|digest| digest.to_string()),
            replicas: block.replicas.iter().map(|replica| self.replica_view(block, *replica)).collect(),
        }
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn stripe_view(self, record: &StripeRecord) -> Result<StripeView, RequestError> {
        let survives = self.survives(&record.code, &self.standing_of(record))?;
        let views = BlockViews { facts: self };
        Ok(StripeView {
            stripe: record.id.to_string(),
            code: record.code.to_string(),
            block_bytes: record.block_bytes,
            chunk_bytes: record.chunk_bytes,
            readable: survives.is_some(),
            survives: survives.map_or(0, |survives| survives.blocks),
            helpers: survives.map_or(0, |survives| survives.nodes),
            blocks: indexed(record).map(|(index, block)| views.block_view(index, block)).collect(),
        })
    }
}
