//! The cluster folder: creates it atomically, opens it with helpful errors, and adds and removes helpers.
//!
//! ```text
//! DIR/mend.toml                      the configuration
//! DIR/ca/ca.pem  ca.key              the authority; ca.key is needed only where certificates are issued
//! DIR/coordinator/cert.pem key.pem   also holds the coordinator's catalog
//! DIR/client/cert.pem key.pem        the client `admin`; other clients are in DIR/clients/NAME
//! DIR/helpers/NAME/cert.pem key.pem  also holds the helper's blocks by default
//! ```
//!
//! A machine of the cluster needs only `mend.toml`, `ca/ca.pem` and the folder of its own role.
//! [`Cluster::open`] requires the two files, and [`Cluster::identity`] the folder.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use toml_edit::Table;

use crate::authority::{Authority, AuthorityError};
use crate::config::{new_text, store_settings, with_helpers, with_store, without_helper};
use crate::durable::{self, FileError, PUBLIC, cannot};
use crate::expiry::{expiry, lifetime};
use crate::helper_settings::{HelperSettings, helper_settings};
use crate::pair::Pair;
use crate::{
    ByteSize, ClusterId, Config, ConfigError, CoordinatorConfig, Defaults, HelperConfig, Host, Identity,
    IdentityError, IssueError, Name, RepairAfter, Role,
};

const CONFIG_FILE: &str = "mend.toml";

/// An opened cluster folder.
#[derive(Debug, Clone)]
pub struct Cluster {
    folder: PathBuf,
    config: Config,
}

/// Options of `mend init`. By default, the cluster has eighteen helpers on the loopback address of this
/// machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// The number of helpers, named `h1`, `h2`, …
    pub helpers: u16,
    /// The listen address of the coordinator and the helpers.
    pub listen_host: IpAddr,
    /// The host for others to dial; required if `listen_host` is `0.0.0.0` or `::`.
    pub advertise: Option<Host>,
    /// Port of the coordinator's API.
    pub api_port: u16,
    /// Port for the helpers' control connections to the coordinator.
    pub control_port: u16,
    /// Port of `h1`; the other helpers use the next ports. With 0, the system picks a free port for each.
    pub first_helper_port: u16,
    /// The code of new stripes.
    pub code: String,
    /// The block size of new stripes.
    pub block_bytes: ByteSize,
    /// The default repair scheme.
    pub scheme: String,
    /// Whether to encrypt data edges; with `None`, encryption depends on the helpers' addresses, see
    /// [`Config::encrypts_data_edges`].
    pub data_tls: Option<bool>,
    /// How long a helper, or the store's server on its machine, may be down before its blocks are rebuilt
    /// elsewhere.
    pub repair_after: RepairAfter,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            helpers: 18,
            listen_host: Ipv4Addr::LOCALHOST.into(),
            advertise: None,
            api_port: 7400,
            control_port: 7401,
            first_helper_port: 7410,
            code: "rs-14-10".to_owned(),
            block_bytes: ByteSize::from_bytes(64 << 20),
            repair_after: RepairAfter::default(),
            scheme: "auto".to_owned(),
            data_tls: None,
        }
    }
}

/// A cluster folder that is being created. Its files are in a temporary folder until
/// [`finish`](Self::finish); dropping it earlier removes them.
#[derive(Debug)]
pub struct NewCluster {
    folder: PathBuf,
    unfinished: Cluster,
    /// Removes the temporary folder when it is dropped.
    _scratch: TempDir,
}

