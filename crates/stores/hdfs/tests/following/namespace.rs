//! Tests of changes to files and folders.

use std::collections::BTreeSet;

use hdfs::{ChecksumFormat, Edit, ExistingInodes, NameNode, NameNodeSettings};
use testbed::eventually;

use crate::world::{POLICY, World};

fn namenode(world: &World) -> NameNode {
    NameNode::new(NameNodeSettings {
        java: "java".into(),
        classpath: world.cluster.classpath(),
        uri: Some(world.cluster.uri()),
        settings: Vec::new(),
    })
}

/// Every change that concerns groups is in the edit log, and a query returns the files that it names.
pub fn edits(world: &mut World) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let namenode = namenode(world);
    let from = runtime.block_on(namenode.position()).expect("answered").next;
    let [folder, file, moved] =
        ["/edits + %", "/edits + %/f é", "/moved"].map(|path| format!("/{POLICY}{path}"));
    world.run(&["dfs", "-mkdir", &folder]);
    world.put("edits + %/f é", 5_000_000);
    world.run(&["dfs", "-mv", &folder, &moved]);
    world.run(&["dfs", "-touch", "/plain"]);
    let (walk, edits, end) = runtime.block_on(async {
        let edits = namenode.edits(from).await.expect("answered");
        let walk = namenode.walk(&[format!("{moved}/f é"), file.clone()]).await.expect("answered");
        (walk, edits, namenode.position().await.expect("answered").next)
    });
    let created = format!("{file}._COPYING_");
    let wanted = [
        Edit::Created { path: created.clone(), is_striped: true },
        Edit::Modified(created.clone()),
        Edit::Renamed { from: created, to: file },
        Edit::Renamed { from: folder.clone(), to: moved.clone() },
        Edit::Created { path: "/plain".to_owned(), is_striped: false },
        Edit::Modified("/plain".to_owned()),
    ];
    assert_eq!((&edits.events[..], edits.next, edits.gap), (&wanted[..], end, None));
    assert_eq!((walk.seen.folders, walk.seen.files.len(), walk.groups.len()), (vec![moved.clone()], 1, 2));
    let inode = walk.seen.files[0].inode;
    let existing = |inode| runtime.block_on(namenode.existing(&[inode, 1 << 40])).expect("answered");
    assert_eq!(existing(inode).present.len(), 1);
    world.run(&["dfs", "-rm", "-r", "-skipTrash", &moved, "/plain"]);
    assert_eq!(existing(inode), ExistingInodes::default());
    let edits = runtime.block_on(namenode.edits(end)).expect("answered");
    assert_eq!(edits.events, [Edit::Removed(moved), Edit::Removed("/plain".to_owned())]);
    let ahead = runtime.block_on(namenode.edits(end + 1_000_000)).expect("answered");
    assert!(ahead.gap.is_some(), "the log was replaced: {ahead:?}");
    world.files.forget(&format!("/{POLICY}/edits + %/f é"));
    world.assert_known();

    // A snapshot has a file that was moved out of its folder, and then deleted.
    world.run(&["dfs", "-mkdir", "/kept"]);
    world.run(&["dfs", "-touchz", "/kept/f"]);
    world.run(&["dfsadmin", "-allowSnapshot", "/kept"]);
    world.run(&["dfs", "-createSnapshot", "/kept", "s1"]);
    let listed = runtime.block_on(namenode.files(&["/kept/f".to_owned()], &|_| {})).expect("answered");
    let kept = listed.into_raid().files[0].inode;
    world.run(&["dfs", "-mv", "/kept/f", "/f"]);
    assert_eq!(existing(kept).present, BTreeSet::from([kept]));
    world.run(&["dfs", "-rm", "-skipTrash", "/f"]);
    let in_snapshots = BTreeSet::from([kept]);
    assert_eq!(existing(kept), ExistingInodes { in_snapshots, ..ExistingInodes::default() });
    world.run(&["dfs", "-deleteSnapshot", "/kept", "s1"]);
    assert_eq!(existing(kept), ExistingInodes::default());
    world.run(&["dfsadmin", "-disallowSnapshot", "/kept"]);
    world.run(&["dfs", "-rm", "-r", "-skipTrash", "/kept"]);
}

