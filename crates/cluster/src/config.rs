//! The cluster's configuration file `mend.toml`: strict parsing, and edits that preserve comments.
//!
//! A [`Config`] is always valid. An unknown key, a duplicate address or a helper that cannot be dialled is an
//! error with file, line and key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use toml_edit::{ArrayOfTables, Document, DocumentMut, InlineTable, Item, Table, value};

use crate::helper_settings::{NoSettings, check_keys, document};
use crate::network::{LinkConfig, MatrixConfig, RackConfig, RegionConfig};
use crate::store::StoreConfig;
use crate::{Address, Bandwidth, ByteSize, Host, Name, ParseQuantityError, RepairAfter};

/// Blocks of new stripes consist of whole pages.
const BLOCK_PAGE: u64 = 4096;
const MAX_BLOCK_BYTES: u64 = 256 << 30;

/// The configuration of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The cluster's unique id.
    pub cluster_id: ClusterId,
    /// Whether to encrypt data edges, if the file has the key `data_tls`; see
    /// [`encrypts_data_edges`](Self::encrypts_data_edges).
    #[serde(default)]
    pub data_tls: Option<bool>,
    /// The coordinator's addresses and settings.
    pub coordinator: CoordinatorConfig,
    /// Defaults for commands.
    pub defaults: Defaults,
    /// The attached storage system whose stripes are repaired; `None` for Mend's own store.
    #[serde(default)]
    pub store: Option<StoreConfig>,
    /// The helpers, in the order of the file.
    #[serde(default, rename = "helper")]
    pub helpers: Vec<HelperConfig>,
    /// Racks with a region or a bandwidth limit; see [`network`](Self::network).
    #[serde(default, rename = "rack")]
    pub racks: Vec<RackConfig>,
    /// Regions with a bandwidth limit.
    #[serde(default, rename = "region")]
    pub regions: Vec<RegionConfig>,
    /// Links with less bandwidth than the ports at their ends.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkConfig>,
    /// Further links, given as matrices of rates.
    #[serde(default, rename = "matrix")]
    pub matrices: Vec<MatrixConfig>,
}

/// The coordinator's addresses and settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CoordinatorConfig {
    /// Listen address for clients: the HTTP/JSON API and the dashboard.
    #[serde(deserialize_with = "listen_address")]
    pub api: SocketAddr,
    /// Listen address for helpers.
    #[serde(deserialize_with = "listen_address")]
    pub control: SocketAddr,
    /// The host for others to dial, if it differs from the listen addresses.
    pub advertise: Option<Host>,
    /// How long a helper may be down before its blocks are rebuilt elsewhere.
    #[serde(default)]
    pub repair_after: RepairAfter,
    /// The total read rate of the background scrub over all helpers; `None` turns the background scrub off.
    #[serde(default)]
    pub scrub_rate: Option<Bandwidth>,
    /// Whether the background scrub also checks stripes against their parity equations. `scrub_rate` covers
    /// the reads of both checks.
    #[serde(default)]
    pub scrub_parity: bool,
    /// Listen address for metrics without encryption, on loopback; `None` turns it off. The API has the metrics
    /// too.
    #[serde(default, deserialize_with = "some_loopback")]
    pub metrics: Option<SocketAddr>,
}

/// Defaults for commands. This crate does not validate the names of the code and the scheme.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Defaults {
    /// The code of new stripes, such as `rs-14-10`.
    #[serde(deserialize_with = "not_empty")]
    pub code: String,
    /// The block size of new stripes: whole pages of 4 KiB, and at most 256 GiB.
    #[serde(deserialize_with = "block_size")]
    pub block_bytes: ByteSize,
    /// The repair scheme; `auto` lets the planner choose.
    #[serde(deserialize_with = "not_empty")]
    pub scheme: String,
}

