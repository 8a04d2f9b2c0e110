//! Places the blocks of a new stripe: spread over racks first, then over hosts, then on the least used
//! helpers, then at random.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::SliceRandom;
use repair::{NodeId, Topology};

/// A live helper that may get a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The helper's id.
    pub node: NodeId,
    /// The helper's rack and host.
    pub domains: Domains,
    /// Number of blocks that the helper holds or will soon receive.
    pub used: usize,
}

/// The failure domains of a helper, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Domains {
    /// The helper's rack.
    pub rack: Option<String>,
    /// The helper's host: one machine may run several helpers.
    pub host: Option<String>,
}

/// Number of the stripe's blocks in each rack and on each host.
#[derive(Default)]
pub(crate) struct Counts {
    racks: BTreeMap<String, usize>,
    hosts: BTreeMap<String, usize>,
}

/// Chooses `count` of the candidates, in random order so data and parity blocks mix. Returns `None` if there
/// are fewer candidates. `holders` are the domains of the helpers that already have blocks of the stripe.
pub(crate) fn spread(
    mut candidates: Vec<Candidate>,
    holders: impl IntoIterator<Item = Domains>,
    count: usize,
    rng: &mut impl Rng,
) -> Option<Vec<NodeId>> {
    let mut counts = Counts::default();
    holders.into_iter().for_each(|domains| counts.add(domains));
    candidates.shuffle(rng); // Breaks ties at random.
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let rank = |&at: &usize| (counts.beside(&candidates[at].domains), candidates[at].used);
        let best = candidates.swap_remove((0..candidates.len()).min_by_key(rank)?);
        counts.add(best.domains);
        chosen.push(best.node);
    }
    chosen.shuffle(rng);
    Some(chosen)
}

impl Domains {
    pub(crate) fn of(topology: &Topology, node: NodeId) -> Self {
        let Some(profile) = topology.get(node) else { return Self::default() };
        Self { rack: profile.rack.clone(), host: profile.reach.host().map(str::to_owned) }
    }
}

impl Counts {
    pub(crate) fn add(&mut self, domains: Domains) {
        domains.rack.into_iter().for_each(|rack| *self.racks.entry(rack).or_default() += 1);
        domains.host.into_iter().for_each(|host| *self.hosts.entry(host).or_default() += 1);
    }

    /// Returns the number of blocks in the same rack, and the number of blocks on the same host.
    pub(crate) fn beside(&self, domains: &Domains) -> (usize, usize) {
        let blocks = |counts: &BTreeMap<String, usize>, domain: &Option<String>| {
            domain.as_ref().and_then(|domain| counts.get(domain)).copied().unwrap_or(0)
        };
        (blocks(&self.racks, &domains.rack), blocks(&self.hosts, &domains.host))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn candidate(node: u32, rack: Option<&str>, used: usize) -> Candidate {
        let domains = Domains { rack: rack.map(str::to_owned), host: None };
        Candidate { node: NodeId(node), domains, used }
    }

    fn chosen(candidates: Vec<Candidate>, count: usize) -> Option<Vec<NodeId>> {
        let mut nodes = spread(candidates, [], count, &mut StdRng::seed_from_u64(7))?;
        nodes.sort();
        Some(nodes)
    }

    #[test]
    fn the_least_used_are_chosen() {
        let candidates = (0..6).map(|node| candidate(node, None, node as usize % 3)).collect();
        assert_eq!(chosen(candidates, 4), Some([0, 1, 3, 4].map(NodeId).to_vec()));
    }

    #[test]
    fn racks_are_spread_before_use_counts() {
        let racks = ["a", "a", "a", "b", "c", "c"];
        let candidates =
            racks.iter().zip(0..).map(|(rack, node)| candidate(node, Some(rack), node as usize)).collect();
        assert_eq!(chosen(candidates, 3), Some([0, 3, 4].map(NodeId).to_vec()));
    }

    #[test]
    fn racks_that_have_blocks_already_come_last() {
        let candidates = vec![candidate(0, Some("a"), 0), candidate(1, Some("b"), 9)];
        let holder = Domains { rack: Some("a".to_owned()), host: None };
        assert_eq!(spread(candidates, [holder], 1, &mut StdRng::seed_from_u64(7)), Some(vec![NodeId(1)]));
    }

    #[test]
    fn hosts_are_spread_within_racks_before_use_counts() {
        let candidates = (0..9).map(|node| {
            let domains = Domains { rack: None, host: Some(format!("m{}", node / 3)) };
            Candidate { node: NodeId(node), domains, used: 10 * (node as usize / 3) }
        });
        let nodes = chosen(candidates.collect(), 6).unwrap();
        assert_eq!(nodes.iter().map(|node| node.0 / 3).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn too_few_candidates_yield_none() {
        assert_eq!(chosen(vec![candidate(0, None, 0)], 2), None);
    }

    #[test]
    fn load_stays_even_over_many_stripes() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut used = [0; 18];
        for _ in 0..900 {
            let candidates = (0..18).map(|node| candidate(node, None, used[node as usize])).collect();
            for node in spread(candidates, [], 14, &mut rng).unwrap() {
                used[node.0 as usize] += 1;
            }
        }
        assert_eq!(used, [700; 18]);
    }
}
