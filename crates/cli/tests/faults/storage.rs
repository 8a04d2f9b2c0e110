//! Disks that are full, lose files, or alter bytes.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;

fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_flipped_byte_in_a_source_is_noticed_and_healed() {
    let cluster = Cluster::new(8, "rs-6-4", "1MiB");
    let content = cluster.put("film", 4 << 20);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let flipped = cluster.block_name("1.1");
    flip(&cluster.block_file("1.1"), 700_000);
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    // The read meets the changed block and the missing block, and decodes around both.
    cluster.assert_reads("film", &content, &[]);
    let said = cluster.mend(&["repair", "--all", "-v"]).ok();
    assert!(said.out.contains(&flipped) || said.out.contains("corrupt"), "{said:?}");
    cluster.mend(&["scrub"]).ok();
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe"), "{status:?}");
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn scrub_finds_silent_corruption_truncation_and_missing_files() {
    let cluster = Cluster::new(8, "rs-8-4", "256KiB");
    let content = cluster.put("film", 1 << 20);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    flip(&cluster.block_file("1.0"), 0);
    let truncated = OpenOptions::new().write(true).open(cluster.block_file("1.5")).unwrap();
    truncated.set_len(1000).unwrap();
    std::fs::remove_file(cluster.block_file("1.7")).unwrap();
    let [a, b, c] = ["1.0", "1.5", "1.7"].map(|block| cluster.block_name(block));
    let scrub = cluster.mend(&["scrub"]).fails_with(&[&a, &b, &c, "repair --all"]);
    assert_eq!(scrub.code, 3, "{scrub:?}");
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["repair", "--all"]).ok();
    cluster.mend(&["scrub"]).ok();
}

/// Replaces a block file and its checksum file with copies of another block's files. Renames the copies into
/// place, so that they are new inodes.
fn replace_with_checksums(from: &Path, to: &Path) {
    for suffix in ["", ".crc"] {
        let (from, to) = (format!("{}{suffix}", from.display()), format!("{}{suffix}", to.display()));
        let new = format!("{to}.new");
        std::fs::copy(from, &new).unwrap();
        std::fs::rename(new, to).unwrap();
    }
}

/// Two of three sources contain a block of another stripe, with matching checksums. The repair may notice
/// this when it opens the sources, or only when the rebuilt block's digest differs from the recorded digest.
/// In both cases, the repair reports damaged data and publishes nothing.
#[test]
fn a_repair_from_sources_that_contradict_each_other_exits_with_3() {
    let cluster = Cluster::new(6, "rs-4-2", "64KiB");
    cluster.put("film", 256 << 10);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    let lost = cluster.block_name("1.0");
    cluster.mend(&["scrub"]).fails_with(&[&lost]);
    for index in ["1", "2"] {
        let (other, source) =
            (cluster.block_file(&format!("2.{index}")), cluster.block_file(&format!("1.{index}")));
        replace_with_checksums(&other, &source);
    }
    let repair = cluster.mend(&["repair", "1.0"]).fails_with(&["stripe 1-"]);
    assert_eq!(repair.code, 3, "{repair:?}");
    assert!(["contradictory", "unrepairable"].iter().any(|word| repair.out.contains(word)), "{repair:?}");
    assert!(cluster.block_files().iter().all(|file| !file.ends_with(&lost)), "{repair:?}");
    // The other stripe is intact.
    cluster.mend(&["repair", "2"]).ok();
}

