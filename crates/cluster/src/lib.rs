//! The cluster folder, and the identities that follow from it: who is who, and who may talk to whom.
//!
//! A cluster is one folder that `mend init` makes: its configuration (`mend.toml`), its certificate
//! authority, and one certificate for each coordinator, helper and client. [`Cluster`] makes, opens and
//! extends it; [`Config`] is what `mend.toml` says; [`Identity`] is one certificate with its key, ready as
//! rustls configurations; [`peer_role`] tells who is at the other end of a finished handshake.
//!
//! Always true: every TLS configuration made here is TLS 1.3, presents a certificate, demands one of the
//! same authority, and verifies the name of the server it dialled, whatever address it dialled.
//!
//! Deliberately absent: plans, stripes, sockets, async. This room knows names and files only.
//!
//! ```
//! use cluster::{Cluster, InitOptions, Role};
//!
//! let scratch = tempfile::tempdir()?;
//! let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions { helpers: 2, ..Default::default() })?;
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
mod identity;
mod name;
mod network;
mod quantity;
mod repair_after;
mod role;
mod store;

pub use address::{Address, Host, ParseAddressError};
pub use authority::IssueError;
pub use config::{
    Adopt, ClusterId, Config, ConfigError, CoordinatorConfig, Defaults, HelperConfig, LimitsConfig,
    ParseClusterIdError,
};
pub use durable::FileError;
pub use expiry::{RENEW_WITHIN, expiry, is_certificate_expired};
pub use folder::{AddHelperError, Cluster, InitError, InitOptions, OpenError, RemoveHelperError};
pub use identity::{Identity, IdentityError, is_certificate_refused};
pub use name::{Name, ParseNameError};
pub use network::{CLIENT, Entry, LinkConfig, MatrixConfig, Network, NetworkError, RackConfig, RegionConfig};
pub use quantity::{Bandwidth, ByteSize, ParseQuantityError};
pub use repair_after::{ParseRepairAfterError, RepairAfter};
pub use role::{Role, peer_role};
pub use store::{OwnRepair, StoreConfig};