/// A `[[helper]]` entry. The crate of an attached store reads further keys of the entry, see
/// [`HelperSettings`](crate::HelperSettings).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HelperConfig {
    /// The helper's name, unique in the cluster and part of the helper's certificate.
    pub name: Name,
    /// Listen address for data edges of other helpers. With port 0 the system picks a free port, and the
    /// helper announces it when it registers.
    #[serde(deserialize_with = "listen_address")]
    pub listen: SocketAddr,
    /// The address for others to dial, if it differs from `listen`.
    #[serde(default)]
    pub advertise: Option<Address>,
    /// The helper's block folder, absolute or relative to the cluster folder.
    #[serde(default)]
    pub blocks: Option<PathBuf>,
    /// The helper's rack.
    #[serde(default, deserialize_with = "some_not_empty")]
    pub rack: Option<String>,
    /// The bandwidth of the helper's link in each direction; measured if absent.
    #[serde(default)]
    pub bandwidth: Option<Bandwidth>,
    /// The helper's upload bandwidth, if it differs from `bandwidth`.
    #[serde(default)]
    pub uplink: Option<Bandwidth>,
    /// The helper's download bandwidth, if it differs from `bandwidth`.
    #[serde(default)]
    pub downlink: Option<Bandwidth>,
    /// The read bandwidth of the helper's disk.
    #[serde(default)]
    pub disk_read: Option<Bandwidth>,
    /// The write bandwidth of the helper's disk.
    #[serde(default)]
    pub disk_write: Option<Bandwidth>,
    /// Caps on the bandwidth that the helper may use.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Listen address for the helper's metrics: without encryption on loopback, otherwise over mutual TLS.
    #[serde(default, deserialize_with = "some_listen_address")]
    pub metrics: Option<SocketAddr>,
}

/// Bandwidth caps of a helper; an absent cap means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Cap on the disk, for reads and writes together.
    pub disk: Option<Bandwidth>,
    /// Cap on the bytes sent, over all connections together.
    pub up: Option<Bandwidth>,
    /// Cap on the bytes received, over all connections together.
    pub down: Option<Bandwidth>,
    /// Cap on each background repair, in each direction.
    pub repair: Option<Bandwidth>,
}

/// A random 128-bit number that identifies a cluster, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(u128);

/// The text is not a [`ClusterId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a cluster id: an id has 32 hexadecimal digits and is generated by `mend init`; restore \
     it from a backup, never invent one"
)]
pub struct ParseClusterIdError {
    /// The rejected text.
    pub text: String,
}

/// The reason why a `mend.toml` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {message}; the line reads `{line_text}`", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line number, from 1.
    pub line: usize,
    /// The text of this line, trimmed.
    pub line_text: String,
    /// The mistake, and how to correct it.
    pub message: String,
}

