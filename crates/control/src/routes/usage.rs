//! Reports of helpers on how clients use them.

use repair::NodeId;
use repair::wire::control::BlockHeat;

use crate::control::Control;
use crate::repairs::scheduler_facts::tell_heat;

pub(super) fn note_user_load(control: &mut Control, node: NodeId, bytes_per_s: u64) {
    if let Some(session) = control.nodes.registry.session_mut(node) {
        session.usage.user_bytes_per_s = bytes_per_s;
        control.repairs.scheduler.handle_user_load(node, Some(bytes_per_s));
    }
}

pub(super) fn note_heat(control: &mut Control, node: NodeId, mut changes: Vec<BlockHeat>) {
    let Some(session) = control.nodes.registry.session_mut(node) else { return };
    changes.retain(|change| session.usage.note(change));
    for change in &changes {
        tell_heat(&mut control.repairs.scheduler, &control.stripes, node, change);
    }
}
