//! Requests about helpers.

use crate::routes::repair_requests::cancel_repair;
use recovery::Target;
use repair::NodeId;
use store_api::{RecordWrite, Write};
use views::{HistoryEvent, MaintenanceRequest, NodeView};

use crate::commands::NodeCommand;
use crate::control::{Control, facts};
use crate::effect::Reply;
use crate::error::{NodeError, RequestError};
use crate::nodes::continuation::NodeThen;
use crate::out::answer;

impl NodeCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::List(reply) => answer(reply, control.answers().node_views(), &mut control.out),
            Self::Remove(name, reply) => remove_node(control, &name, reply),
            Self::Maintain(name, request, reply) => {
                answer(reply, maintain(control, &name, request), &mut control.out);
            }
            Self::EndMaintenance(name, reply) => {
                answer(reply, end_maintenance(control, &name), &mut control.out);
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

/// Starts a maintenance window: the helper's blocks are not rebuilt before it ends.
fn maintain(
    control: &mut Control,
    name: &str,
    request: MaintenanceRequest,
) -> Result<NodeView, RequestError> {
    control.storing.check_storage()?;
    let node = control.nodes.node_named(&control.base, name)?;
    let nodes = &mut control.nodes;
    nodes.maintenance.begin((&control.base, &nodes.registry), node, request, &mut control.out)?;
    control.answers().node_view(node)
}

fn end_maintenance(control: &mut Control, name: &str) -> Result<NodeView, RequestError> {
    let node = control.nodes.node_named(&control.base, name)?;
    control.nodes.maintenance.end(&control.nodes.registry, node, &mut control.out)?;
    control.answers().node_view(node)
}

/// Removes a helper that is not connected and holds no recorded block.
fn remove_node(control: &mut Control, name: &str, reply: Reply<NodeView>) {
    if control.nodes.node_named(&control.base, name).is_err() {
        control.base.unlist(name); // The helper may be in mend.toml although it has never registered.
    }
    match control.answers().check_removal(name) {
        Ok((node, view)) => {
            control.nodes.registry.begin_forgetting(node);
            let write = Write::Records(RecordWrite::ForgetNode(node));
            control.out.store(write, NodeThen::Removed { node, view: Box::new(view), reply });
        }
        Err(error) => control.out.answer(reply, Err(error)),
    }
}

/// Clears the drain mark of a helper and cancels its drains.
fn stop_drain(control: &mut Control, name: &str) -> Result<NodeView, RequestError> {
    let node = control.nodes.node_named(&control.base, name)?;
    let drains: Vec<_> = control.repairs.queue.open_for(&Target::Drain(node)).collect();
    if drains.is_empty() && !control.nodes.registry.is_leaving(node) {
        return Err(NodeError::NotDraining(name.to_owned()).into());
    }
    for repair in drains {
        cancel_repair(control, repair)?;
    }
    control.nodes.registry.unmark_leaving(node, &mut control.out);
    control.answers().node_view(node)
}

impl Control {
    /// Removes a helper from every state machine, because the storage has removed it.
    pub(crate) fn drop_node(&mut self, node: NodeId) {
        let name = self.nodes.name(node);
        self.stripes.newer.forget(&self.nodes, node, &mut self.out);
        self.stripes.condemned.forget_node(node, &mut self.out);
        self.stripes.inventory.forget(node);
        self.nodes.forget_node(&self.base, node, &mut self.out);
        self.base.unlist(&name);
        self.repairs.fullness.forget();
        self.out.note(HistoryEvent::NodeRemoved { node: name });
    }
}