impl Config {
    /// Parses and validates the text of a `mend.toml`. `path` is only used in errors.
    ///
    /// # Errors
    /// Returns the first error in the file, with its line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let document = document(text, path)?;
        let config: Config = toml_edit::de::from_str(text)
            .map_err(|error| ConfigError::at(path, text, error.message(), error.span()))?;
        if config.store.is_none() {
            check_keys::<NoSettings>(&document, path)?;
        }
        match config.contradiction() {
            None => Ok(config),
            Some(found) => Err(found.error_in(&document, path)),
        }
    }

    /// Returns the helper with this name.
    pub fn helper(&self, name: &Name) -> Option<&HelperConfig> {
        self.helpers.iter().find(|helper| helper.name == *name)
    }

    /// Returns the names of all helpers.
    pub fn helper_names(&self) -> BTreeSet<String> {
        self.helpers.iter().map(|helper| helper.name.to_string()).collect()
    }

    /// Whether data edges are encrypted: the value of `data_tls`, or if that is absent, whether any helper is
    /// reachable from another machine.
    pub fn encrypts_data_edges(&self) -> bool {
        self.data_tls.unwrap_or_else(|| self.helpers.iter().any(|helper| !helper.is_on_loopback()))
    }

    /// Returns the first conflict between values that are valid individually.
    fn contradiction(&self) -> Option<Contradiction> {
        self.coordinator
            .contradiction()
            .or_else(|| self.helpers.iter().enumerate().find_map(|(i, helper)| helper.contradiction(i)))
            .or_else(|| self.repeated_name())
            .or_else(|| self.repeated_listen())
            .or_else(|| self.repeated_dial())
            .or_else(|| self.repeated_blocks())
    }

    fn repeated_name(&self) -> Option<Contradiction> {
        let names =
            self.helpers.iter().enumerate().map(|(i, helper)| (KeyLocation::Helper(i, "name"), &helper.name));
        first_repeated(names, |name, first| format!("`name`: `{name}` is taken by {first}"))
    }

    fn repeated_listen(&self) -> Option<Contradiction> {
        let coordinator = [
            (KeyLocation::Coordinator("api"), self.coordinator.api),
            (KeyLocation::Coordinator("control"), self.coordinator.control),
        ];
        let metrics = self.coordinator.metrics.map(|address| (KeyLocation::Coordinator("metrics"), address));
        let helpers = self.helpers.iter().enumerate().flat_map(|(i, helper)| {
            let metrics = helper.metrics.map(|address| (KeyLocation::Helper(i, "metrics"), address));
            [(KeyLocation::Helper(i, "listen"), helper.listen)].into_iter().chain(metrics)
        });
        // Helpers on different machines may all listen on 0.0.0.0:7410; only their advertised addresses must
        // differ.
        let fixed = coordinator
            .into_iter()
            .chain(metrics)
            .chain(helpers)
            .filter(|(_, a)| a.port() != 0 && !a.ip().is_unspecified());
        first_repeated(fixed, |address, first| format!("`{address}` is already the address of {first}"))
    }

    fn repeated_dial(&self) -> Option<Contradiction> {
        let helpers = self.helpers.iter().enumerate();
        let dialled = helpers.filter_map(|(i, helper)| {
            Some((KeyLocation::Helper(i, "advertise"), helper.advertise.as_ref()?))
        });
        first_repeated(dialled, |address, first| {
            format!("`advertise`: `{address}` is already the advertised address of {first}")
        })
    }

    fn repeated_blocks(&self) -> Option<Contradiction> {
        let helpers = self.helpers.iter().enumerate();
        let named = helpers.filter_map(|(i, helper)| {
            let blocks = helper.blocks.as_deref()?;
            // The same path on different hosts is a different folder, so the host is part of the comparison.
            Some((KeyLocation::Helper(i, "blocks"), (helper.dial_host(), blocks)))
        });
        first_repeated(named, |(_, blocks), first| {
            format!("`blocks`: `{}` is already the block folder of {first}", blocks.display())
        })
    }
}

impl CoordinatorConfig {
    /// Returns the address where clients dial the API.
    pub fn dial_api(&self) -> Address {
        self.dial(self.api)
    }

    /// Returns the address where helpers dial the control port.
    pub fn dial_control(&self) -> Address {
        self.dial(self.control)
    }

    fn dial(&self, listen: SocketAddr) -> Address {
        self.advertise.as_ref().map_or_else(|| listen.into(), |host| host.at(listen.port()))
    }

    fn contradiction(&self) -> Option<Contradiction> {
        [("api", self.api), ("control", self.control)].into_iter().find_map(|(key, listen)| {
            let place = KeyLocation::Coordinator(key);
            if listen.port() == 0 {
                let message =
                    format!("`{key}`: port 0 is not a port to connect to; write a port from 1 to 65535");
                return Some(Contradiction { place, message });
            }
            if self.dial(listen).is_unspecified() {
                let message = format!(
                    "`{key}`: other machines cannot connect to `{}`; add `advertise = \"HOST\"` to \
                     [coordinator]",
                    listen.ip()
                );
                return Some(Contradiction { place, message });
            }
            None
        })
    }
}

impl HelperConfig {
    /// Creates a helper with this name and listen address, and defaults for everything else.
    pub fn new(name: Name, listen: SocketAddr) -> Self {
        Self {
            name,
            listen,
            advertise: None,
            blocks: None,
            rack: None,
            bandwidth: None,
            uplink: None,
            downlink: None,
            disk_read: None,
            disk_write: None,
            limits: LimitsConfig::default(),
            metrics: None,
        }
    }

    /// Returns the address for others to dial. If the port in this address is 0, the helper reports the
    /// actual port to the coordinator when it registers.
    pub fn dial_address(&self) -> Address {
        self.advertise.clone().unwrap_or_else(|| self.listen.into())
    }

    /// Whether the helper can be reached only from its own machine, judging by its addresses.
    pub fn is_on_loopback(&self) -> bool {
        self.listen.ip().is_loopback() && self.dial_host().is_loopback()
    }

    fn dial_host(&self) -> Host {
        self.dial_address().into_host()
    }

