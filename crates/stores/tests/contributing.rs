//! Checks the statements in CONTRIBUTING.md about a new store: a store is a crate with a line in the table
//! and a page of documentation, and no crate of the program depends on a store.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates in `crates/stores` that are not a kind of `[store]` in `mend.toml`.
const SUPPORT: [&str; 4] = ["attached", "block-files", "dir", "hdfs-raid"];
/// The crates of the program, which must not depend on a store. Their tests and benchmarks may.
const PROGRAM: [&str; 9] =
    ["cli", "client", "cluster", "control", "coordinator", "helper", "repair", "store-api", "views"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn kinds() -> BTreeSet<String> {
    stores::KINDS.iter().map(|kind| kind.name().to_owned()).collect()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn every_store_crate_is_registered_and_documented() {
    let folders = fs::read_dir(root().join("crates/stores")).unwrap().map(|entry| entry.unwrap());
    let crates = folders.filter(|folder| folder.path().join("Cargo.toml").is_file());
    let names: BTreeSet<String> = crates.map(|it| it.file_name().into_string().unwrap()).collect();
    let stores = names.into_iter().filter(|name| !SUPPORT.contains(&name.as_str())).collect();
    assert_eq!(kinds(), stores, "each crate has a line in KINDS");
    for kind in kinds() {
        assert!(
            root().join(format!("docs/guides/{kind}.md")).is_file(),
            "docs/guides/{kind}.md is its guide"
        );
        assert!(stores::kind(&kind).is_some_and(|it| it.command().get_name() == kind), "mend attach {kind}");
    }
}

#[test]
fn no_crate_of_the_program_depends_on_a_store() {
    let mut stores = kinds();
    stores.insert("dir".to_owned());
    for name in PROGRAM {
        let manifest = read(format!("crates/{name}/Cargo.toml"));
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let first = |line: &str| line.split([' ', '.', '=']).next().unwrap_or_default().to_owned();
        let known: BTreeSet<String> = dependencies.lines().map(first).collect();
        assert!(known.is_disjoint(&stores), "{name} knows a store by name");
    }
}

#[test]
fn files_named_in_contributing_exist() {
    let text = read("CONTRIBUTING.md");
    let (_, section) = text.split_once("- **a store**").expect("it says how to add a store");
    let section = section.split("\n- **").next().unwrap_or_default();
    let paths: Vec<&str> = section.split('`').filter(|path| path.starts_with("crates/")).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    for path in paths.iter().filter(|path| !path.contains("NAME")) {
        assert!(root().join(path).exists(), "{path}");
    }
}
