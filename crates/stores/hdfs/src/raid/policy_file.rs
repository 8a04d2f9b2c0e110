//! [`PolicyFile`]: the file with the policies that the coordinator evaluates. It may be edited at any time. Pure: the
//! driver reads the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdfs_raid::{Codec, Policies};

use super::choosing::check_followed;

/// The policies of a file.
///
/// **Invariant:** a text that is not valid changes nothing: the former policies remain.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    /// The codecs whose files the coordinator repairs.
    followed: Vec<Codec>,
    /// The last content of the file, or why it could not be read.
    read: Option<Result<String, String>>,
    policies: Option<Arc<Policies>>,
    problem: Option<String>,
}

impl PolicyFile {
    /// Creates the state before the file is read. The coordinator repairs files of the codecs `followed`.
    pub fn new(path: PathBuf, followed: Vec<Codec>) -> Self {
        Self { path, followed, read: None, policies: None, problem: None }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the content of the file, or why it could not be read. Returns whether the policies have changed. There are
    /// none while the file cannot be read, so operators stop the work by renaming the file.
    pub fn take(&mut self, read: Result<String, String>) -> bool {
        if self.read.as_ref() == Some(&read) {
            return false;
        }
        let (before, path) = (self.policies.clone(), self.path.display());
        self.problem = None;
        match &read {
            Err(why) => {
                self.policies = None;
                let next =
                    "write the file, or remove `policies` from [store.raid] and restart the coordinator";
                self.problem =
                    Some(format!("files of HDFS are not encoded: cannot read {path}: {why}; {next}"));
            }
            Ok(text) => match self.parse(text) {
                Ok(policies) => self.policies = Some(Arc::new(policies)),
                Err(why) => {
                    let what = if before.is_some() {
                        "the former policies still apply"
                    } else {
                        "no policy applies"
                    };
                    self.problem = Some(format!("{path} has no valid policies, so {what}: {why}"));
                }
            },
        }
        self.read = Some(read);
        self.policies != before
    }

    fn parse(&self, text: &str) -> Result<Policies, String> {
        let policies = Policies::parse(text).map_err(|error| error.to_string())?;
        check_followed(&policies, &self.followed)?;
        Ok(policies)
    }

    /// Returns the policies that apply now.
    pub fn policies(&self) -> Option<&Arc<Policies>> {
        self.policies.as_ref()
    }

    /// Returns what is wrong with the file.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> Result<String, String> {
        Ok(format!("[[policy]]\nname = \"p\"\npaths = [\"{path}\"]\ncodec = \"rs\"\n"))
    }

    #[test]
    fn a_mistake_keeps_the_former_policies() {
        let mut file = PolicyFile::new("/c/raid.toml".into(), Codec::hdfs_raid().into());
        assert!(file.take(text("/a")) && file.problem().is_none());
        assert!(!file.take(text("/a")), "nothing has changed");
        let former = file.policies().cloned();
        assert!(!file.take(Ok("[[policy]]\nname = 1".to_owned())));
        assert_eq!(file.policies(), former.as_ref());
        let problem = file.problem().expect("it is told");
        assert!(
            problem.starts_with("/c/raid.toml has no valid policies, so the former policies still apply: "),
            "{problem}"
        );
        assert!(file.take(text("/b")) && file.problem().is_none());
        let other = "[[codec]]\nname = \"l\"\ncode = \"lrc-12-2-2\"\nparity_root = \"/l\"\n\
                     [[policy]]\nname = \"p\"\npaths = [\"/a\"]\ncodec = \"l\"\n";
        assert!(!file.take(Ok(other.to_owned())));
        let problem = file.problem().expect("it is told");
        assert!(problem.contains("policy p uses codec l"), "{problem}");
    }

    #[test]
    fn a_file_that_is_gone_stops_the_work() {
        let mut file = PolicyFile::new("raid.toml".into(), Codec::hdfs_raid().into());
        assert!(!file.take(Err("no such file".to_owned())) && file.policies().is_none());
        assert!(file.take(text("/a")));
        assert!(file.take(Err("no such file".to_owned())) && file.policies().is_none());
        assert!(file.problem().is_some_and(|it| it.contains("cannot read raid.toml: no such file")));
        assert!(file.take(text("/a")));
    }
}
