//! Policies: which files are encoded, and why others are not.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::ByteSize;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::listing::is_within;
use crate::{
    Codec, File, Glob, LayoutError, Listing, Scope, Storing, TooFewNodes, Unrepairable, folder, source_of,
};

/// The folder in which HDFS's clients keep removed files, in each home folder and encryption zone.
const TRASH: &str = ".Trash";
/// HDFS-RAID writes parity below this folder before it moves the parity to its place.
pub(crate) const TEMPORARY: &str = "/tmp";

/// The policies of a cluster, in the order of precedence, and all codecs.
///
/// ```
/// use hdfs_raid::Policies;
///
/// let policies = Policies::parse(
///     r#"
///     [[policy]]
///     name = "warehouse"
///     paths = ["/warehouse"]
///     exclude = ["/warehouse/tmp"]
///     codec = "rs"
///     min_age = "30d"
///     "#,
/// )?;
/// assert_eq!(policies.policies()[0].replication, 1);
/// # Ok::<(), hdfs_raid::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    codecs: Vec<Codec>,
    policies: Vec<RaidPolicy>,
}

/// Which files are encoded, and how.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaidPolicy {
    /// The policy's name.
    pub name: String,
    /// The files: those that a pattern covers. If the codec's stripes run over folders, the patterns must cover
    /// the folder.
    pub paths: Vec<Glob>,
    /// The files among them to which the policy does not apply.
    #[serde(default)]
    pub exclude: Vec<Glob>,
    /// The name of the codec.
    pub codec: String,
    /// The least time since the last modification.
    #[serde(default = "a_day", deserialize_with = "time")]
    pub min_age: Duration,
    /// The least number of blocks: of the file, or of the folder's files together.
    #[serde(default = "three")]
    pub min_blocks: u64,
    /// The least length of a file. Codecs over folders have a limit of their own, because readers must know the files.
    #[serde(default)]
    min_bytes: Option<ByteSize>,
    /// The replication of encoded files.
    #[serde(default = "single")]
    pub replication: u16,
    /// The replication of their parity.
    #[serde(default = "single")]
    pub parity_replication: u16,
}

/// Why a text contains no valid policies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text is not TOML, or has an unknown or missing key, or an invalid value.
    #[error("{0}")]
    Text(String),
    /// There is no policy.
    #[error("there is no policy: write a table [[policy]] with name, paths and codec")]
    NoPolicy,
    /// A policy has no path.
    #[error("policy {0} has no path: add paths = [\"/FOLDER\"]")]
    NoPaths(String),
    /// Two policies or two codecs have the same name.
    #[error("there are two policies or two codecs with the name {0}: rename one")]
    SameName(String),
    /// A policy names an unknown codec.
    #[error("policy {policy}: there is no codec {codec}; the codecs are {known}")]
    NoCodec {
        /// The policy.
        policy: String,
        /// The unknown name.
        codec: String,
        /// The names of all codecs.
        known: String,
    },
    /// A policy of a codec over folders has a limit for files.
    #[error(
        "policy {0}: min_bytes applies to codecs over files; codecs over folders leave out files below 10 KiB"
    )]
    LeastBytes(String),
    /// The replication is zero.
    #[error("policy {0}: replication and parity_replication must be at least 1")]
    NoReplication(String),
    /// A parity root is not a folder other than `/`.
    #[error("codec {codec}: parity_root is `{root}`, but must be an absolute path of a folder other than /")]
    Root {
        /// The codec.
        codec: String,
        /// The parity root.
        root: String,
    },
    /// The parity roots of two codecs overlap, so their files could have the same path.
    #[error("codecs {one} and {other}: one parity root is within the other")]
    SharedRoot {
        /// A codec.
        one: String,
        /// The other codec.
        other: String,
    },
}

