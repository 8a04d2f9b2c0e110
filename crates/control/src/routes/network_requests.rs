//! Requests about links, their measurement and caps.

use crate::answers::nodes::topology_view;
use crate::commands::NetworkCommand;
use crate::control::{Control, facts};
use crate::out::answer;
use views::CapsView;

impl NetworkCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::Topology(reply) => {
                let view = topology_view(control.facts());
                control.out.answer(reply, Ok(view));
            }
            Self::Probe(request, reply) => {
                let begun = control.link_tests.start_probes(facts!(control), &request, &mut control.out);
                answer(reply, begun, &mut control.out);
            }
            Self::Probes(reply) => {
                answer(reply, control.link_tests.probe_view(facts!(control)), &mut control.out);
            }
            Self::StopProbes(reply) => {
                let stopped = control.link_tests.stop_probes(facts!(control), &mut control.out);
                answer(reply, stopped, &mut control.out);
            }
            Self::Caps(reply) => control.out.answer(reply, Ok(control.capping.view())),
            Self::ChangeCaps(request, reply) => match control.storing.check_storage() {
                Ok(()) => {
                    let (nodes, out) = ((&control.base, &control.nodes), &mut control.out);
                    control.capping.change(nodes, &request, reply, out);
                }
                Err(error) => answer(reply, Err::<CapsView, _>(error), &mut control.out),
            },
        }
    }
}
