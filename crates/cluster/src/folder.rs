//! The cluster folder: made whole or not at all, opened with errors that say what to do, extended in place.
//!
//! ```text
//! DIR/mend.toml                      the configuration
//! DIR/ca/ca.pem  ca.key              the authority; only the machine that issues certificates needs ca.key
//! DIR/coordinator/cert.pem key.pem   and its catalog, which the coordinator makes
//! DIR/client/cert.pem key.pem        the client `admin`; further clients in DIR/clients/NAME
//! DIR/helpers/NAME/cert.pem key.pem  and its blocks, unless the configuration puts them elsewhere
//! ```
//!
//! A machine of the cluster needs `mend.toml`, `ca/ca.pem` and the folder of its own role, nothing more;
//! so opening asks for the first two, and [`Cluster::identity`] for the third.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use toml_edit::Table;

use crate::authority::{Authority, AuthorityError};
use crate::config::{new_text, store_settings, with_helpers, with_store, without_helper};
use crate::durable::{self, FileError, PUBLIC, cannot};
use crate::expiry::expiry;
use crate::{
    ByteSize, ClusterId, Config, ConfigError, CoordinatorConfig, Defaults, HelperConfig, Host, Identity,
    IdentityError, IssueError, Name, RepairAfter, Role,
};

const CONFIG_FILE: &str = "mend.toml";

/// A cluster folder, opened.
#[derive(Debug, Clone)]
pub struct Cluster {
    folder: PathBuf,
    config: Config,
}

/// What `mend init` may be told. The default is eighteen helpers on this machine's loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// How many helpers, named `h1`, `h2`, …
    pub helpers: u16,
    /// What everything listens on.
    pub listen_host: IpAddr,
    /// The host that others dial; needed if `listen_host` is `0.0.0.0` or `::`.
    pub advertise: Option<Host>,
    /// Port of the coordinator's API.
    pub api_port: u16,
    /// Port of the coordinator's control.
    pub control_port: u16,
    /// Port of `h1`; those of the others follow. 0 lets the system choose each helper's port.
    pub first_helper_port: u16,
    /// The code of new stripes.
    pub code: String,
    /// The block size of new stripes.
    pub block_bytes: ByteSize,
    /// The repair scheme.
    pub scheme: String,
    /// Whether data edges are encrypted; `None` leaves it to the helpers' addresses, see
    /// [`Config::encrypts_data_edges`].
    pub data_tls: Option<bool>,
    /// How long a helper, or the server beside it, may be gone before what it held is rebuilt elsewhere.
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

