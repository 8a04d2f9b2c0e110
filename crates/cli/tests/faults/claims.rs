//! Forged blocks, with correct checksums and labels, from a helper with a valid certificate.

use std::fs;

use codes::BlockIndex;
use dir::DirBlocks;
use repair::{BlockId, FilePart, Sink, SinkEnd, StripeId, StripeLabel};
use store_api::Blocks;

use crate::cluster::{Cluster, Said};

fn cluster_id(cluster: &Cluster) -> String {
    let text = fs::read_to_string(cluster.folder().join("mend.toml")).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("cluster_id")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// Stores `bytes` as block `index` of a stripe with this name in a stopped helper's folder.
fn invent(
    cluster: &Cluster,
    helper: &str,
    stripe: &str,
    index: u16,
    code: &str,
    file: FilePart,
    bytes: &[u8],
) {
    let folder = cluster.folder().join("helpers").join(helper).join("blocks");
    let label = StripeLabel {
        cluster: cluster_id(cluster),
        stripe: StripeId(stripe.to_owned()),
        code: code.parse().unwrap(),
        block_bytes: bytes.len() as u64,
        chunk_bytes: None,
        file,
    };
    let end = SinkEnd::Kept { label: Some(Box::new(label)), permit: None };
    let id = BlockId(format!("{stripe}.{index}"));
    let sink = Sink { index: BlockIndex(index), id, bytes: bytes.len() as u64, digest: None, end };
    let mut writer = DirBlocks::open(folder).unwrap().create(&sink).unwrap();
    writer.write_at(0, bytes).unwrap();
    writer.seal().unwrap();
    writer.commit().unwrap();
}

fn part(name: &str, bytes: usize, begun_unix_ms: u64) -> FilePart {
    FilePart {
        name: name.to_owned(),
        bytes: bytes as u64,
        block_bytes: bytes as u64,
        chunk_bytes: None,
        position: 0,
        put: "900-aaaaab".to_owned(),
        begun_unix_ms,
    }
}

const FUTURE_MS: u64 = 9_000_000_000_000;

fn first_line(cluster: &Cluster) -> String {
    cluster.mend(&["status"]).out.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_single_block_cannot_claim_a_files_name_in_a_rebuilt_catalog() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    let forged = b"not the film".repeat(100);
    cluster.kill("h1");
    invent(&cluster, "h1", "77-aaaaab", 0, "rs-2-1", part("film", forged.len(), FUTURE_MS), &forged);
    cluster.start(&["helper", "h1"]);
    cluster.await_ready();
    cluster.kill("coordinator");
    fs::remove_file(cluster.folder().join("coordinator/catalog.redb")).unwrap();
    let said = cluster.mend(&["catalog", "rebuild", "--wait", "20"]);
    assert_eq!(said.code, 3, "a rival is no quiet matter: {said:?}");
    assert!(said.out.contains("film") && said.out.contains("h1"), "{said:?}");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.assert_reads("film", &content, &[]);
    // The forged file is kept under another name, where the user can inspect it.
    let listed = cluster.mend(&["ls", "--output", "json"]).ok().json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|file| file["name"].as_str()).collect();
    let rival = names.iter().find(|name| **name != "film").unwrap_or_else(|| panic!("{names:?}"));
    cluster.assert_reads(rival, &forged, &[]);
}

/// The invented stripe belongs to the file's own put and is at a position after the file's last stripe. If it
/// counted, the put would have a stripe too many, and the rebuild would leave out the file.
#[test]
fn a_single_block_cannot_add_a_stripe_to_a_file_in_a_rebuilt_catalog() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    let holder = cluster.holder("1.0");
    cluster.kill(&holder);
    let blocks = DirBlocks::open(cluster.folder().join(format!("helpers/{holder}/blocks"))).unwrap();
    let real = blocks.list().unwrap().remove(0);
    let (_, label) = blocks.describe(&real.id).unwrap().label.unwrap();
    drop(blocks);
    let file = FilePart { position: label.file.position + 2, ..label.file };
    invent(&cluster, &holder, "77-aaaaab", 0, "rs-6-4", file, &vec![7; real.bytes as usize]);
    cluster.start(&["helper", &holder]);
    cluster.await_ready();
    let said = rebuild(&mut cluster);
    assert!(said.out.contains(&holder), "the invented block is named: {said:?}");
    cluster.assert_reads("film", &content, &[]);
}

