//! Repairs that are called off, paused and resumed.

use crate::answers::Answers;
use crate::error::RequestError;
use crate::repairs::ItemPage;
use ::views::RepairView;

impl<'a> Answers<'a> {
    /// A repair of a given stripe.
    pub(crate) fn given_repair_state(self, id: u64) -> Result<RepairView, RequestError> {
        match self.repairs.by_id.get(&id) {
            Some(repair) if repair.order.given.is_some() => self.repair_state(id),
            _ => Err(RequestError::NoSuchRepair(id)),
        }
    }

    pub(crate) fn check_open(self, id: u64) -> Result<(), RequestError> {
        let repair = self.repairs.by_id.get(&id).ok_or(RequestError::NoSuchRepair(id))?;
        match repair.ended_unix_ms {
            None => Ok(()),
            Some(_) => Err(RequestError::RepairEnded {
                repair: id,
                state: self.repair_view(id, &ItemPage::NONE).state,
            }),
        }
    }
}