/// Why a cluster folder could not be made. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// There is a cluster already.
    #[error("{} already holds a cluster; use it, or name another folder", folder.display())]
    AlreadyCluster {
        /// The folder.
        folder: PathBuf,
    },
    /// The path is taken by something else.
    #[error("{} is not an empty folder; name a new or an empty one", folder.display())]
    NotEmpty {
        /// The path.
        folder: PathBuf,
    },
    /// The ports run past 65535.
    #[error("{helpers} helpers do not fit above port {first_port}; ports end at 65535, so start lower")]
    PortsExhausted {
        /// How many helpers were asked for.
        helpers: u16,
        /// The port of the first.
        first_port: u16,
    },
    /// The options contradict each other or make no sense; the error shows them as the file would.
    #[error("these options make no valid configuration: {0}")]
    Options(#[source] ConfigError),
    /// The random source failed.
    #[error("the system gives no random numbers, which keys are made of")]
    Random,
    /// The authority could not be made.
    #[error("cannot make the certificate authority: {0}")]
    Authority(#[source] rcgen::Error),
    /// A member's certificate could not be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a cluster folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such folder.
    #[error("there is no folder {0}; run `mend init {0}` to make a cluster, or name the right folder", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// There is a folder, without a `mend.toml`.
    #[error(
        "{} is not a cluster folder: it has no {CONFIG_FILE}; run `mend init` to make one, or name the right folder",
        folder.display()
    )]
    NotACluster {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no authority certificate.
    #[error("{} is missing; copy it from where `mend init` ran", path.display())]
    NoAuthority {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The user may not read it.
    #[error(
        "{} may not be read by this user (permission denied); run mend as the user whom the cluster folder belongs to",
        path.display()
    )]
    Denied {
        /// What may not be read.
        path: PathBuf,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a helper could not be added. The configuration is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AddHelperError {
    /// The name is taken.
    #[error("there is a helper {name} already; choose another name")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// TOML holds only UTF-8.
    #[error("the block folder {} is not UTF-8, so {CONFIG_FILE} cannot name it; rename it", blocks.display())]
    BlocksNotUtf8 {
        /// The block folder.
        blocks: PathBuf,
    },
    /// The configuration would not be valid with it, or is not now.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its certificate could not be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a helper could not be taken out of the configuration, which is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RemoveHelperError {
    /// The configuration would not be valid without it, or is not now.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Cluster {
    /// Makes a cluster in `folder`, which must be absent or empty: all of it or nothing.
    ///
    /// # Errors
    /// A folder that is in use, options that contradict each other, a disk that refuses.
    pub fn init(folder: &Path, options: &InitOptions) -> Result<Self, InitError> {
        let folder = absolute(folder)?;
        refuse_used(&folder)?;
        let cluster_id = random_cluster_id()?;
        let text = options.config_text(cluster_id, &folder.join(CONFIG_FILE))?;
        let config = Config::parse(&text, &folder.join(CONFIG_FILE)).map_err(InitError::Options)?;

        let parent = folder.parent().ok_or_else(|| InitError::NotEmpty { folder: folder.clone() })?;
        durable::create_folder(parent)?;
        // A sibling, so that the rename stays on one file system; private, since keys are made in it.
        let scratch = tempfile::Builder::new()
            .prefix(".mend-init-")
            .tempdir_in(parent)
            .map_err(cannot("make a temporary folder in", parent))?;
        let unfinished = Cluster { folder: scratch.path().join("cluster"), config };
        unfinished.write_all(&text)?;
        rename_onto(&unfinished.folder, &folder)?;
        Ok(Cluster { folder, config: unfinished.config })
    }

    /// Opens a cluster folder. Certificates of members are read by [`identity`](Self::identity).
    ///
    /// # Errors
    /// What is missing or wrong, and what to do about it.
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

    /// The settings in `[store]` of `mend.toml`, as the crate of that kind of store knows them; `None` without a `[store]`.
    ///
    /// # Errors
    /// [`OpenError`]: a file that cannot be read, or a key or value that the crate does not know.
    pub fn store_settings<T: DeserializeOwned>(&self) -> Result<Option<T>, OpenError> {
        let path = self.config_path();
        Ok(store_settings(&durable::read(&path)?, &path)?)
    }

    /// Writes `[store]` to `mend.toml`: the storage system that is repaired.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn set_store(&mut self, store: Table) -> Result<(), AddHelperError> {
        let _lock = self.lock()?;
        let path = self.config_path();
        let text = with_store(&durable::read(&path)?, &path, store)?;
        let config = Config::parse(&text, &path)?;
        durable::replace(&path, text.as_bytes(), mode_of(&path)?)?;
        self.config = config;
        Ok(())
    }

    /// Issues a certificate for a new helper and appends it to `mend.toml`, whose comments stay.
    ///
    /// The folder must hold `ca.key`. Copy `mend.toml`, `ca/ca.pem` and `helpers/NAME` to the helper's
    /// machine. Two processes that add at once do not lose each other's helper.
    ///
    /// # Errors
    /// A name or address in use, no `ca.key`, a file that cannot be written.
    pub fn add_helper(&mut self, helper: HelperConfig) -> Result<(), AddHelperError> {
        let _lock = self.lock()?;
        let path = self.config_path();
        let text = durable::read(&path)?;
        // Somebody may have changed the file since it was opened.
        let current = Config::parse(&text, &path)?;
        if current.helper(&helper.name).is_some() {
            return Err(AddHelperError::NameTaken { name: helper.name });
        }
        if let Some(blocks) = helper.blocks.as_ref().filter(|blocks| blocks.to_str().is_none()) {
            return Err(AddHelperError::BlocksNotUtf8 { blocks: blocks.clone() });
        }
        let role = Role::Helper(helper.name.clone());
        let text = with_helpers(&text, &path, &[helper])?;
        let config = Config::parse(&text, &path)?;
        // The certificate first: one without a configuration harms nobody, a helper without one cannot start.
        self.issue(&role)?;
        durable::replace(&path, text.as_bytes(), mode_of(&path)?)?;
        self.config = config;
        Ok(())
    }

    /// Takes a helper out of the configuration; whether it was there. Its folder and certificate stay: what it holds may
    /// be wanted, and the coordinator takes only helpers of `mend.toml`.
    ///
    /// # Errors
    /// A file that cannot be read or written, a configuration that is not valid.
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

    /// Issues a new certificate and key for `role`, in place of those it has; also makes further clients.
    ///
    /// The old certificate stays valid until it expires: there are no revocation lists. What keeps a removed
    /// helper out is that the coordinator knows only the helpers of `mend.toml`.
    ///
    /// # Errors
    /// No `ca.key`, one that does not fit `ca.pem`, a file that cannot be written.
    pub fn issue(&self, role: &Role) -> Result<(), IssueError> {
        self.issue_for(role, None)
    }

    /// The same for a certificate that is valid for this long.
    ///
    /// # Errors
    /// As [`issue`](Self::issue).
    pub fn issue_for(&self, role: &Role, lifetime: Option<Duration>) -> Result<(), IssueError> {
        let authority = Authority::load(&self.authority_certificate(), &self.authority_key())?;
        self.issue_by(&authority, role, lifetime)
    }

    /// All members that have a certificate here.
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
            .chain(named("plugins", Role::Plugin));
        let mut members: Vec<Role> = all.filter(|role| self.certificate(role).is_file()).collect();
        members.sort_by_key(ToString::to_string);
        members
    }

    /// Until when a member's certificate is valid, by the file; `None` if it cannot be read.
    pub fn expires(&self, role: &Role) -> Option<SystemTime> {
        let pem = fs::read(self.certificate(role)).ok()?;
        expiry(&CertificateDer::from_pem_slice(&pem).ok()?)
    }

    /// The identity of `role`, from its certificate and key in this folder.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn identity(&self, role: &Role) -> Result<Identity, IdentityError> {
        Identity::load_as(role, &self.authority_certificate(), &self.certificate(role), &self.key(role))
    }

    /// The cluster folder, absolute.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What `mend.toml` says.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// `mend.toml`.
    pub fn config_path(&self) -> PathBuf {
        self.folder.join(CONFIG_FILE)
    }

    /// The certificates of the authorities this cluster trusts.
    pub fn authority_certificate(&self) -> PathBuf {
        self.folder.join("ca").join("ca.pem")
    }

    fn authority_key(&self) -> PathBuf {
        self.folder.join("ca").join("ca.key")
    }

    /// The folder of a role, for its certificate and whatever else it keeps.
    pub fn role_folder(&self, role: &Role) -> PathBuf {
        match role {
            Role::Coordinator => self.folder.join("coordinator"),
            Role::Helper(name) => self.folder.join("helpers").join(name.as_str()),
            client if *client == Role::default_client() => self.folder.join("client"),
            Role::Client(name) => self.folder.join("clients").join(name.as_str()),
            Role::Plugin(name) => self.folder.join("plugins").join(name.as_str()),
        }
    }

    /// The certificate of a role.
    pub fn certificate(&self, role: &Role) -> PathBuf {
        self.role_folder(role).join("cert.pem")
    }

    /// The private key of a role.
    pub fn key(&self, role: &Role) -> PathBuf {
        self.role_folder(role).join("key.pem")
    }

    /// The block folder of a helper: what the configuration says, or `helpers/NAME/blocks`.
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
        authority.issue(role, lifetime, &self.certificate(role), &self.key(role))
    }

    /// Held while the configuration is changed; released when dropped.
    fn lock(&self) -> Result<File, FileError> {
        let folder = File::open(&self.folder).map_err(cannot("open", &self.folder))?;
        folder.lock().map_err(cannot("lock", &self.folder))?;
        Ok(folder)
    }
}

impl InitOptions {
    fn config_text(&self, cluster_id: ClusterId, path: &Path) -> Result<String, InitError> {
        let coordinator = CoordinatorConfig {
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
        with_helpers(&text, path, &self.helper_configs()?).map_err(InitError::Options)
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

/// Absolute, so that a daemon may change its working directory.
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

/// Renames a finished folder onto an absent or empty one; fails if another `init` was faster.
fn rename_onto(finished: &Path, folder: &Path) -> Result<(), InitError> {
    if let Err(error) = fs::rename(finished, folder) {
        refuse_used(folder)?;
        return Err(cannot("create", folder)(error).into());
    }
    let parent = folder.parent().expect("a folder that was made has a parent");
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(cannot("write", parent))?;
    Ok(())
}

/// Whether there is such a file or folder, which not everybody may see.
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
