//! Turns a plan into one assignment per node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use super::work::Work;
use crate::assignment::{Inlet, Lanes, Outlet, Sink, SinkEnd};
use crate::{Assignment, EdgeKey, NodeId, Plan, Stripe, StripeBlock, Topology};

/// Cuts a plan into one assignment per node and generates a key for every edge. `is_checked` tells requestors that the
/// delivery counts only after a parity check.
pub(super) fn assignments(
    plan: &Plan,
    (work, is_checked): (&Work, bool),
    topology: &Topology,
    patience: Duration,
    random: &mut ChaCha20Rng,
) -> Vec<(NodeId, Assignment)> {
    let stripe = work.stripe_with_seals();
    let mut keys = BTreeMap::new();
    for edge in plan.edges() {
        let mut key = [0; 16];
        random.fill_bytes(&mut key);
        keys.insert(edge, EdgeKey(key));
    }
    plan.nodes()
        .into_iter()
        .map(|node| (node, assignment(plan, node, (work, is_checked), &stripe, topology, &keys, patience)))
        .collect()
}

fn assignment(
    plan: &Plan,
    node: NodeId,
    (work, is_checked): (&Work, bool),
    stripe: &Stripe,
    topology: &Topology,
    keys: &BTreeMap<(NodeId, NodeId), EdgeKey>,
    patience: Duration,
) -> Assignment {
    let tasks: Vec<_> =
        plan.lanes().iter().map(|lane| lane.tasks.iter().find(|task| task.node == node).cloned()).collect();
    let locals: BTreeSet<BlockIndex> =
        tasks.iter().flatten().flat_map(|task| &task.reads).map(|read| read.block).collect();
    let sinks: BTreeSet<BlockIndex> = plan
        .outputs()
        .iter()
        .filter(|output| output.requestor == node)
        .map(|output| output.sub_block.block)
        .collect();
    let sink = |index: BlockIndex| {
        let StripeBlock { id, bytes, digest, .. } = work.stripe.block(index).clone();
        let end = if work.publish {
            let label = work.stripe.label.clone().map(Box::new);
            SinkEnd::Kept { label, permit: work.permit(index).cloned() }
        } else {
            SinkEnd::Taken { checked: is_checked }
        };
        Sink { index, id, bytes, digest, end }
    };
    let inlet = |(&(from, _), &key): (&(NodeId, NodeId), &EdgeKey)| Inlet {
        from,
        dial: topology.address(from),
        key,
        tls_name: topology.tls_name(from),
    };
    // The downstream end dials, unless the upstream end is a client: clients accept no connections.
    let outlet = |(&(from, to), &key): (&(NodeId, NodeId), &EdgeKey)| Outlet {
        to,
        dial: if topology.dials_out(from) { topology.address(to) } else { None },
        key,
        tls_name: topology.tls_name(to),
    };
    Assignment {
        job: work.id,
        epoch: work.epoch,
        class: work.class(),
        tag: if topology.dials_out(node) { work.tag } else { None },
        geometry: plan.geometry().clone(),
        slices: plan.slices().clone(),
        pacing: plan.pacing(),
        chunking: *plan.chunking(),
        lanes: Lanes { dealing: plan.dealing().clone(), tasks },
        locals: locals.into_iter().map(|index| stripe.local(index)).collect(),
        inlets: keys.iter().filter(|((_, to), _)| *to == node).map(inlet).collect(),
        outlets: keys.iter().filter(|((from, _), _)| *from == node).map(outlet).collect(),
        outputs: plan.outputs().iter().map(|output| output.sub_block).collect(),
        sinks: sinks.into_iter().map(sink).collect(),
        stall_ms: patience.as_millis() as u32,
    }
}
