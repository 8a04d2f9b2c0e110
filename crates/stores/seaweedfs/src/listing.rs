//! A master's listing of the cluster, as plain types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::blocks::{Encoding, MAX_SHARDS};

use crate::address::ServerAddress;
use crate::generated::master_pb::{
    DataNodeInfo, DiskInfo, TopologyInfo, VolumeEcShardInformationMessage as ShardsMessage,
};

/// The master's name for a volume server: its address, or the value of `-id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub String);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume server that is connected to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The server's address.
    pub address: ServerAddress,
    /// The server's data centre.
    pub data_center: String,
    /// The server's rack; the name is unique within the data centre.
    pub rack: String,
    /// The server's disks by number.
    pub disks: BTreeMap<u32, Disk>,
    /// The number of further volumes that fit on all disks together.
    pub free_volumes: i64,
    /// The IDs of volumes with needles (stored objects) that are not erasure-coded.
    pub plain_volumes: BTreeSet<u32>,
}

/// A disk of a volume server: one of its `-dir` folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `hdd`, `ssd` or a name chosen by the operator; SeaweedFS lists `hdd` as an empty string.
    pub kind: String,
}

/// Shards of one volume on one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The server that has the shards.
    pub server: ServerId,
    /// The number of the server's disk that has the shards.
    pub disk: u32,
    /// The volume's collection.
    pub collection: String,
    /// The encoding of the shards.
    pub encoding: Encoding,
    /// The shards with their lengths in bytes.
    pub shards: BTreeMap<u8, u64>,
}

/// Servers and EC shards as a master listed them at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// All connected servers.
    pub servers: BTreeMap<ServerId, Server>,
    /// The shards of each volume, by volume ID.
    pub volumes: BTreeMap<u32, Vec<Holding>>,
}

impl Listing {
    /// Converts a master's message. The error describes the impossible value.
    pub(crate) fn of(topology: &TopologyInfo) -> Result<Self, String> {
        let mut listing = Self::default();
        for center in &topology.data_center_infos {
            for rack in &center.rack_infos {
                for node in &rack.data_node_infos {
                    listing.add(&center.id, &rack.id, node)?;
                }
            }
        }
        Ok(listing)
    }

    /// Returns the number of shards in the listing.
    pub fn shard_count(&self) -> usize {
        self.volumes.values().flatten().map(|holding| holding.shards.len()).sum()
    }

    fn add(&mut self, data_center: &str, rack: &str, node: &DataNodeInfo) -> Result<(), String> {
        let id = ServerId(node.id.clone());
        let text = if node.address.is_empty() { &node.id } else { &node.address };
        let address = ServerAddress::listed(text, node.grpc_port).map_err(|error| error.to_string())?;
        let mut disks = BTreeMap::new();
        for disk in node.disk_infos.values() {
            disks.extend(disk.max_volume_count_by_disk.keys().map(|&number| (number, kind_of(disk))));
            for shards in &disk.ec_shard_infos {
                disks.entry(shards.disk_id).or_insert_with(|| kind_of(disk));
                self.volumes.entry(shards.id).or_default().push(holding(&id, shards)?);
            }
        }
        let plain = node.disk_infos.values().flat_map(|disk| &disk.volume_infos);
        let plain = plain.filter(|volume| volume.file_count > volume.delete_count);
        let plain_volumes = plain.map(|volume| volume.id).collect();
        let free_volumes = node.disk_infos.values().map(|disk| disk.free_volume_count.max(0)).sum();
        let (data_center, rack) = (data_center.to_owned(), rack.to_owned());
        self.servers.insert(id, Server { address, data_center, rack, disks, free_volumes, plain_volumes });
        Ok(())
    }
}

fn kind_of(disk: &DiskInfo) -> Disk {
    Disk { kind: disk.r#type.clone() }
}

fn holding(server: &ServerId, message: &ShardsMessage) -> Result<Holding, String> {
    let numbers = (0..MAX_SHARDS).filter(|&shard| message.ec_index_bits >> shard & 1 == 1);
    let mut sizes = message.shard_sizes.iter();
    let mut sized = |shard| {
        // Older servers list no lengths; 0 stands for an unknown length.
        let bytes = sizes.next().map_or(Ok(0), |&bytes| u64::try_from(bytes));
        bytes
            .map(|bytes| (shard, bytes))
            .map_err(|_| format!("the size of shard {}.{shard} is negative", message.id))
    };
    Ok(Holding {
        server: server.clone(),
        disk: message.disk_id,
        collection: message.collection.clone(),
        encoding: Encoding(message.encode_ts_ns),
        shards: numbers.map(&mut sized).collect::<Result<_, _>>()?,
    })
}
