//! A task compiled for the relay: numbered inputs and outputs, and the uses of each input.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, SubBlock};

use super::RelayError;
use super::cover::{Covers, Group, LocalSum};
use crate::plan::{Combination, Input, StreamRef, Task};
use crate::{Assignment, Geometry, NodeId};

/// The destination of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A stream on an outgoing edge.
    Send { outlet: usize, stream: u16 },
    /// A sink on this node.
    Deliver { output: u32 },
}

/// A short list for each number of a range. The lists are stored contiguously, because the work on one slice
/// of a Clay code reads thousands of them.
#[derive(Debug)]
struct Lists<T> {
    unsorted: Vec<(usize, T)>,
    /// The end of each list in `items`.
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { unsorted: Vec::new(), ends: Vec::new(), items: Vec::new() }
    }
}

impl<T> Lists<T> {
    fn push(&mut self, number: usize, item: T) {
        self.unsorted.push((number, item));
    }

    /// Builds the lists of numbers `0..numbers` from the pushed items.
    fn sort(&mut self, numbers: usize) {
        self.unsorted.sort_by_key(|&(number, _)| number);
        let end = |number| self.unsorted.partition_point(|&(other, _)| other <= number) as u32;
        self.ends = (0..numbers).map(end).collect();
        self.items = std::mem::take(&mut self.unsorted).into_iter().map(|(_, item)| item).collect();
    }

    fn of(&self, number: usize) -> &[T] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start as usize..self.ends[number] as usize]
    }
}

/// One lane's task. Inputs are numbered: local sub-blocks first, then received streams by inlet.
#[derive(Debug)]
pub(super) struct Program {
    locals: Vec<SubBlock>,
    /// For each inlet of the assignment, the number of its first input and the number of its streams.
    inlets: Vec<(usize, u16)>,
    outlet_streams: Vec<u16>,
    destinations: Vec<Destination>,
    inputs_of: Vec<u16>,
    /// For each received input (numbered from `locals.len()` on), the sums that use it.
    uses: Vec<Vec<(usize, u8)>>,
    /// For each local input, the sums that consist of it alone.
    single_uses: Lists<(usize, u8)>,
    /// For each local input, the sums that add this input to received inputs.
    mixed_uses: Lists<(usize, u8)>,
    /// For each sum with received inputs, the local inputs of the sum.
    locals_of: Vec<Vec<(usize, u8)>>,
    /// The groups. Together they compute every sum that has at least two local inputs and no received ones.
    groups: Vec<Group>,
    /// For each local input, the groups that read it.
    groups_of: Lists<usize>,
    /// For each local input, the number of groups and other sums that need it.
    local_uses: Vec<u32>,
    /// For each local input, its position in the order in which the groups, computed one after another, need
    /// the inputs.
    rank_of: Vec<u16>,
}

/// Compiles the tasks of all lanes.
pub(super) fn compile(
    assignment: &Assignment,
    covers: &mut Covers,
) -> Result<Vec<Option<Program>>, RelayError> {
    check(assignment)?;
    assignment
        .lanes
        .tasks
        .iter()
        .map(|task| task.as_ref().map(|task| compile_task(assignment, task, covers)).transpose())
        .collect()
}

fn check(assignment: &Assignment) -> Result<(), RelayError> {
    let geometry = &assignment.geometry;
    let ok =
        |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(RelayError::BadAssignment(what)) };
    ok(geometry.window.start <= geometry.window.end, "the window ends before it starts")?;
    let chunking = &assignment.chunking;
    ok(geometry.window.end <= chunking.sub_block_bytes(), "the window is longer than a sub-block")?;
    let exists = |sub_block: &SubBlock| sub_block.sub < chunking.sub_blocks();
    ok(assignment.outputs.iter().all(exists), "an output has a sub-block that the block does not have")?;
    ok((1..=Geometry::MAX_SLICE_BYTES).contains(&geometry.slice_bytes), "the slice size is out of range")?;
    let slices = (geometry.window.end - geometry.window.start).div_ceil(u64::from(geometry.slice_bytes));
    ok(slices < u64::from(u32::MAX), "there are more slices than slice numbers")?;
    let last = assignment.slices.ranges().last().map_or(0, |range| range.end);
    ok(u64::from(last) <= slices, "some slices lie beyond the window")?;
    ok(
        assignment.lanes.dealing.lanes() == assignment.lanes.tasks.len(),
        "slices are assigned to lanes that do not exist",
    )?;
    ok(distinct(assignment.inlets.iter().map(|inlet| inlet.from)), "an inlet is listed twice")?;
    ok(distinct(assignment.outlets.iter().map(|outlet| outlet.to)), "an outlet is listed twice")?;
    ok(distinct(assignment.locals.iter().map(|local| local.index)), "a local block is listed twice")?;
    ok(distinct(assignment.sinks.iter().map(|sink| sink.index)), "a destination is listed twice")?;
    for (_, task) in assignment.tasks() {
        ok(task.reads.is_sorted_by(|a, b| a < b), "the reads are not in ascending order")?;
        ok(task.reads.iter().all(exists), "a read has a sub-block that the block does not have")?;
        ok(task.reads.len() <= usize::from(u16::MAX), "there are more reads than read numbers")?;
        ok(distinct(task.receives.iter().map(|receive| receive.from)), "a sender is listed twice")?;
        ok(distinct(task.sends.iter().map(|send| send.to)), "a receiver is listed twice")?;
    }
    Ok(())
}

fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(item))
}

fn compile_task(assignment: &Assignment, task: &Task, covers: &mut Covers) -> Result<Program, RelayError> {
    let numbering = Numbering::new(assignment, task)?;
    let mut program = Program::empty(assignment, task, &numbering);
    let mut local_sums = Vec::new();
    for send in &task.sends {
        let outlet = assignment
            .outlets
            .iter()
            .position(|outlet| outlet.to == send.to)
            .ok_or(RelayError::BadAssignment("a stream goes to a node that is not an outlet"))?;
        for (combination, stream) in send.streams.iter().zip(0..) {
            program.outlet_streams[outlet] = stream + 1;
            let destination = Destination::Send { outlet, stream };
            local_sums.extend(program.add(destination, combination, &numbering)?);
        }
    }
    for delivery in &task.delivers {
        let sub_block = assignment
            .outputs
            .get(delivery.output as usize)
            .ok_or(RelayError::BadAssignment("a delivery has an output that does not exist"))?;
        if !assignment.sinks.iter().any(|sink| sink.index == sub_block.block) {
            return Err(RelayError::BadAssignment("a delivery has no destination"));
        }
        let destination = Destination::Deliver { output: delivery.output };
        local_sums.extend(program.add(destination, &delivery.combination, &numbering)?);
    }
    program.use_groups(covers.of(local_sums));
    program.check_used()?;
    Ok(program)
}

/// Assigns numbers to the inputs of a task.
struct Numbering<'a> {
    /// The local sub-blocks, ascending.
    locals: &'a [SubBlock],
    /// For each block, the first sub-block that is read and its position in `locals`.
    blocks: BTreeMap<BlockIndex, (u16, usize)>,
    first_of: BTreeMap<NodeId, (usize, u16)>,
}

impl<'a> Numbering<'a> {
    fn new(assignment: &Assignment, task: &'a Task) -> Result<Self, RelayError> {
        let mut blocks = BTreeMap::new();
        for (position, read) in task.reads.iter().enumerate() {
            if blocks.contains_key(&read.block) {
                continue;
            }
            if !assignment.locals.iter().any(|local| local.index == read.block) {
                return Err(RelayError::BadAssignment("a read needs a block that is not local"));
            }
            blocks.insert(read.block, (read.sub, position));
        }
        let locals = &task.reads[..];
        let mut next = locals.len();
        let mut first_of = BTreeMap::new();
        for receive in &task.receives {
            if !assignment.inlets.iter().any(|inlet| inlet.from == receive.from) {
                return Err(RelayError::BadAssignment("a stream comes from a node that is not an inlet"));
            }
            first_of.insert(receive.from, (next, receive.streams));
            next += usize::from(receive.streams);
        }
        Ok(Self { locals, blocks, first_of })
    }

    fn number(&self, input: Input) -> Result<usize, RelayError> {
        match input {
            Input::Local(sub_block) => self.local(sub_block),
            Input::Received(StreamRef { from, stream }) => self
                .first_of
                .get(&from)
                .filter(|&&(_, streams)| stream < streams)
                .map(|&(first, _)| first + usize::from(stream)),
        }
        .ok_or(RelayError::BadAssignment("a combination has a term that is neither read nor received"))
    }

    /// The number of a local sub-block. Most blocks are read whole or in one run, so the number is guessed
    /// before it is searched for.
    fn local(&self, sub_block: SubBlock) -> Option<usize> {
        let &(first, position) = self.blocks.get(&sub_block.block)?;
        let guess = position + usize::from(sub_block.sub.checked_sub(first)?);
        match self.locals.get(guess) {
            Some(found) if *found == sub_block => Some(guess),
            _ => self.locals.binary_search(&sub_block).ok(),
        }
    }
}

impl Program {
    fn empty(assignment: &Assignment, task: &Task, numbering: &Numbering<'_>) -> Self {
        let locals = task.reads.len();
        let received: usize = task.receives.iter().map(|receive| usize::from(receive.streams)).sum();
        let inlets = assignment
            .inlets
            .iter()
            .map(|inlet| numbering.first_of.get(&inlet.from).copied().unwrap_or((0, 0)))
            .collect();
        Self {
            locals: task.reads.clone(),
            inlets,
            outlet_streams: vec![0; assignment.outlets.len()],
            destinations: Vec::new(),
            inputs_of: Vec::new(),
            uses: vec![Vec::new(); received],
            single_uses: Lists::default(),
            mixed_uses: Lists::default(),
            locals_of: Vec::new(),
            groups: Vec::new(),
            groups_of: Lists::default(),
            local_uses: vec![0; locals],
            rank_of: Vec::new(),
        }
    }

