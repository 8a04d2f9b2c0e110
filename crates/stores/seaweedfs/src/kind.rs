//! SeaweedFS as a [`Kind`] of store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use attached::{Attaching, Kind, KindError, settings_of};
use block_files::is_of_disk;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use cluster::{Cluster, HelperConfig, OwnRepair};
use store_api::{Blocks, SharedRecords, Storage};

use crate::attach::{AttachArgs, attach};
use crate::config::{SeaweedfsConfig, SeaweedfsHelper};
use crate::{Attachment, EncodedVolume, Security, ServerAddress, ShardBlocks};

/// Interval between listings of the whole cluster. Polling is needed because masters send no event for the
/// loss of one shard among several. A loss is detected within 5 s, including the time to confirm it with the
/// server.
const LIST_EVERY: Duration = Duration::from_secs(3);

/// The entry for SeaweedFS in the registry of store kinds.
pub struct Seaweedfs;

impl Kind for Seaweedfs {
    fn name(&self) -> &'static str {
        "seaweedfs"
    }

    fn own_repair(&self, cluster: &Cluster) -> Result<OwnRepair, KindError> {
        Ok(config(cluster)?.repair)
    }

    fn servers(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>, KindError> {
        let helpers = cluster.helper_settings::<SeaweedfsHelper>()?.into_iter();
        Ok(helpers.filter_map(|(name, helper)| Some((helper.volume_server?, name.to_string()))).collect())
    }

    fn storage(
        &self,
        cluster: &Cluster,
        records: SharedRecords,
        own_repair: OwnRepair,
    ) -> Result<Storage, KindError> {
        let config = config(cluster)?;
        let masters: Result<Vec<ServerAddress>, _> =
            config.masters.iter().map(|master| master.parse()).collect();
        let abandoned: Result<BTreeSet<EncodedVolume>, _> =
            config.abandoned_encodings.iter().map(|encoding| encoding.parse()).collect();
        let security = match &config.security {
            Some(path) => Security::of_toml(&cluster.folder().join(path)).map_err(KindError::new)?,
            None => Security::plain(),
        };
        let attachment = Attachment {
            masters: masters.map_err(KindError::new)?,
            security,
            helpers: self.servers(cluster)?,
            folders: folders(cluster)?,
            list_every: LIST_EVERY,
            abandoned: abandoned.map_err(KindError::new)?,
            may_change: own_repair == OwnRepair::Auto,
        };
        crate::open(attachment, records).map_err(|error| KindError::new(error).unreachable())
    }

    fn blocks(&self, cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
        blocks(cluster, helper)
    }

    fn command(&self) -> Command {
        AttachArgs::augment_args(Command::new(self.name()))
            .about("Attach to a SeaweedFS cluster and repair its EC volumes")
            .after_help("Example: mend attach seaweedfs --master 10.0.0.1:9333")
    }

    fn attach<'a>(&'a self, folder: Option<PathBuf>, args: &'a ArgMatches) -> Attaching<'a> {
        Box::pin(async move {
            let args = AttachArgs::from_arg_matches(args).map_err(KindError::new)?;
            attach(folder, &args).await
        })
    }
}

fn config(cluster: &Cluster) -> Result<SeaweedfsConfig, KindError> {
    let config = cluster.store_settings()?;
    config.ok_or_else(|| KindError::new("mend.toml no longer has a `[store]` section"))
}

/// Returns the folders of the helpers, keyed by the names of their volume servers.
fn folders(cluster: &Cluster) -> Result<BTreeMap<String, Vec<PathBuf>>, KindError> {
    let of = |helper: SeaweedfsHelper| {
        let folders = helper.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
        Some((helper.volume_server?, folders))
    };
    Ok(cluster.helper_settings::<SeaweedfsHelper>()?.into_values().filter_map(of).collect())
}

/// Opens a helper's blocks.
fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    let settings = settings_of::<SeaweedfsHelper>(cluster, helper)?;
    if settings.folders.is_empty() {
        return Err(KindError::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("set it to the -dir folders of its volume server, in the server's order"));
    }
    let folders: Vec<_> = settings.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
    let index = settings.index_folder.as_ref().map(|folder| cluster.folder().join(folder));
    let blocks = ShardBlocks::open(&folders, index.as_deref())?;
    warn_of_indexes(&settings, &blocks)?;
    Ok(Arc::new(blocks))
}

/// Warns of volumes without an index in any configured folder. SeaweedFS needs the index to mount shards, so
/// a folder is probably missing in `mend.toml`.
fn warn_of_indexes(settings: &SeaweedfsHelper, blocks: &ShardBlocks) -> Result<(), KindError> {
    let without = match blocks.volumes_without_index() {
        Err(error) if is_of_disk(&error) => return Ok(()), // An index may be on the disk that does not work.
        without => without?,
    };
    let Some(volume) = without.first() else { return Ok(()) };
    let next = match &settings.index_folder {
        None => {
            "if its server runs with -dir.idx, set `index_folder` of this helper in mend.toml to that folder"
        }
        Some(_) => "`index_folder` of this helper in mend.toml should be the -dir.idx of its server",
    };
    tracing::warn!(
        %volume, volumes = without.len(), next,
        "found shards of volumes whose index (.ecx) is in none of this helper's folders"
    );
    Ok(())
}
