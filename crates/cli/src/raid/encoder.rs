//! Which processes make the parity of files that a command encodes.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use client::Client;
use cluster::{Cluster, Role};
use repair::Scheme;
use stores::RaidNameNode;
use stores::raid::{HelperParity, ParityMaker};

use super::outcomes;
use super::rebuilding::ApiRebuilder;
use crate::failure::Failure;

/// How parity is made.
#[derive(Debug, Args)]
pub struct EncoderArgs {
    /// The maker of the parity
    #[arg(long, value_enum, default_value_t = EncoderName::Auto)]
    pub encoder: EncoderName,
    /// Scheme by which helpers make parity [default: the cluster's]
    #[arg(long)]
    pub scheme: Option<Scheme>,
}

/// What makes parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EncoderName {
    /// The helpers, or the JVM where they cannot
    Auto,
    /// The helpers alone, through the running coordinator
    Helpers,
    /// The JVM of this command, which reads all data and writes all parity
    Jvm,
}

/// Makes parity.
pub enum Encoder {
    /// The JVM of this command.
    Jvm,
    /// The helpers.
    Helpers {
        /// The coordinator's client.
        client: Client,
        /// The repair scheme; `None` for the cluster's default.
        scheme: Option<Scheme>,
        /// Whether the JVM never makes parity.
        is_required: bool,
    },
}

impl Encoder {
    /// Returns the encoder that the arguments name. `user` returns the role of the user who runs the command.
    ///
    /// # Errors
    /// [`Failure`] if the helpers are required, and there is no usable certificate for the coordinator.
    pub fn of(
        cluster: &Cluster,
        args: &EncoderArgs,
        user: impl FnOnce() -> Result<Role, Failure>,
    ) -> Result<Self, Failure> {
        if args.encoder == EncoderName::Jvm {
            return Ok(Self::Jvm);
        }
        let is_required = args.encoder == EncoderName::Helpers;
        let client = user().and_then(|role| Ok(Client::connect(cluster, &role)?));
        match client {
            Ok(client) => Ok(Self::Helpers { client, scheme: args.scheme, is_required }),
            Err(failure) if is_required => Err(failure),
            Err(failure) => {
                outcomes::tell("parity", format_args!("made by the JVM: {}", failure.message()));
                Ok(Self::Jvm)
            }
        }
    }

    /// Returns the maker of parity; `None` if the JVM makes it.
    ///
    /// # Errors
    /// [`Failure`] if helpers' settings in `mend.toml` are invalid.
    pub fn maker(
        self,
        cluster: &Cluster,
        namenode: &RaidNameNode,
    ) -> Result<Option<Arc<dyn ParityMaker>>, Failure> {
        let Self::Helpers { client, scheme, is_required } = self else { return Ok(None) };
        let rebuilder = Arc::new(ApiRebuilder(client));
        let tell = |path: &str, what: &dyn std::fmt::Display| outcomes::tell(path, what);
        let maker = HelperParity::of(cluster, namenode.clone(), rebuilder, tell)?;
        let maker = maker.with_scheme(scheme.map(|scheme| scheme.to_string()));
        Ok(Some(Arc::new(if is_required { maker.required() } else { maker })))
    }
}