    /// Adds a sum. If the sum has several local inputs and no received ones, returns the sum, because a group
    /// must compute it.
    fn add(
        &mut self,
        destination: Destination,
        combination: &Combination,
        numbering: &Numbering<'_>,
    ) -> Result<Option<LocalSum>, RelayError> {
        let output = self.destinations.len();
        let mut terms = Vec::with_capacity(combination.len());
        for term in combination {
            terms.push((numbering.number(term.input)?, term.coefficient));
        }
        terms.sort_unstable();
        let distinct = terms.windows(2).all(|pair| pair[0].0 != pair[1].0);
        if terms.is_empty() || !distinct {
            return Err(RelayError::BadAssignment("a combination is empty or uses an input twice"));
        }
        self.destinations.push(destination);
        self.inputs_of.push(terms.len() as u16);
        let split = terms.partition_point(|&(input, _)| input < self.locals.len());
        let (locals, received) = terms.split_at(split);
        self.locals_of.push(if received.is_empty() { Vec::new() } else { locals.to_vec() });
        for &(input, coefficient) in received {
            self.uses[input - self.locals.len()].push((output, coefficient));
        }
        match locals {
            &[(local, coefficient)] if received.is_empty() => {
                self.single_uses.push(local, (output, coefficient));
            }
            _ if received.is_empty() => return Ok(Some(LocalSum { output, terms: locals.to_vec() })),
            _ => {
                for &(local, coefficient) in locals {
                    self.mixed_uses.push(local, (output, coefficient));
                }
            }
        }
        Ok(None)
    }

    fn use_groups(&mut self, groups: Vec<Group>) {
        for (group, number) in groups.iter().zip(0..) {
            group.locals.iter().for_each(|&local| self.groups_of.push(local, number));
        }
        self.groups_of.sort(self.locals.len());
        self.single_uses.sort(self.locals.len());
        self.mixed_uses.sort(self.locals.len());
        for (local, uses) in self.local_uses.iter_mut().enumerate() {
            let sums = self.single_uses.of(local).len() + self.mixed_uses.of(local).len();
            *uses = (self.groups_of.of(local).len() + sums) as u32;
        }
        self.groups = groups;
        // Inputs that no group reads come first, because the sums made from them can leave at once.
        let first_use = |local: &usize| self.groups_of.of(*local).first().map_or(0, |group| group + 1);
        let mut in_order: Vec<usize> = (0..self.locals.len()).collect();
        in_order.sort_by_key(first_use);
        self.rank_of = vec![0; in_order.len()];
        for (local, rank) in in_order.into_iter().zip(0..) {
            self.rank_of[local] = rank;
        }
    }

    fn check_used(&self) -> Result<(), RelayError> {
        let received = self.uses.iter().all(|uses| !uses.is_empty());
        let read = (0..self.locals.len()).all(|local| self.local_uses(local) > 0);
        match received && read {
            true => Ok(()),
            false => Err(RelayError::BadAssignment("an input is unused")),
        }
    }

    pub(super) fn locals(&self) -> &[SubBlock] {
        &self.locals
    }

    /// The number of received inputs.
    pub(super) fn received(&self) -> u16 {
        self.uses.len() as u16
    }

    pub(super) fn outputs(&self) -> usize {
        self.destinations.len()
    }

    pub(super) fn deliveries(&self) -> usize {
        self.destinations.iter().filter(|d| matches!(d, Destination::Deliver { .. })).count()
    }

    pub(super) fn destination(&self, output: usize) -> Destination {
        self.destinations[output]
    }

    pub(super) fn inputs_of(&self, output: usize) -> u16 {
        self.inputs_of[output]
    }

    pub(super) fn inlet_streams(&self, inlet: usize) -> u16 {
        self.inlets[inlet].1
    }

    pub(super) fn outlet_streams(&self, outlet: usize) -> u16 {
        self.outlet_streams[outlet]
    }

    pub(super) fn received_input(&self, inlet: usize, stream: u16) -> usize {
        self.inlets[inlet].0 + usize::from(stream)
    }

    /// The sums that use received input `input`.
    pub(super) fn uses(&self, input: usize) -> &[(usize, u8)] {
        &self.uses[input - self.locals.len()]
    }

    pub(super) fn single_uses(&self, local: usize) -> &[(usize, u8)] {
        self.single_uses.of(local)
    }

    pub(super) fn mixed_uses(&self, local: usize) -> &[(usize, u8)] {
        self.mixed_uses.of(local)
    }

    pub(super) fn locals_of(&self, output: usize) -> &[(usize, u8)] {
        &self.locals_of[output]
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The positions in [`Program::groups`] of the groups that read a local input.
    pub(super) fn groups_of(&self, local: usize) -> &[usize] {
        self.groups_of.of(local)
    }

    /// The number of groups and other sums that need a local input.
    pub(super) fn local_uses(&self, local: usize) -> u32 {
        self.local_uses[local]
    }

    /// The position of a local input in the order in which inputs are needed.
    pub(super) fn rank_of(&self, local: usize) -> u16 {
        self.rank_of[local]
    }

    /// The maximum number of buffers of one slice.
    pub(super) fn buffers(&self) -> usize {
        (self.locals.len() + self.destinations.len()).max(1)
    }
}
