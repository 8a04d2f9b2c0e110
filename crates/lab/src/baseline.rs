//! [`Baseline`]: measurements without Mend, with which the repairs of the same run are compared. They are
//! direct sends of one block, and sends through bare chains of relays.

use crate::report::{Sample, median};

/// The tolerated slowdown of a bare chain, as a factor. Without a bottleneck at the processors, the chain
/// takes as long as a direct send, plus the time to fill the pipeline. If the chain takes longer than this
/// time multiplied by the factor, the processors are considered saturated.
const SLOWER: f64 = 1.02;

/// Measurements without Mend. They alternate with the repairs that are compared with them.
#[derive(Default)]
pub(crate) struct Baseline {
    /// Sends of one block over one plain TCP connection to the client.
    pub(crate) direct: Vec<Sample>,
    /// Sends of one block through bare chains, one chain per slice size. A chain has one relay for each
    /// helper of a pipelined repair.
    pub(crate) chains: Vec<Chain>,
}

/// The measurements of one bare chain.
pub(crate) struct Chain {
    pub(crate) slice_bytes: u32,
    /// The time to fill the pipeline, relative to the time to send one block: (relays − 1) · slice size /
    /// block size.
    pub(crate) filling: f64,
    pub(crate) samples: Vec<Sample>,
}

impl Baseline {
    /// Median time of a direct send, in seconds.
    pub(crate) fn direct_s(&self) -> f64 {
        median(&self.direct.iter().map(|sample| sample.time_s).collect::<Vec<_>>())
    }

    /// Median processor seconds of the chain that needs least processor time.
    pub(crate) fn bare_cpu_s(&self) -> Option<f64> {
        self.cheapest().map(Chain::cpu_s)
    }

    /// Whether the processors are the bottleneck even without Mend.
    pub(crate) fn is_saturated(&self) -> bool {
        let late = |chain: &Chain| chain.time_s() > self.direct_s() * SLOWER * (1.0 + chain.filling);
        is_cpu_bound(&self.direct)
            || self.cheapest().is_some_and(|chain| is_cpu_bound(&chain.samples) || late(chain))
    }

    fn cheapest(&self) -> Option<&Chain> {
        self.chains.iter().min_by(|a, b| a.cpu_s().total_cmp(&b.cpu_s()))
    }
}

impl Chain {
    fn cpu_s(&self) -> f64 {
        median(&self.samples.iter().map(|sample| sample.metered.cpu_s).collect::<Vec<_>>())
    }

    fn time_s(&self) -> f64 {
        median(&self.samples.iter().map(|sample| sample.time_s).collect::<Vec<_>>())
    }
}

/// Whether most samples were limited by the processors.
pub(crate) fn is_cpu_bound(samples: &[Sample]) -> bool {
    samples.iter().filter(|sample| sample.metered.cpu_bound).count() * 2 > samples.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(slice_bytes: u32, cpu_s: f64, time_s: f64, cpu_bound: bool) -> Chain {
        Chain { slice_bytes, filling: 0.01, samples: vec![Sample::of_test(time_s, cpu_s, cpu_bound); 3] }
    }

    fn baseline(chains: Vec<Chain>) -> Baseline {
        Baseline { direct: vec![Sample::of_test(1.0, 0.1, false); 3], chains }
    }

    #[test]
    fn the_chain_that_needs_least_is_what_counts() {
        let both = baseline(vec![chain(32 << 10, 0.9, 1.5, true), chain(128 << 10, 0.7, 1.0, false)]);
        assert_eq!(both.bare_cpu_s(), Some(0.7));
        assert!(!both.is_saturated());
        assert_eq!(baseline(Vec::new()).bare_cpu_s(), None);
    }

    #[test]
    fn a_machine_that_does_not_carry_the_baseline_is_saturated() {
        assert!(baseline(vec![chain(1, 0.7, 1.0, true)]).is_saturated());
        assert!(!baseline(vec![chain(1, 0.7, 1.029, false)]).is_saturated());
        assert!(baseline(vec![chain(1, 0.7, 1.04, false)]).is_saturated());
        let direct = vec![Sample::of_test(1.0, 0.1, true); 3];
        assert!(Baseline { direct, chains: Vec::new() }.is_saturated());
    }
}
