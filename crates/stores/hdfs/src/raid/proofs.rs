//! [`Proofs`]: the stripes whose data and parity were found to satisfy all parity equations. Pure.

use std::collections::{BTreeSet, VecDeque};

/// The maximum number of stripes. Parity of forgotten ones is proven by the JVM.
const MOST: usize = 65_536;

/// The proven stripes, by the fingerprints of their blocks. A new proof displaces the oldest one if there are too many: of
/// files that were deleted or changed before their parity was used, no caller asks for the proof.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    proven: BTreeSet<String>,
    /// The stripes in the order of their proofs, including those that were taken since.
    order: VecDeque<String>,
}

impl Proofs {
    /// Adds a proven stripe.
    pub fn insert(&mut self, print: String) {
        self.order.push_back(print.clone());
        self.proven.insert(print);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.proven.remove(&oldest);
        }
    }

    /// Whether all these stripes are proven.
    pub fn contain(&self, prints: &[String]) -> bool {
        prints.iter().all(|print| self.proven.contains(print))
    }

    /// Forgets these stripes. Returns whether all of them were proven.
    pub fn take(&mut self, prints: &[String]) -> bool {
        let are_proven = self.contain(prints);
        prints.iter().for_each(|print| {
            self.proven.remove(print);
        });
        are_proven
    }

    /// Returns the number of proven stripes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.proven.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_that_nobody_asks_for_give_way_to_new_ones() {
        let mut proofs = Proofs::default();
        let print = |at: usize| vec![at.to_string()];
        (0..MOST + 3).for_each(|at| proofs.insert(at.to_string()));
        assert_eq!(proofs.len(), MOST);
        assert!(!proofs.contain(&print(2)) && proofs.contain(&print(3)) && proofs.contain(&print(MOST + 2)));
        assert!(proofs.take(&print(3)) && !proofs.take(&print(3)), "a proof is used once");
        assert!(!proofs.take(&[print(4), print(0)].concat()), "one of them is not proven");
    }
}
