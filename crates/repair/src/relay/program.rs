//! A task compiled for the relay: inputs and outputs by number, and which uses which.

use std::collections::{BTreeMap, BTreeSet};

use codes::SubBlock;

use super::RelayError;
use super::cover::{Covers, Group, LocalSum};
use crate::plan::{Combination, Input, StreamRef, Task};
use crate::{Assignment, Geometry, NodeId};

/// Where a sum goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Out on an edge.
    Send { outlet: usize, stream: u16 },
    /// To a sink on this node.
    Deliver { output: u32 },
}

/// One lane's task. Inputs are numbered: local sub-blocks first, then received streams by inlet.
#[derive(Debug)]
pub(super) struct Program {
    locals: Vec<SubBlock>,
    /// For each inlet of the assignment: number of its first input here, and how many streams it has.
    inlets: Vec<(usize, u16)>,
    outlet_streams: Vec<u16>,
    destinations: Vec<Destination>,
    inputs_of: Vec<u16>,
    /// For each received input, from `locals.len()` on: the sums that use it.
    uses: Vec<Vec<(usize, u8)>>,
    /// For each local: the sums of it alone.
    single_uses: Vec<Vec<(usize, u8)>>,
    /// For each local: the sums of it and something received.
    mixed_uses: Vec<Vec<(usize, u8)>>,
    /// For each sum with something received: its locals.
    locals_of: Vec<Vec<(usize, u8)>>,
    /// The passes that compute the sums of two or more locals and nothing received.
    groups: Vec<Group>,
    /// For each local: the passes that read it.
    groups_of: Vec<Vec<usize>>,
    /// For each local: how many sums need it.
    local_uses: Vec<u32>,
}

/// The programs of all lanes.
pub(super) fn compile(
    assignment: &Assignment,
    covers: &mut Covers,
) -> Result<Vec<Option<Program>>, RelayError> {
    check(assignment)?;
    assignment
        .lanes
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
    ok(assignment.outputs.iter().all(exists), "an output that no block has")?;
    ok((1..=Geometry::MAX_SLICE_BYTES).contains(&geometry.slice_bytes), "slices of a forbidden size")?;
    let slices = (geometry.window.end - geometry.window.start).div_ceil(u64::from(geometry.slice_bytes));
    ok(slices < u64::from(u32::MAX), "more slices than can be numbered")?;
    let last = assignment.slices.ranges().last().map_or(0, |range| range.end);
    ok(u64::from(last) <= slices, "slices beyond the window")?;
    ok(
        assignment.dealing.lanes() == assignment.lanes.len(),
        "slices are dealt to other lanes than there are",
    )?;
    ok(distinct(assignment.inlets.iter().map(|inlet| inlet.from)), "an inlet that is listed twice")?;
    ok(distinct(assignment.outlets.iter().map(|outlet| outlet.to)), "an outlet that is listed twice")?;
    ok(distinct(assignment.locals.iter().map(|local| local.index)), "a local block that is listed twice")?;
    ok(distinct(assignment.sinks.iter().map(|sink| sink.index)), "a sink that is listed twice")?;
    for (_, task) in assignment.tasks() {
        ok(task.reads.is_sorted_by(|a, b| a < b), "reads that do not ascend")?;
        ok(task.reads.iter().all(exists), "a read of a sub-block that no block has")?;
        ok(task.reads.len() <= usize::from(u16::MAX), "more reads than can be numbered")?;
        ok(distinct(task.receives.iter().map(|receive| receive.from)), "a sender that is listed twice")?;
        ok(distinct(task.sends.iter().map(|send| send.to)), "a receiver that is listed twice")?;
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
            .ok_or(RelayError::BadAssignment("a stream to a node that is no outlet"))?;
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
            .ok_or(RelayError::BadAssignment("a delivery of an output that does not exist"))?;
        if !assignment.sinks.iter().any(|sink| sink.index == sub_block.block) {
            return Err(RelayError::BadAssignment("a delivery without a sink"));
        }
        let destination = Destination::Deliver { output: delivery.output };
        local_sums.extend(program.add(destination, &delivery.combination, &numbering)?);
    }
    program.use_groups(covers.of(local_sums));
    program.check_used()?;
    Ok(program)
}

