//! Replicas that are replaced together with their `.meta` files. HDFS and all readers accept them, so only
//! parity shows the error.

use std::fs;

use crate::mend;
use crate::world::{Group, World};

/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than this case runs.
const GRACE: &str = "10m";

/// Replaces a data block and its checksums with those of another data block of the same length. Returns the
/// old contents of both files.
fn replace(world: &World, group: &Group, from: usize, to: usize) -> [Vec<u8>; 2] {
    assert_eq!(group.shape.blocks[from].bytes, group.shape.blocks[to].bytes, "of one length");
    let paths = |at: usize| {
        let (node, name) = (group.holders[at].expect("held"), group.shape.blocks[at].name);
        world.replica(node, &name).expect("there")
    };
    let before = paths(to).map(|path| fs::read(path).expect("readable"));
    let other = paths(from).map(|path| fs::read(path).expect("readable"));
    world.write_replica(group.holders[to].expect("held"), &group.shape.blocks[to].name, &other);
    assert!(paths(to).map(|path| fs::read(path).expect("readable")) != before, "it is another block");
    before
}

pub fn replaced_with_checksums(world: &mut World) {
    let mend = mend::attach(world, &["--repair-after", GRACE], true);
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    let whole = mend.ask(&["scrub", "--parity"]).expect("it reports");
    assert_eq!(whole["parity"]["checked"], groups, "short groups as well as long ones: {whole}");
    assert_eq!(whole["findings"].as_array().map(Vec::len), Some(0), "{whole}");

    let forged = [(&narrow, 0, 1), (&wide, 2, 0)];
    let before = forged.map(|(group, from, to)| replace(world, group, from, to));
    let blind = mend.ask(&["scrub"]).expect("it reports");
    assert_eq!(blind["findings"].as_array().map(Vec::len), Some(0), "checksums tell nothing: {blind}");
    let found = mend.ask(&["scrub", "--parity"]).expect("it reports");
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(2), "{found}");
    for ((group, _, to), before) in forged.iter().zip(&before) {
        let name = group.shape.blocks[*to].name;
        assert!(found["findings"].to_string().contains(&name.to_string()), "{name}: {found}");
        world.await_replica(group.holders[*to].expect("held"), &name, before);
    }
    world.await_whole();
    mend.wait_until_safe(groups);
    world.assert_whole();
}
