//! Whether a page is fresh: measured reliably on a commit of the branch main, without local changes, while no
//! later commit has changed what it measures.

use std::fmt;
use std::fs;
use std::path::Path;

use super::{Maker, Page, UNRELIABLE, all, named};
use crate::checkout::Checkout;
use crate::figure;

/// The files in the paths of pages that measure nothing: they lay out tables, compare numbers with those of
/// papers, or are tests.
const LAYOUT: [&str; 8] = [
    ":(exclude,glob)crates/lab/src/**/finding.rs",
    ":(exclude,glob)crates/lab/src/**/page.rs",
    ":(exclude,glob)crates/lab/src/**/papers.rs",
    ":(exclude,glob)crates/lab/src/**/results.rs",
    ":(exclude,glob)crates/lab/src/**/tables.rs",
    ":(exclude,glob)crates/lab/src/**/targets.rs",
    ":(exclude,glob)crates/**/tests/**",
    ":(exclude,glob)crates/**/tests.rs",
];

/// Whether a page is up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// The page is a text whose sections name their own versions.
    NotChecked,
    /// The page does not exist.
    Missing,
    /// The page states no commit.
    NoCommit,
    /// The page says that its figures are not reliable.
    Unreliable,
    /// The page was measured with changes that were not committed.
    Modified,
    /// The page was measured on a commit that is not on the branch main.
    Elsewhere,
    /// So many later commits changed paths on which the page depends.
    Stale(u32),
    /// The figure has another scenario now.
    OtherScenario,
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh"),
            Self::NotChecked => f.write_str("not checked: its sections name their own commits"),
            Self::Missing => f.write_str("missing"),
            Self::NoCommit => f.write_str("unknown: states no commit"),
            Self::Unreliable => f.write_str("not reliable"),
            Self::Modified => f.write_str("measured with local changes"),
            Self::Elsewhere => f.write_str("measured on a commit that is not on the branch main"),
            Self::Stale(1) => f.write_str("stale: 1 later commit changed what it measures"),
            Self::Stale(commits) => write!(f, "stale: {commits} later commits changed what it measures"),
            Self::OtherScenario => f.write_str("stale: its scenario has changed"),
        }
    }
}

impl Page {
    /// Compares the page with the history of a checkout.
    pub(crate) fn freshness(&self, pages: &Path, checkout: &Checkout) -> Freshness {
        if self.maker == Maker::Sections {
            return Freshness::NotChecked;
        }
        let Ok(text) = fs::read_to_string(self.file(pages)) else { return Freshness::Missing };
        let Some((commit, is_modified)) = commit_of(&text) else { return Freshness::NoCommit };
        if text.contains(UNRELIABLE) {
            Freshness::Unreliable
        } else if is_modified {
            Freshness::Modified
        } else if !checkout.keeps(&commit) {
            Freshness::Elsewhere
        } else {
            self.changes_since(&commit, checkout)
        }
    }

    fn changes_since(&self, commit: &str, checkout: &Checkout) -> Freshness {
        let range = format!("{commit}..HEAD");
        let mut arguments = vec!["rev-list", "--count", &range, "--"];
        arguments.extend(self.paths.iter().map(String::as_str).chain(LAYOUT));
        match checkout.git(&arguments).and_then(|count| count.parse().ok()) {
            Some(0) if self.has_scenario_of(commit, checkout) => Freshness::Fresh,
            Some(0) => Freshness::OtherScenario,
            Some(commits) => Freshness::Stale(commits),
            None => Freshness::Elsewhere,
        }
    }

    /// Whether the page has the same scenario as at a commit; true for a page without one.
    fn has_scenario_of(&self, commit: &str, checkout: &Checkout) -> bool {
        let Some(file) = self.scenario_file() else { return true };
        let text_at = |commit: &str| checkout.git(&["show", &format!("{commit}:{file}")]);
        text_at(commit).zip(text_at("HEAD")).is_some_and(|(then, now)| figure::is_same_scenario(&then, &now))
    }

    /// Whether a page in this state is as good as it gets. A text around the output of another program may
    /// omit the commit.
    fn accepts(&self, state: &Freshness) -> bool {
        match state {
            Freshness::Fresh | Freshness::NotChecked => true,
            Freshness::NoCommit => self.maker == Maker::Outside,
            _ => false,
        }
    }
}

/// Returns the state of each page as a line, and whether none has to be made again.
pub(crate) fn check(pages: &Path) -> (String, bool) {
    let checkout = Checkout::here();
    let (mut text, mut is_fresh) = (String::new(), true);
    for page in all() {
        let state = page.freshness(pages, &checkout);
        is_fresh &= page.accepts(&state);
        text += &format!("{:<28} {state} ({})\n", page.name, page.command);
    }
    (text, is_fresh)
}

/// Whether the page of this name is fresh.
pub(crate) fn is_fresh(name: &str, pages: &Path) -> bool {
    named(name).is_some_and(|page| page.freshness(pages, &Checkout::here()) == Freshness::Fresh)
}

/// Returns the first commit that a page states, as it states it; `None` if there is no page or no commit on
/// it.
pub(crate) fn stated_commit(page: &Path) -> Option<String> {
    let (commit, is_modified) = commit_of(&fs::read_to_string(page).ok()?)?;
    Some(if is_modified { commit + "+" } else { commit })
}

