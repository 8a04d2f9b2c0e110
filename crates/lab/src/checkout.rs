//! The git checkout whose code is measured, and the check that its commit describes the programs that ran.
//!
//! A page of results states the last commit that changed the code, not HEAD, so a commit that only adds pages
//! leaves it as it is. The programs are compared with the files that cargo compiled into them, by time of
//! modification: times of commits would not do, because cargo leaves a program alone if a commit changed only
//! others, and because a merge can bring commits that are older than a program without them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The folder of the pages that the repository contains.
pub(crate) const PUBLISHED: &str = "docs/results";
/// The folders and files with the code that is measured, or that measures.
const CODE: [&str; 5] = ["crates", "java", "lab", "Cargo.toml", "Cargo.lock"];
/// The endings of files in these folders that are code even before git tracks them.
const SOURCES: [&str; 3] = [".rs", ".toml", ".java"];
/// The branch that keeps its commits.
const MAIN: &str = "refs/heads/main";
/// The file of the running program, even after another build has replaced it on disk.
const RUNNING: &str = "/proc/self/exe";

/// A git checkout.
#[derive(Debug)]
pub(crate) struct Checkout {
    folder: PathBuf,
}

/// The reason why the commit of the checkout does not describe a measurement.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Git does not know the commit.
    #[error("git knows no commit of {}", folder.display())]
    NoCommit {
        /// The folder.
        folder: PathBuf,
    },
    /// The code differs from the commit.
    #[error(
        "the code differs from commit {commit}: commit the changes in crates, java, lab and Cargo.* first"
    )]
    LocalChanges {
        /// The commit, with `+`.
        commit: String,
    },
    /// The commit may be gone once the work in progress is merged.
    #[error("commit {commit} is not on the branch main: merge it first")]
    NotOnMain {
        /// The commit.
        commit: String,
    },
    /// A program was built before its code changed.
    #[error("{} is older than {}: build it again with `{BUILD}`", program.display(), file.display())]
    Outdated {
        /// The program.
        program: PathBuf,
        /// A file that was compiled into the program.
        file: PathBuf,
    },
    /// Cargo did not build a program from this checkout.
    #[error(
        "{} was not built by cargo from the files in {}: build it with `{BUILD}`",
        program.display(),
        folder.display()
    )]
    Foreign {
        /// The program.
        program: PathBuf,
        /// The checkout.
        folder: PathBuf,
    },
}

/// The command that builds both programs.
const BUILD: &str = "cargo build --release -p cli -p lab";

/// Checks that a page in this folder may state the checkout's commit: the programs `lab` (this one) and
/// `mend` were built from it. Folders other than [`PUBLISHED`] take any page.
///
/// # Errors
/// [`PublishError`].
pub(crate) fn require_publishable(pages: &Path, lab: &Path, mend: Option<&Path>) -> Result<(), PublishError> {
    if !is_published(pages) {
        return Ok(());
    }
    let checkout = Checkout::here();
    checkout.require_settled()?;
    checkout.require_current(lab, RUNNING.as_ref())?;
    mend.map_or(Ok(()), |mend| checkout.require_current(mend, mend))
}

fn is_published(pages: &Path) -> bool {
    fs::canonicalize(pages).unwrap_or_else(|_| pages.to_owned()).ends_with(PUBLISHED)
}

impl Checkout {
    /// Returns the checkout with the current folder.
    pub(crate) fn here() -> Self {
        Self::of(Path::new("."))
    }

    /// Returns the checkout with this folder; outside of any, the folder itself, in which every question to
    /// git fails.
    pub(crate) fn of(folder: &Path) -> Self {
        let checkout = Self { folder: folder.to_owned() };
        let top = checkout.git(&["rev-parse", "--show-toplevel"]);
        top.map_or(checkout, |top| Self { folder: top.into() })
    }

