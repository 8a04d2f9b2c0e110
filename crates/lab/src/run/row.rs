//! The rows of a report, before and after measurement.

use super::Run;
use super::stored::Stored;
use crate::baseline::{Baseline, Chain};
use crate::model::{published_timeslots, timeslots};
use crate::plan_cost::plan_cost;
use crate::report::{Case, Row};
use crate::scenario::Slice;
use crate::topology::Rate;
use crate::variant::Variant;

/// The scheme name in the row of a bare chain. A bare chain runs without Mend, so it has no scheme.
pub(crate) const BARE_CHAIN: &str = "bare chain";

impl Run<'_> {
    /// Returns the row of a measured bare chain.
    pub(super) fn chain_row(&self, stored: &Stored, chain: &Chain, baseline: &Baseline) -> Row {
        let mut row = self.empty(stored, Slice::Bytes(chain.slice_bytes), &[]);
        row.case.scheme = BARE_CHAIN.to_owned();
        row.formula = self.links_decide().then_some(1.0 + chain.filling);
        row.fill(&chain.samples, baseline);
        row
    }

    /// Whether all links are shaped to the same rate, and no disk is limited, which the formulas require.
    fn links_decide(&self) -> bool {
        let topology = self.network.topology();
        topology.is_uniform() && topology.rate != Rate::Unshaped && self.disks.is_none()
    }

    /// Returns a row with its parameters, the plan's cost and the formula's result, but without measurements.
    pub(super) fn row(&self, stored: &Stored, way: Variant, slice: Slice, lost: &[u16]) -> Row {
        let slices =
            slice.bytes().map_or(usize::MAX, |bytes| (stored.block_bytes / u64::from(bytes)) as usize);
        let account = plan_cost(&stored.code, stored.block_bytes, lost, way, slice.bytes()).ok();
        let formula = (self.links_decide() && lost.len() == 1).then(|| {
            // The formulas assume that helpers read whole blocks. For codes with sub-blocks, use the
            // timeslots of the plan.
            let helpers = account?.disk_blocks as usize;
            match way {
                _ if stored.sub_blocks > 1 => Some(account?.timeslots),
                Variant { scheme, .. } if way.is_in_rounds() => published_timeslots(scheme, helpers),
                Variant { scheme, .. } => timeslots(scheme, helpers, slices),
            }
        });
        let empty = self.empty(stored, slice, lost);
        let case = Case { scheme: way.to_string(), pacing: way.pacing, ..empty.case };
        Row { case, formula: formula.flatten(), account, ..empty }
    }

    fn empty(&self, stored: &Stored, slice: Slice, lost: &[u16]) -> Row {
        let topology = self.network.topology();
        let case = Case {
            network: topology.to_string(),
            rate: topology.rate.to_string(),
            edge: topology.edge.map(|edge| edge.to_string()),
            code: stored.code.to_string(),
            data_blocks: stored.data_blocks,
            block_bytes: stored.block_bytes,
            slice: slice.to_string(),
            lost: lost.to_vec(),
            ..Case::default()
        };
        Row { case, ..Row::default() }
    }
}
