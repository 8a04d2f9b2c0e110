//! Executes a round of FastPR on simulated disks and links, packet by packet.
//!
//! Every packet is read from the sender's disk, crosses the sender's uplink and the receiver's downlink, and is
//! written to the receiver's disk. Packets in flight share links and disks in a max-min fair way
//! ([`Flows`]). The duration of a round results from these transfers; no formula of [`Model`] is used.
//!
//! **Invariants**, asserted for each round: a node helps at most one chunk, and no chunk goes to one of its
//! senders. Like the published prototype, a receiver handles one chunk at a time, the failing node copies one
//! chunk at a time, and helpers read their chunks at the beginning of the round.

use std::collections::{BTreeMap, VecDeque};

use super::Model;
use crate::recovery::flows::{Flows, ResourceNo};

/// Whether reads and writes of a disk slow each other down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// A disk reads and writes at its full rate at the same time, as the paper assumes.
    Duplex,
    /// Reads and writes share the disk's rate.
    Shared,
}

/// The origin of a repaired chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The failing node copies the chunk.
    Copied,
    /// The chunk is rebuilt from the chunks of these helpers.
    Rebuilt(Vec<usize>),
}

/// A chunk that a round repairs. Nodes are numbered from 0: healthy nodes, then hot standbys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The chunk's number.
    pub chunk: usize,
    /// The origin of its bytes.
    pub source: Source,
    /// The node that receives the chunk and writes it.
    pub receiver: usize,
}

/// Simulates one round, from the commands to the last written byte. Returns the duration in seconds. Receivers
/// handle their chunks in the order given.
///
/// # Panics
/// If a node helps two chunks, a chunk goes to one of its senders, or a node does not exist.
pub fn execute(model: &Model, disks: Disks, transfers: &[Transfer]) -> f64 {
    Execution::new(model, disks, transfers).run()
}

/// A packet's current step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read { transfer: usize, sender: usize },
    Send { transfer: usize, sender: usize },
    Write { transfer: usize },
}

/// A sender of one chunk, and the packets that it has read and sent.
#[derive(Debug)]
struct Sender {
    node: usize,
    read: usize,
    sent: usize,
    is_reading: bool,
    is_sending: bool,
}

#[derive(Debug)]
struct Moving {
    is_copied: bool,
    receiver: usize,
    senders: Vec<Sender>,
    written: usize,
    is_writing: bool,
}

/// The disk and the link of a node.
#[derive(Clone, Copy, Debug)]
struct Ports {
    read: ResourceNo,
    write: ResourceNo,
    up: ResourceNo,
    down: ResourceNo,
}

struct Execution {
    flows: Flows,
    ports: Vec<Ports>,
    packets: usize,
    packet_bytes: f64,
    moving: Vec<Moving>,
    /// For each node, the chunks that it still has to receive. It handles the first one.
    receives: Vec<VecDeque<usize>>,
    /// The chunks that the failing node still has to copy. It handles the first one.
    copies: VecDeque<usize>,
    steps: BTreeMap<u64, Step>,
    next_step: u64,
}

impl Execution {
    fn new(model: &Model, disks: Disks, transfers: &[Transfer]) -> Self {
        let mut flows = Flows::default();
        let failing = model.nodes - 1 + model.standbys.unwrap_or(0);
        let mut ports = |_| {
            let [read, up, down] = [model.disk, model.link, model.link].map(|rate| flows.add_resource(rate));
            let write = match disks {
                Disks::Shared => read,
                Disks::Duplex => flows.add_resource(model.disk),
            };
            Ports { read, write, up, down }
        };
        let ports: Vec<Ports> = (0..=failing).map(&mut ports).collect();
        let mut execution = Self {
            flows,
            packets: model.packets(),
            packet_bytes: model.packet_bytes,
            moving: Vec::new(),
            receives: vec![VecDeque::new(); failing],
            copies: VecDeque::new(),
            steps: BTreeMap::new(),
            next_step: 0,
            ports,
        };
        let mut helps = vec![false; failing];
        for (number, transfer) in transfers.iter().enumerate() {
            let nodes = match &transfer.source {
                Source::Copied => {
                    execution.copies.push_back(number);
                    vec![failing]
                }
                Source::Rebuilt(helpers) => helpers.clone(),
            };
            for &node in nodes.iter().filter(|&&node| node != failing) {
                assert!(!std::mem::replace(&mut helps[node], true), "node {node} helps twice in a round");
                assert_ne!(node, transfer.receiver, "node {node} receives a chunk that it helps to rebuild");
            }
            execution.receives[transfer.receiver].push_back(number);
            let sender = |node| Sender { node, read: 0, sent: 0, is_reading: false, is_sending: false };
            execution.moving.push(Moving {
                is_copied: transfer.source == Source::Copied,
                receiver: transfer.receiver,
                senders: nodes.into_iter().map(sender).collect(),
                written: 0,
                is_writing: false,
            });
        }
        execution
    }

