//! Decides which local reads a relay requests, and when.
//!
//! Usually a relay requests all reads of a slice when it opens the slice. But a slice may consist of
//! thousands of buffers, as in a put with Clay. If all of them were read at once, the data would leave the
//! processor's caches between being read and being used, and would be sent long after it was read. Such a
//! slice is read in portions, in the order in which sums need them. The next portion is requested once most
//! of the results of the previous ones have left the node. The relay then holds only a fraction of the slice.

use super::program::Program;
use super::{Action, LARGE_SLICE_BYTES, LEAVING_BYTES, Pacing, Relay};

/// The size of a portion: as much as a processor's L2 cache holds together with the sums.
const PORTION_BYTES: usize = 256 << 10;

impl Relay {
    /// Announces the reads of every stretch (run of slices) that is due when `slice` is opened and was not
    /// announced before. Announcements run half a stretch ahead of the reads.
    pub(super) fn announce(&mut self, slice: u32) {
        let due = self.course.reading.due_at(slice);
        if due < self.next_stretch || !self.course.reading.is_scattered() {
            return;
        }
        let first = self.next_stretch.max(self.course.reading.stretch_of(slice));
        self.next_stretch = due + 1;
        let ranges: Vec<_> = (first..=due).flat_map(|stretch| self.course.reading.ranges(stretch)).collect();
        if !ranges.is_empty() {
            self.actions.push_back(Action::ReadAhead { ranges });
        }
    }

    /// Prepares the local reads of a slice. Requests them, too, unless the slice is read in portions. With
    /// [`Pacing::Serial`], does nothing until all frames of the slice have arrived.
    pub(super) fn ask_reads(&mut self, slice: u32) {
        let lane = self.course.lane_of(slice);
        let program = self.course.programs[usize::from(lane)].as_ref().expect("the slice is open");
        let work = self.open.get_mut(&slice).expect("the slice is open");
        if work.reads_asked || (self.course.pacing == Pacing::Serial && work.to_receive > 0) {
            return;
        }
        work.reads_asked = true;
        let mut reads = vec![None; program.locals().len()];
        let mut local = 0;
        for job in self.course.reading.jobs(slice, program.locals()) {
            let locals = local..local + job.len() as u16;
            local = locals.end;
            let rank = locals.clone().map(|local| program.rank_of(usize::from(local))).min();
            reads[usize::from(rank.expect("the input is a local read"))] = Some(locals);
        }
        work.reads = reads.into_iter().rev().flatten().collect();
        if !self.in_portions(slice) {
            self.ask(slice, usize::MAX);
        }
    }

    /// Whether a slice is large enough to be read in portions. A slice that also receives streams is never
    /// read in portions, because that could be a deadlock: a later portion is read only after results have
    /// left; the results may need received frames; and these frames may wait at their sender for results of
    /// the later portion.
    fn in_portions(&self, slice: u32) -> bool {
        let bytes = |program: &Program| program.buffers() * self.course.geometry.bytes_of(slice);
        self.course
            .program(slice)
            .is_some_and(|program| program.received() == 0 && bytes(program) > LARGE_SLICE_BYTES)
    }

    /// Requests the next portion of the first slice that still has reads to request. Does nothing while the
    /// requested buffers that have not arrived and the results that have not left together exceed
    /// [`LEAVING_BYTES`].
    pub(super) fn ask_portion(&mut self) {
        let slice_bytes = self.course.geometry.slice_bytes as usize;
        let mut open = self.open.iter();
        let wanting = open.find(|(_, work)| work.reads_asked && !work.reads.is_empty());
        if let Some((&slice, _)) = wanting
            && (self.leaving + self.coming) * slice_bytes <= LEAVING_BYTES
        {
            self.ask(slice, (PORTION_BYTES / slice_bytes).max(1));
        }
    }

    /// Requests the next reads of a slice, until they fill `most` buffers.
    fn ask(&mut self, slice: u32, most: usize) {
        let program = self.course.programs[usize::from(self.course.dealing.lane_of(slice))]
            .as_ref()
            .expect("the slice is open");
        let work = self.open.get_mut(&slice).expect("the slice is open");
        let mut asked = 0;
        while asked < most
            && let Some(locals) = work.reads.pop()
        {
            asked += locals.len();
            self.coming += locals.len();
            let job = &program.locals()[usize::from(locals.start)..usize::from(locals.end)];
            let transfer = self.course.reading.transfer(slice, job);
            self.actions.push_back(Action::Read { slice, locals, transfer });
        }
    }
}
