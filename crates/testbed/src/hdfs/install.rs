//! Hadoop's jars, installed now if they were not.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Hadoop is.
#[derive(Clone, Debug)]
pub struct Hadoop {
    classpath: String,
    archive: PathBuf,
    mend: PathBuf,
    optimized: bool,
}

impl Hadoop {
    /// Installs it in `$MEND_HADOOP`, or in `target/hdfs`.
    ///
    /// # Errors
    /// What is missing, for people.
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

    /// The same with all of the JVM's compilers, as people run it: daemons start slower and run faster.
    pub fn optimized(self) -> Self {
        Self { optimized: true, ..self }
    }

    /// Mend's own jar, for the class path of daemons that load the plug-in.
    pub(crate) fn mend_jar(&self) -> &Path {
        &self.mend
    }

    /// The class path of programs that ask a cluster, with Mend's jar on it.
    pub(crate) fn classpath(&self) -> String {
        format!("{}:{}", self.classpath, self.mend.display())
    }

    /// What `java` is told before the name of a class. The archive of classes is only good for this class path, so more
    /// is appended to it.
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
