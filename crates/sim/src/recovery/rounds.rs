//! The streams of a job that runs in rounds (`Pacing::WholeBlock`): a node sends when it has received everything
//! that it waits for. So blocks are pushed from node to node as in PUSH, and PPR's rounds follow one another.

use recovery::{Loads, NodeLoad};
use repair::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Moving,
    Arrived,
}

/// The streams of a job. They are numbered from 0.
#[derive(Debug)]
pub(super) struct Rounds {
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    from: NodeId,
    to: NodeId,
    loads: Loads,
    state: State,
}

impl Rounds {
    /// Divides the loads of a job into those of its streams. A node reads all its bytes with the first stream
    /// that it sends, and stores all with the first one that it receives.
    pub fn new(loads: &Loads) -> Self {
        let (mut readers, mut takers) = (loads.nodes.clone(), loads.nodes.clone());
        let mut take = |from: NodeId, to: NodeId, bytes: u64| {
            let of = |nodes: &mut Vec<NodeLoad>, node, part: fn(&mut NodeLoad) -> &mut u64| {
                nodes.iter_mut().find(|load| load.node == node).map_or(0, |load| std::mem::take(part(load)))
            };
            let none = NodeLoad {
                node: from,
                jobs: 0,
                sent_bytes: 0,
                received_bytes: 0,
                read_bytes: 0,
                stored_bytes: 0,
            };
            let read_bytes = of(&mut readers, from, |load| &mut load.read_bytes);
            let stored_bytes = of(&mut takers, to, |load| &mut load.stored_bytes);
            let sender = NodeLoad { sent_bytes: bytes, read_bytes, ..none };
            let receiver = NodeLoad { node: to, received_bytes: bytes, stored_bytes, ..none };
            Loads { nodes: vec![sender, receiver], links: vec![(from, to, bytes)] }
        };
        let stream = |&(from, to, bytes): &(NodeId, NodeId, u64)| Stream {
            from,
            to,
            loads: take(from, to, bytes),
            state: State::Waiting,
        };
        Self { streams: loads.links.iter().map(stream).collect() }
    }

    /// Starts the streams whose senders have received all of their own streams. Returns the number and the
    /// loads of each.
    pub fn start_ready(&mut self) -> Vec<(usize, Loads)> {
        let arrives_at =
            |node: NodeId| self.streams.iter().any(|other| other.to == node && other.state != State::Arrived);
        let ready: Vec<usize> = (0..self.streams.len())
            .filter(|&number| {
                let stream = &self.streams[number];
                stream.state == State::Waiting && !arrives_at(stream.from)
            })
            .collect();
        ready.iter().for_each(|&number| self.streams[number].state = State::Moving);
        ready.into_iter().map(|number| (number, self.streams[number].loads.clone())).collect()
    }

    /// Handles the end of a stream.
    pub fn arrive(&mut self, number: usize) {
        self.streams[number].state = State::Arrived;
    }

    /// Whether all streams have arrived.
    pub fn is_over(&self) -> bool {
        self.streams.iter().all(|stream| stream.state == State::Arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two helpers send to a third, which sends to the requestor, node 4.
    fn tree() -> Loads {
        let node = |node, read_bytes, stored_bytes| NodeLoad {
            node: NodeId(node),
            jobs: 1,
            sent_bytes: 0,
            received_bytes: 0,
            read_bytes,
            stored_bytes,
        };
        let links = [(1, 3), (2, 3), (3, 4)].map(|(from, to)| (NodeId(from), NodeId(to), 10));
        Loads {
            nodes: vec![node(1, 10, 0), node(2, 10, 0), node(3, 10, 0), node(4, 0, 10)],
            links: links.into(),
        }
    }

    #[test]
    fn a_node_sends_after_it_has_received_all() {
        let mut rounds = Rounds::new(&tree());
        let numbers = |rounds: &mut Rounds| -> Vec<usize> {
            rounds.start_ready().into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(&mut rounds), [0, 1]);
        rounds.arrive(0);
        assert_eq!(numbers(&mut rounds), [] as [usize; 0], "node 2's stream is missing");
        rounds.arrive(1);
        assert_eq!(numbers(&mut rounds), [2]);
        assert!(!rounds.is_over());
        rounds.arrive(2);
        assert!(rounds.is_over());
    }

    #[test]
    fn the_loads_of_streams_add_up_to_those_of_the_job() {
        let mut rounds = Rounds::new(&tree());
        let mut all: Vec<Loads> = Vec::new();
        while !rounds.is_over() {
            for (number, loads) in rounds.start_ready() {
                rounds.arrive(number);
                all.push(loads);
            }
        }
        let sum =
            |of: fn(&NodeLoad) -> u64| -> u64 { all.iter().flat_map(|loads| &loads.nodes).map(of).sum() };
        assert_eq!((sum(|load| load.read_bytes), sum(|load| load.stored_bytes)), (30, 10));
        assert_eq!((sum(|load| load.sent_bytes), sum(|load| load.received_bytes)), (30, 30));
    }
}