impl NewCluster {
    /// Creates the cluster for `folder`, which must be absent or empty, in a temporary folder next to it.
    ///
    /// # Errors
    /// If the folder is in use, options conflict, or writing fails.
    pub fn begin(folder: &Path, options: &InitOptions) -> Result<Self, InitError> {
        let folder = absolute(folder)?;
        refuse_used(&folder)?;
        let cluster_id = random_cluster_id()?;
        let text = options.config_text(cluster_id, &folder.join(CONFIG_FILE))?;
        let config = Config::parse(&text, &folder.join(CONFIG_FILE)).map_err(InitError::Options)?;

        let parent = folder.parent().ok_or_else(|| InitError::NotEmpty { folder: folder.clone() })?;
        durable::create_folder(parent)?;
        // Use a sibling folder, so that the rename stays within one file system. The temporary folder is
        // private, because keys are created in it.
        let scratch = tempfile::Builder::new()
            .prefix(".mend-init-")
            .tempdir_in(parent)
            .map_err(cannot("create a temporary folder in", parent))?;
        let unfinished = Cluster { folder: scratch.path().join("cluster"), config };
        unfinished.write_all(&text)?;
        Ok(Self { folder, unfinished, _scratch: scratch })
    }

    /// Returns the path that the folder will have.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the cluster in its temporary folder, for adding to it.
    pub fn unfinished(&mut self) -> &mut Cluster {
        &mut self.unfinished
    }

    /// Renames the temporary folder to its final path.
    ///
    /// # Errors
    /// If the path is in use by now, or the rename fails; nothing is left behind then.
    pub fn finish(self) -> Result<Cluster, InitError> {
        rename_onto(&self.unfinished.folder, &self.folder)?;
        Ok(Cluster { folder: self.folder, config: self.unfinished.config })
    }
}

