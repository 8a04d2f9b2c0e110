//! Parses `mend attach KIND …`. Each kind of store defines a subcommand with arguments of its own.

use attached::Kind;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, Error, FromArgMatches, Subcommand};

/// The kind of store to attach to, and the arguments of its subcommand.
pub struct AttachTo {
    pub kind: &'static dyn Kind,
    pub args: ArgMatches,
}

impl std::fmt::Debug for AttachTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachTo").field("kind", &self.kind.name()).finish_non_exhaustive()
    }
}

impl FromArgMatches for AttachTo {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let chosen = matches.subcommand().and_then(|(name, args)| Some((stores::kind(name)?, args.clone())));
        let (kind, args) = chosen.ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self { kind, args })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for AttachTo {
    fn augment_subcommands(command: Command) -> Command {
        stores::KINDS.iter().fold(command, |command, kind| command.subcommand(kind.command()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        stores::kind(name).is_some()
    }
}
