//! Lost, damaged and outdated catalogs, and renamed helpers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, finish, noise};

fn catalog(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("coordinator/catalog.redb")
}

fn restart(cluster: &mut Cluster) {
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
}

/// Returns the first line of `mend status`.
fn first_line(cluster: &Cluster) -> String {
    cluster.mend(&["status"]).out.lines().next().unwrap_or_default().to_owned()
}

fn until_safe(cluster: &Cluster) {
    cluster.eventually("it is safe", |cluster| first_line(cluster).starts_with("safe"));
}

#[test]
fn a_catalog_is_backed_up_online_and_restored_offline() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    let copy = cluster.path("copy.redb");
    let copy = copy.to_str().unwrap();
    cluster.mend(&["catalog", "backup", copy]).ok();
    cluster.mend(&["catalog", "restore", copy]).fails_with(&["in use", "stop"]);
    let printed = File::create(cluster.path("printed.redb")).unwrap();
    let to_stdout = cluster.command(&["catalog", "backup", "/dev/stdout"]).stdout(printed).status().unwrap();
    assert!(to_stdout.success());
    cluster.mend(&["catalog", "rebuild", "--wait", "1"]).fails_with(&["in use"]);
    cluster.kill("coordinator");
    // A flipped bit causes an error that names the remedy, although every record is still valid JSON.
    let mut bytes = fs::read(catalog(&cluster)).unwrap();
    let named = br#""name":"film""#;
    let places: Vec<usize> =
        (0..bytes.len() - named.len()).filter(|&at| bytes[at..].starts_with(named)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[at + 8] ^= 1);
    fs::write(catalog(&cluster), bytes).unwrap();
    cluster.mend(&["coordinator"]).fails_with(&["damaged", "mend catalog rebuild", "mend catalog restore"]);
    // The bytes on stdout are a copy like the other one: no message follows them.
    for copy in [cluster.path("printed.redb").to_str().unwrap(), copy] {
        cluster.mend(&["catalog", "restore", copy]).ok();
    }
    // The first coordinator may have kept a copy before the put.
    let kept = format!("{}.last-good", catalog(&cluster).display());
    let _ = fs::remove_file(&kept);
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.assert_reads("film", &content, &[]);
    // The coordinator also keeps a copy on its own, in the background, and that copy can be restored as well.
    cluster.eventually("a copy is kept", |_| fs::exists(&kept).unwrap());
    cluster.kill("coordinator");
    fs::remove_file(catalog(&cluster)).unwrap();
    let said = cluster.mend(&["coordinator"]).fails_with(&["there is no catalog at", "last-good"]);
    assert!(said.err.contains("rebuild"), "{said:?}");
    cluster.mend(&["catalog", "restore", &kept]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn an_old_catalog_blocks_writes_until_accepted_and_reuses_no_names() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let old = cluster.put("old", 300_000);
    let (before, newest) = (cluster.path("before.redb"), cluster.path("newest.redb"));
    let (before, newest) = (before.to_str().unwrap(), newest.to_str().unwrap());
    cluster.mend(&["catalog", "backup", before]).ok();
    let new = cluster.put("new", 300_000);
    cluster.mend(&["catalog", "backup", newest]).ok();
    cluster.kill("coordinator");
    cluster.mend(&["catalog", "restore", before]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("it says so", |cluster| first_line(cluster).contains("catalog is an old copy"));
    cluster.await_helpers(7);
    cluster.assert_reads("old", &old, &[]);
    fs::write(cluster.path("more"), &old).unwrap();
    let put = ["put", cluster.path("more").to_str().unwrap()].map(str::to_owned);
    let put: Vec<&str> = put.iter().map(String::as_str).collect();
    for verb in [&put[..], &["rm", "old"], &["repair", "--all"]] {
        cluster.mend(verb).fails_with(&["catalog is an old copy", "mend catalog"]);
    }
    // The catalog has not changed since the newest backup, so that backup is still correct.
    cluster.kill("coordinator");
    cluster.mend(&["catalog", "restore", newest]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.assert_reads("new", &new, &[]);
    // Without a newer copy, the operator accepts the loss. The names of the lost stripes are not reused.
    cluster.kill("coordinator");
    cluster.mend(&["catalog", "restore", before]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("it says so", |cluster| first_line(cluster).contains("catalog is an old copy"));
    cluster.eventually("every helper with newer blocks has come", |cluster| {
        cluster.mend(&["catalog", "accept"]).ok();
        first_line(cluster).starts_with("safe")
    });
    let third = cluster.put("third", 300_000);
    cluster.assert_reads("third", &third, &[]);
    cluster.assert_reads("old", &old, &[]);
    cluster.mend(&["get", "new", "-o", "-"]).fails_with(&["new"]);
    // The remaining blocks of `new` belong to no stripe. An explicit request removes these blocks and no
    // others.
    let stripes = |bytes: usize| bytes.div_ceil(4 * (64 << 10));
    let needed = 6 * (stripes(old.len()) + stripes(third.len()));
    assert!(cluster.block_files().len() > needed);
    cluster.mend(&["scrub", "--remove-orphans"]).ok();
    cluster.eventually("orphans are removed", |cluster| cluster.block_files().len() == needed);
    cluster.assert_reads("third", &third, &[]);
    cluster.assert_reads("old", &old, &[]);
}

/// The helpers with all blocks of a newer file are down while an old catalog is restored, or rebuilt from the
/// other helpers. The coordinator then assigns the counts of the file's stripes again, but when the helpers
/// return, their blocks must still be recognised as newer than the catalog.
#[test]
fn newer_blocks_that_return_after_later_puts_stop_all_writes() {
    for way in ["restore", "rebuild"] {
        let mut cluster = Cluster::new(7, "xor-3-2", "64KiB");
        cluster.put("old", 100_000);
        let backup = cluster.path("backup.redb");
        cluster.mend(&["catalog", "backup", backup.to_str().unwrap()]).ok();
        let content = cluster.put("new", 100_000);
        let stat = cluster.mend(&["stat", "new", "--output", "json"]).ok().json();
        let stripe = stat["layout"][0]["stripe"].as_str().unwrap().to_owned();
        let blocks = block_files_of(&cluster, &stripe);
        let holders = holders_of(&cluster, "new");
        cluster.kill("coordinator");
        holders.iter().for_each(|holder| cluster.kill(holder));
        match way {
            "restore" => cluster.mend(&["catalog", "restore", backup.to_str().unwrap()]).ok(),
            _ => cluster.mend(&["catalog", "rebuild", "--wait", "5"]),
        };
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        cluster.await_helpers(7 - holders.len());
        cluster.put("later-1", 100_000);
        cluster.put("later-2", 100_000);
        holders.iter().for_each(|holder| cluster.start(&["helper", holder]));
        cluster.await_ready();
        cluster.await_helpers(7);
        cluster.eventually("it says so", |cluster| first_line(cluster).contains("catalog is an old copy"));
        cluster.mend(&["scrub", "--remove-orphans"]);
        assert_eq!(block_files_of(&cluster, &stripe), blocks, "{way}: none is removed");
        // All helpers are up, so that a rebuilt catalog contains all files.
        cluster.kill("coordinator");
        cluster.mend(&["catalog", "rebuild", "--wait", "20"]).ok();
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        cluster.await_helpers(7);
        cluster.assert_reads("new", &content, &[]);
    }
}

/// An operator accepts the loss of the newer blocks that are listed. Other newer blocks, of the same run of the
/// coordinator, are on helpers that are down. When these helpers return, their blocks are newer all the same.
#[test]
fn accepting_some_newer_blocks_gives_up_no_others() {
    let mut cluster = Cluster::new(9, "xor-3-2", "64KiB");
    let backup = cluster.path("backup.redb");
    cluster.mend(&["catalog", "backup", backup.to_str().unwrap()]).ok();
    let mut holders = Vec::new();
    let mut files = 0;
    // Two files whose blocks are on different helpers.
    while holders.len() < 2 {
        let name = format!("file-{files}");
        files += 1;
        assert!(files < 50, "two files share no helper");
        cluster.put(&name, 100_000);
        let found = holders_of(&cluster, &name);
        if holders.iter().flatten().all(|helper| !found.contains(helper)) {
            holders.push(found);
        } else {
            cluster.mend(&["rm", &name]).ok();
        }
    }
    let kept = block_files(&cluster, &holders[1]);
    cluster.kill("coordinator");
    cluster.mend(&["catalog", "restore", backup.to_str().unwrap()]).ok();
    holders[1].iter().for_each(|helper| cluster.kill(helper));
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.await_helpers(6);
    cluster.eventually("it says so", |cluster| first_line(cluster).contains("catalog is an old copy"));
    let status = cluster.mend(&["node", "safe-to-remove", &holders[1][0]]);
    assert_eq!(status.code, 1, "{status:?}");
    let accepted = cluster.mend(&["catalog", "accept"]).ok();
    // The answer does not include the newer blocks of helpers that are down.
    assert!(holders[1].iter().all(|helper| accepted.err.contains(helper.as_str())), "{accepted:?}");
    let listed = cluster.mend(&["catalog", "accept", "--list"]);
    assert!(listed.code == 1 && listed.out.contains("no helper that is up lists"), "{listed:?}");
    holders[1].iter().for_each(|helper| cluster.start(&["helper", helper]));
    cluster.await_ready();
    cluster.eventually("it says so again", |cluster| first_line(cluster).contains("catalog is an old copy"));
    cluster.mend(&["scrub", "--remove-orphans"]);
    assert_eq!(block_files(&cluster, &holders[1]), kept);
}

/// Returns the helpers that hold blocks of a file with one stripe.
fn holders_of(cluster: &Cluster, file: &str) -> Vec<String> {
    let stat = cluster.mend(&["stat", file, "--output", "json"]).ok().json();
    let blocks = stat["layout"][0]["blocks"].as_array().unwrap().clone();
    blocks.iter().map(|block| block["node"].as_str().unwrap().to_owned()).collect()
}

/// Returns the block files of these helpers.
fn block_files(cluster: &Cluster, helpers: &[String]) -> Vec<PathBuf> {
    let folder = cluster.folder().join("helpers");
    let is_theirs = |path: &PathBuf| helpers.iter().any(|helper| path.starts_with(folder.join(helper)));
    cluster.block_files().into_iter().filter(is_theirs).collect()
}

/// Helpers that did not answer during a rebuild may hold missing blocks and unknown files. The status says so
/// until they register, even after all known blocks were rebuilt elsewhere.
#[test]
fn a_catalog_rebuilt_without_some_helpers_is_incomplete() {
    let mut cluster = Cluster::new(8, "rs-6-4", "64KiB");
    let content = cluster.put("film", 1_000_000);
    ["coordinator", "h1", "h2"].iter().for_each(|name| cluster.kill(name));
    fs::remove_file(catalog(&cluster)).unwrap();
    cluster.mend(&["catalog", "rebuild", "--wait", "5"]);
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("no helper is awaited", |cluster| !first_line(cluster).starts_with("starting"));
    let status = cluster.mend(&["status"]);
    let missing = "h1 has not registered since the catalog was replaced";
    assert!(status.out.contains("down: h1, h2") && status.out.contains(missing), "{status:?}");
    let no = cluster.mend(&["node", "safe-to-remove", "h1"]);
    assert!(no.code == 1 && no.out.contains("an unknown number of blocks on h1"), "{no:?}");
    cluster.mend(&["node", "remove", "h1"]).fails_with(&["h1 must not be removed", "start h1"]);
    cluster.mend(&["repair", "--all"]).ok();
    cluster.mend(&["scrub", "--parity"]).ok();
    cluster.eventually("all known blocks are there", |cluster| {
        first_line(cluster)
            .starts_with("INCOMPLETE  h1, h2 have not registered since the catalog was replaced")
    });
    let repair = cluster.mend(&["repair", "--all"]).ok();
    assert!(repair.out.starts_with("no block is known to be lost; h1, h2 have not"), "{repair:?}");
    assert_eq!(cluster.mend(&["status", "--check"]).code, 1, "a warning");
    assert_eq!(cluster.mend(&["node", "safe-to-remove", "h1"]).code, 1);
    cluster.start(&["helper", "h1"]);
    cluster.start(&["helper", "h2"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.assert_reads("film", &content, &[]);
}

/// Returns the files of a stripe's blocks.
fn block_files_of(cluster: &Cluster, stripe: &str) -> Vec<PathBuf> {
    let is_of =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{stripe}."));
    cluster.block_files().into_iter().filter(is_of).collect()
}

/// The possible contents of a name: one of `versions` or, if `may_be_absent`, no file.
#[derive(Default)]
struct Expected {
    versions: Vec<Vec<u8>>,
    may_be_absent: bool,
}

#[test]
fn a_lost_catalog_is_rebuilt_from_the_helpers_after_kills_at_any_time() {
    let mut cluster = Cluster::new(8, "rs-6-4", "16KiB");
    let mut files: BTreeMap<String, Expected> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..20_u64 {
        let name = format!("file-{}", rng.u8(..6));
        let content = noise(rng.usize(1..300_000) + round as usize);
        let path = cluster.path("input");
        fs::write(&path, &content).unwrap();
        let expected =
            files.entry(name.clone()).or_insert(Expected { may_be_absent: true, ..Default::default() });
        let removes = rng.u8(..4) == 0 && !expected.versions.is_empty();
        let arguments = match removes {
            true => vec!["rm", &name],
            false => vec!["put", path.to_str().unwrap(), "--name", &name, "--replace"],
        };
        let client = cluster.spawn(&arguments);
        std::thread::sleep(Duration::from_millis(rng.u64(..150)));
        let pid = client.id().to_string();
        match rng.u8(..3) {
            0 => drop(std::process::Command::new("kill").args(["-9", &pid]).status()),
            1 => restart(&mut cluster),
            _ => {
                let helper = format!("h{}", rng.u8(1..=8));
                cluster.kill(&helper);
                cluster.start(&["helper", &helper]);
                cluster.await_ready();
            }
        }
        let done = finish(client).code == 0;
        // A helper that was down during a removal still has the file's blocks, so a removed file may reappear
        // in the rebuilt catalog.
        match (removes, done) {
            (true, _) => expected.may_be_absent = true,
            (false, true) => *expected = Expected { versions: vec![content], may_be_absent: false },
            (false, false) => expected.versions.push(content),
        }
    }
    cluster.mend(&["repair", "--all"]);
    let listed = |cluster: &Cluster| cluster.mend(&["ls"]).ok().out;
    let before = listed(&cluster);
    cluster.kill("coordinator");
    fs::remove_file(catalog(&cluster)).unwrap();
    // Kill two helpers as well: the most that the code tolerates.
    cluster.kill("h3");
    cluster.kill("h6");
    let said = cluster.mend(&["catalog", "rebuild", "--wait", "10"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("did not answer: h3, h6"), "{said:?}");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.await_helpers(6);
    for (name, expected) in &files {
        let copy = cluster.path("copy");
        let got = cluster.mend(&["get", name, "-o", copy.to_str().unwrap()]);
        let absent = got.code != 0 && got.err.contains("there is no file");
        if absent {
            assert!(
                expected.may_be_absent,
                "{name} is gone; before: {before} after: {} {said:?}",
                listed(&cluster)
            );
            continue;
        }
        let bytes = fs::read(&copy).unwrap_or_else(|error| panic!("{name}: {error}: {got:?}"));
        fs::remove_file(copy).unwrap();
        assert!(expected.versions.contains(&bytes), "{name} has other bytes than were ever put");
    }
    // The two helpers return. The coordinator finds and verifies their blocks.
    cluster.start(&["helper", "h3"]);
    cluster.start(&["helper", "h6"]);
    cluster.await_ready();
    cluster.eventually("everything is whole", |cluster| {
        cluster.mend(&["repair", "--all"]);
        first_line(cluster).starts_with("safe")
    });
}

/// Follows the procedure "Replacing keys" of `docs/guides/keys.md` for a helper whose certificate leaked.
#[test]
fn a_helper_with_a_leaked_key_is_renamed_and_keeps_its_blocks() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 500_000);
    cluster.kill("h1");
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    let start = text.find("[[helper]]\nname = \"h1\"").unwrap();
    let end = text[start + 1..].find("[[helper]]").map_or(text.len(), |at| start + 1 + at);
    testbed::replace_file(&config, format!("{}{}", &text[..start], &text[end..]));
    let blocks = cluster.folder().join("helpers/h1/blocks");
    let listen = format!("127.0.0.1:{}", cluster.base_port() + 2);
    let add = ["node", "add", "fresh", "--listen", &listen, "--blocks", blocks.to_str().unwrap()];
    cluster.mend(&add).ok();
    restart(&mut cluster);
    cluster.start(&["helper", "fresh"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.eventually("the old name is forgotten", |cluster| {
        let helpers = cluster.mend(&["node", "list"]).ok().out;
        helpers.contains("fresh") && !helpers.contains("h1")
    });
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
    // A helper named h1 can no longer register, because mend.toml does not list it.
    cluster.mend(&["helper", "h1"]).fails_with(&["h1"]);
}

/// When a block is found on another helper than the catalog states, the catalog is corrected and the block is
/// marked for removal on its previous helper. Once the disks are swapped back, that mark is outdated and must
/// be ignored.
#[test]
fn disks_that_were_swapped_and_swapped_back_lose_nothing() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 500_000);
    let helpers = cluster.folder().join("helpers");
    for _ in 0..2 {
        cluster.kill("h1");
        cluster.kill("h2");
        for (from, to) in [("h1/blocks", "aside"), ("h2/blocks", "h1/blocks"), ("aside", "h2/blocks")] {
            fs::rename(helpers.join(from), helpers.join(to)).unwrap();
        }
        cluster.start(&["helper", "h1"]);
        cluster.start(&["helper", "h2"]);
        cluster.await_ready();
        until_safe(&cluster);
        cluster.assert_reads("film", &content, &[]);
    }
    // Wait until no extra copies of blocks are left. If the coordinator checked the blocks when only one of
    // the two helpers was back, two blocks of a stripe seemed to be on that helper, and the coordinator may
    // have begun to move one of the two.
    let needed = 6 * 500_000_usize.div_ceil(4 * (64 << 10));
    cluster.eventually("each block is there once", |cluster| cluster.block_files().len() == needed);
    cluster.assert_reads("film", &content, &[]);
}

/// A raw copy of the catalog, such as a snapshot of its volume, is taken while a put runs, and is restored
/// after the put has succeeded. In the restored catalog the put is unfinished, although its blocks belong to
/// a file.
#[test]
fn blocks_of_a_put_that_was_open_in_a_raw_copy_are_kept() {
    let mut cluster = Cluster::new(7, "rs-6-4", "16MiB");
    let content = noise(60 << 20);
    fs::write(cluster.path("film"), &content).unwrap();
    let put = cluster.spawn(&["put", cluster.path("film").to_str().unwrap(), "--name", "film"]);
    let is_writing = |cluster: &Cluster| {
        let helpers = cluster.folder().join("helpers");
        let folders = fs::read_dir(helpers).unwrap().map(|entry| entry.unwrap().path().join("blocks"));
        let within = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let mut files = within.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
        files.any(|file| file.file_name().to_string_lossy().starts_with(".tmp-"))
    };
    let begun = Instant::now();
    while !is_writing(&cluster) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the put does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    cluster.signal("coordinator", "STOP");
    let copy = cluster.path("raw.redb");
    fs::copy(catalog(&cluster), &copy).unwrap();
    cluster.signal("coordinator", "CONT");
    finish(put).ok();
    cluster.assert_reads("film", &content, &[]);
    cluster.kill("coordinator");
    let newest = cluster.path("newest.redb");
    fs::copy(catalog(&cluster), &newest).unwrap();
    fs::copy(&copy, catalog(&cluster)).unwrap();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    std::thread::sleep(Duration::from_secs(35)); // The coordinator looks for unused blocks every 15 s.
    assert_eq!(cluster.block_files().len(), 6, "they may belong to a file");
    let status = cluster.mend(&["status", "--output", "json"]).json();
    assert_eq!(status["orphans"].as_array().unwrap().len(), 6, "{status:#}");
    // Case 1: the operator notices the mistake and restores the newest catalog.
    cluster.kill("coordinator");
    fs::copy(&newest, catalog(&cluster)).unwrap();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    until_safe(&cluster);
    cluster.assert_reads("film", &content, &[]);
    // Case 2: the operator keeps the old catalog and has the blocks removed.
    cluster.kill("coordinator");
    fs::copy(&copy, catalog(&cluster)).unwrap();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("the blocks are gone", |cluster| {
        cluster.mend(&["scrub", "--remove-orphans"]);
        cluster.block_files().is_empty()
    });
}