/// The reason why a cluster folder could not be created. No files are left behind.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The folder already holds a cluster.
    #[error("{} already holds a cluster; use it, or name another folder", folder.display())]
    AlreadyCluster {
        /// The folder.
        folder: PathBuf,
    },
    /// The path is a non-empty folder or a file.
    #[error("{} is not an empty folder; name a new or an empty one", folder.display())]
    NotEmpty {
        /// The path.
        folder: PathBuf,
    },
    /// The helpers' ports would exceed 65535.
    #[error(
        "there are not enough ports from {first_port} to 65535 for {helpers} helpers; choose a lower first \
         port"
    )]
    PortsExhausted {
        /// The requested number of helpers.
        helpers: u16,
        /// The first helper's port.
        first_port: u16,
    },
    /// The options are invalid or conflict; the error quotes the line of `mend.toml` that they would produce.
    #[error("these options are not a valid configuration: {0}")]
    Options(#[source] ConfigError),
    /// The random source failed.
    #[error("cannot create keys, because the system provides no random numbers")]
    Random,
    /// The authority could not be created.
    #[error("cannot create the certificate authority: {0}")]
    Authority(#[source] rcgen::Error),
    /// A member's certificate could not be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The reason why a cluster folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such folder.
    #[error(
        "there is no folder {0}; run `mend init {0}` to create a cluster, or name the right folder",
        folder.display()
    )]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder has no `mend.toml`.
    #[error(
        "{} is not a cluster folder: it has no {CONFIG_FILE}; run `mend init` to create one, or name the \
         right folder",
        folder.display()
    )]
    NotACluster {
        /// The folder.
        folder: PathBuf,
    },
    /// The authority's certificate is missing.
    #[error("{} is missing; copy it from where `mend init` ran", path.display())]
    NoAuthority {
        /// The expected path.
        path: PathBuf,
    },
    /// The user lacks permission to read the folder.
    #[error(
        "{} is not readable by this user (permission denied); run mend as the user who owns the cluster \
         folder",
        path.display()
    )]
    Denied {
        /// The unreadable path.
        path: PathBuf,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The reason why a helper could not be added. The configuration is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AddHelperError {
    /// A helper of this name exists already.
    #[error("helper {name} exists already; choose another name")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// The path of the block folder is not UTF-8, which TOML requires.
    #[error("the block folder {} is not UTF-8, so {CONFIG_FILE} cannot name it; rename it", blocks.display())]
    BlocksNotUtf8 {
        /// The block folder.
        blocks: PathBuf,
    },
    /// The configuration is invalid, or would become invalid with the new helper.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The helper's certificate could not be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The reason why a helper could not be removed. The configuration is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RemoveHelperError {
    /// The configuration is invalid, or would become invalid without the helper.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Cluster {
    /// Creates a cluster in `folder`, which must be absent or empty. On failure, nothing is left behind.
    ///
    /// # Errors
    /// If the folder is in use, options conflict, or writing fails.
    pub fn init(folder: &Path, options: &InitOptions) -> Result<Self, InitError> {
        Self::init_with(folder, options, |_| Ok(()))
    }

    /// Like [`init`](Self::init), and lets `fill` write further files into the folder before it appears under
    /// its name.
    ///
    /// # Errors
    /// As [`init`](Self::init), and the errors of `fill`. On failure, nothing is left behind.
    pub fn init_with<E: From<InitError>>(
        folder: &Path,
        options: &InitOptions,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let new = NewCluster::begin(folder, options)?;
        fill(&new.unfinished)?;
        Ok(new.finish()?)
    }

    /// Opens a cluster folder. [`identity`](Self::identity) loads the certificates of members.
    ///
    /// # Errors
    /// If a file is missing or invalid; the error says how to fix it.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let folder = absolute(folder)?;
        if !is_there(&folder)? {
            return Err(OpenError::NoFolder { folder });
        }
        let path = folder.join(CONFIG_FILE);
        let text = match durable::read(&path) {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::NotACluster { folder });
            }
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(OpenError::Denied { path });
            }
            other => other?,
        };
        let cluster = Cluster { config: Config::parse(&text, &path)?, folder };
        if !is_there(&cluster.authority_certificate())? {
            return Err(OpenError::NoAuthority { path: cluster.authority_certificate() });
        }
        Ok(cluster)
    }

    /// Parses the section `[store]` of `mend.toml` into the type of the crate that supports this kind of
    /// store; `None` without a `[store]`.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read, or contains a key or value that the crate rejects.
    pub fn store_settings<T: DeserializeOwned>(&self) -> Result<Option<T>, OpenError> {
        let path = self.config_path();
        Ok(store_settings(&durable::read(&path)?, &path)?)
    }

    /// Parses the keys in each `[[helper]]` of `mend.toml` that belong to the attached store, into the type
    /// of the store's crate. Returns them by helper.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read, contains a key that neither this crate nor the store's crate
    /// defines, or contains an invalid value.
    pub fn helper_settings<T: HelperSettings>(&self) -> Result<BTreeMap<Name, T>, OpenError> {
        let path = self.config_path();
        Ok(helper_settings(&durable::read(&path)?, &path)?)
    }

    /// Writes the section `[store]`, which names the storage system to repair, to `mend.toml`.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the configuration would become invalid.
    pub fn set_store(&mut self, store: Table) -> Result<(), AddHelperError> {
        let _lock = self.lock()?;
        let path = self.config_path();
        let text = with_store(&durable::read(&path)?, &path, store)?;
        let config = Config::parse(&text, &path)?;
        durable::replace(&path, text.as_bytes(), mode_of(&path)?)?;
        self.config = config;
        Ok(())
    }

    /// Issues a certificate for a new helper and appends the helper to `mend.toml`, preserving comments.
    ///
    /// The folder must hold `ca.key`. If the helper runs on another machine, copy `mend.toml`, `ca/ca.pem`
    /// and `helpers/NAME` there. Concurrent additions are serialized by a lock.
    ///
    /// # Errors
    /// If the name or address is in use, `ca.key` is missing, or a file cannot be written.
    pub fn add_helper(&mut self, helper: HelperConfig) -> Result<(), AddHelperError> {
        self.add_helper_with(helper, Table::new())
    }

    /// Like [`add_helper`](Self::add_helper), and also writes `settings`, the keys of the attached store,
    /// into the helper's entry.
    ///
    /// # Errors
    /// As [`add_helper`](Self::add_helper).
    pub fn add_helper_with(&mut self, helper: HelperConfig, settings: Table) -> Result<(), AddHelperError> {
        let _lock = self.lock()?;
        let path = self.config_path();
        let text = durable::read(&path)?;
        // `mend.toml` may have changed since this folder was opened.
        let current = Config::parse(&text, &path)?;
        if current.helper(&helper.name).is_some() {
            return Err(AddHelperError::NameTaken { name: helper.name });
        }
        if let Some(blocks) = helper.blocks.as_ref().filter(|blocks| blocks.to_str().is_none()) {
            return Err(AddHelperError::BlocksNotUtf8 { blocks: blocks.clone() });
        }
        let role = Role::Helper(helper.name.clone());
        let mut table = helper.to_table();
        table.extend(settings);
        let text = with_helpers(&text, &path, [table])?;
        let config = Config::parse(&text, &path)?;
        // Issue the certificate first: an unused certificate is harmless, but a configured helper without one
        // cannot start.
        self.issue(&role)?;
        durable::replace(&path, text.as_bytes(), mode_of(&path)?)?;
        self.config = config;
        Ok(())
    }

    /// Removes a helper from the configuration; returns whether it was listed. The helper's folder and
    /// certificate are kept: the blocks may still be needed, and the coordinator rejects helpers that are not
    /// in `mend.toml`.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the configuration is invalid.
    pub fn remove_helper(&mut self, name: &Name) -> Result<bool, RemoveHelperError> {
        let _lock = self.lock()?;
        let path = self.config_path();
        let text = durable::read(&path)?;
        let Some(text) = without_helper(&text, &path, name)? else { return Ok(false) };
        let config = Config::parse(&text, &path)?;
        durable::replace(&path, text.as_bytes(), mode_of(&path)?)?;
        self.config = config;
        Ok(true)
    }

    /// Issues a certificate and key for `role`, replacing existing ones. For a new name, this adds a client
    /// or plug-in.
    ///
    /// There are no revocation lists, so the old certificate stays valid until it expires. Nevertheless, a
    /// removed helper cannot connect, because the coordinator accepts only helpers listed in `mend.toml`.
    ///
    /// # Errors
    /// If `ca.key` is missing or does not match `ca.pem`, or a file cannot be written.
    pub fn issue(&self, role: &Role) -> Result<(), IssueError> {
        self.issue_for(role, None)
    }

    /// Like [`issue`](Self::issue), with a given lifetime; `None` means the default.
    ///
    /// # Errors
    /// As [`issue`](Self::issue).
    pub fn issue_for(&self, role: &Role, lifetime: Option<Duration>) -> Result<(), IssueError> {
        let authority = Authority::load(&self.authority_certificate(), &self.authority_key())?;
        self.issue_by(&authority, role, lifetime)
    }

    /// Completes the replacement of a member's certificate and key, if [`issue`](Self::issue) was
    /// interrupted. Returns whether the key has changed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish_issue(&self, role: &Role) -> Result<bool, FileError> {
        let (certificate, key) = (self.certificate(role), self.key(role));
        Pair { certificate: &certificate, key: &key }.finish()
    }

    /// Lists all members with a certificate in this folder.
    pub fn members(&self) -> Vec<Role> {
        let named = |folder: &str, role: fn(Name) -> Role| -> Vec<Role> {
            let entries = fs::read_dir(self.folder.join(folder)).into_iter().flatten().flatten();
            let names =
                entries.filter_map(|entry| Name::try_from(entry.file_name().into_string().ok()?).ok());
            names.map(role).collect()
        };
        let all = [Role::Coordinator, Role::default_client()]
            .into_iter()
            .chain(named("helpers", Role::Helper))
            .chain(named("clients", Role::Client))
            .chain(named("operators", Role::Operator))
            .chain(named("admins", Role::Admin))
            .chain(named("plugins", Role::Plugin))
            .chain(named("monitors", Role::Monitor));
        let mut members: Vec<Role> = all.filter(|role| self.certificate(role).is_file()).collect();
        members.sort_by_key(ToString::to_string);
        members
    }

    /// Returns the roles of users with this name that have a certificate in this folder: a client, an operator and an
    /// administrator can have the same name.
    pub fn users_named(&self, name: &Name) -> Vec<Role> {
        let roles = [Role::Client, Role::Operator, Role::Admin].map(|role| role(name.clone()));
        roles.into_iter().filter(|role| self.certificate(role).is_file()).collect()
    }

    /// Returns the expiry time of a member's certificate; `None` if the certificate cannot be read.
    pub fn expires(&self, role: &Role) -> Option<SystemTime> {
        expiry(&self.certificate_of(role)?)
    }

    /// Returns the period for which a member's certificate was issued; `None` if the certificate cannot be read.
    pub fn lifetime(&self, role: &Role) -> Option<Duration> {
        lifetime(&self.certificate_of(role)?)
    }

    fn certificate_of(&self, role: &Role) -> Option<CertificateDer<'static>> {
        let pem = fs::read(self.certificate(role)).ok()?;
        CertificateDer::from_pem_slice(&pem).ok()
    }

    /// Loads the identity of `role` from its certificate and key in this folder.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn identity(&self, role: &Role) -> Result<Identity, IdentityError> {
        Identity::load_as(role, &self.authority_certificate(), &self.certificate(role), &self.key(role))
    }

    /// Returns the absolute path of the cluster folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the parsed `mend.toml`.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the path of `mend.toml`.
    pub fn config_path(&self) -> PathBuf {
        self.folder.join(CONFIG_FILE)
    }

    /// Returns the path of `ca.pem`, which holds the certificates of all trusted authorities.
    pub fn authority_certificate(&self) -> PathBuf {
        self.folder.join("ca").join("ca.pem")
    }

    fn authority_key(&self) -> PathBuf {
        self.folder.join("ca").join("ca.key")
    }

    /// Returns the folder of a role, which holds the role's certificate, key and other files.
    pub fn role_folder(&self, role: &Role) -> PathBuf {
        match role {
            Role::Coordinator => self.folder.join("coordinator"),
            Role::Helper(name) => self.folder.join("helpers").join(name.as_str()),
            client if *client == Role::default_client() => self.folder.join("client"),
            Role::Client(name) => self.folder.join("clients").join(name.as_str()),
            Role::Plugin(name) => self.folder.join("plugins").join(name.as_str()),
            Role::Monitor(name) => self.folder.join("monitors").join(name.as_str()),
            Role::Operator(name) => self.folder.join("operators").join(name.as_str()),
            Role::Admin(name) => self.folder.join("admins").join(name.as_str()),
        }
    }

    /// Returns the path of a role's certificate.
    pub fn certificate(&self, role: &Role) -> PathBuf {
        self.role_folder(role).join("cert.pem")
    }

    /// Returns the path of a role's private key.
    pub fn key(&self, role: &Role) -> PathBuf {
        self.role_folder(role).join("key.pem")
    }

    /// Returns the block folder of a helper: the configured folder, or `helpers/NAME/blocks`.
    pub fn blocks_folder(&self, helper: &HelperConfig) -> PathBuf {
        match &helper.blocks {
            Some(blocks) => self.folder.join(blocks),
            None => self.role_folder(&Role::Helper(helper.name.clone())).join("blocks"),
        }
    }

    fn write_all(&self, config_text: &str) -> Result<(), InitError> {
        let authority_folder = self.folder.join("ca");
        durable::create_folder(&authority_folder)?;
        fs::set_permissions(&authority_folder, Permissions::from_mode(0o700))
            .map_err(cannot("protect", &authority_folder))?;
        let authority =
            Authority::create(self.config.cluster_id, &self.authority_certificate(), &self.authority_key())?;
        let helpers = self.config.helpers.iter().map(|helper| Role::Helper(helper.name.clone()));
        for role in [Role::Coordinator, Role::default_client()].into_iter().chain(helpers) {
            self.issue_by(&authority, &role, None)?;
        }
        durable::replace(&self.config_path(), config_text.as_bytes(), PUBLIC)?;
        Ok(())
    }

    fn issue_by(
        &self,
        authority: &Authority,
        role: &Role,
        lifetime: Option<Duration>,
    ) -> Result<(), IssueError> {
        durable::create_folder(&self.role_folder(role))?;
        let (certificate, key) = (self.certificate(role), self.key(role));
        authority.issue(role, lifetime, Pair { certificate: &certificate, key: &key })
    }

    /// Locks the configuration for changes; dropping the result releases the lock.
    fn lock(&self) -> Result<File, FileError> {
        let folder = File::open(&self.folder).map_err(cannot("open", &self.folder))?;
        folder.lock().map_err(cannot("lock", &self.folder))?;
        Ok(folder)
    }
}

