//! Foretells the steps for a file or folder: assumes that each succeeds, and that no client changes the file.

use crate::facts::{DataNodes, Draft, DraftName, Facts, MarkedFile};
use crate::lower::{Placed, stripes};
use crate::work::pair;
use crate::{Action, Block, File, Layout, Marks, Next, NodeIndex, Owner, Storing, Waiting, Work};

/// The time that passes at each wait; longer than any that [`Work`] requires.
const WAIT_MS: u64 = 3_600_000;
/// The most waits in a row. Two are necessary to see that replicas stay the same.
const MOST_WAITS: usize = 3;

/// Returns the steps for a file up to the end, or up to a wait for an event that the steps do not cause.
///
/// HDFS chooses the replicas that it removes. The forecast assumes that it removes those that no stripe
/// needs, so there may be more moves. `nodes` counts the new blocks.
pub fn forecast(mut work: Work, mut facts: Facts, nodes: &mut DataNodes, mut now_ms: u64) -> Vec<Next> {
    let mut steps = Vec::new();
    let mut waits = 0;
    loop {
        let next = work.next(&facts, nodes, now_ms);
        let is_last = match &next {
            Next::Act(action) => {
                waits = 0;
                if let Action::Prove { note, .. } = action {
                    work.handle_proof(*note, true);
                }
                facts.foresee(action, nodes);
                false
            }
            Next::Wait(Waiting::Replicas | Waiting::Settled) => {
                waits += 1;
                now_ms += WAIT_MS;
                facts.settle(&work, nodes);
                waits > MOST_WAITS
            }
            Next::Wait(Waiting::Repair) | Next::End(_) => true,
        };
        if steps.last() != Some(&next) {
            steps.push(next);
        }
        if is_last {
            return steps;
        }
    }
}

