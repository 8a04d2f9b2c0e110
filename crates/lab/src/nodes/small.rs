//! Measures the recovery of a node with many small blocks, and repairs of single stripes of the same size.

use std::collections::BTreeMap;
use std::path::PathBuf;

use repair::Scheme;

use super::cluster::LOST;
use super::measure::Measuring;
use super::report::Part;
use super::whole::Way;
use crate::error::LabError;
use crate::instruction::{Answer, Instruction};

/// The number of stripes that are repaired one after another.
const SINGLES: usize = 9;

impl Measuring<'_> {
    pub(super) fn small(&mut self) -> Result<Part, LabError> {
        let single_s = self.single_repairs()?;
        let part = self.interleaved(&[Way::recovery("even", &[]).by_default()])?;
        Ok(Part { single_s, ..part })
    }

    /// Repairs one stripe after another in a fresh cluster with a lost node. Returns the time of each in
    /// seconds.
    fn single_repairs(&mut self) -> Result<Vec<f64>, LabError> {
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let lost: BTreeMap<String, PathBuf> = self.lab.lost_blocks()?.into_iter().take(SINGLES).collect();
        let times = lost.keys().map(|block| self.repair_one(block)).collect::<Result<_, _>>()?;
        self.lab.compare_blocks("repairs of single stripes", &lost)?;
        (self.say)(&format!("repairs of single stripes: {times:.4?} s"));
        Ok(times)
    }

    fn repair_one(&mut self, block: &str) -> Result<f64, LabError> {
        let order = Instruction::Repair {
            stripe: stripe_of(block).to_owned(),
            blocks: vec![block.to_owned()],
            scheme: Scheme::Auto,
            slice_bytes: None,
            policy: None,
            verify_parity: true,
        };
        match self.lab.fleet.ask_loader(&self.lab.network, &order)? {
            Answer::Took(took) => Ok(took.ns as f64 / 1e9),
            other => {
                let reason = format!("an answer to something else: {other:?}");
                Err(LabError::Agent { who: "loader".to_owned(), reason })
            }
        }
    }
}

/// Returns the stripe in the name of a block of the store `dir`, STRIPE.INDEX.
fn stripe_of(block: &str) -> &str {
    block.rsplit_once('.').map_or(block, |(stripe, _)| stripe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_stripe() {
        assert_eq!(stripe_of("17-k3f9x2.3"), "17-k3f9x2");
        assert_eq!(stripe_of("x"), "x");
    }
}
