//! The pages of results: the command that makes each, and the paths on which it depends. [`freshness`]
//! compares the pages with the history of these paths, and [`index`] lists the numbers of the figures.

mod freshness;
mod index;

use std::path::{Path, PathBuf};

use crate::figure;

pub(crate) use freshness::{Freshness, check, is_fresh, stated_commit};
pub(crate) use index::write_index;

/// The paths on which every measured transfer of blocks depends: Mend's own, then the lab's, which shape the
/// network, run the schemes and take the times. The verbs of `mend` are not among them, because they change
/// often and move no blocks, and neither is Cargo.lock, whose changes mostly concern other programs.
const TRANSFERS: [&str; 29] = [
    "crates/gf",
    "crates/codes",
    "crates/repair",
    "crates/helper",
    "crates/client",
    "crates/cluster",
    "crates/store-api",
    "crates/stores/src",
    "crates/stores/dir",
    "crates/stores/block-files",
    "crates/cli/src/main.rs",
    "crates/cli/src/daemons.rs",
    "crates/lab/src/agent.rs",
    "crates/lab/src/agent",
    "crates/lab/src/baseline.rs",
    "crates/lab/src/check.rs",
    "crates/lab/src/direct.rs",
    "crates/lab/src/disk_limits.rs",
    "crates/lab/src/instruction.rs",
    "crates/lab/src/lab_cluster.rs",
    "crates/lab/src/medium.rs",
    "crates/lab/src/meter.rs",
    "crates/lab/src/network",
    "crates/lab/src/network_config.rs",
    "crates/lab/src/run",
    "crates/lab/src/scenario.rs",
    "crates/lab/src/shell.rs",
    "crates/lab/src/topology.rs",
    "crates/lab/src/variant.rs",
];
/// The paths on which repairs onto nodes depend in addition. A degraded read asks the coordinator for a plan
/// only, once per block.
const COORDINATION: [&str; 3] = ["crates/recovery", "crates/control", "crates/coordinator"];
/// The pages that are not figures: name, command, and further paths on which they depend.
const OTHERS: [(&str, &str, &[&str]); 5] = [
    ("bench", "mend lab bench", &["lab/bench", "crates/lab/src/bench"]),
    ("nodes", "mend lab nodes", &["crates/lab/src/nodes", "crates/lab/src/experiment"]),
    (
        "hdfs",
        "make bench-hdfs",
        &[
            "crates/stores/hdfs",
            "crates/stores/attached",
            "crates/testbed",
            "java",
            "crates/lab/src/hdfs",
            "crates/lab/src/experiment",
        ],
    ),
    (
        "hdfs-raid",
        "make bench-hdfs-raid",
        &[
            "crates/stores/hdfs",
            "crates/stores/hdfs-raid",
            "crates/stores/attached",
            "crates/cli/src/raid",
            "crates/testbed",
            "java",
            "crates/lab/src/hdfs",
            "crates/lab/src/hdfs_raid",
            "crates/lab/src/experiment",
        ],
    ),
    (
        "seaweedfs",
        "make bench-seaweedfs",
        &[
            "crates/stores/seaweedfs",
            "crates/stores/attached",
            "crates/testbed",
            "crates/lab/src/seaweedfs",
            "crates/lab/src/experiment",
        ],
    ),
];
/// The pages above that compare numbers of papers with ours.
const WITH_CLAIMS: [&str; 1] = ["hdfs-raid"];
/// The pages that other programs than the lab make: name, command, and all paths on which they depend. Each
/// is a text that states the commit whose output it contains.
const OUTSIDE: [(&str, &str, &[&str]); 2] = [
    (
        "recovery",
        "cargo run --release -p sim --example recovery_tables",
        &[
            "crates/codes",
            "crates/recovery",
            "crates/repair/src/cost.rs",
            "crates/repair/src/forecast.rs",
            "crates/repair/src/plan.rs",
            "crates/repair/src/planner",
            "crates/repair/src/topology",
            "crates/sim/src/recovery",
            "crates/sim/src/dice.rs",
            "crates/sim/examples/recovery_tables",
        ],
    ),
    ("encoding", "cargo bench -p repair --bench encode", &["crates/gf", "crates/codes", "crates/repair"]),
];
/// The pages whose sections name their own versions of the code, with their commands.
const OF_SECTIONS: [(&str, &str); 3] = [
    ("hdfs-namespace", "cargo test -p hdfs --lib -- --ignored --nocapture memory_per_group"),
    ("control", "cargo test --release -p control measure -- --ignored --nocapture"),
    ("simulator", "cargo run --release -p sim --example seeds"),
];
/// The sentence on a page whose measurement was not reliable, up to the reason.
const UNRELIABLE: &str = "**These figures are not reliable: ";

/// A page of results.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    /// The command that makes it.
    pub(crate) command: String,
    /// The paths on which its figures depend.
    paths: Vec<String>,
    maker: Maker,
}

/// The program that makes a page, which decides how the page is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// The lab, from the scenario in a figure's file. The other parts of the file are not measured.
    Scenario,
    /// The lab.
    Lab,
    /// Another program, whose output is part of a text.
    Outside,
    /// Several programs at several times: the page is not checked.
    Sections,
}

/// Returns all pages: figures, then the others.
pub(crate) fn all() -> Vec<Page> {
    let others = OTHERS.iter().map(|&(name, command, more)| {
        let paths = [&TRANSFERS[..], &COORDINATION, more].concat();
        Page::new(name, command, strings(&paths), Maker::Lab)
    });
    let outside = OUTSIDE
        .iter()
        .map(|&(name, command, paths)| Page::new(name, command, strings(paths), Maker::Outside));
    let of_sections =
        OF_SECTIONS.iter().map(|&(name, command)| Page::new(name, command, Vec::new(), Maker::Sections));
    figures().into_iter().chain(others).chain(outside).chain(of_sections).collect()
}