/// Rebuilds the catalog from all helpers, starts the coordinator, and returns the report.
fn rebuild(cluster: &mut Cluster) -> Said {
    cluster.kill("coordinator");
    fs::remove_file(cluster.folder().join("coordinator/catalog.redb")).unwrap();
    let said = cluster.mend(&["catalog", "rebuild", "--wait", "20"]);
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.await_helpers(7);
    said
}

/// A file whose blocks are on a single helper must not affect files that are stored later, whatever stripe
/// number and time its labels claim. The two stripe numbers are the highest possible one and the highest that
/// an earlier version of Mend accepted.
#[test]
fn a_single_block_cannot_displace_later_files_in_rebuilt_catalogs() {
    for number in [(1_u64 << 34) - 1, (1 << 33) - 2] {
        let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
        let film = cluster.put("film", 300_000);
        cluster.kill("h1");
        let (stripe, forged) = (format!("{number}-aaaaab"), b"invented".repeat(100));
        let part = FilePart { put: stripe.clone(), ..part("zzz", forged.len(), u64::MAX) };
        invent(&cluster, "h1", &stripe, 0, "rs-2-1", part, &forged);
        cluster.start(&["helper", "h1"]);
        cluster.await_ready();
        let mut files = vec![("film".to_owned(), film)];
        for round in 0..3 {
            let said = rebuild(&mut cluster);
            assert_eq!(said.code, 3, "a file that one helper claims is no quiet matter: {said:?}");
            assert!(said.out.contains("zzz") && !said.out.contains("belong to no stripe"), "{said:?}");
            let listed = cluster.mend(&["ls", "--output", "json"]).ok().json();
            let mut created = listed.as_array().unwrap().iter().map(|file| file["created_unix_ms"].as_u64());
            assert!(created.all(|created| created.unwrap() < 4_000_000_000_000), "{listed:#}");
            let name = format!("new-{round}");
            let content = cluster.put(&name, 200_000 + round);
            files.push((name, content));
            for (name, content) in &files {
                cluster.assert_reads(name, content, &[]);
            }
            assert!(!first_line(&cluster).starts_with("STOPPED"), "{}", first_line(&cluster));
        }
        // Once the invented file is removed, a rebuild finds no problem.
        cluster.mend(&["rm", "zzz"]).ok();
        cluster.eventually("its blocks are removed", |cluster| {
            cluster.block_files().iter().all(|path| !path.to_str().unwrap().contains(&stripe))
        });
        rebuild(&mut cluster).ok();
        for (name, content) in &files {
            cluster.assert_reads(name, content, &[]);
        }
    }
}

/// Three blocks of a file's only stripe are deleted, more than its code tolerates. All helpers answer, so
/// only this loss makes the rebuild leave out the file.
#[test]
fn a_rebuild_names_the_files_that_it_leaves_out() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let film = cluster.put("film", 300_000);
    cluster.put("gone", 100_000);
    let stat = cluster.mend(&["stat", "gone", "--output", "json"]).ok().json();
    let stripe = stat["layout"][0]["stripe"].as_str().unwrap().to_owned();
    for index in 0..3 {
        fs::remove_file(cluster.block_file(&format!("{stripe}.{index}"))).unwrap();
    }
    let said = rebuild(&mut cluster);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("cannot recover files from the blocks of gone"), "{said:?}");
    cluster.assert_reads("film", &film, &[]);
}

