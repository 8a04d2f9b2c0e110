//! A master's listing of the cluster, as plain types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::blocks::{Encoding, MAX_SHARDS};

use crate::address::ListedAddress;
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
    /// The server's address. If it is malformed, the server and its shards are listed all the same, because the master
    /// is connected to the server.
    pub address: ListedAddress,
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

impl Server {
    /// Replaces the ordinary volumes, except those with these IDs, by those of another listing.
    pub(crate) fn set_other_plain_volumes(&mut self, ids: &BTreeSet<u32>, others: &BTreeSet<u32>) {
        self.plain_volumes.retain(|id| ids.contains(id));
        self.plain_volumes.extend(others.difference(ids));
    }
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
    /// Servers whose ordinary volumes are known in part: no listing of the whole cluster contained them since they
    /// connected.
    pub(crate) partial: BTreeSet<ServerId>,
}

impl Listing {
    /// Converts a master's message.
    pub(crate) fn of(topology: &TopologyInfo) -> Self {
        let mut listing = Self::default();
        for center in &topology.data_center_infos {
            for rack in &center.rack_infos {
                for node in &rack.data_node_infos {
                    listing.add(&center.id, &rack.id, node);
                }
            }
        }
        listing
    }

    /// Returns the number of shards in the listing.
    pub fn shard_count(&self) -> usize {
        self.volumes.values().flatten().map(|holding| holding.shards.len()).sum()
    }

    fn add(&mut self, data_center: &str, rack: &str, node: &DataNodeInfo) {
        let id = ServerId(node.id.clone());
        let text = if node.address.is_empty() { &node.id } else { &node.address };
        let address = ListedAddress::of(text, node.grpc_port);
        let mut disks = BTreeMap::new();
        for disk in node.disk_infos.values() {
            disks.extend(disk.max_volume_count_by_disk.keys().map(|&number| (number, kind_of(disk))));
            for shards in &disk.ec_shard_infos {
                disks.entry(shards.disk_id).or_insert_with(|| kind_of(disk));
                self.volumes.entry(shards.id).or_default().push(holding(&id, shards));
            }
        }
        let plain = node.disk_infos.values().flat_map(|disk| &disk.volume_infos);
        let plain = plain.filter(|volume| volume.file_count > volume.delete_count);
        let plain_volumes = plain.map(|volume| volume.id).collect();
        let free_volumes = node.disk_infos.values().map(|disk| disk.free_volume_count.max(0)).sum();
        let (data_center, rack) = (data_center.to_owned(), rack.to_owned());
        self.servers.insert(id, Server { address, data_center, rack, disks, free_volumes, plain_volumes });
    }
}

fn kind_of(disk: &DiskInfo) -> Disk {
    Disk { kind: disk.r#type.clone() }
}

fn holding(server: &ServerId, message: &ShardsMessage) -> Holding {
    let numbers = (0..MAX_SHARDS).filter(|&shard| message.ec_index_bits >> shard & 1 == 1);
    let mut sizes = message.shard_sizes.iter();
    // 0 stands for an unknown length: older servers list no lengths, and a negative one says nothing.
    let mut sized = |shard| (shard, sizes.next().map_or(0, |&bytes| u64::try_from(bytes).unwrap_or(0)));
    Holding {
        server: server.clone(),
        disk: message.disk_id,
        collection: message.collection.clone(),
        encoding: Encoding(message.encode_ts_ns),
        shards: numbers.map(&mut sized).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::master_pb::{DataCenterInfo, RackInfo};

    /// Returns a master's message about servers, each with the shard of volume 5 whose number is its position.
    fn topology<const N: usize>(addresses: [&str; N], shard_sizes: &[i64]) -> TopologyInfo {
        let node = |(address, shard): (&str, u32)| {
            let shards = ShardsMessage {
                id: 5,
                ec_index_bits: 1 << shard,
                shard_sizes: shard_sizes.to_vec(),
                ..ShardsMessage::default()
            };
            let disk = DiskInfo { ec_shard_infos: vec![shards], ..DiskInfo::default() };
            DataNodeInfo {
                id: format!("s{shard}"),
                address: address.to_owned(),
                disk_infos: [(String::new(), disk)].into(),
                ..DataNodeInfo::default()
            }
        };
        let data_node_infos = addresses.into_iter().zip(0..).map(node).collect();
        let rack = RackInfo { id: "r".to_owned(), data_node_infos };
        let center = DataCenterInfo { id: "d".to_owned(), rack_infos: vec![rack] };
        TopologyInfo { data_center_infos: vec![center] }
    }

    #[test]
    fn a_malformed_address_costs_only_its_server() {
        let listing = Listing::of(&topology(["10.0.0.1:8080", "10.0.0.2:60000", "10.0.0.3:8080"], &[100]));
        let parsed: Vec<bool> = listing.servers.values().map(|it| it.address.parsed().is_ok()).collect();
        assert_eq!(parsed, [true, false, true]);
        let names: Vec<String> = listing.servers.values().map(|it| it.address.http()).collect();
        assert_eq!(names, ["10.0.0.1:8080", "10.0.0.2:60000", "10.0.0.3:8080"]);
        assert_eq!(listing.shard_count(), 3, "the master is connected to all three servers");
    }

    #[test]
    fn a_negative_length_is_unknown() {
        let listing = Listing::of(&topology(["10.0.0.1:8080", "10.0.0.2:8080"], &[-1]));
        let lengths: Vec<u64> =
            listing.volumes[&5].iter().flat_map(|it| it.shards.values().copied()).collect();
        assert_eq!(lengths, [0, 0]);
    }
}
