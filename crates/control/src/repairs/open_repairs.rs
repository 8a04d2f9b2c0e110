//! Limits on the number of automatic repairs of single stripes that are open at a time.
//!
//! Repairs that the store refuses may wait for ever, so they do not count like the others. Their number is
//! limited as well. If it is reached, the repair that was refused for longest ends, and its stripe gets
//! another one later.

use std::cmp::Reverse;
use std::time::Duration;

/// The maximum number of repairs that are not refused.
pub(crate) const OPEN_AT_ONCE: usize = 32;
/// The maximum number including refused repairs of stripes that cannot lose more blocks than the one whose
/// repair is to begin.
const OPEN_WITH_REFUSED: usize = 256;
/// How long a refused repair is open at least before it gives way to another one. The store is asked several
/// times meanwhile.
const REFUSED_AT_LEAST: Duration = Duration::from_secs(60);

/// The open repairs.
#[derive(Debug, Default)]
pub(crate) struct OpenRepairs {
    /// The number of repairs that can go on, including those that are being recorded.
    pub(crate) going: usize,
    pub(crate) refused: Vec<RefusedRepair>,
    /// The refused repairs that must end.
    pub(crate) give_way: Vec<u64>,
}

/// A repair that waits because the store refuses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRepair {
    pub(crate) repair: u64,
    /// The number of blocks that its stripe can still lose.
    pub(crate) left: u32,
    pub(crate) began: Duration,
}

/// Room for another repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// The refused repair at this position gives way.
    Of(usize),
}

impl OpenRepairs {
    /// Whether no further repair can begin, whatever its stripe.
    pub(crate) fn is_full(&self) -> bool {
        self.going >= OPEN_AT_ONCE
    }

    /// Returns the room for the repair of a stripe that can still lose `left` blocks, if there is any.
    /// Refused repairs of stripes with more redundancy never stand in the way.
    pub(crate) fn room_for(&self, left: u32, now: Duration) -> Option<Room> {
        let counts = |refused: &&RefusedRepair| refused.left <= left;
        let others = self.refused.iter().filter(counts).count();
        if !self.is_full() && self.going + others < OPEN_WITH_REFUSED {
            return Some(Room::Free);
        }
        let refused = self.refused.iter().enumerate().filter(|(_, refused)| counts(refused));
        let long = refused.filter(|(_, refused)| now >= refused.began + REFUSED_AT_LEAST);
        let oldest = long.min_by_key(|(_, refused)| (Reverse(refused.left), refused.repair));
        oldest.filter(|_| !self.is_full()).map(|(at, _)| Room::Of(at))
    }

    /// Notes that a repair begins in this room.
    pub(crate) fn begin(&mut self, room: Room) {
        if let Room::Of(at) = room {
            self.give_way.push(self.refused.swap_remove(at).repair);
        }
        self.going += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(100);

    fn refused(left: u32, repairs: std::ops::Range<u64>) -> Vec<RefusedRepair> {
        repairs.map(|repair| RefusedRepair { repair, left, began: Duration::ZERO }).collect()
    }

    #[test]
    fn refused_repairs_of_safer_stripes_do_not_stand_in_the_way() {
        let refused = [refused(1, 0..250), refused(2, 250..256)].concat();
        let mut open = OpenRepairs { refused, ..OpenRepairs::default() };
        let now = Duration::from_secs(1); // Too early for a refused repair to give way.
        let rooms = |open: &OpenRepairs| [0, 1, 2].map(|left| open.room_for(left, now).is_some());
        assert_eq!(rooms(&open), [true, true, false]);
        open.going = 6;
        assert_eq!(rooms(&open), [true, false, false]);
        open.going = OPEN_AT_ONCE;
        assert_eq!(rooms(&open), [false; 3]);
        assert_eq!(open.room_for(2, LATER), None, "the others can go on");
    }

    #[test]
    fn the_oldest_refused_repair_of_the_safest_class_gives_way() {
        let refused = [refused(2, 0..3), refused(0, 3..250), refused(1, 250..256)].concat();
        let mut open = OpenRepairs { refused, ..OpenRepairs::default() };
        assert_eq!(open.room_for(0, LATER), Some(Room::Free));
        for _ in 0..2 {
            let room = open.room_for(1, LATER);
            room.into_iter().for_each(|room| open.begin(room));
        }
        // Only 253 of them count: the first two begin beside them.
        assert_eq!((open.going, open.give_way.len()), (2, 0));
        for _ in 0..2 {
            let room = open.room_for(1, LATER).expect("one gives way");
            open.begin(room);
        }
        assert_eq!((open.going, open.refused.len()), (4, 255));
        assert_eq!(open.give_way, [250], "there was one more place");
    }
}