#[test]
fn a_full_disk_sends_the_block_elsewhere_or_fails_the_put_whole() {
    let Some(mut cluster) = with_tiny_disk(7) else { return };
    // There is one more helper than a stripe needs. Two stripes are written concurrently. The tiny disk runs
    // full in the middle of a block, which is then stored on the spare helper instead.
    let content = cluster.put("film", 64 << 20);
    cluster.assert_reads("film", &content, &[]);
    let tiny = cluster.folder().join("helpers/h1/blocks");
    let on_tiny =
        |cluster: &Cluster| cluster.block_files().iter().filter(|file| file.starts_with(&tiny)).count();
    assert!(on_tiny(&cluster) <= 1, "a second block cannot be there");
    cluster.mend(&["scrub"]).ok();
    // Without a spare helper the put fails and leaves nothing behind. The tiny disk may be empty, because
    // both concurrent writes to it may have failed.
    let _ = std::fs::write(tiny.join(".filler"), vec![1; 5 << 20]); // The filler may not fit.
    let before = cluster.block_files().len();
    cluster.kill("h7");
    std::fs::write(cluster.path("more"), crate::cluster::noise(16 << 20)).unwrap();
    let put = cluster.mend(&["put", cluster.path("more").to_str().unwrap()]).fails_with(&["h1"]);
    assert!(put.err.contains("full: h1") || put.err.contains("no space"), "{put:?}");
    let listed = cluster.mend(&["ls"]).ok();
    assert!(!listed.out.contains("more"), "{listed:?}");
    cluster.start(&["helper", "h7"]);
    cluster.await_ready();
    cluster.eventually("its blocks are removed", |cluster| cluster.block_files().len() == before);
    drop(cluster);
}

/// Starts a cluster of RS(6,4) with 4 MiB blocks. The first helper's disk has 6 MiB, which is room for one
/// block but not two. Returns `None` without root.
fn with_tiny_disk(helpers: u16) -> Option<Cluster> {
    let mut cluster = Cluster::init(helpers, "rs-6-4", "4MiB");
    let blocks = cluster.folder().join("helpers/h1/blocks");
    std::fs::create_dir_all(&blocks).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(&blocks).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a tmpfs needs root");
        return None;
    }
    cluster.unmount_at_end(blocks);
    cluster.start(&["coordinator"]);
    for helper in 1..=helpers {
        cluster.start(&["helper", &format!("h{helper}")]);
    }
    cluster.await_ready();
    Some(cluster)
}

#[test]
fn files_of_any_length_come_back_whole_and_in_part() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    for bytes in [0, 1, 63, 64, 4096, 65_535, 262_144, 262_145, 1_000_003] {
        let name = format!("file-{bytes}");
        let content = cluster.put(&name, bytes);
        cluster.assert_reads(&name, &content, &[]);
        let middle = bytes / 3..bytes - bytes / 4;
        let range = format!("{}+{}", middle.start, middle.len());
        cluster.assert_reads(&name, &content[middle], &["--range", &range]);
    }
    let past = cluster.mend(&["get", "file-4096", "-o", "-", "--range", "4000+100"]);
    past.fails_with(&["4096"]);
    cluster.mend(&["rm", "file-65535"]).ok();
    cluster.mend(&["get", "file-65535", "-o", "-"]).fails_with(&["file-65535"]);
}

#[test]
fn every_code_reads_through_its_losses_and_repairs_them() {
    for (code, helpers) in [
        ("rs-9-6-vandermonde", 11),
        ("rs-9-6-jerasure", 11),
        ("rs-9-6-qfs", 11),
        ("rs-9-6-hdfs-raid", 11),
        ("lrc-6-2-2", 12),
        ("lrc1-6-2-2", 13),
        ("rotated-9-6-4", 11),
        ("hitchhiker-xorplus-9-6", 11),
        ("clay-6-4-5", 8),
    ] {
        let mut cluster = Cluster::new(helpers, code, "64KiB");
        let content = cluster.put("film", 700_001);
        cluster.kill("h1");
        cluster.kill("h2");
        cluster.assert_reads("film", &content, &[]);
        cluster.assert_reads("film", &content[65_000..135_000], &["--range", "65000+70000"]);
        cluster.mend(&["repair", "--all"]).ok();
        let status = cluster.mend(&["status"]).ok();
        assert!(status.out.starts_with("safe"), "{code}: {status:?}");
        cluster.assert_reads("film", &content, &[]);
    }
}
