//! Rebuilds blocks of stripes that the store describes: [`Rebuilder`] for a store in the coordinator's own process.
//! Requests go to the control plane as those of the API do. Clients of the API share the conversions.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use control::{NodeCommand, RepairCommand, StripeCommand};
use store_api::{DescribedStripe, Later, Rebuild, RebuildError, Rebuilder, Rebuilt};
use views::{
    GivenBlock, GivenStripe, Home, ItemState, NodeView, ParityOutcome, RepairRequest, RepairState, RepairView,
};

use crate::api::asking::{ApiError, Asking};

/// The owner of the store's descriptions, for the limits on their memory.
const OWNER: &str = "the store";

/// Rebuilds blocks for a store in the same process.
#[derive(Clone)]
pub(crate) struct OwnRebuilder(Asking);

impl OwnRebuilder {
    pub(crate) fn new(core: Asking) -> Self {
        Self(core)
    }
}

impl fmt::Debug for OwnRebuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnRebuilder")
    }
}

impl Rebuilder for OwnRebuilder {
    fn helpers_up(&self) -> Later<'_, Result<BTreeSet<String>, RebuildError>> {
        Box::pin(async move { Ok(connected(self.0.value(NodeCommand::List).await?)) })
    }

    fn describe<'a>(&'a self, stripe: &'a DescribedStripe) -> Later<'a, Result<(), RebuildError>> {
        let given = given(stripe);
        Box::pin(async move {
            let described = |reply| StripeCommand::Describe(given, OWNER.to_owned(), reply);
            self.0.value(described).await?;
            Ok(())
        })
    }

    fn begin<'a>(&'a self, rebuild: &'a Rebuild) -> Later<'a, Result<u64, RebuildError>> {
        let request = request(rebuild);
        Box::pin(async move {
            let queued = self.0.value(|reply| RepairCommand::Queue(request.into(), reply)).await?;
            Ok(queued.repair)
        })
    }

    fn await_end(&self, repair: u64, limit: Duration) -> Later<'_, Result<Option<Rebuilt>, RebuildError>> {
        Box::pin(async move {
            self.0.value(|reply| RepairCommand::Change(repair, None, limit, reply)).await?;
            outcome(&self.0.value(|reply| RepairCommand::GivenState(repair, reply)).await?)
        })
    }

    fn cancel(&self, repair: u64) -> Later<'_, ()> {
        Box::pin(async move {
            // The repair may have ended.
            drop(self.0.value(|reply| RepairCommand::CancelGiven(repair, reply)).await);
        })
    }
}

