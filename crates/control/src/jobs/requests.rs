//! Requests that clients send on their connections: reads, and stripes of puts.

use codes::BlockIndex;
use repair::wire::RequestFailure;
use repair::wire::control::{ExpectedBlock, MAX_OPEN_REQUESTS, ToNode};
use repair::{JobRequest, NodeId, Policy, Scheme, StripeId, Verify, Wanted};
use store_api::StripeRecord;

use crate::error::{DescriptionError, PlanningError, RequestError, SessionError};
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::jobs::Requests;
use crate::jobs::owner::Owner;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::signal::Signal;

/// A read request, as taken from its message.
pub(crate) struct Read {
    pub(crate) stripe: StripeId,
    pub(crate) blocks: Vec<BlockIndex>,
    pub(crate) sub_blocks: Option<(u16, u16)>,
    pub(crate) window: (u64, u64),
    pub(crate) policy: Policy,
    pub(crate) verify: bool,
    pub(crate) pretend_lost: Vec<BlockIndex>,
    pub(crate) expected: Vec<ExpectedBlock>,
}

impl Jobs {
    pub(crate) fn read(
        &mut self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
        read: Read,
        out: &mut Out,
    ) -> Result<(), RequestError> {
        if facts.nodes.is_plugin(client) && !facts.stripes.given.may_be_read(&read.stripe) {
            return Err(DescriptionError::NotGiven(read.stripe).into());
        }
        let record = facts.stripes.stripe_record(&read.stripe)?;
        check_expected(&record, &read.expected)?;
        crate::stripes::indices::check_indices(&record, &read.blocks)?;
        let stripe = facts.stripe_now(&record, &read.pretend_lost)?;
        // A stored block needs no check here. A decoded block may have been computed from a wrong one, so it
        // is verified. A block that is stored now may have to be decoded later.
        let decodes = read.blocks.iter().any(|&block| stripe.block(block).holder.is_none());
        let checks = facts.stripes.verify(&read.stripe, read.verify);
        let verify = match decodes || read.verify {
            true => checks,
            false => Verify { parity: false, ..checks },
        };
        let request = JobRequest {
            job: out.next_job()?,
            stripe,
            wanted: read.blocks.iter().map(|&block| Wanted { block, requestor: client }).collect(),
            window: read.window.0..read.window.1,
            sub_blocks: read.sub_blocks.map(|(start, end)| start..end),
            policy: read.policy,
            verify,
            publish: false,
            tag: Some(tag),
            permits: Vec::new(),
        };
        self.start_request(client, tag, Owner::Read { client, tag }, request, out);
        Ok(())
    }
}

/// Checks that blocks are recorded as the client found them earlier. The helpers compare the blocks with the record,
/// so the client gets bytes of the blocks that it found.
fn check_expected(record: &StripeRecord, expected: &[ExpectedBlock]) -> Result<(), PlanningError> {
    let is_other = |found: &&ExpectedBlock| {
        !record.block(found.index).is_some_and(|block| found.is(block.bytes, block.digest))
    };
    match expected.iter().find(is_other) {
        None => Ok(()),
        Some(found) => {
            Err(PlanningError::BlockReplaced { stripe: record.id.to_string(), index: found.index.0 })
        }
    }
}

impl Nodes {
    /// Refuses a client's request; the answer includes the next step.
    pub(crate) fn refuse_request(&self, client: NodeId, tag: u64, error: &RequestError, out: &mut Out) {
        let detail = error.to_string();
        let is_replaced = matches!(error, RequestError::Planning(PlanningError::BlockReplaced { .. }));
        let failure = match is_replaced {
            true => RequestFailure::Replaced { detail },
            false => RequestFailure::Refused { detail, next_step: error.next_step() },
        };
        self.send(client, ToNode::Closed { tag, result: Err(failure) }, out);
    }
}

impl Jobs {
    pub(crate) fn start_request(
        &mut self,
        client: NodeId,
        tag: u64,
        owner: Owner,
        request: JobRequest,
        out: &mut Out,
    ) {
        if let Some(Requests { requests, .. }) = self.clients.get_mut(&client) {
            requests.insert(tag, request.job);
        }
        out.tell(Signal::Start { owner, request: Box::new(request) });
    }
}

impl Jobs {
    pub(crate) fn check_request(
        &self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
    ) -> Result<(), RequestError> {
        if !facts.nodes.is_connected(client) {
            return Err(SessionError::Gone(client).into());
        }
        let Some(Requests { requests, opening }) = self.clients.get(&client) else {
            return Err(SessionError::NoClient.into());
        };
        if requests.contains_key(&tag) || opening.contains(&tag) {
            return Err(SessionError::TagTaken(tag).into());
        }
        if requests.len() + opening.len() >= MAX_OPEN_REQUESTS {
            return Err(SessionError::TooManyRequests(MAX_OPEN_REQUESTS).into());
        }
        Ok(())
    }
}

impl Jobs {
    /// Cancels a request of a client.
    pub(crate) fn close(&mut self, client: NodeId, tag: u64) {
        let Some(Requests { requests, opening, .. }) = self.clients.get_mut(&client) else { return };
        // A request that still waits for a write must not start when the write is stored.
        opening.remove(&tag);
        if let Some(&job) = requests.get(&tag) {
            self.cancel_job(job);
        }
    }

    pub(crate) fn forget_request(&mut self, client: NodeId, tag: u64) {
        if let Some(Requests { requests, .. }) = self.clients.get_mut(&client) {
            requests.remove(&tag);
        }
    }
}

pub(crate) fn policy(scheme: Scheme, slice_bytes: Option<u32>) -> Policy {
    Policy { scheme, slice_bytes, ..Policy::default() }
}