    fn run(mut self) -> f64 {
        let mut seconds = 0.0;
        (0..self.moving.len()).for_each(|transfer| self.start_steps(transfer));
        while let Some((passed, ends)) = self.flows.next_ends() {
            self.flows.advance(passed);
            seconds += passed;
            for id in ends {
                self.flows.stop(id);
                let step = self.steps.remove(&id).expect("every flow is a step");
                self.end(step);
            }
        }
        assert!(self.receives.iter().all(VecDeque::is_empty), "every chunk is written");
        seconds
    }

    /// Whether the receiver handles this chunk now, and the failing node too if it copies the chunk.
    fn has_turn(&self, transfer: usize) -> bool {
        let moving = &self.moving[transfer];
        self.receives[moving.receiver].front() == Some(&transfer)
            && (!moving.is_copied || self.copies.front() == Some(&transfer))
    }

    /// Starts all steps of a chunk that can start.
    fn start_steps(&mut self, transfer: usize) {
        let has_turn = self.has_turn(transfer);
        let (packets, mut ready) = (self.packets, Vec::new());
        let moving = &mut self.moving[transfer];
        for (sender, state) in moving.senders.iter_mut().enumerate() {
            if !state.is_reading && state.read < packets && (has_turn || !moving.is_copied) {
                state.is_reading = true;
                ready.push(Step::Read { transfer, sender });
            }
            if !state.is_sending && state.sent < state.read && has_turn {
                state.is_sending = true;
                ready.push(Step::Send { transfer, sender });
            }
        }
        let received = moving.senders.iter().map(|sender| sender.sent).min().unwrap_or(packets);
        if !moving.is_writing && moving.written < received {
            moving.is_writing = true;
            ready.push(Step::Write { transfer });
        }
        ready.into_iter().for_each(|step| self.start(step));
    }

    fn start(&mut self, step: Step) {
        let moving = |transfer: usize| &self.moving[transfer];
        let resources = match step {
            Step::Read { transfer, sender } => vec![self.ports[moving(transfer).senders[sender].node].read],
            Step::Send { transfer, sender } => {
                let from = moving(transfer).senders[sender].node;
                vec![self.ports[from].up, self.ports[moving(transfer).receiver].down]
            }
            Step::Write { transfer } => vec![self.ports[moving(transfer).receiver].write],
        };
        let uses = resources.into_iter().map(|resource| (resource, self.packet_bytes)).collect();
        self.flows.start(self.next_step, uses, 0.0);
        self.steps.insert(self.next_step, step);
        self.next_step += 1;
    }

    fn end(&mut self, step: Step) {
        let transfer = match step {
            Step::Read { transfer, sender } => {
                let sender = &mut self.moving[transfer].senders[sender];
                sender.read += 1;
                sender.is_reading = false;
                transfer
            }
            Step::Send { transfer, sender } => {
                let sender = &mut self.moving[transfer].senders[sender];
                sender.sent += 1;
                sender.is_sending = false;
                transfer
            }
            Step::Write { transfer } => {
                let moving = &mut self.moving[transfer];
                moving.written += 1;
                moving.is_writing = false;
                if moving.written == self.packets {
                    return self.finish(transfer);
                }
                transfer
            }
        };
        self.start_steps(transfer);
    }