#[test]
fn a_claim_by_a_single_helper_blocks_no_writes() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    for round in 0..5 {
        // The coordinator ignores stripe names whose number is too far above the next number that it would
        // assign. This number is just within the limit. The suffix stands for a run of the coordinator and
        // differs in each round.
        let count = (1_u64 << 32) - 100;
        cluster.kill("h2");
        let stripe = format!("{count}-bbbbb{}", ["b", "c", "d", "e", "f"][round]);
        invent(&cluster, "h2", &stripe, 1, "rs-6-4", part("later", 4096, FUTURE_MS), &[7; 1024]);
        cluster.start(&["helper", "h2"]);
        cluster.await_ready();
        cluster.await_helpers(7);
        assert!(!first_line(&cluster).starts_with("STOPPED"), "{}", first_line(&cluster));
        let file = format!("more-{round}");
        let more = cluster.put(&file, 100_000);
        cluster.assert_reads(&file, &more, &[]);
        let status = cluster.mend(&["status"]);
        assert!(status.out.contains("h2"), "who claims it is said: {status:?}");
        let accepted = cluster.mend(&["catalog", "accept"]).ok();
        assert!(accepted.out.contains("h2"), "{accepted:?}");
    }
    cluster.assert_reads("film", &content, &[]);
    let log = cluster.log("coordinator");
    assert!(!log.contains("panicked"), "{log}");
    assert!(cluster.runs("coordinator"));
}

/// Blocks of an unknown stripe on two helpers look like an outdated catalog, so the coordinator stops all
/// writes. Its message names both helpers, and the operator can reject one of them.
#[test]
fn a_helper_whose_claims_stop_all_can_be_rejected() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    cluster.put("film", 300_000);
    for (index, helper) in [(1, "h2"), (2, "h3")] {
        cluster.kill(helper);
        let later = part("later", 4096, FUTURE_MS);
        invent(&cluster, helper, "5000-bbbbbb", index, "rs-6-4", later, &[7; 1024]);
        cluster.start(&["helper", helper]);
        cluster.await_ready();
    }
    cluster.eventually("it stops", |cluster| first_line(cluster).starts_with("STOPPED"));
    let line = first_line(&cluster);
    assert!(line.contains("h2") && line.contains("h3") && line.contains("accept --reject"), "{line}");
    let source = cluster.path("film");
    let refused = ["put", source.to_str().unwrap(), "--name", "refused"];
    cluster.mend(&refused).fails_with(&["h2", "h3", "mend catalog accept --reject HELPER"]);
    let listed = cluster.mend(&["catalog", "accept", "--list"]).ok();
    assert!(listed.out.contains("h2") && listed.out.contains("h3"), "{listed:?}");
    assert!(listed.out.contains("5000-bbbbbb"), "{listed:?}");
    cluster.mend(&["catalog", "accept", "--reject", "h1"]).fails_with(&["helper h1 lists no blocks"]);
    cluster.mend(&["catalog", "accept", "--reject", "h3"]).ok();
    // The claim of h2 alone proves nothing, but it may be true.
    cluster.eventually("it goes on", |cluster| {
        let line = first_line(cluster);
        line.starts_with("INCOMPLETE") && line.contains("h2 lists blocks newer than the catalog")
    });
    assert_eq!(cluster.mend(&["status", "--check"]).code, 1);
    let more = cluster.put("more", 100_000);
    cluster.assert_reads("more", &more, &[]);
    // The rejection also survives a restart of the coordinator.
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("it goes on again", |cluster| first_line(cluster).starts_with("INCOMPLETE"));
    cluster.mend(&["catalog", "accept", "--reject", "h2"]).ok();
    cluster.eventually("it is safe", |cluster| first_line(cluster).starts_with("safe"));
    let again = cluster.put("again", 100_000);
    cluster.assert_reads("again", &again, &[]);
}