    /// Runs git; returns its trimmed output, or `None` if it failed.
    pub(crate) fn git(&self, arguments: &[impl AsRef<OsStr>]) -> Option<String> {
        let mut command = Command::new("git");
        // `status` must not lock the index while somebody works in the checkout.
        command.env("GIT_OPTIONAL_LOCKS", "0").arg("-C").arg(&self.folder).args(arguments);
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns the last commit that changed the code, with `+` if the code differs from it; `None` if git
    /// knows none.
    pub(crate) fn commit(&self) -> Option<String> {
        let commit = self.git_on_code(&["log", "-1", "--format=%h", "--abbrev=12"])?;
        let status = self.git_on_code(&["status", "--porcelain", "--untracked-files=all"])?;
        let mark = if status.lines().any(is_change) { "+" } else { "" };
        (!commit.is_empty()).then(|| commit + mark)
    }

    fn git_on_code(&self, arguments: &[&str]) -> Option<String> {
        self.git(&[arguments, &["--"], &CODE].concat())
    }

    /// Whether a commit is on the branch main or, without such a branch, on the current one.
    pub(crate) fn keeps(&self, commit: &str) -> bool {
        let branch = if self.git(&["rev-parse", "--verify", MAIN]).is_some() { MAIN } else { "HEAD" };
        self.git(&["merge-base", "--is-ancestor", commit, branch]).is_some()
    }

    /// Checks that the code is that of a commit on main.
    fn require_settled(&self) -> Result<(), PublishError> {
        let folder = || self.folder.clone();
        let commit = self.commit().ok_or_else(|| PublishError::NoCommit { folder: folder() })?;
        if commit.ends_with('+') {
            Err(PublishError::LocalChanges { commit })
        } else if !self.keeps(&commit) {
            Err(PublishError::NotOnMain { commit })
        } else {
            Ok(())
        }
    }

    /// Checks that no file of which cargo built `program` has changed since. `binary` is the file of the
    /// program.
    fn require_current(&self, program: &Path, binary: &Path) -> Result<(), PublishError> {
        let foreign = || PublishError::Foreign { program: program.to_owned(), folder: self.folder.clone() };
        let built = modified(binary).ok_or_else(foreign)?;
        let files =
            sources_of(program).filter(|files| files.iter().any(|file| file.starts_with(&self.folder)));
        let is_newer = |file: &PathBuf| modified(file).is_none_or(|time| time > built);
        let newer = files.ok_or_else(foreign)?.into_iter().find(is_newer);
        newer.map_or(Ok(()), |file| Err(PublishError::Outdated { program: program.to_owned(), file }))
    }
}

/// Whether a line of `git status --porcelain` is a change of the code.
fn is_change(line: &str) -> bool {
    let is_source = || SOURCES.iter().any(|ending| line.trim_end_matches('"').ends_with(ending));
    !line.starts_with("??") || is_source()
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

/// Returns the files of this workspace that were compiled into a program, from the file that cargo writes
/// next to it; `None` if there is no such file.
fn sources_of(program: &Path) -> Option<Vec<PathBuf>> {
    let text = fs::read_to_string(program.with_extension("d")).ok()?;
    let (_, files) = text.split_once(": ")?;
    // Cargo writes a blank in a name as `\ `.
    let files = files.replace("\\ ", "\0");
    Some(files.split_whitespace().map(|file| file.replace('\0', " ").into()).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    /// A git repository in a temporary folder.
    pub(crate) struct Repository {
        folder: TempDir,
    }

    impl Repository {
        /// Creates a repository whose branch main has one commit, with a file of code.
        pub(crate) fn new() -> Self {
            let repository = Self { folder: tempfile::tempdir().unwrap() };
            repository.git(&["init", "--quiet", "--initial-branch=main"]);
            repository.write("crates/gf/lib.rs", "one");
            repository.commit();
            repository
        }

        pub(crate) fn checkout(&self) -> Checkout {
            Checkout::of(self.folder.path())
        }

        pub(crate) fn git(&self, arguments: &[&str]) -> String {
            let name = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"];
            self.checkout()
                .git(&[&name[..], arguments].concat())
                .unwrap_or_else(|| panic!("git {arguments:?}"))
        }

        /// Writes a file, and returns its path.
        pub(crate) fn write(&self, file: &str, text: &str) -> PathBuf {
            let path = self.checkout().folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        /// Returns the last commit that changed the code.
        pub(crate) fn commit_of_code(&self) -> String {
            self.checkout().commit().unwrap()
        }

        /// Commits all files; returns the commit.
        pub(crate) fn commit(&self) -> String {
            self.git(&["add", "."]);
            self.git(&["commit", "--quiet", "--message", "x"]);
            self.git(&["rev-parse", "--short=12", "HEAD"])
        }
    }

    fn age(file: &Path, seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn commits_of_pages_leave_the_commit_of_the_code() {
        let repository = Repository::new();
        let checkout = repository.checkout();
        let first = checkout.commit().unwrap();
        repository.write("docs/results/x.md", "a page");
        repository.commit();
        assert_eq!(checkout.commit(), Some(first.clone()));
        repository.write("crates/gf/lib.rs", "two");
        assert_eq!(checkout.commit(), Some(first + "+"));
        let second = repository.commit();
        assert_eq!(checkout.commit(), Some(second));
    }

    #[test]
    fn new_sources_are_local_changes_and_other_files_are_not() {
        let repository = Repository::new();
        let has_changes = || repository.commit_of_code().ends_with('+');
        repository.write("crates/gf/perf.data", "x");
        repository.write("notes.toml", "x");
        repository.write("docs/new.txt", "x");
        assert!(!has_changes());
        for file in ["crates/gf/new/ä b.rs", "lab/figures/x.toml", "java/A.java"] {
            let path = repository.write(file, "x");
            assert!(has_changes(), "{file}");
            fs::remove_file(path).unwrap();
        }
        assert!(!has_changes());
    }

    #[test]
    fn only_settled_code_is_published() {
        let repository = Repository::new();
        let checkout = repository.checkout();
        checkout.require_settled().unwrap();
        repository.write("crates/gf/lib.rs", "two");
        let refused = checkout.require_settled().unwrap_err();
        assert!(matches!(&refused, PublishError::LocalChanges { .. }), "{refused}");
        repository.git(&["switch", "--quiet", "--create", "work"]);
        let commit = repository.commit();
        let refused = checkout.require_settled().unwrap_err();
        assert!(
            matches!(&refused, PublishError::NotOnMain { commit: found } if *found == commit),
            "{refused}"
        );
        repository.git(&["branch", "--force", "main"]);
        checkout.require_settled().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let refused = Checkout::of(elsewhere.path()).require_settled().unwrap_err();
        assert!(matches!(&refused, PublishError::NoCommit { .. }), "{refused}");
    }

    #[test]
    fn without_a_branch_main_the_current_one_keeps_commits() {
        let repository = Repository::new();
        repository.git(&["branch", "--move", "trunk"]);
        let checkout = repository.checkout();
        assert!(checkout.keeps(&repository.commit_of_code()));
        assert!(!checkout.keeps("0123456789ab"));
    }

    #[test]
    fn a_program_that_is_older_than_its_code_is_refused() {
        let repository = Repository::new();
        let checkout = repository.checkout();
        let program = repository.write("target/release/mend", "");
        let require = || checkout.require_current(&program, &program);
        let refused = require().unwrap_err();
        assert!(matches!(&refused, PublishError::Foreign { .. }), "{refused}");
        let files = ["crates/gf/lib.rs", "crates/a file.rs"].map(|file| repository.write(file, ""));
        files.iter().for_each(|file| age(file, 100));
        age(&program, 50);
        let [one, other] = files.each_ref().map(|file| file.display().to_string().replace(' ', "\\ "));
        repository.write("target/release/mend.d", &format!("{}: {one} {other}\n", program.display()));
        require().unwrap();
        // Code that is not compiled into the program does not matter.
        repository.write("crates/other/lib.rs", "new");
        require().unwrap();
        age(&files[1], 10);
        let refused = require().unwrap_err().to_string();
        assert!(refused.contains("a file.rs") && refused.contains("-p cli -p lab"), "{refused}");
        fs::remove_file(&files[1]).unwrap();
        assert!(require().is_err(), "a file was removed");
    }

    #[test]
    fn a_program_of_another_checkout_is_refused() {
        let [here, there] = [Repository::new(), Repository::new()];
        let program = there.write("target/release/mend", "");
        let source = there.write("crates/gf/lib.rs", "");
        age(&source, 100);
        there.write("target/release/mend.d", &format!("{}: {}\n", program.display(), source.display()));
        there.checkout().require_current(&program, &program).unwrap();
        let refused = here.checkout().require_current(&program, &program).unwrap_err();
        assert!(matches!(&refused, PublishError::Foreign { .. }), "{refused}");
    }

    #[test]
    fn only_the_repositorys_pages_are_protected() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = Path::new("/nowhere/mend-lab");
        require_publishable(folder.path(), nothing, None).unwrap();
        let published = folder.path().join(PUBLISHED);
        fs::create_dir_all(&published).unwrap();
        assert!(is_published(&published) && is_published(Path::new(PUBLISHED)));
        assert!(is_published(&published.join("../results")));
    }
}
