//! Requests about the catalog itself.

use crate::commands::CatalogCommand;
use crate::control::{Control, outer_facts};
use crate::out::answer;
use crate::storing::ask::Ask;
use views::AcceptedView;

impl CatalogCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::Snapshot(reply) => control.out.ask_storage(Ask::Snapshot(reply)),
            Self::Accept(request, reply) => match control.storing.check_storage() {
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