/// Numbers the inputs of a task.
struct Numbering<'a> {
    /// Ascending.
    locals: &'a [SubBlock],
    first_of: BTreeMap<NodeId, (usize, u16)>,
}

impl<'a> Numbering<'a> {
    fn new(assignment: &Assignment, task: &'a Task) -> Result<Self, RelayError> {
        let of_blocks = task.reads.chunk_by(|a, b| a.block == b.block);
        for read in of_blocks.map(|reads| reads[0]) {
            if !assignment.locals.iter().any(|local| local.index == read.block) {
                return Err(RelayError::BadAssignment("a read of a block that is not local"));
            }
        }
        let locals = &task.reads[..];
        let mut next = locals.len();
        let mut first_of = BTreeMap::new();
        for receive in &task.receives {
            if !assignment.inlets.iter().any(|inlet| inlet.from == receive.from) {
                return Err(RelayError::BadAssignment("streams from a node that is no inlet"));
            }
            first_of.insert(receive.from, (next, receive.streams));
            next += usize::from(receive.streams);
        }
        Ok(Self { locals, first_of })
    }

    fn number(&self, input: Input) -> Result<usize, RelayError> {
        match input {
            Input::Local(sub_block) => self.locals.binary_search(&sub_block).ok(),
            Input::Received(StreamRef { from, stream }) => self
                .first_of
                .get(&from)
                .filter(|&&(_, streams)| stream < streams)
                .map(|&(first, _)| first + usize::from(stream)),
        }
        .ok_or(RelayError::BadAssignment("a combination of something that is neither read nor received"))
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
            single_uses: vec![Vec::new(); locals],
            mixed_uses: vec![Vec::new(); locals],
            locals_of: Vec::new(),
            groups: Vec::new(),
            groups_of: vec![Vec::new(); locals],
            local_uses: vec![0; locals],
        }
    }

    /// Adds a sum; returns it if it is of several locals and nothing received, for passes to be made of.
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
            return Err(RelayError::BadAssignment("a combination that is empty or uses an input twice"));
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
                self.single_uses[local].push((output, coefficient));
            }
            _ if received.is_empty() => return Ok(Some(LocalSum { output, terms: locals.to_vec() })),
            _ => {
                for &(local, coefficient) in locals {
                    self.mixed_uses[local].push((output, coefficient));
                }
            }
        }
        Ok(None)
    }

    fn use_groups(&mut self, groups: Vec<Group>) {
        for local in 0..self.locals.len() {
            self.local_uses[local] = (self.single_uses[local].len() + self.mixed_uses[local].len()) as u32;
        }
        for (group, number) in groups.iter().zip(0..) {
            for &local in &group.locals {
                self.groups_of[local].push(number);
                // Sums that share values take all their inputs at once.
                self.local_uses[local] +=
                    if group.factors().is_some() { 1 } else { group.outputs.len() as u32 };
            }
        }
        self.groups = groups;
    }

    fn check_used(&self) -> Result<(), RelayError> {
        let received = self.uses.iter().all(|uses| !uses.is_empty());
        let read = (0..self.locals.len()).all(|local| self.local_uses(local) > 0);
        match received && read {
            true => Ok(()),
            false => Err(RelayError::BadAssignment("an input that nothing uses")),
        }
    }

    pub(super) fn locals(&self) -> &[SubBlock] {
        &self.locals
    }

    /// Number of received inputs.
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
        &self.single_uses[local]
    }

    pub(super) fn mixed_uses(&self, local: usize) -> &[(usize, u8)] {
        &self.mixed_uses[local]
    }

    pub(super) fn locals_of(&self, output: usize) -> &[(usize, u8)] {
        &self.locals_of[output]
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Positions in [`Program::groups`] of the passes that read a local.
    pub(super) fn groups_of(&self, local: usize) -> &[usize] {
        &self.groups_of[local]
    }

    /// How many sums need local number `local`.
    pub(super) fn local_uses(&self, local: usize) -> u32 {
        self.local_uses[local]
    }

    /// The most buffers that one slice can occupy.
    pub(super) fn buffers(&self) -> usize {
        (self.locals.len() + self.destinations.len()).max(1)
    }
}
