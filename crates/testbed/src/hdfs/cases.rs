//! Runs tests that share one HDFS cluster.

use std::process::ExitCode;

use super::install::Hadoop;
use crate::{Cases, inside_namespace, run_cases};

/// Installs Hadoop, boots a cluster in a network namespace of its own, and runs the tests. If the cluster
/// does not boot, the run fails; `MEND_SKIP=hdfs` skips the tests.
pub fn run_hdfs_cases<W: Send + 'static>(boot: impl FnOnce(Hadoop) -> W, cases: Cases<W>) -> ExitCode {
    let boot = || {
        let hadoop = Hadoop::install()?;
        inside_namespace()?;
        Ok(boot(hadoop))
    };
    run_cases("HDFS", boot, cases)
}