/// Why a file is not encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exclusion {
    /// No policy covers the file.
    #[error("no policy covers it")]
    NoPolicy,
    /// The coordinator does not repair the file.
    #[error(
        "it is outside of `paths` in [store.namenode] of mend.toml, so its lost blocks would not be repaired: add its \
         folder there and restart the coordinator"
    )]
    Outside,
    /// A pattern excludes the file from the only policies that cover it.
    #[error("policy {policy} excludes {pattern}")]
    Pattern {
        /// The first of these policies.
        policy: String,
        /// The pattern.
        pattern: String,
    },
    /// The file is parity.
    #[error("it is parity, below {0}")]
    Parity(String),
    /// The file is in the trash.
    #[error("it is in the trash")]
    Trash,
    /// HDFS itself erasure-codes the file.
    #[error("HDFS itself erasure-codes it")]
    Striped,
    /// The file is in an encryption zone.
    #[error("it is in an encryption zone")]
    Encrypted,
    /// A client is writing to the file.
    #[error("it is being written")]
    Open,
    /// A folder that contains the file has snapshots. A block that is also in a snapshot keeps the replication
    /// of the snapshot, and the snapshot's version of a changed file would lose its parity.
    #[error("{0} has snapshots")]
    Snapshots(String),
    /// The file was modified recently.
    #[error("it was modified {} ago, and the policy waits {}", days(age), days(least))]
    TooNew {
        /// The time since the modification.
        age: Duration,
        /// The time that the policy requires.
        least: Duration,
    },
    /// The file or folder has too few blocks.
    #[error("it has {blocks} blocks, and the policy requires {least}")]
    FewBlocks {
        /// Number of blocks.
        blocks: u64,
        /// The number that the policy requires.
        least: u64,
    },
    /// The file is too short.
    #[error("it has {bytes} bytes, and the policy requires {least}")]
    Small {
        /// The file's length.
        bytes: u64,
        /// The length that the policy requires.
        least: u64,
    },
    /// The blocks do not form stripes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A block has no intact replica.
    #[error("block {block} of {path} has no intact replica")]
    Lost {
        /// The file.
        path: String,
        /// Position of the block in the file.
        block: usize,
    },
    /// There are fewer DataNodes than blocks in a stripe.
    #[error(transparent)]
    Nodes(#[from] TooFewNodes),
    /// Data and parity would take at least as much space as the replicas do now.
    #[error("encoding saves nothing: {before} bytes now, {after} encoded")]
    NoSaving {
        /// Bytes of all replicas.
        before: u64,
        /// Bytes of data and parity.
        after: u64,
    },
    /// Mend could not repair a stripe of the file.
    #[error("Mend could not repair a lost block of it: {0}")]
    Unrepairable(#[from] Unrepairable),
    /// A folder has more blocks than the record on its parity can name.
    #[error("its files have {blocks} blocks, more than one attribute of HDFS can record")]
    ManyBlocks {
        /// Number of blocks.
        blocks: usize,
    },
    /// The folder has subfolders. HDFS-RAID encodes only folders without any.
    #[error("{0} has subfolders, and its codec encodes only folders without")]
    Subfolders(String),
    /// The listing lacks the folder, whose modification time is that of its parity.
    #[error("{0} itself was not listed: list a folder above it")]
    Unlisted(String),
    /// An operator undid the file's encoding, or its owner excludes it.
    #[error(
        "its attribute user.mend.raid excludes it; `hdfs dfs -setfattr -x user.mend.raid PATH` admits it"
    )]
    Undone,
    /// The file belongs to another codec than its folder.
    #[error("it belongs to codec {0}")]
    OtherCodec(String),
    /// Another file of the folder cannot be encoded, so none is.
    #[error("{path} is in the same folder and cannot be encoded with it: {why}")]
    Neighbour {
        /// The other file.
        path: String,
        /// The reason.
        why: Box<Exclusion>,
    },
}

/// The tables of a text with policies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    policy: Vec<RaidPolicy>,
    #[serde(default)]
    codec: Vec<Codec>,
}

