//! Random scenarios.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::{NodeId, Pacing, Policy, Replacements, Scheme};

use crate::dice::Dice;
use crate::faults::{Fault, When};
use crate::scenario::{CLIENT, Checks, Kind, Machines, Scenario};

/// Codes other than Reed-Solomon, small enough for many runs.
const OTHER_CODES: [&str; 10] = [
    "lrc-6-2-2",
    "lrc-4-2-1",
    "lrc1-4-2-2",
    "rotated-6-4-2",
    "rotated-8-6-4",
    "hitchhiker-xor-7-5",
    "hitchhiker-xorplus-9-6",
    "hitchhiker-nonxor-8-6",
    "clay-4-2-3",
    "clay-6-4-5",
];

impl Scenario {
    /// Generates the scenario of a seed.
    pub fn random(seed: u64) -> Self {
        let dice = &mut Dice::new(seed ^ 0x6d65_6e64);
        let code = random_code(dice);
        let sub_blocks = code.sub_blocks() as u64;
        let longest = dice.pick(&[200, 5_000, 20_000, 60_000, 200_000]);
        let unit = sub_blocks * if dice.one_in(3) { dice.pick(&[2, 3, 16, 64]) } else { 1 };
        let block_bytes = dice.between(1, longest).next_multiple_of(unit);
        let chunk_bytes = block_bytes / (unit / sub_blocks);
        let mut scenario = Self {
            seed,
            holders: random_holders(&code, dice),
            spares: dice.below(4) as u32,
            tail_bytes: if dice.one_in(4) { dice.below(block_bytes + 1) } else { block_bytes },
            block_bytes,
            chunk_bytes: Some(chunk_bytes),
            checks: Checks { digests: dice.one_in(2), parity: !dice.one_in(3), reread: !dice.one_in(3) },
            machines: Machines {
                rate: dice.between(2, 100) as f64 * 1e6,
                delay: dice.up_to(Duration::from_millis(2)),
                window: dice.pick(&[1_000, 4_200, 10_000, 65_536, 1 << 20]),
                disk_latency: Duration::from_micros(dice.pick(&[50, 500, 5_000, 20_000])),
                disk_rate: dice.between(20, 500) as f64 * 1e6,
                control_delay: Duration::from_micros(dice.pick(&[100, 1_000, 10_000, 80_000])),
                ping_limit: Duration::from_secs(dice.between(3, 15)),
                budget_bytes: dice.pick(&[1, 50_000, 1 << 20, 4 << 20]),
                json: dice.one_in(10),
            },
            lost: BTreeSet::new(),
            kind: Kind::Put,
            wanted: Vec::new(),
            policy: random_policy(dice),
            faults: Vec::new(),
            code,
        };
        scenario.ask(dice);
        scenario.spoil(dice);
        scenario
    }

    /// Chooses the request: which blocks are lost and which are wanted.
    fn ask(&mut self, dice: &mut Dice) {
        let (n, k) = (self.code.blocks(), self.code.data_blocks());
        let mut blocks: Vec<BlockIndex> = (0..n as u16).map(BlockIndex).collect();
        dice.shuffle(&mut blocks);
        let most = if dice.one_in(25) { n - k + 1 } else { n - k };
        let lost = dice.between(1, most as u64) as usize;
        match dice.below(10) {
            0..5 => {
                self.lost = blocks[..lost].iter().copied().collect();
                let wanted = dice.between(1, lost as u64) as usize;
                self.wanted = blocks[..wanted].to_vec();
                self.kind = Kind::Repair { in_place: dice.one_in(4) };
            }
            5..8 => {
                self.lost = blocks[..lost].iter().copied().collect();
                let present = dice.below(2) as usize;
                let wanted = dice.between(1, lost as u64) as usize;
                self.wanted = blocks[lost - wanted..(lost + present).min(n)].to_vec();
                self.kind = self.random_read(dice);
            }
            8 => {
                self.kind = Kind::Put;
                self.wanted = (0..n as u16).map(BlockIndex).collect();
            }
            _ => {
                self.spares = self.spares.max(1);
                self.kind = Kind::Migrate;
                self.wanted = blocks[..1].to_vec();
                self.policy.scheme = dice.pick(&[Scheme::Auto, Scheme::Migration]);
            }
        }
    }