/// Returns the pages of all figures.
pub(crate) fn figures() -> Vec<Page> {
    let page = |name: String| {
        let (paths, maker) = dependencies_of(&name);
        Page::new(&name, &format!("mend lab figure {name}"), paths, maker)
    };
    figure::names().into_iter().map(page).collect()
}

/// Returns the page of this name.
pub(crate) fn named(name: &str) -> Option<Page> {
    all().into_iter().find(|page| page.name == name)
}

/// Returns the paths on which a figure depends, and its maker.
fn dependencies_of(figure: &str) -> (Vec<String>, Maker) {
    if let Some(paths) = figure::simulated_paths(figure) {
        return (paths, Maker::Lab);
    }
    if let Some((transfers, more)) = figure::own_paths(figure) {
        let transfers = if transfers { &TRANSFERS[..] } else { &[] };
        return (strings(&[transfers, more].concat()), Maker::Lab);
    }
    let coordination = if figure::uses_coordinator(figure) { &COORDINATION[..] } else { &[] };
    (strings(&[&TRANSFERS[..], coordination].concat()), Maker::Scenario)
}

fn strings(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

/// Returns the paragraph on a page whose measurement was not reliable.
pub(crate) fn unreliable(doubt: &str) -> String {
    format!("{UNRELIABLE}{doubt}.**\n\n")
}

impl Page {
    fn new(name: &str, command: &str, paths: Vec<String>, maker: Maker) -> Self {
        Self { name: name.to_owned(), command: command.to_owned(), paths, maker }
    }

    fn file(&self, pages: &Path) -> PathBuf {
        pages.join(format!("{}.md", self.name))
    }

    /// Returns the file with the scenario that the page measures.
    fn scenario_file(&self) -> Option<String> {
        (self.maker == Maker::Scenario).then(|| format!("lab/figures/{}.toml", self.name))
    }

    /// Returns the section of the page that names its command and the paths on which it depends.
    pub(crate) fn provenance(&self) -> String {
        let scenario = self.scenario_file().map(|file| format!("the scenario in `{file}`"));
        let paths = self.paths.iter().map(|path| format!("`{path}`"));
        let all: Vec<String> = scenario.into_iter().chain(paths).collect();
        let command = &self.command;
        format!("\n## Provenance\n\nMade by `{command}`. This page depends on {}.\n", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_of_results_is_a_page_that_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let known: Vec<String> = all().into_iter().map(|page| page.name).collect();
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_page = file.extension() == Some("md".as_ref()) && name != "README";
            assert!(!is_page || known.contains(&name), "{name} is not listed");
        }
    }

    #[test]
    fn every_page_has_a_command_and_existing_paths() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for page in all() {
            assert!(page.file(&root.join("docs/results")).is_file(), "{}", page.name);
            for path in page.paths.iter().chain(&page.scenario_file()) {
                assert!(root.join(path).exists(), "{}: {path}", page.name);
            }
        }
    }

    /// The modules of the lab that name, compute with and show results, and on which no time depends.
    const PRESENTATION: [&str; 14] = [
        "checkout",
        "command",
        "error",
        "figure",
        "figures",
        "finding",
        "folders",
        "kept",
        "machine",
        "model",
        "pages",
        "parts",
        "plan_cost",
        "report",
    ];

    /// Returns the Rust files at a path of the repository.
    fn files_at(path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|entry| files_at(&entry))
            .filter(|file| file.extension() == Some("rs".as_ref()))
            .collect()
    }

    /// Returns the modules of the lab that a file names, by `crate::MODULE`.
    fn modules_of(text: &str) -> Vec<String> {
        let is_letter = |letter: &char| letter.is_ascii_lowercase() || *letter == '_';
        let name = |rest: &str| rest.chars().take_while(is_letter).collect::<String>();
        text.split("crate::").skip(1).map(name).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn measured_pages_depend_on_every_module_that_their_measurement_uses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let measured = |page: &Page| page.paths.iter().any(|path| path == "crates/lab/src/run");
        let mut pages = 0;
        for page in all().iter().filter(|page| measured(page)) {
            pages += 1;
            let is_covered = |module: &str| {
                let file = format!("crates/lab/src/{module}.rs");
                let folder = format!("crates/lab/src/{module}");
                PRESENTATION.contains(&module)
                    || page.paths.iter().any(|path| *path == file || *path == folder)
            };
            for path in page.paths.iter().filter(|path| path.starts_with("crates/lab/src/")) {
                for file in files_at(&root.join(path)) {
                    for module in modules_of(&fs::read_to_string(&file).unwrap()) {
                        assert!(is_covered(&module), "{}: {module}, used by {}", page.name, file.display());
                    }
                }
            }
        }
        assert!(pages > 20, "{pages} pages are measured");
        assert_eq!(modules_of("use crate::run::Say;\ncrate::Row"), ["run"]);
    }

    #[test]
    fn repairs_onto_nodes_depend_on_the_coordinator() {
        let depends = |name: &str| named(name).unwrap().paths.contains(&"crates/control".to_owned());
        assert!(depends("timeslots-9-6") && depends("ppr-7e"));
        assert!(!depends("tos21-8a"));
    }

    #[test]
    fn pages_state_their_command_and_paths() {
        let text = named("tos21-8a").unwrap().provenance();
        for part in
            ["`mend lab figure tos21-8a`", "the scenario in `lab/figures/tos21-8a.toml`", "`crates/gf`"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!named("nodes").unwrap().provenance().contains("scenario in"));
    }
}
