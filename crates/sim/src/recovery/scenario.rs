//! What is played: stripes on nodes, and nodes that die and come back.

use std::time::Duration;

use codes::CodeSpec;
use recovery::{Budget, HelperPolicy};
use repair::Scheme;

use crate::dice::Dice;

/// Stripes on nodes `n1`, `n2`, …, and what becomes of those.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Decides every delay, every byte and every place.
    pub seed: u64,
    /// The code of all stripes.
    pub code: CodeSpec,
    /// How blocks are rebuilt.
    pub scheme: Scheme,
    /// Who helps.
    pub helpers: HelperPolicy,
    /// Nodes, more than the code has blocks.
    pub nodes: u32,
    /// Stripes.
    pub stripes: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What repairs may have under way on each node.
    pub budget: Budget,
    /// Bytes per second of each link.
    pub rate: f64,
    /// When nodes die and come back; each death asks for a recovery of that node.
    pub turns: Vec<(Duration, Turn)>,
}

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It dies, and what is on its disk stays there.
    Dies(u32),
    /// It comes back with its disk, if it is dead.
    Returns(u32),
}

impl Scenario {
    /// The whole recovery of n1, on twelve nodes that nothing else befalls.
    pub fn one_node(stripes: u32) -> Self {
        Self {
            seed: 1,
            code: CodeSpec::from_name("rs-6-4"),
            scheme: Scheme::Pipelined,
            helpers: HelperPolicy::default(),
            nodes: 12,
            stripes,
            block_bytes: 64 << 10,
            budget: Budget::jobs(2),
            rate: 10e6,
            turns: vec![(Duration::ZERO, Turn::Dies(1))],
        }
    }

    /// The scenario of a seed: up to as many deaths as may make some stripes unreadable, and returns.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let codes = ["rs-4-2", "rs-6-4", "rs-9-6", "lrc-4-2-2"];
        let code = CodeSpec::from_name(dice.pick(&codes));
        let nodes = code.blocks() as u32 + dice.between(2, 8) as u32;
        let mut turns = Vec::new();
        for _ in 0..dice.between(1, 4) {
            let (node, at) = (dice.between(1, nodes.into()) as u32, dice.up_to(Duration::from_millis(1500)));
            turns.push((at, Turn::Dies(node)));
            if dice.one_in(2) {
                turns.push((at + dice.up_to(Duration::from_secs(3)), Turn::Returns(node)));
            }
        }
        Self {
            seed,
            code,
            scheme: dice.pick(&[Scheme::Pipelined, Scheme::Cyclic, Scheme::Conventional, Scheme::Scatter]),
            helpers: dice.pick(&HelperPolicy::ALL),
            nodes,
            stripes: dice.between(3, 16) as u32,
            block_bytes: dice.pick(&[8 << 10, 16 << 10, 32 << 10]),
            budget: Budget::jobs(dice.between(1, 3)),
            rate: 10e6,
            turns,
        }
    }
}

/// Names that are written here are of codes.
trait FromName {
    fn from_name(name: &str) -> Self;
}

impl FromName for CodeSpec {
    fn from_name(name: &str) -> Self {
        name.parse().expect("a code's name")
    }
}