    fn contradiction(&self, index: usize) -> Option<Contradiction> {
        let (key, message) = if self.dial_address().is_unspecified() {
            let key = if self.advertise.is_some() { "advertise" } else { "listen" };
            let address = self.dial_address();
            (
                key,
                format!(
                    "`{key}`: other machines cannot connect to `{address}`; give {} `advertise = \
                     \"HOST:PORT\"`",
                    self.name
                ),
            )
        } else if self.blocks.as_deref() == Some(Path::new("")) {
            ("blocks", "`blocks`: an empty path; name a folder, or leave the key out".to_owned())
        } else {
            return None;
        };
        Some(Contradiction { place: KeyLocation::Helper(index, key), message })
    }

    /// Returns the helper's `[[helper]]` table for `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        table["name"] = value(self.name.as_str());
        table["listen"] = value(self.listen.to_string());
        if let Some(advertise) = &self.advertise {
            table["advertise"] = value(advertise.to_string());
        }
        if let Some(blocks) = &self.blocks {
            table["blocks"] = value(blocks.to_string_lossy().into_owned());
        }
        if let Some(rack) = &self.rack {
            table["rack"] = value(rack.as_str());
        }
        let rates = [
            ("bandwidth", self.bandwidth),
            ("uplink", self.uplink),
            ("downlink", self.downlink),
            ("disk_read", self.disk_read),
            ("disk_write", self.disk_write),
        ];
        for (key, rate) in rates {
            if let Some(rate) = rate {
                table[key] = value(rate.to_string());
            }
        }
        let LimitsConfig { disk, up, down, repair } = self.limits;
        for (key, cap) in [("disk", disk), ("up", up), ("down", down), ("repair", repair)] {
            if let Some(cap) = cap {
                table["limits"].or_insert(Item::Value(InlineTable::new().into()))[key] =
                    value(cap.to_string());
            }
        }
        table
    }
}

/// Appends helpers to `text`, preserving the existing text where TOML allows.
pub(crate) fn with_helpers(
    text: &str,
    path: &Path,
    helpers: impl IntoIterator<Item = Table>,
) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| ConfigError::at(path, text, error.message(), error.span()))?;
    // If the file has an inline list, helper = [{ name = … }], extend that list, because TOML does not allow
    // [[helper]] tables next to such a list.
    if let Some(array) = document.get_mut("helper").and_then(Item::as_array_mut) {
        array.extend(helpers.into_iter().map(Table::into_inline_table));
        return Ok(document.to_string());
    }
    let mut appended = DocumentMut::new();
    appended["helper"] = Item::ArrayOfTables(helpers.into_iter().collect::<ArrayOfTables>());
    Ok(format!("{}\n\n{appended}", text.trim_end()))
}

/// Removes a helper from `text`; returns `None` if the helper is not listed.
pub(crate) fn without_helper(text: &str, path: &Path, name: &Name) -> Result<Option<String>, ConfigError> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| ConfigError::at(path, text, error.message(), error.span()))?;
    let is_it = |item: Option<&str>| item == Some(name.as_str());
    let Some(helpers) = document.get_mut("helper") else { return Ok(None) };
    let found = if let Some(array) = helpers.as_array_mut() {
        let named =
            |value: &toml_edit::Value| is_it(value.as_inline_table()?.get("name")?.as_str()).then_some(());
        let at = array.iter().position(|value| named(value).is_some());
        at.map(|at| drop(array.remove(at)))
    } else if let Some(tables) = helpers.as_array_of_tables_mut() {
        let at = tables.iter().position(|table| is_it(table.get("name").and_then(Item::as_str)));
        at.map(|at| drop(tables.remove(at)))
    } else {
        None
    };
    Ok(found.map(|()| document.to_string()))
}

/// Parses the section `[store]` into the type of the crate that supports this kind of store; `None` without a
/// `[store]`.
pub(crate) fn store_settings<T: DeserializeOwned>(text: &str, path: &Path) -> Result<Option<T>, ConfigError> {
    #[derive(Deserialize)]
    struct Stored<T> {
        store: Option<T>,
    }
    let parsed = toml_edit::de::from_str::<Stored<T>>(text);
    let parsed = parsed.map_err(|error| ConfigError::at(path, text, error.message(), error.span()))?;
    Ok(parsed.store)
}

