//! The index of the figures, and of other pages with numbers of papers, in the README of the pages.

use std::fs;
use std::path::Path;

use super::freshness::commit_of;
use super::{Freshness, Page, WITH_CLAIMS, all};
use crate::checkout::Checkout;
use crate::error::LabError;
use crate::figure;
use crate::machine::MEASURED_ON;

/// The beginning of a paragraph which says that a page has to be measured again. The next measurement removes
/// it.
const STALE: &str = "\n**Stale";
/// The beginning of a page that waits for its first measurement.
const NOT_MEASURED: &str = "\nNot measured yet";
/// The lines of the README between which the index stands.
const INDEX_BEGINS: &str = "<!-- The index is written by `mend lab figures --index`. -->";
const INDEX_ENDS: &str = "<!-- The end of the index. -->";

/// Writes the index of the figures, and of other pages with numbers of papers, into the README of the pages,
/// from the claims on the pages.
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
    let index = format!(
        "{INDEX_BEGINS}\n\n| page | figure | claim | the paper | here | measured |\n|---|---|---|---|---|---|\n{}\n",
        rows(pages),
    );
    let text = format!("{before}{index}{INDEX_ENDS}{after}");
    fs::write(&readme, text).map_err(LabError::file("write", &readme))
}

fn rows(pages: &Path) -> String {
    let (checkout, figures) = (Checkout::here(), figure::names());
    let is_listed = |page: &Page| figures.contains(&page.name) || WITH_CLAIMS.contains(&&*page.name);
    all().iter().filter(|page| is_listed(page)).filter_map(|page| rows_of(page, pages, &checkout)).collect()
}

/// Returns the rows of a page in the index; `None` if the page does not exist.
fn rows_of(page: &Page, pages: &Path, checkout: &Checkout) -> Option<String> {
    let name = &page.name;
    let text = fs::read_to_string(page.file(pages)).ok()?;
    let title = text.lines().next()?.trim_start_matches("# ").to_owned();
    let measured = day_of(&text, checkout) + doubt(page, pages, &text, checkout);
    let row = |claim: &str, paper: &str, here: &str| {
        format!("| [{name}]({name}.md) | {title} | {claim} | {paper} | {here} | {measured} |\n")
    };
    let claims = claims_of(&text);
    Some(match claims.is_empty() {
        true if text.contains(NOT_MEASURED) => row("", "", "not measured yet"),
        true => row("", "", "see the page"),
        false => claims.iter().map(|[claim, paper, here]| row(claim, paper, here)).collect(),
    })
}

/// Returns the day on which a page was measured. Simulated pages and older ones state none; for these,
/// returns the day of the commit.
fn day_of(text: &str, checkout: &Checkout) -> String {
    if let Some((_, rest)) = text.split_once(MEASURED_ON) {
        return rest.chars().take("2026-11-30".len()).collect();
    }
    let commit =
        commit_of(text).and_then(|(commit, _)| checkout.git(&["show", "-s", "--format=%cs", &commit]));
    commit.map_or("unknown".to_owned(), |day| format!("commit of {day}"))
}

/// Returns the reason not to rely on the numbers of a page, as the end of a cell; empty if there is none.
fn doubt(page: &Page, pages: &Path, text: &str, checkout: &Checkout) -> &'static str {
    match page.freshness(pages, checkout) {
        _ if text.contains(STALE) => ", stale",
        Freshness::Stale(_) | Freshness::OtherScenario => ", stale",
        Freshness::Unreliable => ", not reliable",
        Freshness::Modified => ", with local changes",
        Freshness::Elsewhere => ", not on main",
        _ => "",
    }
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

#[cfg(test)]
mod tests {
    use super::super::{Maker, OTHERS};
    use super::*;
    use crate::checkout::tests::Repository;

    const PAGE: &str = "# T (X'21), figure 1: A\n\nMachine: m; commit 0123456789ab+.\n\n## The paper and Mend\n\n\
                        | what | paper | here |\n| --- | --- | --- |\n| less | 9% | 8% |\n| own |  | 7 |\n\n## Next\n\n\
                        | a | b | c |\n";

    #[test]
    fn explanations_of_claims_are_not_part_of_the_index() {
        assert_eq!(claims_of(PAGE), [["less", "9%", "8%"].map(str::to_owned)]);
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

    /// Returns the end of the row of a page with this text.
    fn last_cells(text: &str, repository: &Repository) -> String {
        let file = repository.write("docs/results/x.md", text);
        let page = Page::new("x", "", vec!["crates/gf".to_owned()], Maker::Lab);
        let rows = rows_of(&page, file.parent().unwrap(), &repository.checkout()).unwrap();
        rows.split_once(" | T: A |").unwrap().1.trim_start_matches([' ', '|']).trim_end().to_owned()
    }

    #[test]
    fn the_index_tells_which_pages_are_not_measured() {
        let repository = Repository::new();
        let waiting =
            "# T: A\n\nNot measured yet. `mend lab figure x` measures this figure and replaces this page.\n";
        assert_eq!(last_cells(waiting, &repository), "not measured yet | unknown |");
        assert_eq!(last_cells("# T: A\n\nNumbers.\n", &repository), "see the page | unknown |");
    }

    #[test]
    fn the_index_has_the_day_of_the_measurement_and_its_doubts() {
        let repository = Repository::new();
        let commit = repository.commit_of_code();
        let dated = |mark: &str| format!("# T: A\n\ncommit {commit}{mark}; measured on 2020-02-03.\n");
        assert_eq!(last_cells(&dated(""), &repository), "see the page | 2020-02-03 |");
        let modified = "see the page | 2020-02-03, with local changes |";
        assert_eq!(last_cells(&dated("+"), &repository), modified);
        let undated = last_cells(&format!("# T: A\n\ncommit {commit}.\n"), &repository);
        assert!(undated.starts_with("see the page | commit of 2"), "{undated}");
        repository.write("crates/gf/lib.rs", "two");
        repository.commit();
        assert_eq!(last_cells(&dated(""), &repository), "see the page | 2020-02-03, stale |");
        assert!(last_cells("# T: A\n\n**Stale: old.**\n", &repository).ends_with("unknown, stale |"));
    }
}