    fn random_read(&self, dice: &mut Dice) -> Kind {
        let sub_blocks = self.code.sub_blocks() as u64;
        let sub_block_bytes = self.block_bytes / sub_blocks;
        let start = if dice.one_in(2) { 0 } else { dice.below(sub_block_bytes) };
        let end = if dice.one_in(2) { sub_block_bytes } else { dice.between(start + 1, sub_block_bytes) };
        let first = dice.below(sub_blocks) as u16;
        let last = dice.between(first.into(), sub_blocks - 1) as u16;
        Kind::Read { window: start..end, sub_blocks: (!dice.one_in(3)).then_some(first..last + 1) }
    }

    /// Chooses the faults and their times.
    fn spoil(&mut self, dice: &mut Dice) {
        // The times of faults depend on the predicted duration of the plan. If there is no plan, the job ends
        // at once and faults are pointless.
        let Ok(plan) = self.plan() else { return };
        let busy =
            plan.predict(&self.topology()) + (self.machines.control_delay + self.machines.disk_latency) * 2;
        let slices = plan.slices().len() * plan.outputs().len() as u32;
        let faults = dice.pick(&[0, 0, 1, 1, 1, 1, 2, 2, 3, 4]);
        for _ in 0..faults {
            let when = match dice.below(3) {
                0 => When::At(dice.up_to(busy * 3)),
                1 => When::At(dice.up_to(busy)),
                _ => When::Delivered(dice.below(u64::from(slices) + 1) as u32),
            };
            let fault = self.random_fault(dice);
            let lies = self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Lie { .. }));
            if !(lies && matches!(fault, Fault::Lie { .. })) {
                self.faults.push((when, fault));
            }
        }
    }

    fn random_fault(&self, dice: &mut Dice) -> Fault {
        let nodes = self.node_ids();
        let node = dice.pick(&nodes);
        let other = dice.pick(&nodes);
        let block = BlockIndex(dice.below(self.code.blocks() as u64) as u16);
        let seconds = |dice: &mut Dice| Duration::from_millis(dice.between(1, 20_000));
        match dice.below(16) {
            0..2 => Fault::Kill { node, back_after: None },
            2 => Fault::Kill { node, back_after: Some(seconds(dice)) },
            3 => Fault::Vanish { node },
            4 => Fault::Pause { node, lasts: None },
            5..7 => Fault::Pause { node, lasts: Some(seconds(dice)) },
            7..9 => Fault::FlipFrame { from: node },
            9 => Fault::Corrupt { block },
            10 if self.kind != Kind::Put => Fault::Lie { block },
            11 => Fault::Lose { block },
            12 if node != other => Fault::Break { a: node, b: other },
            13 if node != other => Fault::Cut { a: node, b: other },
            14 if node != CLIENT => Fault::DiskFull { node },
            15 => Fault::Slow { node, factor: dice.pick(&[3, 10, 300]) },
            _ => Fault::SlowControl { node, limit: Duration::from_millis(dice.between(1, 1500)) },
        }
    }
}

fn random_code(dice: &mut Dice) -> CodeSpec {
    let (k, parities) = (dice.between(1, 10) as usize, dice.between(1, 4) as usize);
    let family = dice.pick(&["", "", "-vandermonde", "-jerasure", "-hdfs-raid", "-qfs"]);
    let parities = if family == "-qfs" { 3 } else { parities };
    let name = if dice.one_in(3) {
        dice.pick(&OTHER_CODES).to_owned()
    } else {
        format!("rs-{}-{k}{family}", k + parities)
    };
    name.parse().expect("a code within its limits")
}

/// Returns the number of holders: mostly one per block, as in real stores, and sometimes fewer.
fn random_holders(code: &CodeSpec, dice: &mut Dice) -> u32 {
    let n = code.blocks() as u64;
    (if dice.one_in(8) { dice.between(1, n) } else { n }) as u32
}

fn random_policy(dice: &mut Dice) -> Policy {
    let schemes: Vec<Scheme> =
        Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::Migration).collect();
    let pacing = dice.pick(&[Pacing::Pipelined, Pacing::WholeBlock, Pacing::Serial]);
    let sizes = [4096, 4096, 4160, 8192, 20_480, 65_536];
    Policy {
        scheme: dice.pick(&schemes),
        slice_bytes: (!dice.one_in(4)).then(|| dice.pick(&sizes)),
        pacing: dice.one_in(12).then_some(pacing),
        avoid: BTreeSet::<NodeId>::new(),
        prefer: Vec::new(),
        stretches: Vec::new(),
        replacements: Replacements::default(),
    }
}