/// Sets the section `[store]` of `text`.
pub(crate) fn with_store(text: &str, path: &Path, store: Table) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| ConfigError::at(path, text, error.message(), error.span()))?;
    document["store"] = Item::Table(store);
    Ok(document.to_string())
}

/// Returns the text of a new `mend.toml` without helpers.
pub(crate) fn new_text(
    cluster_id: ClusterId,
    data_tls: Option<bool>,
    coordinator: &CoordinatorConfig,
    defaults: &Defaults,
) -> String {
    let data_tls = data_tls.map_or_else(|| "# data_tls = true".to_owned(), |on| format!("data_tls = {on}"));
    let (coordinator, defaults) = (coordinator_text(coordinator), defaults_text(defaults));
    format!(
        r#"# The configuration of one Mend cluster, created by `mend init`. Every machine of the cluster has a copy.

# Identifies this cluster. Never change it.
cluster_id = "{cluster_id}"

# Whether block data between helpers and clients is encrypted, which costs some CPU time. Default: true if a helper
# listens on an address other than loopback. The coordinator's copy of this file decides for the whole cluster; a helper
# or client whose own copy says true refuses unencrypted connections.
{data_tls}

{coordinator}{defaults}{HELPERS_TEXT}"#
    )
}

fn coordinator_text(coordinator: &CoordinatorConfig) -> String {
    let CoordinatorConfig { api, control, advertise, repair_after, scrub_rate, scrub_parity, metrics } =
        coordinator;
    let metrics = metrics.map_or_else(
        || "# metrics = \"127.0.0.1:7402\"".to_owned(),
        |address| format!("metrics = \"{address}\""),
    );
    let advertise = match advertise {
        Some(host) => format!("advertise = \"{host}\""),
        None => "# advertise = \"10.0.0.1\"".to_owned(),
    };
    let scrub_rate = scrub_rate
        .map_or_else(|| "# scrub_rate = \"20MB/s\"".to_owned(), |rate| format!("scrub_rate = \"{rate}\""));
    let scrub_parity = if *scrub_parity { "scrub_parity = true" } else { "# scrub_parity = true" };
    format!(
        r#"[coordinator]
# Clients: the HTTP/JSON API and the dashboard.
api = "{api}"
# Helpers register here and receive their tasks.
control = "{control}"
# The host that other machines connect to, if it differs from the one above. Needed with 0.0.0.0 or [::].
{advertise}
# How long a helper may be down before its blocks are rebuilt elsewhere, or "never". `mend node repair-after` changes
# this while the coordinator runs; `mend node maintenance` extends the time for one helper.
repair_after = "{repair_after}"
# The background scrub reads every block in turn and verifies its checksums, at this total rate over all helpers. Without
# a rate there is no background scrub. Its position survives a restart of the coordinator.
{scrub_rate}
# Also checks the parity of whole stripes, which detects blocks that were replaced together with their checksums. Each
# block is read once more for this check, within the same rate.
{scrub_parity}
# Prometheus on this machine can scrape /metrics here, without encryption. From other machines, it can scrape /metrics of
# the API with a certificate (`mend issue monitor NAME`).
{metrics}

"#
    )
}

fn defaults_text(defaults: &Defaults) -> String {
    // The code and the scheme come from the command line and need escaping.
    let (code, scheme) = (value(defaults.code.as_str()), value(defaults.scheme.as_str()));
    let block_bytes = defaults.block_bytes;
    format!(
        r#"[defaults]
# The code of new stripes: rs-14-10 stores 14 blocks; any 10 of them suffice to read the data.
code = {code}
# The size of a block of new stripes.
block_bytes = "{block_bytes}"
# The repair scheme; "auto" lets the planner choose. `mend plan` shows the choice for a block.
scheme = {scheme}

"#
    )
}

