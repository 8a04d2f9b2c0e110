//! A report with its file and its page, both of which are written after every repetition.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::report::{Key, Report, Run};
use super::{Results, Session, direct_send, settle};
use crate::error::LabError;
use crate::figure::plot::Drawing;
use crate::folders::Folders;
use crate::kept;
use crate::machine::Machine;
use crate::network::Network;
use crate::pages::unreliable;
use crate::topology::Rate;

/// How many bytes are sent to measure the rate of a link: enough that the shaper's burst hardly matters.
const LINK_BYTES: u64 = 64 << 20;

/// The page of a report.
pub(crate) struct Publication<D> {
    /// The name of the files of the report and the page.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The command that makes the page with default options.
    pub(crate) command: &'static str,
    /// Returns the page without its heading.
    pub(crate) text: fn(&Report<D>) -> String,
    pub(crate) drawings: fn(&Report<D>) -> Vec<Drawing>,
}

/// A report, its file, and its page.
pub(crate) struct Book<D> {
    pub(crate) report: Report<D>,
    file: PathBuf,
    page: PathBuf,
    session: Session,
    publication: Publication<D>,
}

impl<D: Serialize + DeserializeOwned> Book<D> {
    /// Reads the report, or begins one.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn open(publication: Publication<D>, folders: &Folders) -> Result<Self, LabError> {
        let file = folders.report(publication.name);
        let session = Session::this(publication.command);
        let report = kept::resume(&file, Machine::this())?;
        Ok(Self { report, file, page: folders.page(publication.name, "md"), session, publication })
    }

    /// Adds a repetition, and saves the report and the page, in case a later measurement fails. Until then, the page says that
    /// it is not complete.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn keep(&mut self, key: &Key, run: Run<D>) -> Result<(), LabError> {
        self.report.add_session(&self.session);
        self.report.add(key, run);
        kept::save(&self.report, &self.file)?;
        let warning = unreliable("the measurement has not ended");
        self.results().save(&self.text(&warning))
    }

    /// Measures the time to send `bytes` over one link, unless the report has it, once the lab's processes are idle. The links
    /// must have this rate.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn direct(&mut self, network: &Network, bytes: u64, rate: Rate) -> Result<(), LabError> {
        let rate = rate.to_string();
        if self.report.direct(bytes, &rate).is_none() {
            settle(network)?;
            let seconds = direct_send(network, bytes)?.as_secs_f64();
            self.report.add_direct(bytes, &rate, seconds);
        }
        Ok(())
    }

    /// Measures the rate of a link, unless the report has it. The links must have the nominal rate.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn link(&mut self, network: &Network, rate: Rate) -> Result<(), LabError> {
        self.direct(network, LINK_BYTES, rate)
    }

    /// Prints the page, and writes it and its drawings. The page says how many repetitions of a complete page it lacks, and which
    /// measurements are not reliable; in the latter case, the exit code is 1.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn publish(&self, lacking: usize) -> Result<ExitCode, LabError> {
        let doubt = self.report.doubt();
        let lacking = (lacking > 0)
            .then(|| format!("{lacking} repetitions that {} measures are lacking", self.publication.command));
        let warning = doubt.iter().chain(&lacking).cloned().collect::<Vec<_>>().join("; ");
        let warning = if warning.is_empty() { warning } else { unreliable(&warning) };
        self.results().publish(&self.text(&warning), &(self.publication.drawings)(&self.report))?;
        Ok(if doubt.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the page without its heading, which ends without a newline.
    fn text(&self, warning: &str) -> String {
        let begin = if warning.is_empty() { String::new() } else { format!("\n\n{}", warning.trim_end()) };
        begin + &(self.publication.text)(&self.report)
    }

    fn results(&self) -> Results {
        let title = self.publication.title;
        Results::of(title, &self.report.sessions, &self.report.machine, self.page.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Kind;
    use super::super::report::tests::run;
    use super::*;

    #[test]
    fn a_repetition_is_on_the_page_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let publication = Publication {
            name: "x",
            title: "X",
            command: "make x",
            text: |report: &Report<u8>| format!("\n\n{} cells\n", report.of(Kind::Loss).count()),
            drawings: |_| Vec::new(),
        };
        let folders = Folders { pages: folder.path().into(), reports: folder.path().into() };
        let mut book = Book::open(publication, &folders).unwrap();
        book.report.machine.commit = "0123456789ab".to_owned(); // This checkout may have local changes.
        let (code, rate, by) = ("rs-9-6".to_owned(), "200Mbit".to_owned(), "Mend".to_owned());
        book.keep(&Key { kind: Kind::Loss, code, block_bytes: 1 << 20, rate, by }, run(1.0, 7)).unwrap();
        let page = std::fs::read_to_string(folder.path().join("x.md")).unwrap();
        assert!(page.starts_with("# X\n\n`") && page.ends_with("\n\n1 cells\n"), "{page}");
        assert!(page.contains("not reliable: the measurement has not ended"), "{page}");
        let file = folder.path().join("x.json");
        let saved: Report<u8> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(saved, book.report);
        let published = |lacking| {
            book.publish(lacking).unwrap();
            std::fs::read_to_string(folder.path().join("x.md")).unwrap()
        };
        assert!(published(2).contains("not reliable: 2 repetitions that make x measures are lacking"));
        assert!(!published(0).contains("not reliable"));
    }
}