    /// Lets the receiver, and the failing node, handle their next chunks.
    fn finish(&mut self, transfer: usize) {
        let Moving { receiver, is_copied, .. } = self.moving[transfer];
        self.receives[receiver].pop_front();
        let mut next = self.receives[receiver].front().copied();
        if is_copied {
            self.copies.pop_front();
            let copied = self.copies.front().copied().filter(|&copied| next != Some(copied));
            copied.into_iter().for_each(|copied| self.start_steps(copied));
        }
        next.take().into_iter().for_each(|next| self.start_steps(next));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: Model =
        Model { nodes: 13, chunk_bytes: 64.0, packet_bytes: 64.0, disk: 100.0, link: 128.0, standbys: None };

    fn rebuilt(chunk: usize, helpers: std::ops::Range<usize>, receiver: usize) -> Transfer {
        Transfer { chunk, source: Source::Rebuilt(helpers.collect()), receiver }
    }

    fn copied(chunk: usize, receiver: usize) -> Transfer {
        Transfer { chunk, source: Source::Copied, receiver }
    }

    fn near(seconds: f64, expected: f64) {
        assert!((seconds / expected - 1.0).abs() < 1e-6, "{seconds} s instead of {expected} s");
    }

    #[test]
    fn undisturbed_rounds_take_as_long_as_the_model_expects() {
        for packet_bytes in [64.0, 16.0, 1.0] {
            let model = Model { packet_bytes, ..SMALL };
            let round = [rebuilt(0, 0..6, 11), rebuilt(1, 6..12, 0)];
            near(execute(&model, Disks::Duplex, &round), model.reconstruction(2.0, 6));
            let copies = [copied(0, 1), copied(1, 2), copied(2, 3)];
            near(execute(&model, Disks::Duplex, &copies), 3.0 * model.migration());
            let both = [round.to_vec(), vec![copied(2, 3)]].concat();
            near(execute(&model, Disks::Duplex, &both), model.reconstruction(1.0, 6).max(model.migration()));
        }
    }

    #[test]
    fn hot_standbys_rebuild_their_chunks_in_turn() {
        for packet_bytes in [64.0, 16.0] {
            let model = Model { packet_bytes, standbys: Some(2), ..SMALL };
            let round = [0, 1, 2, 3].map(|set| rebuilt(set, 3 * set..3 * set + 3, 12 + set % 2));
            near(execute(&model, Disks::Duplex, &round), model.reconstruction(4.0, 3));
        }
    }

    #[test]
    fn one_receiver_of_two_chunks_takes_longer_than_the_model_expects() {
        let round = [rebuilt(0, 0..5, 11), rebuilt(1, 5..10, 11)];
        let expected = SMALL.reconstruction(2.0, 5);
        assert!(execute(&SMALL, Disks::Duplex, &round) > 1.5 * expected, "the second waits for the first");
    }

    #[test]
    fn a_shared_disk_delays_a_copy_to_a_helper() {
        let model = Model { packet_bytes: 1.0, ..SMALL };
        let round = [rebuilt(0, 0..1, 11), copied(1, 0)];
        let duplex = execute(&model, Disks::Duplex, &round);
        near(duplex, model.migration());
        assert!(execute(&model, Disks::Shared, &round) > 1.1 * duplex, "node 0 reads and writes");
    }

    #[test]
    #[should_panic(expected = "helps twice")]
    fn a_node_helps_once_in_a_round() {
        execute(&SMALL, Disks::Duplex, &[rebuilt(0, 0..3, 11), rebuilt(1, 2..5, 10)]);
    }

    /// The duration of a round without packets, by recurrence over the receivers' queues: a slow reference.
    /// Receivers do not share senders, so each downlink serves one chunk at a time at its full rate.
    fn reference(model: &Model, round: &[Transfer]) -> f64 {
        let (step, disk) = (model.chunk_bytes / model.link, model.chunk_bytes / model.disk);
        let (mut free, mut copies_free) = (BTreeMap::<usize, f64>::new(), 0.0f64);
        for transfer in round {
            let receiver = free.entry(transfer.receiver).or_default();
            *receiver = match &transfer.source {
                Source::Rebuilt(helpers) => receiver.max(disk) + helpers.len() as f64 * step + disk,
                Source::Copied => {
                    copies_free = receiver.max(copies_free) + disk + step + disk;
                    copies_free
                }
            };
        }
        free.into_values().fold(0.0, f64::max)
    }

    proptest! {
        #[test]
        fn rounds_agree_with_a_recurrence(
            widths in prop::collection::vec(1..5usize, 0..5),
            receivers in prop::collection::vec(0..4usize, 5),
            copies in prop::collection::vec(0..4usize, 0..4),
        ) {
            let model = Model { nodes: 21, standbys: Some(4), ..SMALL };
            let (mut round, mut next) = (Vec::new(), 0);
            for (chunk, (&width, &receiver)) in widths.iter().zip(&receivers).enumerate() {
                round.push(rebuilt(chunk, next..next + width, 20 + receiver));
                next += width;
            }
            round.extend(copies.iter().map(|&receiver| copied(9, 20 + receiver)));
            let (seconds, expected) = (execute(&model, Disks::Duplex, &round), reference(&model, &round));
            prop_assert!((seconds - expected).abs() < 1e-6, "{} s instead of {} s", seconds, expected);
        }
    }
}