/// The comment at the end of a new `mend.toml`, after which helpers are appended.
const HELPERS_TEXT: &str = r#"# The helpers, one [[helper]] each. `mend node add` appends here and creates the certificate.
#   name       1 to 63 of a-z, 0-9 and -; the name in the helper's certificate
#   listen     the address on which the helper listens for data from other helpers
#   advertise  optional: the HOST:PORT that other machines connect to, if it differs from `listen`
#   blocks     optional: the block folder, absolute or relative to this file; default helpers/NAME/blocks
#   rack       optional: the helper's rack, such as "r1"
#   bandwidth  optional: the rate of its link, such as "1gbit" or "100MB/s"; uplink and downlink if these differ
#   disk_read, disk_write  optional: the rates of its disk, such as "200MB/s"
#   metrics    optional: the IP:PORT where it serves /metrics, on loopback without encryption, otherwise over TLS
#   limits     optional: caps, such as { disk = "200MB/s", up = "500mbit", down = "1gbit", repair = "50MB/s" }
# Network capacity between helpers, where it is lower than that of their links (docs/reference/configuration.md):
#   [[rack]]   name; up, down: the rates at which all its helpers together send and receive; region: the rack's region
#   [[region]] name; up, down: the same rates for a region
#   [[link]]   from, to, rate: between two helpers (or "client"), or between two racks or regions
#   [[matrix]] names, rates: links between all named helpers, racks or regions; one row for each sender
"#;

impl ConfigError {
    pub(crate) fn at(path: &Path, text: &str, message: &str, span: Option<Range<usize>>) -> Self {
        let start = span.map_or(0, |span| span.start).min(text.len());
        let before = &text.as_bytes()[..start];
        let line_index = before.iter().filter(|&&byte| byte == b'\n').count();
        Self {
            path: path.to_owned(),
            line: line_index + 1,
            line_text: text.lines().nth(line_index).unwrap_or_default().trim().to_owned(),
            message: message.trim().to_owned(),
        }
    }
}

/// A value that is valid alone but conflicts with another value.
pub(crate) struct Contradiction {
    pub place: KeyLocation,
    pub message: String,
}

impl Contradiction {
    pub(crate) fn error_in(&self, document: &Document<&str>, path: &Path) -> ConfigError {
        ConfigError::at(path, document.raw(), &self.message, self.place.span_in(document))
    }
}

/// The position of a value in the file.
#[derive(Clone, Copy)]
pub(crate) enum KeyLocation {
    Coordinator(&'static str),
    Helper(usize, &'static str),
}

impl KeyLocation {
    fn span_in(self, document: &Document<&str>) -> Option<Range<usize>> {
        match self {
            KeyLocation::Coordinator(key) => document.as_item().get("coordinator")?.get(key)?.span(),
            KeyLocation::Helper(index, key) => document.as_item().get("helper")?.get(index)?.get(key)?.span(),
        }
    }
}

impl fmt::Display for KeyLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyLocation::Coordinator(key) => write!(f, "[coordinator] {key}"),
            // Number helpers from 1, as readers of the file do.
            KeyLocation::Helper(index, key) => write!(f, "[[helper]] number {} ({key})", index + 1),
        }
    }
}

/// Returns an error for the first value that repeats an earlier one.
fn first_repeated<T: Ord>(
    values: impl Iterator<Item = (KeyLocation, T)>,
    message: impl Fn(T, KeyLocation) -> String,
) -> Option<Contradiction> {
    let mut seen = BTreeMap::new();
    for (place, value) in values {
        if let Some(&first) = seen.get(&value) {
            let message = message(value, first);
            return Some(Contradiction { place, message });
        }
        seen.insert(value, place);
    }
    None
}

fn listen_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        D::Error::custom(format!(
            "`{text}` is not an address to listen on: write IP:PORT, such as 127.0.0.1:7410"
        ))
    })
}

fn some_listen_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    listen_address(deserializer).map(Some)
}

fn some_loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let address = listen_address(deserializer)?;
    if !address.ip().is_loopback() {
        return Err(D::Error::custom(format!(
            "`{address}` can be reached from other machines, and this address has no encryption: use a loopback \
             address such as 127.0.0.1:7402, or scrape /metrics of the API with a certificate (mend issue monitor)"
        )));
    }
    Ok(Some(address))
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() { Err(D::Error::custom("the value is empty")) } else { Ok(text) }
}

fn some_not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    not_empty(deserializer).map(Some)
}

/// Parses the size of new blocks, such as `64MiB`: whole pages of 4 KiB, and at most 256 GiB.
///
/// # Errors
/// A sentence that says which sizes are possible.
pub fn parse_block_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: ParseQuantityError| error.to_string())?;
    checked_block_size(size)
}