/// Returns the first commit that a page states, and whether there were local changes.
pub(super) fn commit_of(page: &str) -> Option<(String, bool)> {
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
    use crate::checkout::tests::Repository;

    const SCENARIO: &str = "[figure]\nname = \"x\"\nnote = \"N.\"\n[[figure.claim]]\ndifference = \"D.\"\n[scenario]\n\
                            name = \"x\"\nschemes = \"auto\"\ncode = \"rs-3-2\"\nblock_bytes = \"1MiB\"\n\
                            [scenario.topology]\nnodes = 3\nrate = \"1gbit\"\n";

    fn page(maker: Maker) -> Page {
        let paths = ["crates/gf", "crates/lab/src/hdfs"].map(str::to_owned);
        Page::new("x", "mend lab figure x", paths.into(), maker)
    }

    /// Returns the freshness of a page with this text in a repository.
    fn freshness(page: &Page, text: &str, repository: &Repository) -> Freshness {
        let file = repository.write("docs/results/x.md", text);
        page.freshness(file.parent().unwrap(), &repository.checkout())
    }

    #[test]
    fn a_page_states_its_commit() {
        assert_eq!(commit_of("commit 0123456789ab+."), Some(("0123456789ab".to_owned(), true)));
        let later = "a commit of today, commit 94f43d6e23ac; x";
        assert_eq!(commit_of(later), Some(("94f43d6e23ac".to_owned(), false)));
        assert_eq!(commit_of("no commit"), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.md");
        assert_eq!(stated_commit(&file), None);
        fs::write(&file, "commit 0123456789ab+.").unwrap();
        assert_eq!(stated_commit(&file).as_deref(), Some("0123456789ab+"));
    }

    #[test]
    fn pages_without_a_usable_commit_are_not_fresh() {
        let repository = Repository::new();
        let page = page(Maker::Lab);
        let nowhere = repository.checkout();
        assert_eq!(page.freshness("/nowhere".as_ref(), &nowhere), Freshness::Missing);
        let commit = repository.commit_of_code();
        let unreliable = super::super::unreliable("it rained");
        for (text, state) in [
            ("nothing".to_owned(), Freshness::NoCommit),
            (format!("commit {commit}+."), Freshness::Modified),
            ("commit 0123456789ab.".to_owned(), Freshness::Elsewhere),
            (format!("{unreliable}commit {commit}."), Freshness::Unreliable),
            (format!("commit {commit}."), Freshness::Fresh),
        ] {
            assert_eq!(freshness(&page, &text, &repository), state, "{text}");
        }
    }

    #[test]
    fn commits_outside_of_main_may_be_lost() {
        let repository = Repository::new();
        repository.git(&["switch", "--quiet", "--create", "work"]);
        repository.write("crates/gf/lib.rs", "two");
        let text = format!("commit {}.", repository.commit());
        assert_eq!(freshness(&page(Maker::Lab), &text, &repository), Freshness::Elsewhere);
        repository.git(&["branch", "--force", "main"]);
        assert_eq!(freshness(&page(Maker::Lab), &text, &repository), Freshness::Fresh);
    }

    #[test]
    fn commits_make_pages_stale_if_they_change_measured_code() {
        let repository = Repository::new();
        let page = page(Maker::Lab);
        let text = format!("commit {}.", repository.commit_of_code());
        let after = |file: &str| {
            repository.write(file, "changed");
            repository.commit();
            freshness(&page, &text, &repository)
        };
        for file in [
            "crates/other/lib.rs",
            "crates/lab/src/hdfs/page.rs",
            "crates/lab/src/hdfs/deep/tables.rs",
            "crates/gf/tests/table.rs",
            "crates/gf/src/kernel/tests.rs",
        ] {
            assert_eq!(after(file), Freshness::Fresh, "{file}");
        }
        assert_eq!(after("crates/lab/src/hdfs/reads.rs"), Freshness::Stale(1));
        assert_eq!(after("crates/gf/lib.rs"), Freshness::Stale(2));
    }

    #[test]
    fn the_prose_of_a_figure_can_be_edited_after_the_measurement() {
        let repository = Repository::new();
        let page = page(Maker::Scenario);
        let with = |scenario: &str| {
            repository.write("lab/figures/x.toml", scenario);
            repository.commit()
        };
        let text = format!("commit {}.", with(SCENARIO));
        with(&SCENARIO.replace("N.", "A longer note.").replace("D.", "Another reason."));
        assert_eq!(freshness(&page, &text, &repository), Freshness::Fresh);
        with(&SCENARIO.replace("rs-3-2", "rs-4-2"));
        assert_eq!(freshness(&page, &text, &repository), Freshness::OtherScenario);
        with(&SCENARIO.replace("[figure]", "[figure]\ntime_model = true"));
        assert_eq!(freshness(&page, &text, &repository), Freshness::OtherScenario);
    }

    #[test]
    fn texts_may_omit_the_commit_and_measurements_may_not() {
        let repository = Repository::new();
        let state = |maker| freshness(&page(maker), "a text", &repository);
        assert_eq!(state(Maker::Sections), Freshness::NotChecked);
        for maker in [Maker::Scenario, Maker::Lab, Maker::Outside] {
            assert_eq!(state(maker), Freshness::NoCommit);
            assert_eq!(page(maker).accepts(&Freshness::NoCommit), maker == Maker::Outside);
        }
        assert!(page(Maker::Sections).accepts(&Freshness::NotChecked));
        assert!(!page(Maker::Outside).accepts(&Freshness::Stale(1)));
        let (text, _) = check("/nowhere".as_ref());
        assert!(text.contains("control ") && text.contains("not checked"), "{text}");
    }
}
