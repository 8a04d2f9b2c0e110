//! Requests about the catalog itself.

use crate::commands::CatalogCommand;
use crate::control::{Control, outer_facts};
use crate::error::RequestError;
use crate::out::answer;
use crate::storing::ask::Ask;
use views::{AcceptRequest, AcceptedView};

impl CatalogCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::Snapshot(reply) => control.out.ask_storage(Ask::Snapshot(reply)),
            Self::Accept(request, reply) => match check_accept(control, &request) {
                Ok(()) => {
                    control.stripes.newer.accept(outer_facts!(control), request, reply, &mut control.out);
                }
                Err(error) => answer(reply, Err::<AcceptedView, _>(error), &mut control.out),
            },
            Self::RemoveOrphans(reply) => {
                let removed = control.stripes.remove_orphans(outer_facts!(control), &mut control.out);
                answer(reply, removed, &mut control.out);
            }
        }
    }
}

/// Checks that the catalog can be accepted now. While helpers are still awaited, it is not known which newer blocks they hold.
fn check_accept(control: &Control, request: &AcceptRequest) -> Result<(), RequestError> {
    control.storing.check_storage()?;
    match request.reject {
        Some(_) => Ok(()),
        None => control.nodes.check_settled(&control.base),
    }
}
