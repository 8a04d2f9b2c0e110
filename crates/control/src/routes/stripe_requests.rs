//! Requests about stripes and blocks.

use repair::StripeId;

use crate::answers::stripes::{block_place, stripe_view_of};
use crate::commands::StripeCommand;
use crate::control::{Control, answers, outer_facts};
use crate::out::answer;
use crate::routes::blocks::look_for_left_out;
use crate::stripes::contradictions;

impl StripeCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::View(stripe, reply) => {
                answer(reply, stripe_view_of(control.facts(), &stripe), &mut control.out);
            }
            Self::Contradictions(reply) => {
                control.out.answer(reply, Ok(contradictions::tainted(&control.stripes)));
            }
            Self::Block(block, reply) => {
                answer(reply, block_place(control.facts(), &block), &mut control.out);
            }
            Self::Describe(given, owner, reply) => {
                let described = control.stripes.describe_stripe(
                    outer_facts!(control),
                    &control.jobs,
                    &control.repairs,
                    &given,
                    &owner,
                );
                look_for_left_out(control, &StripeId(given.stripe));
                control.out.answer(reply, described);
            }
            Self::Explain(request, reply) => {
                let explained = answers!(control).explain(&request, &mut control.out);
                control.out.answer(reply, explained);
            }
        }
    }
}
