//! The pages of results: the command that makes each, whether the code that it measures has changed since, and the
//! index of the figures.
//!
//! A page is fresh if it was measured on a commit of the branch main, without local changes, and if no later commit
//! changed a path on which it depends.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::error::LabError;
use crate::figure;

/// The paths on which every measured transfer of blocks depends: Mend's own, then the lab's, which shape the
/// network, run the schemes and take the times.
const TRANSFERS: [&str; 24] = [
    "crates/gf",
    "crates/codes",
    "crates/repair",
    "crates/helper",
    "crates/client",
    "crates/stores/dir",
    "crates/stores/block-files",
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
/// The paths on which repairs of many stripes depend in addition.
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
/// Those of them that compare numbers of papers with ours.
const WITH_CLAIMS: [&str; 1] = ["hdfs-raid"];
/// The pages that other programs than the lab make: name, command, and all paths on which they depend.
const OUTSIDE: [(&str, &str, &[&str]); 4] = [
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
    (
        "control",
        "cargo test --release -p control measure -- --ignored --nocapture",
        &["crates/control", "crates/recovery", "crates/views"],
    ),
    ("encoding", "cargo bench -p repair --bench encode", &["crates/gf", "crates/codes", "crates/repair"]),
    (
        "simulator",
        "cargo run --release -p sim --example seeds",
        &["crates/sim/src/system", "crates/sim/examples/seeds.rs"],
    ),
];
/// The beginning of a paragraph which says that a page has to be measured again. The next measurement removes it.
const STALE: &str = "\n**Stale";
/// The beginning of a page that waits for its first measurement.
const NOT_MEASURED: &str = "\nNot measured yet";
/// The lines of the README between which the index stands.
const INDEX_BEGINS: &str = "<!-- The index is written by `mend lab figures --index`. -->";
const INDEX_ENDS: &str = "<!-- The end of the index. -->";

/// A page of results.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    /// The command that makes it.
    pub(crate) command: String,
    /// The paths on which its figures depend.
    paths: Vec<String>,
}

/// Whether a page is up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// The page does not exist.
    Missing,
    /// The page states no commit.
    NoCommit,
    /// The page was measured with changes that were not committed.
    Modified,
    /// The page was measured on a commit that is not on the branch main.
    Elsewhere,
    /// So many later commits changed paths on which the page depends.
    Stale(u32),
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh"),
            Self::Missing => f.write_str("missing"),
            Self::NoCommit => f.write_str("states no commit"),
            Self::Modified => f.write_str("measured with local changes"),
            Self::Elsewhere => f.write_str("measured on a commit that is not on the branch main"),
            Self::Stale(1) => f.write_str("stale: 1 later commit changed what it measures"),
            Self::Stale(commits) => write!(f, "stale: {commits} later commits changed what it measures"),
        }
    }
}

/// Returns all pages: figures, then the others.
pub(crate) fn all() -> Vec<Page> {
    let strings = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
    let figures = figure::names().into_iter().map(|name| {
        let measured = || {
            let (transfers, more) = match figure::own_paths(&name) {
                Some((transfers, more)) => (transfers, strings(more)),
                None => (true, vec![format!("lab/figures/{name}.toml")]),
            };
            let transfers = strings(if transfers { &TRANSFERS } else { &[] });
            let coordination = strings(if figure::has_policy(&name) { &COORDINATION } else { &[] });
            [transfers, coordination, more].concat()
        };
        let paths = figure::simulated_paths(&name).unwrap_or_else(measured);
        Page { command: format!("mend lab figure {name}"), name, paths }
    });
    let others = OTHERS.iter().map(|&(name, command, more)| Page {
        name: name.to_owned(),
        command: command.to_owned(),
        paths: strings(&[&TRANSFERS[..], &COORDINATION, more].concat()),
    });
    let outside = OUTSIDE.iter().map(|&(name, command, paths)| Page {
        name: name.to_owned(),
        command: command.to_owned(),
        paths: strings(paths),
    });
    figures.chain(others).chain(outside).collect()
}

