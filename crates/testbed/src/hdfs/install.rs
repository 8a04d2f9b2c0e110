//! Installs Hadoop's jars on first use.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// An installation of Hadoop.
#[derive(Clone, Debug)]
pub struct Hadoop {
    classpath: String,
    archive: PathBuf,
    mend: PathBuf,
    optimized: bool,
}

impl Hadoop {
    /// Installs Hadoop unless it is already installed. The folder is `$MEND_HADOOP`, by default
    /// `target/hdfs`.
    ///
    /// # Errors
    /// The reason for the failure, as text for users.
    pub fn install() -> Result<Self, String> {
        let folder = crate::installed("scripts/hdfs", "MEND_HADOOP", "target/hdfs")?;
        let classpath = folder.join("classpath");
        let text =
            fs::read_to_string(&classpath).map_err(|error| format!("{}: {error}", classpath.display()))?;
        Ok(Self {
            classpath: text.trim().to_owned(),
            archive: folder.join("classes.jsa"),
            mend: folder.join("mend-hdfs.jar"),
            optimized: false,
        })
    }

    /// Enables all of the JVM's compilers, as in production: daemons start slower and run faster.
    pub fn optimized(self) -> Self {
        Self { optimized: true, ..self }
    }

    /// Mend's own jar, for the class path of daemons that load Mend's classes.
    pub(crate) fn mend_jar(&self) -> &Path {
        &self.mend
    }

    /// The class path of programs that query a cluster, including Mend's jar.
    pub(crate) fn classpath(&self) -> String {
        format!("{}:{}", self.classpath, self.mend.display())
    }

    /// Returns the arguments of `java` before the class name. Further jars are appended to the class path,
    /// because the shared class archive is valid only for class paths that begin with Hadoop's.
    pub(crate) fn options(&self, heap_megabytes: u32, more_jars: &[PathBuf]) -> Vec<OsString> {
        let mut classpath = OsString::from(&self.classpath);
        for jar in more_jars {
            classpath.push(":");
            classpath.push(jar);
        }
        let archive = format!("-XX:SharedArchiveFile={}", self.archive.display());
        let heap = format!("-Xmx{heap_megabytes}m");
        let quick = (!self.optimized).then(|| "-XX:TieredStopAtLevel=1".to_owned());
        let flags =
            [archive, heap, "-XX:+UseSerialGC".to_owned()].into_iter().chain(quick).map(OsString::from);
        flags.chain(["-cp".into(), classpath]).collect()
    }
}
