//! `mend lab figures`: measures or redraws many figures, one after the other. The others go on after one has
//! failed, and the index is written after each, so a run may be interrupted at any time.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::checkout::{Checkout, require_publishable};
use crate::command::remove_own_lab;
use crate::error::LabError;
use crate::figure;
use crate::folders::Folders;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::pages::{self, Freshness, Page};
use crate::run::Say;

/// Measures the figures whose pages are not fresh.
///
/// # Errors
/// If the index cannot be written.
pub(crate) fn measure_stale(
    names: &Names,
    programs: &Programs,
    folders: &Folders,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let checkout = Checkout::here();
    let is_fresh = |page: &Page| page.freshness(&folders.pages, &checkout) == Freshness::Fresh;
    let (fresh, stale): (Vec<Page>, Vec<Page>) = pages::figures().into_iter().partition(is_fresh);
    say(&format!("{} figures are fresh, and {} are not", fresh.len(), stale.len()));
    for_each(&stale, folders, say, |page, say| {
        // Somebody may have changed the code or built the programs again since the last figure.
        require_publishable(&folders.pages, &programs.lab, Some(&programs.mend))?;
        let measured = caught(|| figure::measure(names, programs, &page.name, folders, None, say));
        if measured.is_err() {
            remove_own_lab(names);
        }
        measured
    })
}

/// Redraws the figures that have reports, unless their pages were measured on another commit than the report.
///
/// # Errors
/// If the index cannot be written.
pub(crate) fn redraw(folders: &Folders, say: Say<'_>) -> Result<ExitCode, LabError> {
    let (same, other): (Vec<Page>, Vec<Page>) = pages::figures()
        .into_iter()
        .filter(|page| folders.report(&page.name).exists())
        .partition(|page| has_report_of_page(&page.name, folders));
    for page in other {
        say(&format!("{} is not redrawn: its report is of another commit than the page", page.name));
    }
    for_each(&same, folders, say, |page, _| figure::redraw(&page.name, folders))
}

/// Whether the report of a figure has the commit that the page states, if the page states one.
fn has_report_of_page(name: &str, folders: &Folders) -> bool {
    let stated = pages::stated_commit(&folders.page(name, "md"));
    stated.is_none() || stated == reported_commit(name, folders)
}

fn reported_commit(name: &str, folders: &Folders) -> Option<String> {
    let report: serde_json::Value = serde_json::from_slice(&fs::read(folders.report(name)).ok()?).ok()?;
    Some(report["machine"]["commit"].as_str()?.to_owned())
}