impl InitOptions {
    fn config_text(&self, cluster_id: ClusterId, path: &Path) -> Result<String, InitError> {
        let coordinator = CoordinatorConfig {
            metrics: None,
            repair_after: self.repair_after,
            scrub_rate: None,
            scrub_parity: false,
            api: SocketAddr::new(self.listen_host, self.api_port),
            control: SocketAddr::new(self.listen_host, self.control_port),
            advertise: self.advertise.clone(),
        };
        let defaults =
            Defaults { code: self.code.clone(), block_bytes: self.block_bytes, scheme: self.scheme.clone() };
        let text = new_text(cluster_id, self.data_tls, &coordinator, &defaults);
        let helpers = self.helper_configs()?;
        with_helpers(&text, path, helpers.iter().map(HelperConfig::to_table)).map_err(InitError::Options)
    }

    fn helper_configs(&self) -> Result<Vec<HelperConfig>, InitError> {
        (0..self.helpers).map(|index| self.helper_config(index)).collect()
    }

    fn helper_config(&self, index: u16) -> Result<HelperConfig, InitError> {
        let port = match self.first_helper_port {
            0 => 0,
            first_port => first_port
                .checked_add(index)
                .ok_or(InitError::PortsExhausted { helpers: self.helpers, first_port })?,
        };
        let name = Name::try_from(format!("h{}", index + 1)).expect("h and a number is a name");
        let mut helper = HelperConfig::new(name, SocketAddr::new(self.listen_host, port));
        helper.advertise = self.advertise.as_ref().map(|host| host.at(port));
        Ok(helper)
    }
}

