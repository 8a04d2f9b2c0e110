//! Requests about helpers.

use cluster::Role;
use repair::NodeId;
use repair::recovery::Target;
use stores::{RecordWrite, Write};
use views::{HistoryEvent, NodeView};

use crate::Control;
use crate::commands::{NodeCommand, answer};
use crate::effect::Reply;
use crate::error::RequestError;
use crate::nodes::continuation::NodeThen;

impl NodeCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::List(reply) => answer(reply, control.answers().node_views(), &mut control.out),
            Self::Remove(name, reply) => remove_node(control, &name, reply),
            Self::Maintain(name, request, reply) => {
                answer(reply, control.maintain(&name, request), &mut control.out);
            }
            Self::EndMaintenance(name, reply) => {
                answer(reply, control.end_maintenance(&name), &mut control.out);
            }
            Self::OkToStop(names, leave, reply) => {
                answer(reply, control.answers().ok_to_stop(&names, leave), &mut control.out);
            }
            Self::SafeToRemove(names, reply) => {
                answer(reply, control.answers().safe_to_remove(&names), &mut control.out);
            }
            Self::Replace(name, request, reply) => {
                facts!(control).replace_node(&name, &request, reply, &mut control.out);
            }
            Self::StopDrain(name, reply) => answer(reply, stop_drain(control, &name), &mut control.out),
        }
    }
}

/// Takes a helper off the list that is down and holds nothing that is needed.
fn remove_node(control: &mut Control, name: &str, reply: Reply<NodeView>) {
    match control.answers().check_removal(name) {
        Ok((node, view)) => {
            control.nodes.forgetting.insert(node);
            let write = Write::Records(RecordWrite::ForgetNode(node));
            control.out.store(write, NodeThen::Removed { node, view: Box::new(view), reply });
        }
        Err(error) => control.out.answer(reply, Err(error)),
    }
}

/// Takes the mark of a helper back, and cancels its drains.
fn stop_drain(control: &mut Control, name: &str) -> Result<NodeView, RequestError> {
    let node = control.nodes.node_named(&control.base, name)?;
    for repair in control.repairs.queue.open_for(&Target::Drain(node)).collect::<Vec<_>>() {
        control.cancel_repair(repair)?;
    }
    control.nodes.unmark_leaving(node, &mut control.out);
    control.answers().node_view(node)
}

impl Control {
    /// The storage has forgotten a helper: so does every machine.
    pub(crate) fn drop_node(&mut self, node: NodeId) {
        let name = self.nodes.name(node);
        if self.nodes.absences.remove(&node).is_some() {
            self.out.forget_record(format!("gone/{name}"));
        }
        self.nodes.forget_maintenance(node, &mut self.out);
        self.nodes.unmark_leaving(node, &mut self.out);
        self.stripes.forget_rejected(&self.nodes, node, &mut self.out);
        if let Ok(name) = name.parse() {
            self.nodes.certificates.forget(&Role::Helper(name));
        }
        self.out.note(HistoryEvent::NodeRemoved { node: name });
        self.nodes.retired.remove(&node);
        self.nodes.names.remove(&node);
        self.nodes.topology.remove(node);
        self.nodes.figures.forget(node);
        self.nodes.lay_links(&self.base);
    }
}
