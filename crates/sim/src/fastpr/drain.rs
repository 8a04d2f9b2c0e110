//! Empties a failing node by FastPR, by migration only, or by reconstruction only, round by round.

use super::{
    Disks, Model, ParityGroup, Placement, Round, RoundOrder, Set, Source, Transfer, destinations, execute,
    hot_standbys, published_sets, schedule,
};

/// How the chunks of a failing node are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Copies all chunks, one after another.
    MigrationOnly,
    /// Rebuilds all chunks, one set after another (the conventional reactive repair).
    ReconstructionOnly,
    /// Rebuilds large sets and copies the chunks of small ones meanwhile (Algorithm 2).
    FastPr,
}

/// The chunks of an LRC that share a round (supplement, section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// Chunks of one group only.
    Independent,
    /// Chunks of both groups.
    Mixed,
}

/// The hot standbys that receive the chunks of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standbys {
    /// The first standby receives copied chunks and the others rebuilt ones, as in the published prototype.
    FirstCopies,
    /// The first standby receives copied chunks, and rebuilt chunks go to the standby that is expected to be
    /// free first (ours).
    Level,
}

/// A drain of the failing node.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Sizes, rates and times that Algorithm 2 expects.
    pub model: Model,
    /// The chunks of the failing node.
    pub placement: Placement,
    /// The order of rounds: by size for Reed-Solomon codes, by weight for LRC.
    pub order: RoundOrder,
    /// Which chunks of an LRC share a round.
    pub rounds: Rounds,
    /// How hot standbys share the chunks, if there are any.
    pub standbys: Standbys,
    /// Whether reads and writes of a disk slow each other down.
    pub disks: Disks,
}

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drained {
    /// Seconds from the first command to the end of the last round.
    pub seconds: f64,
    /// Number of reconstruction sets that were found.
    pub sets: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of rebuilt chunks.
    pub rebuilt: usize,
    /// Number of copied chunks.
    pub copied: usize,
    /// Number of chunks for which no node was free in their round. Their receivers take a second chunk.
    pub doubled: usize,
    /// Seconds that the published simulator computes for the same rounds: for each round, the expected time of
    /// its set or of its copies, whichever is longer.
    pub computed_seconds: f64,
}

impl Drained {
    /// Returns the seconds per chunk.
    pub fn per_chunk(&self) -> f64 {
        self.seconds / (self.rebuilt + self.copied) as f64
    }

    /// Returns the computed seconds per chunk.
    pub fn computed_per_chunk(&self) -> f64 {
        self.computed_seconds / (self.rebuilt + self.copied) as f64
    }
}

impl Drain {
    /// Returns a drain as the paper describes it.
    pub fn new(model: Model, placement: Placement) -> Self {
        Self {
            model,
            placement,
            order: RoundOrder::Size,
            rounds: Rounds::Independent,
            standbys: Standbys::FirstCopies,
            disks: Disks::Duplex,
        }
    }

    /// Returns the reconstruction sets that the paper's Algorithm 1 finds on all chunks together.
    pub fn sets(&self) -> Vec<Set> {
        match self.rounds {
            Rounds::Mixed => self.sets_of(&(0..self.placement.chunks.len()).collect::<Vec<_>>()),
            Rounds::Independent => {
                let of = |group| self.sets_of(&self.placement.of_group(group));
                [of(ParityGroup::Local), of(ParityGroup::Global)].concat()
            }
        }
    }

    fn sets_of(&self, numbers: &[usize]) -> Vec<Set> {
        let chunks: Vec<_> = numbers.iter().map(|&chunk| self.placement.chunks[chunk].clone()).collect();
        let needs = chunks.iter().map(|chunk| chunk.needs).min().unwrap_or(1);
        let mut found = published_sets(&chunks, self.model.nodes - 1, self.model.largest_set(needs));
        found.iter_mut().flat_map(|set| &mut set.chunks).for_each(|(chunk, _)| *chunk = numbers[*chunk]);
        found
    }

    /// Returns the seconds that the model expects for a set. A set of both groups takes as long as one of its
    /// largest reconstruction. Each of h hot standbys handles ⌈|R|/h⌉ of the set's |R| chunks, as in the
    /// published prototype.
    pub fn expected(&self, set: &Set) -> f64 {
        let needs = set.chunks.iter().map(|(_, helpers)| helpers.len()).max().unwrap_or(0);
        let standbys = self.model.standbys.unwrap_or(1);
        self.model.reconstruction((set.len().div_ceil(standbys) * standbys) as f64, needs)
    }