impl Policies {
    /// Parses policies and additional codecs from TOML: tables `[[policy]]` and `[[codec]]`.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let tables: Tables =
            toml_edit::de::from_str(text).map_err(|error| PolicyError::Text(error.to_string()))?;
        let policies = Self { codecs: all_codecs(tables.codec)?, policies: tables.policy };
        policies.check_policies()?;
        Ok(policies)
    }

    /// Returns no policy, and the codecs of HDFS-RAID.
    pub fn none() -> Self {
        Self { codecs: Codec::hdfs_raid().into(), policies: Vec::new() }
    }

    fn check_policies(&self) -> Result<(), PolicyError> {
        if self.policies.is_empty() {
            return Err(PolicyError::NoPolicy);
        }
        check_names(self.policies.iter().map(|policy| &policy.name))?;
        for policy in &self.policies {
            if policy.paths.is_empty() {
                return Err(PolicyError::NoPaths(policy.name.clone()));
            }
            if policy.replication == 0 || policy.parity_replication == 0 {
                return Err(PolicyError::NoReplication(policy.name.clone()));
            }
            let Some(codec) = self.codec(&policy.codec) else {
                let known: Vec<&str> = self.codecs.iter().map(|codec| codec.name.as_str()).collect();
                let (policy, codec) = (policy.name.clone(), policy.codec.clone());
                return Err(PolicyError::NoCodec { policy, codec, known: known.join(", ") });
            };
            if codec.scope == Scope::Folder && policy.min_bytes.is_some() {
                return Err(PolicyError::LeastBytes(policy.name.clone()));
            }
        }
        Ok(())
    }

    /// Returns all codecs: those of HDFS-RAID first.
    pub fn codecs(&self) -> &[Codec] {
        &self.codecs
    }

    /// Returns the policies in order.
    pub fn policies(&self) -> &[RaidPolicy] {
        &self.policies
    }

    /// Returns the codec with this name.
    pub fn codec(&self, name: &str) -> Option<&Codec> {
        self.codecs.iter().find(|codec| codec.name == name)
    }

    /// Returns the codec of a policy.
    pub fn codec_of(&self, policy: &RaidPolicy) -> &Codec {
        self.codec(&policy.codec).expect("checked when the policies were parsed")
    }

    /// Returns the parity root that contains a path; also for parity that HDFS-RAID has not moved to its place.
    pub fn parity_root_of(&self, path: &str) -> Option<&str> {
        let path = path.strip_prefix(TEMPORARY).filter(|rest| rest.starts_with('/')).unwrap_or(path);
        let mut roots = self.codecs.iter().map(|codec| codec.parity_root.as_str());
        roots.find(|root| source_of(root, path).is_some())
    }

    /// Returns the first policy that covers a file.
    ///
    /// # Errors
    /// [`Exclusion`] if none does.
    pub fn policy_of(&self, file: &File) -> Result<&RaidPolicy, Exclusion> {
        let mut excluded = Exclusion::NoPolicy;
        for policy in &self.policies {
            let path = match self.codec_of(policy).scope {
                Scope::File => file.path.as_str(),
                Scope::Folder => file.folder(),
            };
            if !policy.paths.iter().any(|glob| glob.covers(path)) {
                continue;
            }
            match policy.exclude.iter().find(|glob| glob.covers(&file.path)) {
                None => return Ok(policy),
                Some(pattern) if excluded == Exclusion::NoPolicy => {
                    let (policy, pattern) = (policy.name.clone(), pattern.to_string());
                    excluded = Exclusion::Pattern { policy, pattern };
                }
                Some(_) => {}
            }
        }
        Err(excluded)
    }
}

impl RaidPolicy {
    /// Returns the least length of a file in bytes.
    pub fn min_bytes(&self, scope: Scope) -> u64 {
        match scope {
            Scope::File => self.min_bytes.map_or(0, ByteSize::bytes),
            Scope::Folder => folder::LEAST_BYTES,
        }
    }

    /// Checks that a file or folder is old and large enough.
    ///
    /// # Errors
    /// [`Exclusion`].
    pub fn check(&self, now_ms: u64, modified_ms: u64, blocks: u64) -> Result<(), Exclusion> {
        let age = Duration::from_millis(now_ms.saturating_sub(modified_ms));
        if age < self.min_age {
            return Err(Exclusion::TooNew { age, least: self.min_age });
        }
        if blocks < self.min_blocks {
            return Err(Exclusion::FewBlocks { blocks, least: self.min_blocks });
        }
        Ok(())
    }
}

impl Exclusion {
    /// Returns a short name of the reason.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoPolicy => "no-policy",
            Self::Outside => "outside-of-paths",
            Self::Pattern { .. } => "excluded",
            Self::Parity(_) => "parity",
            Self::Trash => "trash",
            Self::Striped => "striped",
            Self::Encrypted => "encrypted",
            Self::Open => "open",
            Self::Snapshots(_) => "snapshots",
            Self::TooNew { .. } => "too-new",
            Self::FewBlocks { .. } | Self::Small { .. } => "too-small",
            Self::ManyBlocks { .. } => "too-many-blocks",
            Self::Layout(_) => "irregular-blocks",
            Self::Lost { .. } => "lost-block",
            Self::Nodes(_) => "few-datanodes",
            Self::NoSaving { .. } => "no-saving",
            Self::Unrepairable(_) => "unrepairable",
            Self::Subfolders(_) => "subfolders",
            Self::Unlisted(_) => "unlisted-folder",
            Self::Undone => "undone",
            Self::OtherCodec(_) => "other-codec",
            Self::Neighbour { .. } => "neighbour",
        }
    }
}

/// Checks that a file can be encoded, whatever the policies are.
///
/// # Errors
/// [`Exclusion`].
pub(crate) fn check_file(listing: &Listing, file: &File) -> Result<(), Exclusion> {
    check_storing(file)?;
    if file.is_open {
        return Err(Exclusion::Open);
    }
    if file.path.split('/').any(|name| name == TRASH) {
        return Err(Exclusion::Trash);
    }
    match snapshots_above(listing, &file.path) {
        Some(folder) => Err(Exclusion::Snapshots(folder.clone())),
        None => Ok(()),
    }
}

