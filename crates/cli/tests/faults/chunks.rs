//! Files whose blocks are encoded in chunks.

use std::fs;

use crate::cluster::{Cluster, noise};

fn put(cluster: &Cluster, name: &str, content: &[u8], more: &[&str]) {
    fs::write(cluster.path(name), content).unwrap();
    let path = cluster.path(name);
    cluster.mend(&[&["put", path.to_str().unwrap(), "--name", name], more].concat()).ok();
}

/// Reads ranges that start and end inside chunks and sub-blocks, in a file with lost blocks.
fn assert_reads_ranges(cluster: &Cluster, name: &str, content: &[u8], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let start = rng.usize(..content.len());
        let end = rng.usize(start..content.len()) + 1;
        let range = format!("{start}-{}", end - 1);
        cluster.assert_reads(name, &content[start..end], &["--range", &range]);
    }
}

fn restart_without_catalog(cluster: &mut Cluster) {
    cluster.kill("coordinator");
    fs::remove_file(cluster.folder().join("coordinator/catalog.redb")).unwrap();
    cluster.mend(&["catalog", "rebuild"]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster
        .eventually("all helpers are counted", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
}

/// With this code, a block consists of 64 sub-blocks, so that the pieces of small blocks and of small chunks are
/// tiny.
#[test]
fn blocks_of_many_sub_blocks_may_be_small() {
    let mut cluster = Cluster::new(11, "clay-10-6-9", "64KiB");
    let small = cluster.put("small", 1000);
    let chunked = noise(1_000_000);
    let path = cluster.path("chunked");
    fs::write(&path, &chunked).unwrap();
    cluster.mend(&["put", path.to_str().unwrap(), "--block-size", "512KiB", "--chunk", "64KiB"]).ok();
    cluster.kill("h2");
    cluster.kill("h5");
    cluster.assert_reads("small", &small, &[]);
    cluster.mend(&["repair", "--all"]);
    cluster.assert_reads("small", &small, &[]);
    cluster.assert_reads("chunked", &chunked, &[]);
}

/// Loses blocks, reads ranges, repairs and reads whole files; then rebuilds the catalog and does all of this
/// again.
#[test]
fn chunked_files_are_read_repaired_and_found_again() {
    let mut cluster = Cluster::new(10, "rs-6-4", "64KiB");
    // The sub-blocks of a chunk have 2 KiB (film), 512 bytes (tiny) and 8 KiB (song). The last stripe of film
    // and of tiny has a few chunks, and the last stripe of song has less than one.
    let files = [
        ("film", "clay-6-4-5", "64KiB", "16KiB", 700_001),
        ("tiny", "clay-6-4-5", "64KiB", "4KiB", 300_000),
        ("song", "hitchhiker-xor-9-6", "64KiB", "16KiB", 6 * (64 << 10) + 777),
    ];
    let mut contents = Vec::new();
    for (name, code, block, chunk, bytes) in files {
        let content = noise(bytes);
        put(&cluster, name, &content, &["--code", code, "--block-size", block, "--chunk", chunk]);
        contents.push(content);
    }
    let listed = cluster.mend(&["ls", "-l"]).ok();
    assert!(listed.out.contains("64 KiB in 16 KiB") && listed.out.contains("64 KiB in 4 KiB"), "{listed:?}");
    let plan = cluster.mend(&["plan", "1.0"]).ok();
    assert!(plan.out.contains("in chunks of 16384"), "{plan:?}");
    for round in 0..2 {
        for ((name, ..), content) in files.iter().zip(&contents) {
            cluster.assert_reads(name, content, &[]);
            let layout = cluster.mend(&["stat", name, "--output", "json"]).ok().json();
            for stripe in layout["layout"].as_array().unwrap() {
                let of_data = format!("{}.{round}", stripe["stripe"].as_str().unwrap());
                let of_parity = format!("{}.5", stripe["stripe"].as_str().unwrap());
                fs::remove_file(cluster.block_file(&of_data)).unwrap();
                fs::remove_file(cluster.block_file(&of_parity)).unwrap();
            }
            cluster.mend(&["scrub"]).fails_with(&["repair --all"]);
            assert_reads_ranges(&cluster, name, content, round);
            // Two blocks of each stripe are lost. A (6, 4) stripe then has no spare block to verify against,
            // a (9, 6) stripe has one.
            let verify: &[&str] = if *name == "song" { &["--verify"] } else { &[] };
            cluster.assert_reads(name, content, verify);
            cluster.mend(&["repair", "--all"]).ok();
            cluster.mend(&["scrub"]).ok();
            cluster.assert_reads(name, content, &["--verify"]);
        }
        if round == 0 {
            restart_without_catalog(&mut cluster);
            let listed_again = cluster.mend(&["ls", "-l"]).ok();
            assert!(listed_again.out.contains("64 KiB in 4 KiB"), "{listed_again:?}");
        }
    }
    let film = cluster.path("film");
    let put = |chunk: &str, more: &[&str]| {
        let all = ["put", film.to_str().unwrap(), "--name", "other", "--chunk", chunk];
        cluster.mend(&[&all[..], more].concat())
    };
    put("1000", &["--code", "clay-6-4-5"]).fails_with(&["chunks cannot have 1000 bytes", "multiple of 512"]);
    put("48KiB", &["--code", "clay-6-4-5"])
        .fails_with(&["blocks cannot have 65536 bytes", "multiple of 49152"]);
    // Codes without sub-blocks ignore the chunk size.
    put("1000", &[]).ok();
    cluster.assert_reads("other", &contents[0], &[]);
}

fn block(cluster: &Cluster, block: &str) -> Vec<u8> {
    fs::read(cluster.block_file(block)).unwrap()
}

/// Every chunk of a stripe is encoded like a stripe whose blocks have the chunk's size.
#[test]
fn every_chunk_is_encoded_by_itself() {
    const CHUNK: usize = 8 << 10;
    let cluster = Cluster::new(6, "clay-6-4-5", "32KiB");
    let content = noise(4 * 4 * CHUNK);
    put(&cluster, "chunked", &content, &["--chunk", "8KiB"]);
    let chunk = |of_block: usize, number: usize| &content[(of_block * 4 + number) * CHUNK..][..CHUNK];
    let by_chunks: Vec<u8> =
        (0..4).flat_map(|number| (0..4).flat_map(move |of_block| chunk(of_block, number))).copied().collect();
    put(&cluster, "stripes", &by_chunks, &["--block-size", "8KiB"]);
    for index in 0..6 {
        let whole = block(&cluster, &format!("1.{index}"));
        let apart: Vec<u8> =
            (2..6).flat_map(|stripe| block(&cluster, &format!("{stripe}.{index}"))).collect();
        assert!(whole == apart, "block {index}");
    }
}
