//! Requests of clients on their control connections: reads, stripes of puts, and reports of
//! wrong bytes.

use repair::wire::control::ClientRequest;
use repair::{NodeId, Policy};
use store_api::PutId;

use crate::control::{Control, facts, outer_facts};
use crate::error::{RequestError, SessionError};
use crate::jobs::requests::{Read, policy};

impl Control {
    /// Handles a new request of a client.
    pub(crate) fn open(
        &mut self,
        client: NodeId,
        tag: u64,
        request: ClientRequest,
    ) -> Result<(), RequestError> {
        self.jobs.check_request(facts!(self), client, tag)?;
        match request {
            ClientRequest::Read {
                stripe,
                blocks,
                sub_blocks,
                window,
                scheme,
                slice_bytes,
                pacing,
                verify,
                pretend_lost,
                expected,
            } => {
                // A read extends the readers' lease on the stripe and, if only a plug-in has described the
                // stripe, the time for which the description is kept.
                self.stripes.touch_given(outer_facts!(self), &stripe);
                if let Ok(record) = self.stripes.stripe_record(&stripe) {
                    self.stripes.readers.renew(&self.base, &record);
                }
                let policy = Policy { pacing, ..policy(scheme, slice_bytes) };
                let read =
                    Read { stripe, blocks, sub_blocks, window, policy, verify, pretend_lost, expected };
                self.jobs.read(facts!(self), client, tag, read, &mut self.out)
            }
            ClientRequest::PutStripe { .. } if self.nodes.is_plugin(client) => {
                Err(SessionError::NoClient.into())
            }
            ClientRequest::PutStripe { put, position } => {
                self.jobs.put_stripe(facts!(self), client, tag, PutId(put), position, &mut self.out)
            }
        }
    }
}