/// Checks that a file has plain replicated blocks, so that it can have parity.
///
/// # Errors
/// [`Exclusion`].
pub(crate) fn check_storing(file: &File) -> Result<(), Exclusion> {
    match file.storing {
        Storing::Striped => Err(Exclusion::Striped),
        Storing::Encrypted => Err(Exclusion::Encrypted),
        Storing::Replicated => Ok(()),
    }
}

/// Returns the codecs of HDFS-RAID and additional ones.
///
/// # Errors
/// [`PolicyError`] if two codecs have the same name, or parity roots are invalid or overlap.
pub fn all_codecs(more: Vec<Codec>) -> Result<Vec<Codec>, PolicyError> {
    let codecs: Vec<Codec> = Codec::hdfs_raid().into_iter().chain(more).collect();
    check_names(codecs.iter().map(|codec| &codec.name))?;
    for (at, codec) in codecs.iter().enumerate() {
        let (name, root) = (codec.name.clone(), codec.parity_root.clone());
        if !root.starts_with('/') || root.trim_matches('/').is_empty() {
            return Err(PolicyError::Root { codec: name, root });
        }
        let overlaps =
            |other: &&Codec| is_within(&root, &other.parity_root) || is_within(&other.parity_root, &root);
        if let Some(other) = codecs[..at].iter().find(overlaps) {
            return Err(PolicyError::SharedRoot { one: other.name.clone(), other: name });
        }
    }
    Ok(codecs)
}

/// Returns the folder above a path that has snapshots.
pub(crate) fn snapshots_above<'a>(listing: &'a Listing, path: &str) -> Option<&'a String> {
    listing.snapshots.iter().find(|folder| is_within(path, folder))
}

fn check_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), PolicyError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(PolicyError::SameName(name.clone()));
        }
    }
    Ok(())
}

