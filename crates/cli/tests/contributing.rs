//! Checks `CONTRIBUTING.md` and `ARCHITECTURE.md`: the paths that they name exist, and their lists of files
//! to change are complete.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The placeholder in the pages for the name of the item that is added.
const PLACEHOLDER: &str = "NAME";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect("a page")
}

/// Returns the paths in backticks that start with `crates/`, `docs/` and other folders of the repository. A
/// path with `{a,b}` becomes two paths.
fn paths(text: &str) -> BTreeSet<String> {
    const FOLDERS: [&str; 5] = ["crates/", "docs/", "java/", "lab/", "scripts/"];
    let quoted = text.split('`').skip(1).step_by(2);
    let quoted = quoted.filter(|quoted| !quoted.contains([' ', '\n', '…', '*']));
    let paths = quoted.filter(|quoted| FOLDERS.iter().any(|folder| quoted.starts_with(folder)));
    paths.filter(|path| !path.contains(PLACEHOLDER)).flat_map(written_out).collect()
}

fn written_out(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a closing brace");
    choices.split(',').map(|choice| format!("{before}{}{after}", choice.trim())).collect()
}

/// Returns the item of the list "Adding …" that begins with these words.
fn item<'a>(page: &'a str, begins: &str) -> &'a str {
    let from = page.find(&format!("- **{begins}**")).expect("an item");
    let item = &page[from..];
    &item[..item[1..].find("\n- **").map_or(item.len(), |end| end + 1)]
}

/// Returns the Rust sources of these crates, without comments, each with its path from the root.
fn sources(crates: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in crates {
        collect(&root().join("crates").join(name).join("src"), &mut found);
    }
    assert!(!found.is_empty());
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            found.push((name, code(&fs::read_to_string(&path).expect("text"))));
        }
    }
}

/// Returns a file's code without comments and without tests, which are at the end of the file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the files of these crates whose code contains one of the words.
fn naming(crates: &[&str], words: &[&str]) -> BTreeSet<String> {
    let names = |(name, text): (String, String)| words.iter().any(|word| text.contains(word)).then_some(name);
    sources(crates).into_iter().filter_map(names).collect()
}

/// Whether a path exists. A decision may be cited by its number alone.
fn exists(path: &str) -> bool {
    let path = root().join(path);
    let (folder, cited) = (path.parent().expect("a folder"), path.file_name().expect("a name"));
    let is_cited =
        |name: &str| folder.ends_with("decisions") && name.starts_with(cited.to_str().expect("text"));
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    path.exists() || names.into_iter().any(|name| is_cited(&name.to_string_lossy()))
}

fn assert_lists(begins: &str, needed: &BTreeSet<String>) {
    let page = page("CONTRIBUTING.md");
    let listed = paths(item(&page, begins));
    let missing: Vec<_> = needed.difference(&listed).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md, adding {begins}: {missing:?} are to be touched as well");
}

#[test]
fn every_path_exists() {
    for name in ["CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let gone: Vec<_> = paths(&page(name)).into_iter().filter(|path| !exists(path)).collect();
        assert!(gone.is_empty(), "{name} names {gone:?}");
    }
}

#[test]
fn table_cells_are_short() {
    let page = page("ARCHITECTURE.md");
    let cells = page.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split(" | "));
    let words = |cell: &&str| cell.split_whitespace().filter(|word| *word != "|").count();
    let long: Vec<_> = cells.filter(|cell| words(cell) > 25).collect();
    assert!(long.is_empty(), "more than 25 words: {long:#?}");
}

#[test]
fn a_scheme_touches_the_files_that_are_listed() {
    let crates = ["cli", "client", "control", "coordinator", "helper", "lab", "recovery", "repair", "sim"];
    assert_lists("a scheme", &naming(&crates, &["CrrSDirect"]));
}

#[test]
fn a_code_touches_the_files_that_are_listed() {
    let mut needed = naming(
        &["cli", "client", "cluster", "codes", "control", "repair"],
        &["CodeSpec::Less", "Self::Less", "mod less;"],
    );
    assert!(needed.remove("crates/codes/src/less.rs"), "its own file");
    assert_lists("a code", &needed);
}

#[test]
fn a_verb_touches_the_files_that_are_listed() {
    let needed = naming(&["cli", "client", "coordinator", "views"], &["RebalanceRequest", "Rebalance("]);
    assert_lists("a verb of the API", &needed);
}
