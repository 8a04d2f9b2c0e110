//! The folders for results, and which measurements may write into the usual ones.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::checkout::PUBLISHED;
use crate::error::LabError;

/// The folder for reports, which are not part of the repository because they are large and reproducible.
pub(crate) const REPORTS: &str = "target/lab";

/// The folders for results.
#[derive(Debug, Clone, Args)]
pub struct Folders {
    /// The folder for pages and drawings
    #[arg(long = "out", default_value = PUBLISHED, value_name = "DIR")]
    pub pages: PathBuf,
    /// The folder for the JSON reports, to which partial and interrupted measurements add
    #[arg(long, default_value = REPORTS, value_name = "DIR")]
    pub reports: PathBuf,
}

impl Folders {
    pub(crate) fn page(&self, name: &str, extension: &str) -> PathBuf {
        self.pages.join(format!("{name}.{extension}"))
    }

    pub(crate) fn report(&self, name: &str) -> PathBuf {
        self.reports.join(format!("{name}.json"))
    }

    /// Refuses the usual folders to a trial, whose results must not mix with those of complete measurements.
    ///
    /// # Errors
    /// [`LabError::Trial`] if this option makes the measurement a trial.
    pub(crate) fn check(&self, option: Option<&'static str>) -> Result<(), LabError> {
        match option {
            Some(option) if self.pages == Path::new(PUBLISHED) || self.reports == Path::new(REPORTS) => {
                Err(LabError::Trial { option })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the options of a command without arguments.
pub(crate) fn usual<A: Args>() -> A {
    let command = A::augment_args(clap::Command::new("usual"));
    let matches = command.try_get_matches_from(["usual"]).expect("all options have defaults");
    A::from_arg_matches(&matches).expect("all options have defaults")
}

/// Returns the first of these options whose value differs from the usual one.
pub(crate) fn first_unusual<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find(|(_, is_usual)| !is_usual).map(|(option, _)| option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_need_folders_of_their_own() {
        let usual: Folders = usual();
        assert!(usual.check(None).is_ok());
        let other = PathBuf::from("target/trial");
        let only_pages = Folders { pages: other.clone(), ..usual.clone() };
        for folders in [&usual, &only_pages] {
            let error = folders.check(Some("--blocks")).unwrap_err().to_string();
            assert!(error.contains("--blocks") && error.contains("--reports"), "{error}");
        }
        assert!(Folders { pages: other.clone(), reports: other }.check(Some("--blocks")).is_ok());
    }

    #[test]
    fn the_first_unusual_option_is_named() {
        assert_eq!(first_unusual([("--a", true), ("--b", false), ("--c", false)]), Some("--b"));
        assert_eq!(first_unusual([("--a", true)]), None);
    }
}