/// Formats a duration in whole units: `30 days`, `7 h`, `5 min`.
fn days(time: &Duration) -> String {
    match time.as_secs() {
        seconds @ ..3600 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn a_day() -> Duration {
    Duration::from_secs(86_400)
}

fn three() -> u64 {
    3
}

fn single() -> u16 {
    1
}

fn time<'a, D: Deserializer<'a>>(text: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(text)?;
    let wrong = |_| D::Error::custom(format!("`{text}` is not a time: write one such as 30d or 12h"));
    humantime::parse_duration(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Owner;

    fn policies(text: &str) -> Policies {
        Policies::parse(text).expect("policies")
    }

    fn error(text: &str) -> String {
        Policies::parse(text).expect_err("not valid").to_string()
    }

    fn file(path: &str) -> File {
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: 1 << 30,
            block_bytes: 128 << 20,
            replication: 3,
            modified_ms: 1_000_000,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: Vec::new(),
        }
    }

    const TEXT: &str = r#"
        [[policy]]
        name = "logs"
        paths = ["/logs/**/*.gz", "/more/*"]
        exclude = ["/logs/today"]
        codec = "wide"
        min_age = "7d"
        min_bytes = "1GiB"
        min_blocks = 5
        replication = 2
        parity_replication = 3

        [[policy]]
        name = "small files"
        paths = ["/small"]
        codec = "dir-rs"

        [[policy]]
        name = "rest"
        paths = ["/"]
        exclude = ["/logs/today", "/home"]
        codec = "xor"

        [[codec]]
        name = "wide"
        code = "lrc-12-2-2"
        parity_root = "/raid-lrc"
    "#;

    #[test]
    fn policies_are_parsed_with_hdfs_raids_defaults() {
        let policies = policies(TEXT);
        let [logs, small, rest] = policies.policies() else { panic!("three policies") };
        assert_eq!((logs.replication, logs.parity_replication, logs.min_blocks), (2, 3, 5));
        assert_eq!((logs.min_age, logs.min_bytes(Scope::File)), (Duration::from_secs(7 * 86_400), 1 << 30));
        assert_eq!(policies.codec_of(logs).code.to_string(), "lrc-12-2-2");
        assert_eq!((rest.replication, rest.min_blocks, rest.min_age), (1, 3, a_day()));
        assert_eq!((rest.min_bytes(Scope::File), small.min_bytes(Scope::Folder)), (0, 10 << 10));
        assert_eq!(policies.codecs().len(), 5);
    }

    #[test]
    fn mistakes_are_explained() {
        let policy = "[[policy]]\nname = \"p\"\npaths = [\"/a\"]\ncodec = \"rs\"\n";
        for (text, expected) in [
            (String::new(), "write a table [[policy]]"),
            (policy.replace("\"/a\"", ""), "policy p has no path"),
            (policy.replace("\"/a\"", "\"a\""), "does not begin with /"),
            (policy.replace("\"rs\"", "\"lrc\""), "no codec lrc; the codecs are rs, xor, dir-rs, dir-xor"),
            (policy.repeat(2), "two policies or two codecs with the name p"),
            (format!("{policy}replication = 0"), "must be at least 1"),
            (format!("{policy}min_age = \"soon\""), "`soon` is not a time"),
            (format!("{policy}min_size = 1"), "min_size"),
            (
                policy.replace("\"rs\"", "\"dir-rs\"\nmin_bytes = \"1MiB\""),
                "min_bytes applies to codecs over files",
            ),
        ] {
            assert!(error(&text).contains(expected), "{text}: {}", error(&text));
        }
        let codec = |name: &str, code: &str, root: &str| {
            format!("{policy}[[codec]]\nname = \"{name}\"\ncode = \"{code}\"\nparity_root = \"{root}\"\n")
        };
        assert!(error(&codec("rs", "rs-9-6", "/p")).contains("with the name rs"));
        assert!(error(&codec("c", "rs-6-9", "/p")).contains("n = 6"));
        assert!(error(&codec("c", "rs-9-6", "/")).contains("other than /"));
        assert!(error(&codec("c", "rs-9-6", "p")).contains("absolute"));
        assert!(error(&codec("c", "rs-9-6", "/raid/more")).contains("codecs xor and c"));
    }

    #[test]
    fn the_first_policy_that_covers_a_file_applies() {
        let policies = policies(TEXT);
        let policy = |path: &str| policies.policy_of(&file(path)).map(|policy| policy.name.as_str());
        assert_eq!(policy("/logs/2024/a.gz"), Ok("logs"));
        assert_eq!(policy("/logs/2024/a.txt"), Ok("rest"));
        assert_eq!(policy("/small/a/b"), Ok("small files"));
        assert_eq!(policy("/small"), Ok("rest"), "a file of this name is in another folder");
        let (name, pattern) = ("logs".to_owned(), "/logs/today".to_owned());
        assert_eq!(policy("/logs/today/a.gz"), Err(Exclusion::Pattern { policy: name, pattern }));
        let (name, pattern) = ("rest".to_owned(), "/home".to_owned());
        assert_eq!(policy("/home/a"), Err(Exclusion::Pattern { policy: name, pattern }));
    }

    #[test]
    fn files_are_excluded_whatever_the_policies_are() {
        let listing = Listing { snapshots: vec!["/kept".to_owned()], ..Listing::default() };
        let check = |file: File| check_file(&listing, &file);
        assert_eq!(check(file("/a")), Ok(()));
        assert_eq!(check(file("/user/x/.Trash/Current/a")), Err(Exclusion::Trash));
        assert_eq!(check(file("/kept/a/b")), Err(Exclusion::Snapshots("/kept".to_owned())));
        assert_eq!(check(File { is_open: true, ..file("/a") }), Err(Exclusion::Open));
        assert_eq!(check(File { storing: Storing::Striped, ..file("/a") }), Err(Exclusion::Striped));
        assert_eq!(check(File { storing: Storing::Encrypted, ..file("/a") }), Err(Exclusion::Encrypted));
    }

    #[test]
    fn files_must_be_old_and_large_enough() {
        let policies = policies(TEXT);
        let rest = &policies.policies()[2];
        let day = 86_400_000;
        assert_eq!(rest.check(day, 0, 3), Ok(()));
        assert_eq!(rest.check(day, 0, 2), Err(Exclusion::FewBlocks { blocks: 2, least: 3 }));
        let error = rest.check(day / 2, 0, 3).expect_err("too new").to_string();
        assert_eq!(error, "it was modified 12 h ago, and the policy waits 24 h");
        // A clock may be wrong: a file from the future is new.
        assert!(rest.check(0, day, 3).is_err());
    }

    #[test]
    fn parity_is_known_by_its_folder() {
        let policies = policies(TEXT);
        assert_eq!(policies.parity_root_of("/raidrs/a"), Some("/raidrs"));
        assert_eq!(policies.parity_root_of("/tmp/raidrs/a"), Some("/raidrs"));
        assert_eq!(policies.parity_root_of("/raid-lrc/a"), Some("/raid-lrc"));
        assert_eq!(policies.parity_root_of("/raids/a"), None);
    }
}