fn checked_block_size(size: ByteSize) -> Result<ByteSize, String> {
    let bytes = size.bytes();
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_PAGE) || bytes > MAX_BLOCK_BYTES {
        return Err(format!(
            "the block size must be a multiple of {}, and at most {}; write a size such as \"64MiB\"",
            ByteSize::from_bytes(BLOCK_PAGE),
            ByteSize::from_bytes(MAX_BLOCK_BYTES)
        ));
    }
    Ok(size)
}

fn block_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    checked_block_size(ByteSize::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl ClusterId {
    pub(crate) fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl FromStr for ClusterId {
    type Err = ParseClusterIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = if is_hex { u128::from_str_radix(text, 16).ok() } else { None };
        bits.map(Self).ok_or_else(|| ParseClusterIdError { text: text.to_owned() })
    }
}

impl TryFrom<String> for ClusterId {
    type Error = ParseClusterIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"cluster_id = "000102030405060708090a0b0c0d0e0f"
[coordinator]
api = "127.0.0.1:7400"
control = "127.0.0.1:7401"
[defaults]
code = "rs-14-10"
block_bytes = "64MiB"
scheme = "auto"
[[helper]]
name = "h1"
listen = "127.0.0.1:7410"
[[helper]]
name = "h2"
listen = "127.0.0.1:7411"
advertise = "node2:7411"
blocks = "/srv/blocks"
rack = "r1"
bandwidth = "1gbit"
limits = { up = "500mbit", repair = "10MB/s" }
"#;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("mend.toml"))
    }

    /// Checks that `GOOD` with one replacement is rejected on `line`, with `message` in the error.
    #[track_caller]
    fn check_refused(from: &str, to: &str, line: usize, message: &str) {
        assert!(GOOD.contains(from));
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(message), "{shown}");
        assert_eq!(error.line, line, "{shown}");
        assert!(shown.starts_with(&format!("mend.toml:{line}: ")), "{shown}");
    }

    #[test]
    fn every_message_is_parsed() {
        let config = parse(GOOD).unwrap();
        assert_eq!(config.cluster_id.to_string(), "000102030405060708090a0b0c0d0e0f");
        assert_eq!(config.defaults.block_bytes, ByteSize::from_bytes(64 << 20));
        assert_eq!(config.coordinator.dial_control().to_string(), "127.0.0.1:7401");
        let h2 = config.helper(&"h2".parse().unwrap()).unwrap();
        assert_eq!(h2.dial_address().to_string(), "node2:7411");
        assert_eq!(h2.rack.as_deref(), Some("r1"));
        assert_eq!(h2.bandwidth, Bandwidth::from_bits_per_second(1_000_000_000));
        assert_eq!(h2.limits.up, Bandwidth::from_bits_per_second(500_000_000));
        assert_eq!(h2.limits.repair, Bandwidth::from_bits_per_second(80_000_000));
        assert_eq!(h2.limits.disk, None);
        assert_eq!(config.helpers[0].dial_address().to_string(), "127.0.0.1:7410");
    }

    #[test]
    fn unknown_and_missing_keys_are_named() {
        check_refused("rack =", "rak =", 17, "`rak`");
        check_refused("scheme =", "schema =", 8, "`schema`");
        check_refused("[defaults]", "[default]", 5, "`default`");
        check_refused("api = \"127.0.0.1:7400\"\n", "", 2, "`api`");
        check_refused("name = \"h1\"\n", "", 9, "`name`");
    }

    #[test]
    fn invalid_values_are_reported() {
        check_refused(
            "127.0.0.1:7410",
            "localhost:7410",
            11,
            "`localhost:7410` is not an address to listen on",
        );
        check_refused("\"h1\"", "\"H1\"", 10, "`H1` is not a name");
        check_refused("64MiB", "64 potatoes", 7, "`64 potatoes` is not a size");
        for size in ["0", "5", "\"512GiB\""] {
            check_refused(
                "\"64MiB\"",
                size,
                7,
                "the block size must be a multiple of 4KiB, and at most 256GiB",
            );
        }
        check_refused("\"64MiB\"", "-1", 7, "`-1` is not a size");
        check_refused("1gbit", "1mbps", 18, "`1mbps` is not a bandwidth");
        check_refused("node2:7411", "node2", 15, "`node2` is not an address to connect to");
        check_refused("000102", "xx0102", 1, "is not a cluster id");
        check_refused("\"r1\"", "\"\"", 17, "empty");
        check_refused("\"auto\"", "7", 8, "scheme = 7");
        check_refused("/srv/blocks", "", 16, "`blocks`: an empty path");
    }

    #[test]
    fn values_that_contradict_each_other_are_named() {
        check_refused("\"h2\"", "\"h1\"", 13, "`h1` is taken by [[helper]] number 1");
        check_refused("127.0.0.1:7411", "127.0.0.1:7410", 14, "already the address of [[helper]] number 1");
        check_refused("127.0.0.1:7410", "127.0.0.1:7400", 11, "already the address of [coordinator] api");
        check_refused("127.0.0.1:7401", "127.0.0.1:7400", 4, "already the address of [coordinator] api");
        check_refused("127.0.0.1:7401", "127.0.0.1:0", 4, "port 0");
        check_refused("127.0.0.1:7400", "0.0.0.0:7400", 3, "advertise");
        check_refused("127.0.0.1:7410", "0.0.0.0:7410", 11, "give h1 `advertise");
        check_refused(
            "\"h1\"",
            "\"h1\"\nadvertise = \"node2:7411\"",
            16,
            "already the advertised address of [[helper]] number 1",
        );
    }

    #[test]
    fn data_edges_are_encrypted_beyond_loopback_unless_the_file_says_otherwise() {
        let local = GOOD.replace("node2:7411", "localhost:7411");
        let encrypts = |text: &str| parse(text).unwrap().encrypts_data_edges();
        assert!(!encrypts(&local));
        assert!(encrypts(GOOD), "node2 may be anywhere");
        assert!(encrypts(&local.replace("127.0.0.1:7410", "10.0.0.7:7410")));
        assert!(!encrypts(&local.replace("127.0.0.1:7410", "127.0.0.9:7410")));
        assert!(encrypts(&format!("data_tls = true\n{local}")));
        assert!(!encrypts(&format!("data_tls = false\n{GOOD}")));
        check_refused("[defaults]", "metrics = \"10.0.0.1:7402\"\n[defaults]", 5, "has no encryption");
        check_refused("[coordinator]", "data_tls = \"yes\"\n[coordinator]", 2, "data_tls");
    }

    #[test]
    fn broken_toml_names_the_line() {
        check_refused("name = \"h1\"", "name = \"h1", 10, "name = \"h1");
        check_refused("code = \"rs-14-10\"", "code rs", 6, "code rs");
    }

    #[test]
    fn helpers_of_several_machines_may_listen_on_the_same_wildcard() {
        let text = GOOD
            .replace("listen = \"127.0.0.1:7410\"", "listen = \"0.0.0.0:7410\"\nadvertise = \"node1:7410\"")
            .replace("listen = \"127.0.0.1:7411\"", "listen = \"0.0.0.0:7410\"");
        assert_eq!(parse(&text).unwrap().helpers.len(), 2);
    }

    #[test]
    fn helpers_are_appended_and_comments_stay() {
        let path = Path::new("mend.toml");
        let commented = format!("# mine\n{GOOD}# the end\n");
        let mut h3 = HelperConfig::new("h3".parse().unwrap(), "127.0.0.1:7412".parse().unwrap());
        h3.rack = Some("quote \" me".to_owned());
        let text = with_helpers(&commented, path, [h3.to_table()]).unwrap();
        assert!(text.starts_with(&format!("{commented}\n[[helper]]\nname = \"h3\"\n")), "{text}");
        assert_eq!(parse(&text).unwrap().helpers.last(), Some(&h3));
    }

    #[test]
    fn helpers_written_inline_are_appended_to() {
        let (head, _) = GOOD.split_once("[[helper]]").unwrap();
        let inline = format!("helper = [{{ name = \"h1\", listen = \"127.0.0.1:7410\" }}] # one\n{head}");
        let h2 = HelperConfig::new("h2".parse().unwrap(), "127.0.0.1:7411".parse().unwrap());
        let text = with_helpers(&inline, Path::new("mend.toml"), [h2.to_table()]).unwrap();
        assert_eq!(parse(&text).unwrap().helpers[1], h2);
        assert!(text.contains("# one"));
    }
}
