//! Requests of clients on their control connections: reads, stripes of puts, and reports of
//! wrong bytes.

use codes::BlockIndex;
use repair::wire::control::ClientRequest;
use repair::{NodeId, Policy, StripeId};
use store_api::PutId;

use crate::Control;
use crate::error::{RequestError, SessionError};
use crate::jobs::requests::{Read, policy};
use crate::stripes::indices::check_indices;

impl Control {
    /// Handles a new request of a client.
    pub(crate) fn open(&mut self, client: NodeId, tag: u64, request: ClientRequest) {
        if let Err(error) = self.try_open(client, tag, request) {
            self.nodes.refuse_request(client, tag, &error, &mut self.out);
        }
    }

    /// A client received a block with wrong bytes. Its helper verifies it.
    pub(crate) fn take_garbled(&mut self, client: NodeId, stripe: StripeId, block: BlockIndex) {
        let may_report = self.jobs.clients.contains_key(&client) && !self.nodes.is_plugin(client);
        let record = self.stripes.picture.stripe(&stripe).ok();
        if may_report && record.is_some_and(|record| check_indices(&record, &[block]).is_ok()) {
            self.scrub.reported.note(stripe, block);
        }
    }

    fn try_open(&mut self, client: NodeId, tag: u64, request: ClientRequest) -> Result<(), RequestError> {
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
            } => {
                // The stripe is in use: extends the time of its description and its lease.
                self.stripes.touch_given(around!(self), &stripe);
                if let Ok(record) = self.stripes.stripe_record(&stripe) {
                    self.stripes.note_reader(&self.base, &record);
                }
                let policy = Policy { pacing, ..policy(scheme, slice_bytes) };
                let read = Read { stripe, blocks, sub_blocks, window, policy, verify, pretend_lost };
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
