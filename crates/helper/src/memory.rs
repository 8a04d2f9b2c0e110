//! Limits the memory of plans that buffer whole blocks, since any client may request such a plan.

use std::sync::Arc;

use repair::{Assignment, Pacing, Refusal, Report, WHOLE_BLOCK_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which memory is reserved, in bytes.
const UNIT_BYTES: u64 = 64 << 10;

/// The memory budget for whole blocks; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    room: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new((WHOLE_BLOCK_BYTES / UNIT_BYTES) as usize)) }
    }
}

impl Memory {
    /// Reserves memory for a plan that buffers `bytes`, until the returned permit is dropped. Plans that move
    /// slice by slice need no reservation, because their memory is bounded anyway.
    pub(crate) fn reserve(
        &self,
        assignment: &Assignment,
        bytes: u64,
    ) -> Result<Option<OwnedSemaphorePermit>, Report> {
        if assignment.pacing != Pacing::WholeBlock {
            return Ok(None);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok();
        let permit = units.and_then(|units| self.room.clone().try_acquire_many_owned(units).ok());
        permit.map(Some).ok_or_else(|| {
            let left_bytes = self.room.available_permits() as u64 * UNIT_BYTES;
            Report::Refused { why: Refusal::Memory { needed_bytes: bytes, left_bytes } }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::assignment;

    #[test]
    fn room_is_granted_until_it_runs_out_and_is_returned() {
        let mut assignment = assignment(String::new());
        let memory = Memory::default();
        assert!(memory.reserve(&assignment, u64::MAX).unwrap().is_none());
        assignment.pacing = Pacing::WholeBlock;
        assert!(matches!(memory.reserve(&assignment, u64::MAX), Err(Report::Refused { .. })));
        let most = memory.reserve(&assignment, WHOLE_BLOCK_BYTES - 1).unwrap();
        let Err(Report::Refused { why }) = memory.reserve(&assignment, 1 << 20) else {
            panic!("there is room")
        };
        assert_eq!(why, Refusal::Memory { needed_bytes: 1 << 20, left_bytes: 0 });
        assert!(why.to_string().contains("1 MiB of memory, but 0 MiB are left"), "{why}");
        drop(most);
        assert!(memory.reserve(&assignment, 1 << 20).unwrap().is_some());
    }
}