    fn computed(&self, round: &Round) -> f64 {
        let copying = round.migrated.len() as f64 * self.model.migration();
        if round.rebuilt.is_empty() { copying } else { self.expected(&round.rebuilt).max(copying) }
    }

    /// Repairs all chunks of these sets. The sets are [`sets`](Self::sets) of this drain; finding them takes
    /// longest, so several methods can share them.
    pub fn run(&self, method: Method, sets: &[Set]) -> Drained {
        let copy = |chunk| Round { rebuilt: Set::default(), migrated: vec![chunk] };
        let rebuild = |set: &Set| Round { rebuilt: set.clone(), migrated: Vec::new() };
        let rounds: Vec<Round> = match method {
            Method::MigrationOnly => (0..self.placement.chunks.len()).map(copy).collect(),
            Method::ReconstructionOnly => sets.iter().map(rebuild).collect(),
            Method::FastPr => {
                schedule(sets.to_vec(), self.order, self.model.migration(), |set| self.expected(set))
            }
        };
        let mut drained = Drained { sets: sets.len(), rounds: rounds.len(), ..Drained::default() };
        for round in &rounds {
            let (transfers, doubled) = self.transfers(round);
            drained.seconds += execute(&self.model, self.disks, &transfers);
            drained.computed_seconds += self.computed(round);
            drained.rebuilt += round.rebuilt.len();
            drained.copied += round.migrated.len();
            drained.doubled += doubled;
        }
        assert_eq!(
            drained.rebuilt + drained.copied,
            self.placement.chunks.len(),
            "each chunk is repaired once"
        );
        drained
    }

    /// Returns the transfers of a round, and the number of chunks for which no node was free.
    fn transfers(&self, round: &Round) -> (Vec<Transfer>, usize) {
        let (receivers, doubled) = match self.model.standbys {
            None => self.scattered(round),
            Some(standbys) => (self.on_standbys(round, standbys), 0),
        };
        let source = |chunk: usize| {
            let helpers = round.rebuilt.chunks.iter().find(|&&(rebuilt, _)| rebuilt == chunk);
            helpers.map_or(Source::Copied, |(_, helpers)| Source::Rebuilt(helpers.clone()))
        };
        let transfer = |(chunk, receiver)| Transfer { chunk, source: source(chunk), receiver };
        (receivers.into_iter().map(transfer).collect(), doubled)
    }

    /// Chooses healthy nodes without a chunk of the stripe. If there are too few for a round, some receive two
    /// chunks: the ones that have the fewest.
    fn scattered(&self, round: &Round) -> (Vec<(usize, usize)>, usize) {
        let (healthy, holders) = (self.model.nodes - 1, &self.placement.holders);
        let chosen = destinations(round, healthy, |chunk| holders[chunk].clone());
        let mut loads = vec![0; healthy];
        chosen.iter().filter_map(|&(_, node)| node).for_each(|node| loads[node] += 1);
        let doubled = chosen.iter().filter(|(_, node)| node.is_none()).count();
        let mut complete = |(chunk, node): (usize, Option<usize>)| {
            let node = node.unwrap_or_else(|| {
                let free = (0..healthy).filter(|node| !holders[chunk].contains(node));
                let node = free.min_by_key(|&node| loads[node]).expect("the cluster is larger than a stripe");
                loads[node] += 1;
                node
            });
            (chunk, node)
        };
        (chosen.into_iter().map(&mut complete).collect(), doubled)
    }

    fn on_standbys(&self, round: &Round, standbys: usize) -> Vec<(usize, usize)> {
        let first = self.model.nodes - 1;
        let receivers = match self.standbys {
            Standbys::FirstCopies => hot_standbys(round, standbys),
            Standbys::Level => self.leveled(round, standbys),
        };
        receivers.into_iter().map(|(chunk, standby)| (chunk, first + standby)).collect()
    }