/// Queries that DataNodes or the NameNode's web server answer.
pub fn datanodes(world: &mut World) {
    let path = format!("/{POLICY}/asked");
    world.put("asked", 3_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let namenode = namenode(world);
    runtime.block_on(async {
        let walk = namenode.walk(std::slice::from_ref(&path)).await.expect("answered");
        let group = &walk.groups[0];
        let format = namenode.checksum(&group.file, group.start).await.expect("answered");
        assert_eq!(format, Some(ChecksumFormat::default()));
        for node in &walk.nodes {
            namenode.touch(&group.file, group.start, &node.address).await.expect("answered");
            namenode.report(&node.address).await.expect("answered");
        }
        namenode.other_lists().await.expect("answered");
        // A line break in a name does not begin another question.
        let other = [format!("/none\n999 delete %2F{POLICY}%2Fasked"), "/none".to_owned()];
        let asked = [&other[..], std::slice::from_ref(&path)].concat();
        assert_eq!(namenode.missing(&asked).await.expect("answered"), other);
        assert_eq!(namenode.missing(&asked).await.expect("answered"), other);
    });
    world.files.delete(&mut world.cluster, &path);
    world.assert_known();
}

/// Groups of files that are created, renamed, moved to the trash, concatenated and deleted.
pub fn changes(world: &mut World) {
    let path = |name: &str| format!("/{POLICY}/{name}");
    world.run(&["dfs", "-mkdir", "-p", &path("a/b")]);
    let (before, mut times) = (world.groups().len(), Vec::new());
    for name in ["a/b/one", "a/b/two", "a/three"] {
        world.put(name, 7_000_000);
        times.push(world.assert_known());
    }
    assert_eq!(world.groups().len(), before + 9);
    println!("new files were known after {times:?}");
    for (from, to) in [("a/b", "a/c"), ("a/three", "a/c/three"), ("a", "d")] {
        world.run(&["dfs", "-mv", &path(from), &path(to)]);
        world.assert_known();
    }
    // Only the deleted file's groups are gone, although it was created under another name.
    world.run(&["dfs", "-rm", "-skipTrash", &path("d/c/three")]);
    world.assert_known();
    world.run(&["dfs", "-put", "-f", "/dev/null", &path("d/c/one")]);
    world.assert_known();
    world.run(&["dfs", "-rm", "-r", &path("d")]); // Into the trash, if there is one.
    world.assert_known();
    assert_eq!(world.groups().len(), before);
    for name in ["a/b/one", "a/b/two", "a/three"] {
        world.files.forget(&path(name));
    }
}

/// A deleted file that a snapshot contains keeps its groups until the snapshot is deleted.
pub fn snapshots(world: &mut World) {
    let folder = format!("/{POLICY}");
    world.put("kept", 4_000_000);
    world.assert_known();
    let known = world.store.stripes();
    world.run(&["dfsadmin", "-allowSnapshot", &folder]);
    world.run(&["dfs", "-createSnapshot", &folder, "s1"]);
    world.run(&["dfs", "-rm", "-skipTrash", &format!("{folder}/kept")]);
    world.files.forget(&format!("{folder}/kept"));
    eventually("a remark", || {
        world.store.remarks().contains("exist only in snapshots are counted too: 1,").then_some(())
    });
    assert_eq!(world.store.stripes(), known);
    world.run(&["dfs", "-deleteSnapshot", &folder, "s1"]);
    world.run(&["dfsadmin", "-disallowSnapshot", &folder]);
    let groups = world.groups();
    eventually("it to be gone", || (world.store.stripes() == groups).then_some(()));
}

/// A restart of the NameNode loses no event.
pub fn a_restart(world: &mut World) {
    world.put("before", 2_000_000);
    world.listings_before_restart = world.listings();
    world.cluster.restart_namenode();
    world.cluster.await_nodes(world.cluster.nodes().len());
    world.run(&["dfsadmin", "-safemode", "wait"]);
    world.put("after", 2_000_000);
    let groups = world.groups();
    eventually("both files to be known", || (world.store.stripes() == groups).then_some(()));
}

/// A NameNode that has deleted edits says so, rather than to skip them.
pub fn purged_edits(world: &mut World) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let namenode = namenode(world);
    // The NameNode keeps two checkpoints, and the edits since the older one.
    for at in 0..3 {
        world.run(&["dfs", "-mkdir", &format!("/checkpoint-{at}")]);
        world.run(&["dfsadmin", "-safemode", "enter"]);
        world.run(&["dfsadmin", "-saveNamespace"]);
        world.run(&["dfsadmin", "-safemode", "leave"]);
    }
    let gap = runtime.block_on(namenode.edits(1)).expect("answered").gap;
    assert!(gap.is_some_and(|first| first > 1), "{gap:?}");
    world.put("later", 2_000_000);
    world.assert_known();
}
