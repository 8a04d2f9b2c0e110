//! [`Kind`]: how the binary reads the settings of a kind of store, opens the store and runs `mend attach`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use clap::{ArgMatches, Command};
use cluster::{Cluster, HelperConfig, HelperSettings, NewCluster, OwnRepair};
use store_api::{Blocks, SharedRecords, Storage};

/// A kind of attached store. The store's crate implements this trait, and the table in the crate `stores`
/// lists the implementation.
pub trait Kind: Sync {
    /// Returns the kind's name: `kind` in `[store]` of `mend.toml`, and the subcommand of `mend attach`.
    fn name(&self) -> &'static str;

    /// Reads and checks the settings in `[store]`. Returns the coordinator's automatic reaction to
    /// damage.
    ///
    /// # Errors
    /// [`KindError`] for an unknown key or value.
    fn own_repair(&self, cluster: &Cluster) -> Result<OwnRepair, KindError>;

    /// Reads the settings in each `[[helper]]`. Returns the helpers' names, keyed by the address of the
    /// store's server on the same machine.
    ///
    /// # Errors
    /// [`KindError`] for an unknown key or value.
    fn servers(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>, KindError>;

    /// Opens the coordinator's storage over these records, on a thread that may block. Unless `own_repair` is
    /// [`OwnRepair::Auto`], the storage repairs nothing in the store without being asked.
    ///
    /// # Errors
    /// [`KindError`].
    fn storage(
        &self,
        cluster: &Cluster,
        records: SharedRecords,
        own_repair: OwnRepair,
    ) -> Result<Storage, KindError>;

    /// Opens a helper's blocks, on a thread that may block.
    ///
    /// # Errors
    /// [`KindError`].
    fn blocks(&self, cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError>;

    /// Returns the command line of `mend attach NAME`.
    fn command(&self) -> Command;

    /// Runs `mend attach NAME`: creates a cluster folder, still without records, for a running system.
    /// `folder` is the value of `--cluster`.
    fn attach<'a>(&'a self, folder: Option<PathBuf>, args: &'a ArgMatches) -> Attaching<'a>;
}

/// Reads a helper's settings for this kind of store.
///
/// # Errors
/// [`KindError`], also if the helper was removed from `mend.toml`.
pub fn settings_of<T: HelperSettings>(cluster: &Cluster, helper: &HelperConfig) -> Result<T, KindError> {
    let settings = cluster.helper_settings()?.remove(&helper.name);
    settings.ok_or_else(|| KindError::new(format!("mend.toml has no helper {} any more", helper.name)))
}

/// `mend attach` in progress.
pub type Attaching<'a> = Pin<Box<dyn Future<Output = Result<Attached, KindError>> + 'a>>;

/// The cluster folder that `mend attach` creates for a running system.
pub struct Attached {
    /// The cluster, still without records.
    pub cluster: NewCluster,
    /// The findings for the operator.
    pub findings: Findings,
}

/// The result of `mend attach`.
pub struct Findings {
    /// Findings and next steps as text for the operator.
    pub text: String,
    /// The findings and next steps as JSON.
    pub facts: serde_json::Value,
}

/// Why a store cannot be opened or attached.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct KindError {
    /// The error message.
    pub message: String,
    /// The operator's next step, if the message does not name it.
    pub help: Option<String>,
    /// Whether the cause is that the system cannot be reached.
    pub is_unreachable: bool,
}

impl KindError {
    /// Creates an error with this message.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), help: None, is_unreachable: false }
    }

    /// Adds the operator's next step.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Marks the error as caused by a system that cannot be reached.
    #[must_use]
    pub fn unreachable(self) -> Self {
        Self { is_unreachable: true, ..self }
    }
}

/// Converts errors whose messages already name the next step.
macro_rules! plain {
    ($($error:ty),* $(,)?) => { $(
        impl From<$error> for KindError {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )* };
}

plain!(
    cluster::AddHelperError,
    cluster::InitError,
    cluster::OpenError,
    store_api::BlockError,
    store_api::OpenError,
);
