//! Storage and blocks of an attached SeaweedFS cluster, for the daemons.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, HelperConfig, SeaweedfsConfig};
use seaweedfs::{Attachment, Security, ServerAddress};
use stores::seaweedfs::ShardBlocks;
use stores::{Blocks, Storage};

use crate::failure::{Exit, Failure};

/// How often to list everything that the masters know. Masters send no message for a single lost shard of
/// several. Together with the server's own answer, a loss is noticed within 5 s.
const LIST_EVERY: Duration = Duration::from_secs(3);

/// The coordinator's storage.
pub async fn storage(cluster: &Cluster, config: &SeaweedfsConfig) -> Result<Box<dyn Storage>, Failure> {
    let masters: Result<Vec<ServerAddress>, _> = config.masters.iter().map(|master| master.parse()).collect();
    let security = match &config.security {
        Some(path) => Security::of_toml(&cluster.folder().join(path)).map_err(Failure::new)?,
        None => Security::plain(),
    };
    let beside = |helper: &HelperConfig| Some((helper.volume_server.clone()?, helper.name.to_string()));
    let attachment = Attachment {
        masters: masters.map_err(Failure::new)?,
        security,
        helpers: cluster.config().helpers.iter().filter_map(beside).collect(),
        list_every: LIST_EVERY,
    };
    let records = super::records(cluster);
    let id = cluster.config().cluster_id.to_string();
    let opened = tokio::task::spawn_blocking(move || seaweedfs::open(attachment, records, &id)).await;
    let opened = opened.map_err(|error| Failure::new(format!("cannot open the storage: {error}")))?;
    let storage = opened.map_err(|error| Failure::new(error).exit(Exit::Unreachable))?;
    Ok(Box::new(storage))
}

/// A helper's blocks.
pub fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, Failure> {
    if helper.folders.is_empty() {
        return Err(Failure::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("add the -dir folders of its volume server, in the server's order"));
    }
    let folders: Vec<_> = helper.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
    let index = helper.index_folder.as_ref().map(|folder| cluster.folder().join(folder));
    let blocks = ShardBlocks::open(&folders, index.as_deref())?;
    warn_of_indexes(helper, &blocks)?;
    Ok(Arc::new(blocks))
}

/// Warns about shards without an index file. SeaweedFS mounts no volume without its index, so a missing one
/// means that the configuration lacks a folder.
fn warn_of_indexes(helper: &HelperConfig, blocks: &ShardBlocks) -> Result<(), Failure> {
    let without = blocks.volumes_without_index()?;
    let Some(volume) = without.first() else { return Ok(()) };
    let next = match &helper.index_folder {
        None => {
            "if its server runs with -dir.idx, set that folder as `index_folder` of this helper in mend.toml"
        }
        Some(_) => "`index_folder` of this helper in mend.toml should be the -dir.idx of its server",
    };
    tracing::warn!(%volume, volumes = without.len(), next, "shards of volumes without an index (.ecx) in any known folder");
    Ok(())
}
