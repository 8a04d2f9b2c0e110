//! Empties a node: in rounds whose transfers the lab chose, as FastPR does, or by Mend's own drain.
//!
//! A transfer is the repair of a described stripe. The description names only the blocks that are to be read,
//! so the coordinator has no other helpers to choose from, and the request names the node that receives the
//! block.
//!
//! As in FastPR's published prototype, a receiver handles one block at a time, and so does the failing node.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use client::{Client, RepairRequest, RepairState, RepairView};
use repair::Scheme;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{Agent, AgentError, WAIT, nanoseconds};
use crate::instruction::{Answer, Took, Transfer};

/// The nodes that handle one block at a time. A copy locks the failing node before its receiver.
struct Turns {
    failing: Mutex<()>,
    receivers: BTreeMap<String, Mutex<()>>,
}

impl Turns {
    fn of(transfers: &[Transfer]) -> Self {
        let receivers = transfers.iter().map(|transfer| (transfer.home.node.clone(), Mutex::new(())));
        Self { failing: Mutex::new(()), receivers: receivers.collect() }
    }

    /// Repairs the block of a transfer when its nodes are free. Returns why plans were replaced.
    async fn repair(
        &self,
        client: &Client,
        transfer: Transfer,
        slice_bytes: u32,
    ) -> Result<Vec<String>, AgentError> {
        let _copies = match transfer.is_copy {
            true => Some(self.failing.lock().await),
            false => None,
        };
        let _receives = self.receivers[&transfer.home.node].lock().await;
        let request = RepairRequest {
            stripe: Some(transfer.stripe.stripe),
            homes: vec![transfer.home],
            scheme: Some(Scheme::Conventional.name().to_owned()),
            slice_bytes: Some(slice_bytes),
            // The description has no spare block with which parity could be checked.
            verify_parity: Some(false),
            ..RepairRequest::default()
        };
        let view = finished(client, &request).await?;
        Ok(view.items.into_iter().flat_map(|item| item.replanned).collect())
    }
}

impl Agent {
    /// Makes all transfers of a round, and measures the time until the last block is published and read back.
    pub(super) async fn round(
        &self,
        transfers: Vec<Transfer>,
        slice_bytes: u32,
    ) -> Result<Answer, AgentError> {
        for transfer in &transfers {
            self.client.describe(&transfer.stripe).await?;
        }
        let turns = Arc::new(Turns::of(&transfers));
        let started = Instant::now();
        let mut running = JoinSet::new();
        for transfer in transfers {
            let (client, turns) = (self.client.clone(), turns.clone());
            running.spawn(async move { turns.repair(&client, transfer, slice_bytes).await });
        }
        let mut replanned = Vec::new();
        while let Some(ended) = running.join_next().await {
            replanned.extend(ended.map_err(io::Error::other)??);
        }
        Ok(Answer::Took(Took { ns: nanoseconds(started.elapsed()), replanned, ..Took::default() }))
    }

    /// Drains a node as `mend node drain` does.
    pub(super) async fn drain(&self, node: String, requestors: Vec<String>) -> Result<Answer, AgentError> {
        let request = RepairRequest { drain: Some(node), requestors, ..RepairRequest::default() };
        let started = Instant::now();
        let view = finished(&self.client, &request).await?;
        let ns = nanoseconds(started.elapsed());
        let replanned = view.items.into_iter().flat_map(|item| item.replanned).collect();
        Ok(Answer::Took(Took { ns, replanned, ..Took::default() }))
    }
}

/// Requests a repair and waits for its end.
///
/// # Errors
/// Also if the repair failed or was cancelled.
async fn finished(client: &Client, request: &RepairRequest) -> Result<RepairView, AgentError> {
    let mut view = client.repair(request).await?;
    while !view.state.has_ended() {
        view = client.await_repair(view.repair, WAIT).await?;
    }
    match view.state {
        RepairState::Done => Ok(view),
        state => Err(AgentError::Repair {
            blocks: view.target,
            state: state.to_string(),
            rebuilt: Vec::new(),
            reason: view.items.into_iter().find_map(|item| item.reason).unwrap_or_default(),
        }),
    }
}