impl Facts {
    /// Applies an action.
    fn foresee(&mut self, action: &Action, nodes: &mut DataNodes) {
        match action {
            Action::MakeFolder(path) => self.drafts.extend(draft(path)),
            Action::TakeOver { from, to } => self.take_over(from, to),
            Action::Delete(path) => self.delete(path),
            Action::Write { blocks, .. } => blocks.iter().for_each(|block| {
                let node = node(nodes, &block.datanode);
                nodes.load.add(node);
                self.write(&block.path, node);
            }),
            Action::Prove { .. } => {}
            Action::Mark { path, mark } => self.change(path, |found| found.marks.set(mark.clone())),
            Action::Join { target, sources } => self.join(target, sources),
            Action::SetTime { path, modified_ms } => {
                self.change(path, |found| found.file.modified_ms = *modified_ms);
            }
            Action::Publish { from, to, .. } => self.publish(from, to),
            Action::SetReplication { path, replication } => {
                self.change(path, |found| found.file.replication = *replication);
                if self.source.as_ref().is_some_and(|source| source.file.path == *path) {
                    self.parts.iter_mut().for_each(|part| part.replication = *replication);
                    self.small
                        .iter_mut()
                        .for_each(|file| file.replication = file.replication.max(*replication));
                }
            }
            Action::Move(moves) => moves.iter().for_each(|step| {
                let (from, to) = (node(nodes, &step.from), node(nodes, &step.to));
                if let Some(replicas) = self.replicas(&step.path, step.block) {
                    replicas.retain(|&node| node != from);
                    replicas.push(to);
                }
            }),
        }
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut MarkedFile)) {
        let drafts = self.drafts.iter_mut().flat_map(|draft| &mut draft.files);
        let mut files = self.source.iter_mut().chain(self.parity.iter_mut()).chain(drafts);
        if let Some(found) = files.find(|found| found.file.path == path) {
            change(found);
        }
    }

    /// Returns the replicas of a block of the source or its parity, given by the file that contains it.
    fn replicas(&mut self, path: &str, block: usize) -> Option<&mut Vec<NodeIndex>> {
        let part = self.parts.iter().find(|part| part.path == path);
        let number = part.map(|part| part.blocks[block].number);
        let mut found = self.source.iter_mut().chain(self.parity.iter_mut());
        let block = match number {
            Some(number) => found.next()?.file.blocks.iter_mut().find(|block| block.number == number),
            None => found.find(|found| found.file.path == path)?.file.blocks.get_mut(block),
        };
        block.map(|block| &mut block.replicas)
    }

    fn take_over(&mut self, from: &str, to: &str) {
        self.drafts.iter_mut().filter(|draft| draft.path == from).for_each(|draft| {
            draft.name = draft_name(to).expect("a draft gets the name of a draft");
            draft.path = to.to_owned();
            for found in &mut draft.files {
                found.file.path = found.file.path.replacen(from, to, 1);
            }
        });
    }

    fn delete(&mut self, path: &str) {
        if self.parity.as_ref().is_some_and(|found| found.file.path == path) {
            self.parity = None;
        }
        self.drafts.retain(|draft| draft.path != path);
        self.take_from_draft(path);
    }

    fn take_from_draft(&mut self, path: &str) -> Option<MarkedFile> {
        self.drafts.iter_mut().find_map(|draft| {
            let at = draft.files.iter().position(|found| found.file.path == path)?;
            Some(draft.files.remove(at))
        })
    }

    fn write(&mut self, path: &str, node: NodeIndex) {
        let Some(bytes) = self.source.as_ref().map(|source| source.file.block_bytes) else { return };
        let Some(draft) = self.drafts.iter_mut().find(|draft| path.starts_with(&draft.path)) else { return };
        let number = -1 - draft.files.len() as i64;
        let block = Block { number, stamp: 0, bytes, replicas: vec![node] };
        let file = File {
            inode: 0,
            path: path.to_owned(),
            bytes,
            block_bytes: bytes,
            replication: 1,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: vec![block],
        };
        draft.files.push(MarkedFile { file, marks: Marks::default() });
    }

    fn join(&mut self, target: &str, sources: &[String]) {
        for source in sources {
            let joined = self.take_from_draft(source).map(|found| found.file).into_iter();
            let blocks: Vec<Block> = joined.flat_map(|file| file.blocks).collect();
            self.change(target, |found| {
                found.file.bytes += blocks.iter().map(|block| block.bytes).sum::<u64>();
                found.file.blocks.extend(blocks);
            });
        }
    }

    fn publish(&mut self, from: &str, to: &str) {
        let stray = self.stray.take_if(|stray| stray.file.path == from);
        if let Some(mut found) = stray.or_else(|| self.take_from_draft(from)) {
            found.file.path = to.to_owned();
            self.parity = Some(found);
        }
    }

    /// Removes surplus replicas, and adds missing ones.
    fn settle(&mut self, work: &Work, nodes: &DataNodes) {
        for (is_parity, block, node) in self.keepers(work, nodes) {
            let file = if is_parity { &mut self.parity } else { &mut self.source };
            if let Some(found) = file {
                let replicas = &mut found.file.blocks[block].replicas;
                replicas.retain(|&other| other != node);
                replicas.insert(0, node);
            }
        }
        let files = self.source.iter_mut().chain(self.parity.iter_mut());
        files.for_each(|found| replicate(&mut found.file, nodes));
    }

    /// Returns the replicas that stripes need: whether the block is parity, its position, and the DataNode.
    fn keepers(&self, work: &Work, nodes: &DataNodes) -> Vec<(bool, usize, NodeIndex)> {
        let (Some(source), Some(parity)) = (&self.source, &self.parity) else { return Vec::new() };
        let Ok(layout) = Layout::of_source(&source.file, &work.codec) else { return Vec::new() };
        if parity.file.blocks.len() != layout.stripes().len() * work.codec.parity_blocks() {
            return Vec::new();
        }
        let of_stripe = |stripe: Placed| {
            let spread = nodes.cluster.spread(stripe.blocks.len(), work.tolerated);
            let keepers = spread.map(|spread| spread.keepers(&stripe.replicas)).unwrap_or_default();
            let blocks = stripe.blocks.into_iter().zip(keepers);
            blocks
                .filter_map(|((is_parity, block), node)| Some((is_parity, block, node?)))
                .collect::<Vec<_>>()
        };
        stripes(pair(source, parity), &layout).into_iter().flat_map(of_stripe).collect()
    }
}

fn draft(path: &str) -> Option<Draft> {
    Some(Draft { path: path.to_owned(), name: draft_name(path)?, files: Vec::new() })
}

fn draft_name(path: &str) -> Option<DraftName> {
    DraftName::parse(path.rsplit_once('/')?.1)
}

fn node(nodes: &DataNodes, address: &str) -> NodeIndex {
    nodes.at(address).expect("actions name DataNodes of the listing")
}

/// Gives every block as many replicas as the file asks for, if it has any.
fn replicate(file: &mut File, nodes: &DataNodes) {
    let wanted = usize::from(file.replication);
    for block in file.blocks.iter_mut().filter(|block| !block.replicas.is_empty()) {
        block.replicas.truncate(wanted);
        let free = nodes.usable().filter(|node| !block.replicas.contains(node));
        let more: Vec<NodeIndex> = free.take(wanted - block.replicas.len()).collect();
        block.replicas.extend(more);
    }
}
