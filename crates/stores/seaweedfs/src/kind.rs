//! SeaweedFS as a [`Kind`] of store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use attached::{Attaching, Kind, KindError, settings_of};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use cluster::{Cluster, HelperConfig, OwnRepair};
use store_api::{Blocks, SharedRecords, Storage};

use crate::attach::{AttachArgs, attach};
use crate::config::{SeaweedfsConfig, SeaweedfsHelper};
use crate::{Attachment, Security, ServerAddress, ShardBlocks};

/// How often everything is listed, as no message reports one lost shard of several. Including the answer of a server that is
/// asked about it, a loss is seen within 5 s.
const LIST_EVERY: Duration = Duration::from_secs(3);

/// SeaweedFS, in the table of kinds.
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

    fn storage(&self, cluster: &Cluster, records: SharedRecords) -> Result<Storage, KindError> {
        let config = config(cluster)?;
        let masters: Result<Vec<ServerAddress>, _> =
            config.masters.iter().map(|master| master.parse()).collect();
        let security = match &config.security {
            Some(path) => Security::of_toml(&cluster.folder().join(path)).map_err(KindError::new)?,
            None => Security::plain(),
        };
        let attachment = Attachment {
            masters: masters.map_err(KindError::new)?,
            security,
            helpers: self.servers(cluster)?,
            list_every: LIST_EVERY,
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
    config.ok_or_else(|| KindError::new("mend.toml has no `[store]` any more"))
}

/// A helper's blocks.
fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    let settings = settings_of::<SeaweedfsHelper>(cluster, helper)?;
    if settings.folders.is_empty() {
        return Err(KindError::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("write the -dir folders of its volume server there, in the server's order"));
    }
    let folders: Vec<_> = settings.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
    let index = settings.index_folder.as_ref().map(|folder| cluster.folder().join(folder));
    let blocks = ShardBlocks::open(&folders, index.as_deref())?;
    warn_of_indexes(&settings, &blocks)?;
    Ok(Arc::new(blocks))
}

/// SeaweedFS mounts no shard of a volume without its index: if no folder has one, a folder is missing in mend.toml.
fn warn_of_indexes(settings: &SeaweedfsHelper, blocks: &ShardBlocks) -> Result<(), KindError> {
    let without = blocks.volumes_without_index()?;
    let Some(volume) = without.first() else { return Ok(()) };
    let next = match &settings.index_folder {
        None => {
            "if its server runs with -dir.idx, write that as `index_folder` of this helper into mend.toml"
        }
        Some(_) => "`index_folder` of this helper in mend.toml should be the -dir.idx of its server",
    };
    tracing::warn!(%volume, volumes = without.len(), next, "shards of volumes whose index (.ecx) is in no folder that is known");
    Ok(())
}
