//! A plug-in describes block groups to the coordinator and requests their repair, mostly without a NameNode.

use client::{Client, GivenBlock, GivenStripe, Home, RepairRequest};
use cluster::Role;
use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{Group, World};

/// Returns the description of a group that a DataNode's plug-in would send to the coordinator. The lost
/// blocks have no holder in it.
fn described(mend: &Mend, group: &Group, lost: &[usize]) -> GivenStripe {
    let block = |(at, block): (usize, &hdfs::GroupBlock)| {
        let holder = group.holders[at].filter(|_| !lost.contains(&at));
        GivenBlock {
            block: block.name.to_string(),
            bytes: block.bytes,
            node: holder.map(|node| mend.names()[node].clone()),
            digest: None,
        }
    };
    GivenStripe {
        stripe: group.group.stripe_id().to_string(),
        code: group.shape.code.to_string(),
        block_bytes: group.shape.block_bytes,
        chunk_bytes: None,
        blocks: group.shape.blocks.iter().enumerate().map(block).collect(),
    }
}

pub fn a_group_that_is_described(world: &mut World) {
    let mend = mend::attach(world, &[], false);
    repair_described(world, &mend);
}

/// The plug-in describes a group that the coordinator also knows from the NameNode. The description takes
/// precedence.
pub fn a_group_that_is_described_and_listed(world: &mut World) {
    let mend = mend::attach(world, &["--dry-run"], true);
    mend.wait_until_safe(world.groups().len());
    repair_described(world, &mend);
}

fn repair_described(world: &mut World, mend: &Mend) {
    mend.wait_for_helpers();
    let cluster = cluster::Cluster::open(mend.folder()).expect("its folder");
    let role = Role::Plugin("hdfs".parse().expect("a name"));
    cluster.issue(&role).expect("a certificate");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    // `narrow` lost two blocks. One returns to its old DataNode, and the other goes to a DataNode
    // without blocks of the group.
    let spare = (0..world.cluster.nodes().len()).find(|&node| !narrow.holders.contains(&Some(node)));
    let spare = spare.expect("more DataNodes than blocks");
    let lost = [(&narrow, 1), (&narrow, 8), (&wide, 3)];
    let before = world.lose(&lost);
    world.await_nodes();
    world.await_loss(&lost);
    let asked = [
        (&narrow, vec![(1, narrow.holders[1].expect("held")), (8, spare)]),
        (&wide, vec![(3, wide.holders[3].expect("held"))]),
    ];
    runtime.block_on(async {
        let client = Client::connect(&cluster, &role).expect("it connects");
        for (group, homes) in &asked {
            let lost: Vec<usize> = homes.iter().map(|&(at, _)| at).collect();
            let stripe = described(mend, group, &lost);
            client.describe(&stripe).await.expect("described");
            let home =
                |&(at, node): &(usize, usize)| Home { index: at as u16, node: mend.names()[node].clone() };
            let homes = homes.iter().map(home).collect();
            let request = RepairRequest { stripe: Some(stripe.stripe), homes, ..RepairRequest::default() };
            let repair = client.repair(&request).await.expect("queued");
            let ended = loop {
                let state = client.repair_state(repair.repair).await.expect("known");
                if state.ended_unix_ms.is_some() {
                    break state;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            };
            assert_eq!(
                (ended.state.name(), ended.counts.blocks_rebuilt as usize),
                ("done", lost.len()),
                "{ended:#?}"
            );
        }
    });
    world.await_replica(narrow.holders[1].expect("held"), &narrow.shape.blocks[1].name, &before[0]);
    world.await_replica(spare, &narrow.shape.blocks[8].name, &before[1]);
    world.await_replica(wide.holders[3].expect("held"), &wide.shape.blocks[3].name, &before[2]);
    eventually("fsck", || world.cluster.console().is_healthy("/").then_some(()));
    world.assert_whole();
}
