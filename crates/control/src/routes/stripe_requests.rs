//! Requests about stripes and blocks.

use crate::Control;
use crate::commands::{StripeCommand, answer};
use crate::stripes::contradictions;

impl StripeCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::View(stripe, reply) => {
                answer(reply, control.answers().stripe_view_of(&stripe), &mut control.out);
            }
            Self::Contradictions(reply) => {
                control.out.answer(reply, Ok(contradictions::tainted(&control.stripes)));
            }
            Self::Block(block, reply) => {
                answer(reply, control.answers().block_place(&block), &mut control.out);
            }
            Self::Describe(given, owner, reply) => {
                let described = control.stripes.describe_stripe(
                    outer_facts!(control),
                    &control.jobs,
                    &control.repairs,
                    &given,
                    &owner,
                );
                control.out.answer(reply, described);
            }
            Self::Explain(request, reply) => {
                let explained = answers!(control).explain(&request, &mut control.out);
                control.out.answer(reply, explained);
            }
        }
    }
}