impl Page {
    /// Compares the page with the history of the checkout in the current folder.
    pub(crate) fn freshness(&self, pages: &Path) -> Freshness {
        let Ok(text) = fs::read_to_string(self.file(pages)) else { return Freshness::Missing };
        let Some((commit, is_modified)) = commit_of(&text) else { return Freshness::NoCommit };
        if is_modified {
            return Freshness::Modified;
        }
        let checkout = Checkout::here();
        if !checkout.keeps(&commit) {
            return Freshness::Elsewhere;
        }
        let range = format!("{commit}..HEAD");
        let mut arguments = vec!["rev-list", "--count", &range, "--"];
        arguments.extend(self.paths.iter().map(String::as_str));
        match checkout.git(&arguments).and_then(|count| count.parse().ok()) {
            Some(0) => Freshness::Fresh,
            Some(commits) => Freshness::Stale(commits),
            None => Freshness::Elsewhere,
        }
    }

    fn file(&self, pages: &Path) -> PathBuf {
        pages.join(format!("{}.md", self.name))
    }
}

/// Returns the state of each page as a line, and whether all are fresh.
pub(crate) fn check(pages: &Path) -> (String, bool) {
    let states: Vec<(Page, Freshness)> = all()
        .into_iter()
        .map(|page| (page.freshness(pages), page))
        .map(|(state, page)| (page, state))
        .collect();
    let line = |(page, state): &(Page, Freshness)| format!("{:<28} {state} ({})\n", page.name, page.command);
    let is_fresh = states.iter().all(|(_, state)| *state == Freshness::Fresh);
    (states.iter().map(line).collect(), is_fresh)
}

/// Writes the index of the figures, and of other pages with numbers of papers, into the README of the pages, from the
/// claims on the pages.
///
/// # Errors
/// If the README cannot be read or written, or has no place for the index.
pub(crate) fn write_index(pages: &Path) -> Result<(), LabError> {
    let readme = pages.join("README.md");
    let text = fs::read_to_string(&readme).map_err(LabError::file("read", &readme))?;
    let place = text.split_once(INDEX_BEGINS).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(INDEX_ENDS)?;
        Some((before, after))
    });
    let Some((before, after)) = place else {
        let missing = std::io::Error::other(format!("it lacks the line {INDEX_BEGINS}"));
        return Err(LabError::file("update", &readme)(missing));
    };
    let others = WITH_CLAIMS.iter().map(|&name| name.to_owned());
    let rows: String =
        figure::names().into_iter().chain(others).filter_map(|name| rows_of(&name, pages)).collect();
    let index = format!(
        "{INDEX_BEGINS}\n\n| page | figure | claim | the paper | here | measured |\n|---|---|---|---|---|---|\n{rows}\n"
    );
    let text = format!("{before}{index}{INDEX_ENDS}{after}");
    fs::write(&readme, text).map_err(LabError::file("write", &readme))
}

/// Returns the rows of a page in the index; `None` if the page does not exist.
fn rows_of(name: &str, pages: &Path) -> Option<String> {
    let text = fs::read_to_string(pages.join(format!("{name}.md"))).ok()?;
    let title = text.lines().next()?.trim_start_matches("# ").to_owned();
    let date = commit_of(&text)
        .and_then(|(commit, _)| Checkout::here().git(&["show", "-s", "--format=%cs", &commit]));
    let mut date = date.unwrap_or_else(|| "unknown".to_owned());
    if text.contains(STALE) {
        date += ", stale";
    }
    let row = |claim: &str, paper: &str, here: &str| {
        format!("| [{name}]({name}.md) | {title} | {claim} | {paper} | {here} | {date} |\n")
    };
    let claims = claims_of(&text);
    Some(match claims.is_empty() {
        true if text.contains(NOT_MEASURED) => row("", "", "not measured yet"),
        true => row("", "", "see the page"),
        false => claims.iter().map(|[claim, paper, here]| row(claim, paper, here)).collect(),
    })
}

/// Returns the claims in the table of a page that have a number of the paper: claim, paper, measured.
fn claims_of(page: &str) -> Vec<[String; 3]> {
    let Some((_, rest)) = page.split_once(figure::CLAIMS) else { return Vec::new() };
    let table = rest.split("\n## ").next().unwrap_or_default();
    let cells = |line: &str| -> Option<[String; 3]> {
        let cells = line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        // Further columns explain the difference; pages that were measured earlier do not have them.
        cells.take(3).collect::<Vec<_>>().try_into().ok()
    };
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.filter_map(cells).filter(|[_, paper, _]| !paper.is_empty()).collect()
}