impl From<AuthorityError> for InitError {
    fn from(error: AuthorityError) -> Self {
        match error {
            AuthorityError::Make(source) => InitError::Authority(source),
            AuthorityError::File(source) => InitError::File(source),
        }
    }
}

/// Makes the path absolute, because a daemon may change its working directory.
fn absolute(folder: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(folder).map_err(cannot("find", folder))
}

fn refuse_used(folder: &Path) -> Result<(), InitError> {
    if folder.join(CONFIG_FILE).exists() {
        return Err(InitError::AlreadyCluster { folder: folder.to_owned() });
    }
    let is_free = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(cannot("read", folder)(error).into()),
    };
    if is_free { Ok(()) } else { Err(InitError::NotEmpty { folder: folder.to_owned() }) }
}

/// Renames a finished folder to `folder`, which must be absent or empty; fails if a concurrent `init` was
/// faster.
fn rename_onto(finished: &Path, folder: &Path) -> Result<(), InitError> {
    if let Err(error) = fs::rename(finished, folder) {
        refuse_used(folder)?;
        return Err(cannot("create", folder)(error).into());
    }
    let parent = folder.parent().expect("a folder that was made has a parent");
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(cannot("write", parent))?;
    Ok(())
}

/// Whether the path exists; fails if the user lacks permission to see it.
fn is_there(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Denied { path: path.to_owned() },
        _ => cannot("find", path)(error).into(),
    })
}

fn mode_of(path: &Path) -> Result<u32, FileError> {
    Ok(fs::metadata(path).map_err(cannot("read", path))?.permissions().mode() & 0o777)
}

fn random_cluster_id() -> Result<ClusterId, InitError> {
    let mut bits = [0; 16];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bits).map_err(|_| InitError::Random)?;
    Ok(ClusterId::from_bits(u128::from_be_bytes(bits)))
}