/// Carries out `work` for each page and lists the failures at the end. Stops early if nothing can be
/// published.
fn for_each(
    figures: &[Page],
    folders: &Folders,
    say: Say<'_>,
    mut work: impl FnMut(&Page, Say<'_>) -> Result<(), LabError>,
) -> Result<ExitCode, LabError> {
    let mut failures = Vec::new();
    for (at, page) in figures.iter().enumerate() {
        say(&format!("{} of {}: {}", at + 1, figures.len(), page.name));
        let done = work(page, &mut *say);
        let is_over = matches!(done, Err(LabError::Publish(_)));
        if let Err(error) = done {
            say(&format!("failed: {error}"));
            failures.push(format!("{}: {error}", page.name));
        }
        write_index(folders)?;
        if is_over {
            break;
        }
    }
    Ok(summed_up(&failures, figures.len(), say))
}

/// Writes the index, if the pages have a README.
fn write_index(folders: &Folders) -> Result<(), LabError> {
    if folders.page("README", "md").exists() { pages::write_index(&folders.pages) } else { Ok(()) }
}

fn summed_up(failures: &[String], figures: usize, say: Say<'_>) -> ExitCode {
    if failures.is_empty() {
        say(&format!("done: {figures} figures"));
        return ExitCode::SUCCESS;
    }
    say(&format!("{} of {figures} figures failed; `mend lab figures` tries them again:", failures.len()));
    failures.iter().for_each(|failure| say(&format!("  {failure}")));
    ExitCode::FAILURE
}

/// Makes a panic, which has been printed, an error.
fn caught(work: impl FnOnce() -> Result<(), LabError>) -> Result<(), LabError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(LabError::Panicked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout::PublishError;

    fn folders(folder: &tempfile::TempDir) -> Folders {
        Folders { pages: folder.path().join("pages"), reports: folder.path().join("reports") }
    }

    /// Carries out `work` for three figures; returns the figures that had their turn, the exit code and the
    /// messages.
    fn run(work: impl Fn(&str) -> Result<(), LabError>) -> (usize, ExitCode, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let figures: Vec<Page> = pages::figures().into_iter().take(3).collect();
        let (mut turns, mut messages) = (0, Vec::new());
        let mut say = |line: &str| messages.push(line.to_owned());
        let code = for_each(&figures, &folders(&folder), &mut say, |page, _| {
            turns += 1;
            work(&page.name)
        });
        (turns, code.unwrap(), messages)
    }

    fn unreliable() -> LabError {
        LabError::Unreliable { doubt: "it rained".to_owned(), report: "x.json".into() }
    }

    #[test]
    fn a_failure_does_not_end_the_run() {
        let (turns, code, messages) = run(|name| match name {
            "tos21-8a" => Err(unreliable()),
            "tos21-8b" => caught(|| panic!("in a measurement")),
            _ => Ok(()),
        });
        assert_eq!((turns, format!("{code:?}")), (3, format!("{:?}", ExitCode::FAILURE)));
        let end = messages[messages.len() - 3..].concat();
        for text in [
            "2 of 3 figures failed",
            "tos21-8a: not reliable: it rained",
            "tos21-8b: the measurement panicked",
        ] {
            assert!(end.contains(text), "{text} is not in {end}");
        }
        let (turns, code, _) = run(|_| Ok(()));
        assert_eq!((turns, format!("{code:?}")), (3, format!("{:?}", ExitCode::SUCCESS)));
    }

    #[test]
    fn the_run_ends_when_nothing_can_be_published() {
        let (turns, code, messages) =
            run(|_| Err(PublishError::LocalChanges { commit: "0123456789ab+".to_owned() }.into()));
        assert_eq!((turns, format!("{code:?}")), (1, format!("{:?}", ExitCode::FAILURE)));
        assert!(messages.concat().contains("0123456789ab+"), "{messages:?}");
    }

    #[test]
    fn the_index_is_written_after_every_figure() {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        let readme = folders.page("README", "md");
        fs::create_dir_all(&folders.pages).unwrap();
        let index =
            "<!-- The index is written by `mend lab figures --index`. -->\n<!-- The end of the index. -->\n";
        fs::write(&readme, index).unwrap();
        let figures: Vec<Page> = pages::figures().into_iter().take(2).collect();
        let is_listed = |name: &str| fs::read_to_string(&readme).unwrap().contains(&format!("[{name}]"));
        for_each(&figures, &folders, &mut |_| (), |page, _| {
            assert_eq!(is_listed(&figures[0].name), page.name != figures[0].name);
            fs::write(folders.page(&page.name, "md"), "# T: A\n").map_err(LabError::file("write", "x"))
        })
        .unwrap();
        assert!(is_listed(&figures[1].name));
    }

    #[test]
    fn only_reports_of_the_pages_commit_are_redrawn() {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        fs::create_dir_all(&folders.pages).unwrap();
        fs::create_dir_all(&folders.reports).unwrap();
        fs::write(folders.report("x"), r#"{ "machine": { "commit": "0123456789ab+" } }"#).unwrap();
        assert!(has_report_of_page("x", &folders), "a page that does not exist yet");
        for (text, is_same) in
            [("Not measured yet.", true), ("commit 0123456789ab+.", true), ("commit 0123456789ab.", false)]
        {
            fs::write(folders.page("x", "md"), text).unwrap();
            assert_eq!(has_report_of_page("x", &folders), is_same, "{text}");
        }
    }
}