impl From<ApiError> for RebuildError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Stopping => Self::Unreachable(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// Returns the names of the helpers that are connected.
pub fn connected(nodes: Vec<NodeView>) -> BTreeSet<String> {
    nodes.into_iter().filter(|node| node.up).map(|node| node.name).collect()
}

/// Returns the description of a stripe as the API takes it.
pub fn given(stripe: &DescribedStripe) -> GivenStripe {
    let block = |block: &store_api::DescribedBlock| GivenBlock {
        block: block.block.to_string(),
        bytes: block.bytes,
        node: block.node.clone(),
        digest: None,
    };
    GivenStripe {
        stripe: stripe.stripe.to_string(),
        code: stripe.code.to_string(),
        block_bytes: stripe.block_bytes,
        chunk_bytes: None,
        blocks: stripe.blocks.iter().map(block).collect(),
    }
}

/// Returns the request for a repair of a described stripe.
pub fn request(rebuild: &Rebuild) -> RepairRequest {
    RepairRequest {
        stripe: Some(rebuild.stripe.to_string()),
        homes: rebuild
            .homes
            .iter()
            .map(|(index, node)| Home { index: index.0, node: node.clone() })
            .collect(),
        scheme: rebuild.scheme.clone(),
        priority: rebuild.is_background.then(|| "background".to_owned()),
        lease_ms: Some(rebuild.lease.as_millis() as u64),
        one_first: rebuild.one_first,
        ..RepairRequest::default()
    }
}

/// Returns how a repair of a described stripe has ended; `None` while it runs.
///
/// # Errors
/// [`RebuildError::Failed`] unless all blocks were rebuilt.
pub fn outcome(repair: &RepairView) -> Result<Option<Rebuilt>, RebuildError> {
    if repair.ended_unix_ms.is_none() {
        return Ok(None);
    }
    let is_done = repair.state == RepairState::Done
        && !repair.items.is_empty()
        && repair
            .items
            .iter()
            .all(|item| item.state == ItemState::Done && item.rebuilt.len() == item.blocks.len());
    if !is_done {
        let reasons: Vec<String> = repair.items.iter().filter_map(|item| item.reason.clone()).collect();
        let why = if reasons.is_empty() { repair.state.name().to_owned() } else { reasons.join("; ") };
        return Err(RebuildError::Failed(format!("repair {}: {why}", repair.repair)));
    }
    let is_checked = repair.items.iter().all(|item| item.parity == Some(ParityOutcome::Holds));
    Ok(Some(Rebuilt { is_checked }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a repair with one stripe, of which two blocks were to be rebuilt.
    fn repair(state: &str, item: &str, rebuilt: usize, parity: Option<&str>) -> RepairView {
        let blocks = ["blk_7_1", "blk_8_2"];
        let rebuilt = blocks[..rebuilt].iter().map(|block| json!({ "block": block, "node": "h1" }));
        let view = json!({
            "repair": 9, "target": "stripe encoding_1_2", "by_itself": false, "scheme": "auto", "policy": "even",
            "state": state, "stripes": 1, "stripes_done": 0, "stripes_failed": 0, "blocks_rebuilt": rebuilt.len(),
            "bytes_rebuilt": 0, "bytes": 0, "started_unix_ms": 1,
            "ended_unix_ms": (state != "running").then_some(2), "progress": null,
            "items": [{
                "stripe": "encoding_1_2", "state": item, "blocks": blocks, "rebuilt": rebuilt.collect::<Vec<Value>>(),
                "scheme": "pipelined", "parity": parity, "reason": (item == "failed").then_some("helper h1 stopped"),
                "next_step": null, "replanned": [], "job": null,
            }],
        });
        serde_json::from_value(view).expect("a repair")
    }

    #[test]
    fn a_repair_is_over_once_all_its_blocks_are_rebuilt() {
        assert_eq!(outcome(&repair("running", "running", 0, None)), Ok(None));
        let rebuilt = |parity| outcome(&repair("done", "done", 2, Some(parity)));
        assert_eq!(rebuilt("holds"), Ok(Some(Rebuilt { is_checked: true })));
        for unchecked in ["not-asked", "no-spare-block", "overruled"] {
            assert_eq!(rebuilt(unchecked), Ok(Some(Rebuilt { is_checked: false })), "{unchecked}");
        }
    }

    #[test]
    fn a_repair_without_all_its_blocks_has_failed() {
        let failed = |repair| outcome(&repair).expect_err("it failed").to_string();
        let why = failed(repair("failed", "failed", 1, None));
        assert!(why.contains("repair 9: helper h1 stopped"), "{why}");
        assert!(failed(repair("cancelled", "cancelled", 0, None)).contains("repair 9: cancelled"));
        failed(repair("done", "done", 1, Some("holds")));
    }

    #[test]
    fn requests_name_blocks_by_their_indices() {
        let block = |name: &str, node: Option<&str>| store_api::DescribedBlock {
            block: repair::BlockId(name.to_owned()),
            bytes: 512,
            node: node.map(str::to_owned),
        };
        let stripe = DescribedStripe {
            stripe: repair::StripeId("encoding_1_2".to_owned()),
            code: "xor-3-2".parse().expect("a code"),
            block_bytes: 512,
            blocks: vec![block("blk_1_1", Some("h1")), block("blk_2_1", Some("h2")), block("blk_3_2", None)],
        };
        let given = given(&stripe);
        assert_eq!(
            (given.stripe.as_str(), given.code.as_str(), given.chunk_bytes),
            ("encoding_1_2", "xor-3-2", None)
        );
        let nodes: Vec<Option<&str>> = given.blocks.iter().map(|block| block.node.as_deref()).collect();
        assert_eq!(nodes, [Some("h1"), Some("h2"), None]);
        let rebuild = Rebuild {
            stripe: stripe.stripe,
            homes: serde_json::from_value(json!({ "2": "h3" })).expect("an index with a helper"),
            scheme: Some("ppr".to_owned()),
            is_background: true,
            lease: Duration::from_secs(60),
            one_first: true,
        };
        let request = request(&rebuild);
        assert_eq!(
            (request.priority.as_deref(), request.lease_ms, request.one_first),
            (Some("background"), Some(60_000), true)
        );
        assert_eq!(request.homes, [Home { index: 2, node: "h3".to_owned() }]);
        assert_eq!(
            (request.stripe.as_deref(), request.scheme.as_deref()),
            (Some("encoding_1_2"), Some("ppr"))
        );
    }
}
