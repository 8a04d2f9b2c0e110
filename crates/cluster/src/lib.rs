//! The cluster folder, and the identities of cluster members.
//!
//! A cluster is defined by one folder, which `mend init` creates: the configuration (`mend.toml`), the
//! certificate authority, and a certificate for each coordinator, helper and client. [`Cluster`] creates,
//! opens and extends the folder. [`Config`] is the parsed `mend.toml`. [`Identity`] is a certificate with its
//! key, ready for use in rustls. [`peer_role`] returns the role of the peer after a handshake.
//!
//! Invariant: every TLS configuration uses TLS 1.3, presents our certificate, requires a certificate of the
//! same authority from the peer, and verifies the name of a dialled server independently of its address.
//!
//! This crate deals with names and files only. It contains no plans, stripes, sockets or async code.
//!
//! ```
//! use cluster::{Cluster, InitOptions, Role};
//!
//! let scratch = tempfile::tempdir()?;
//! let options = InitOptions { helpers: 2, ..Default::default() };
//! let cluster = Cluster::init(&scratch.path().join("demo"), &options)?;
//! for helper in &cluster.config().helpers {
//!     println!("{} at {}", helper.name, helper.dial_address());
//! }
//! let coordinator = cluster.identity(&Role::Coordinator)?;
//! let _tls = coordinator.server_config();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod authority;
mod config;
mod durable;
mod expiry;
mod folder;
mod helper_settings;
mod identity;
mod name;
mod network;
mod pair;
mod quantity;
mod repair_after;
mod role;
mod store;

pub use address::{Address, Host, ParseAddressError};
pub use authority::IssueError;
pub use config::{
    ClusterId, Config, ConfigError, CoordinatorConfig, Defaults, HelperConfig, LimitsConfig,
    ParseClusterIdError, parse_block_size,
};
pub use durable::FileError;
pub use expiry::{Distrust, RENEW_WITHIN, expiry};
pub use folder::{AddHelperError, Cluster, InitError, InitOptions, NewCluster, OpenError, RemoveHelperError};
pub use helper_settings::HelperSettings;
pub use identity::{Identity, IdentityError, is_certificate_refused};
pub use name::{Name, ParseNameError};
pub use network::{CLIENT, Entry, LinkConfig, MatrixConfig, Network, NetworkError, RackConfig, RegionConfig};
pub use quantity::{Bandwidth, ByteSize, ParseQuantityError};
pub use repair_after::{ParseRepairAfterError, RepairAfter};
pub use role::{Role, peer_role};
pub use store::{OwnRepair, StoreConfig};