/// Returns the first commit that a page states, and whether there were local changes.
fn commit_of(page: &str) -> Option<(String, bool)> {
    let is_hex = |letter: char| letter.is_ascii_hexdigit();
    page.match_indices("commit ").find_map(|(at, word)| {
        let rest = &page[at + word.len()..];
        let commit: String = rest.chars().take_while(|&letter| is_hex(letter)).collect();
        (commit.len() >= 7).then(|| (commit.clone(), rest[commit.len()..].starts_with('+')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# T (X'21), figure 1: A\n\nMachine: m; commit 0123456789ab+.\n\n## The paper and Mend\n\n\
                        | what | paper | here |\n| --- | --- | --- |\n| less | 9% | 8% |\n| own |  | 7 |\n\n## Next\n\n\
                        | a | b | c |\n";

    #[test]
    fn a_page_states_its_commit_and_its_claims() {
        assert_eq!(commit_of(PAGE), Some(("0123456789ab".to_owned(), true)));
        assert_eq!(
            commit_of("a commit of today, commit 94f43d6e23ac; x"),
            Some(("94f43d6e23ac".to_owned(), false))
        );
        assert_eq!(commit_of("no commit"), None);
        assert_eq!(claims_of(PAGE), [["less", "9%", "8%"].map(str::to_owned)]);
    }

    #[test]
    fn explanations_of_claims_are_not_part_of_the_index() {
        let row = |what: &str, paper: &str| figure::ClaimRow {
            what: what.to_owned(),
            paper: paper.to_owned(),
            here: "7.0%".to_owned(),
            of: "time of conventional".to_owned(),
            difference: "Unexplained.".to_owned(),
        };
        let table = figure::claims_table(vec![row("less", "9%"), row("ours", "")]);
        assert!(table.contains("Unexplained."), "{table}");
        assert_eq!(claims_of(&table), [["less", "9%", "7.0%"].map(str::to_owned)]);
    }

    #[test]
    fn the_index_contains_other_pages_with_claims() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("README.md", &format!("before\n{INDEX_BEGINS}\nold\n{INDEX_ENDS}\nafter\n"));
        write("hdfs-raid.md", PAGE);
        write("nodes.md", PAGE);
        write_index(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(
            text.contains("| [hdfs-raid](hdfs-raid.md) | T (X'21), figure 1: A | less | 9% | 8% |"),
            "{text}"
        );
        assert!(!text.contains("nodes.md") && !text.contains("old"), "{text}");
        assert!(WITH_CLAIMS.iter().all(|name| OTHERS.iter().any(|(other, ..)| other == name)));
    }

    #[test]
    fn the_index_tells_which_pages_are_not_measured() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(folder.path().join("x.md"), text).unwrap();
        write(
            "# T: A\n\nNot measured yet. `mend lab figure x` measures this figure and replaces this page.\n",
        );
        assert!(rows_of("x", folder.path()).unwrap().contains("| not measured yet | unknown |"));
        write("# T: A\n\nNumbers.\n");
        assert!(rows_of("x", folder.path()).unwrap().contains("| see the page | unknown |"));
    }

    #[test]
    fn every_file_of_results_is_a_page_that_is_checked() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let known: Vec<String> = all().into_iter().map(|page| page.name).collect();
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_page = file.extension() == Some("md".as_ref()) && name != "README";
            assert!(!is_page || known.contains(&name), "{name} is not checked");
        }
    }

    #[test]
    fn every_page_has_a_command_and_existing_paths() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for page in all() {
            assert!(page.file(&root.join("docs/results")).is_file(), "{}", page.name);
            for path in page.paths.iter().filter(|path| !path.starts_with("lab/figures/")) {
                assert!(root.join(path).exists(), "{}: {path}", page.name);
            }
        }
    }

    /// The modules of the lab that name, compute with and show results, and on which no time depends.
    const PRESENTATION: [&str; 9] =
        ["checkout", "command", "error", "figure", "machine", "model", "pages", "plan_cost", "report"];

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
    fn pages_without_a_usable_commit_are_not_fresh() {
        let folder = tempfile::tempdir().unwrap();
        let page =
            Page { name: "x".to_owned(), command: String::new(), paths: vec!["crates/lab".to_owned()] };
        assert_eq!(page.freshness(folder.path()), Freshness::Missing);
        let write = |text: &str| fs::write(folder.path().join("x.md"), text).unwrap();
        write("nothing");
        assert_eq!(page.freshness(folder.path()), Freshness::NoCommit);
        write(PAGE);
        assert_eq!(page.freshness(folder.path()), Freshness::Modified);
        write("commit 0123456789ab.");
        assert_eq!(page.freshness(folder.path()), Freshness::Elsewhere);
    }
}