    fn leveled(&self, round: &Round, standbys: usize) -> Vec<(usize, usize)> {
        let mut busy = vec![0.0; standbys];
        busy[0] = round.migrated.len() as f64 * self.model.migration();
        let mut receivers: Vec<(usize, usize)> = round.migrated.iter().map(|&chunk| (chunk, 0)).collect();
        for (chunk, helpers) in &round.rebuilt.chunks {
            let sooner = |&a: &usize, &b: &usize| busy[a].total_cmp(&busy[b]);
            let standby = (0..standbys).min_by(sooner).expect("there are standbys");
            busy[standby] += self.model.receive(helpers.len());
            receivers.push((*chunk, standby));
        }
        receivers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Shape;
    use super::*;

    fn drain(shape: Shape, standbys: Option<usize>, seed: u64) -> Drain {
        let model = Model { nodes: 40, standbys, ..Model::PAPER };
        Drain::new(model, Placement::random(shape, 39, 24, seed))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The formula of the published simulator is a lower bound of each executed round, and is reached if
        /// every chunk has a receiver of its own.
        #[test]
        fn scattered_rounds_take_as_long_as_the_published_simulator_computes(seed in any::<u64>()) {
            let drain = drain(Shape::ReedSolomon { n: 9, k: 6 }, None, seed);
            let Drained { seconds, computed_seconds, doubled, .. } = drain.run(Method::FastPr, &drain.sets());
            prop_assert!(seconds >= computed_seconds - 1e-6, "{} s, computed {} s", seconds, computed_seconds);
            prop_assert!(doubled > 0 || seconds <= computed_seconds + 1e-6);
        }

        #[test]
        fn every_method_repairs_each_chunk_once(seed in any::<u64>(), standbys in 0..4usize) {
            let drain = drain(Shape::ReedSolomon { n: 9, k: 6 }, (standbys > 0).then_some(standbys), seed);
            let sets = drain.sets();
            let copies = drain.run(Method::MigrationOnly, &sets);
            prop_assert!((copies.seconds - 24.0 * drain.model.migration()).abs() < 1e-6);
            let rebuilds = drain.run(Method::ReconstructionOnly, &sets);
            prop_assert_eq!((rebuilds.rebuilt, rebuilds.rounds), (24, sets.len()));
            let both = drain.run(Method::FastPr, &sets);
            prop_assert!(both.copied > 0 && both.rounds < rebuilds.rounds);
        }

        /// Equation 1 is exact for full sets, and a lower bound for others.
        #[test]
        fn independent_rounds_take_at_least_as_long_as_equation_1(seed in any::<u64>()) {
            let shape = Shape::AzureLrc { k: 6, l: 2, g: 2, plus: false };
            let drain = drain(shape, None, seed);
            let sets = drain.sets();
            let of = |group| {
                let chunks = drain.placement.of_group(group);
                let needs = chunks.first().map_or(0, |&chunk| drain.placement.chunks[chunk].needs);
                (chunks.len() * needs) as f64 * drain.model.reconstruction(1.0, needs) / 39.0
            };
            let least = of(ParityGroup::Local) + of(ParityGroup::Global);
            let drained = drain.run(Method::ReconstructionOnly, &sets);
            prop_assert!(drained.seconds >= least - 1e-6, "{} s, bound {} s", drained.seconds, least);
            for set in &sets {
                let groups: Vec<ParityGroup> =
                    set.chunks.iter().map(|&(chunk, _)| drain.placement.groups[chunk]).collect();
                prop_assert!(groups.windows(2).all(|pair| pair[0] == pair[1]), "a set of both groups");
            }
        }
    }

    /// Without copies, the expected time of a set is that of its execution: the standby with the most chunks
    /// determines both.
    #[test]
    fn sets_on_standbys_take_whole_chunks_on_each() {
        let drain = drain(Shape::ReedSolomon { n: 9, k: 6 }, Some(4), 7);
        let sets = drain.sets();
        assert!(sets.iter().any(|set| set.len() % 4 > 0), "a set that does not divide evenly");
        let expected: f64 = sets.iter().map(|set| drain.expected(set)).sum();
        let rebuilds = drain.run(Method::ReconstructionOnly, &sets);
        assert!((rebuilds.seconds - expected).abs() < 1e-6, "{} s, expected {expected} s", rebuilds.seconds);
        assert!((rebuilds.computed_seconds - expected).abs() < 1e-6);
    }

    #[test]
    fn leveled_standbys_finish_sooner_than_two_of_three() {
        let first = drain(Shape::ReedSolomon { n: 9, k: 6 }, Some(3), 7);
        let level = Drain { standbys: Standbys::Level, ..first.clone() };
        let sets = first.sets();
        let seconds = |drain: &Drain| drain.run(Method::FastPr, &sets).seconds;
        assert!(seconds(&level) < seconds(&first));
    }
}
