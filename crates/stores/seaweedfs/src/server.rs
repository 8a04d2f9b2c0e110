//! Orders to one volume server.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::blocks::{Encoding, Ratio, VolumeName};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::address::ServerAddress;
use crate::connect::{Life, connect};
use crate::error::AskError;
use crate::generated::volume_server_pb::volume_server_client::VolumeServerClient;
use crate::generated::volume_server_pb::{
    CopyFileRequest, CopyFileResponse, VolumeEcShardReadRequest, VolumeEcShardsCopyRequest,
    VolumeEcShardsDeleteRequest, VolumeEcShardsInfoRequest, VolumeEcShardsMountRequest,
    VolumeEcShardsUnmountRequest, VolumeServerStatusRequest,
};
use crate::security::Security;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The index of a large volume is copied in one call.
const COPY_LIMIT: Duration = Duration::from_secs(600);
/// No piece of a file that a server sends is larger.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// All of a small file has come by then.
const SMALL_FILE_LIMIT: Duration = Duration::from_secs(60);
const COPY_FILE: &str = "CopyFile";

/// One volume server. Clones share their connection, which is made anew when it breaks.
#[derive(Clone, Debug)]
pub struct VolumeServer {
    address: ServerAddress,
    client: VolumeServerClient<Channel>,
}

/// A file of a volume that is no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SmallFile {
    /// The sorted index.
    Ecx,
    /// The journal of deletes.
    Ecj,
    /// Code, encoding and sizes.
    Vif,
    /// Checksums.
    Ecsum,
}

/// A small file as its server sends it, which waits until it is read.
#[derive(Debug)]
pub struct SmallFileReader {
    server: VolumeServer,
    /// `None` once all has come, or if the server does not have the file.
    pieces: Option<Streaming<CopyFileResponse>>,
    /// What came beyond the last window.
    ahead: Vec<u8>,
}

/// What a server has mounted of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedShards {
    /// The shards, with the bytes of their files.
    pub shards: BTreeMap<u8, u64>,
    /// Of how many shards the volume is; servers before 4.48 do not say. Of which encoding, only the master lists.
    pub ratio: Option<Ratio>,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its version, `4.48`.
    pub version: String,
    /// Its data centre.
    pub data_center: String,
    /// Its rack.
    pub rack: String,
    /// Its `-dir` folders, in its order, with the bytes free in each.
    pub folders: Vec<(String, u64)>,
    /// Whether it is in maintenance, and takes no shards.
    pub maintenance: bool,
}

impl SmallFile {
    fn extension(self) -> &'static str {
        match self {
            Self::Ecx => ".ecx",
            Self::Ecj => ".ecj",
            Self::Vif => ".vif",
            Self::Ecsum => ".ecsum",
        }
    }

    /// What a volume's file is called.
    pub fn of(self, volume: &VolumeName) -> String {
        format!("{volume}{}", self.extension())
    }
}

impl VolumeServer {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn connect(address: &ServerAddress, security: &Security) -> Result<Self, AskError> {
        let channel = connect(address, security, Life::Renewed).await?;
        let client = VolumeServerClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        Ok(Self { address: address.clone(), client })
    }

    /// Its address.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Serves shards whose files are in its folders; the master lists them at once. A shard that is mounted already
    /// stays as it is, with the file that was there then: unmount it first.
    ///
    /// SeaweedFS checks nothing of the file: whoever mounts it has.
    ///
    /// # Errors
    /// [`AskError`]; [`Refused`](AskError::Refused) if a file or the volume's index is not there.
    pub async fn mount(&self, volume: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
        let request = VolumeEcShardsMountRequest {
            volume_id: volume.id(),
            collection: volume.collection().to_owned(),
            shard_ids: shards.iter().map(|&shard| shard.into()).collect(),
        };
        let mut client = self.client.clone();
        self.ask("VolumeEcShardsMount", ANSWER_LIMIT, client.volume_ec_shards_mount(request)).await.map(drop)
    }

    /// Stops serving shards; their files stay. Nothing happens if they are not mounted.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn unmount(&self, volume: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
        let request = VolumeEcShardsUnmountRequest {
            volume_id: volume.id(),
            shard_ids: shards.iter().map(|&shard| shard.into()).collect(),
            encode_ts_ns: 0,
        };
        let mut client = self.client.clone();
        self.ask("VolumeEcShardsUnmount", ANSWER_LIMIT, client.volume_ec_shards_unmount(request))
            .await
            .map(drop)
    }

    /// Removes the files of shards from all disks of the server; with the last of a volume its small files go as well.
    /// Unmount them first.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn delete(&self, volume: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
        let request = VolumeEcShardsDeleteRequest {
            volume_id: volume.id(),
            collection: volume.collection().to_owned(),
            shard_ids: shards.iter().map(|&shard| shard.into()).collect(),
        };
        let mut client = self.client.clone();
        self.ask("VolumeEcShardsDelete", ANSWER_LIMIT, client.volume_ec_shards_delete(request))
            .await
            .map(drop)
    }

    /// Makes the server fetch small files of a volume from another one. `disk` 0 leaves the choice to the server. A source
    /// without `.ecsum` leaves it without.
    ///
    /// It overwrites what is there, and appends to the journal.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn bring(
        &self,
        volume: &VolumeName,
        files: &[SmallFile],
        from: &ServerAddress,
        disk: u32,
    ) -> Result<(), AskError> {
        let request = VolumeEcShardsCopyRequest {
            volume_id: volume.id(),
            collection: volume.collection().to_owned(),
            shard_ids: Vec::new(),
            copy_ecx_file: files.contains(&SmallFile::Ecx),
            source_data_node: from.to_string(),
            copy_ecj_file: files.contains(&SmallFile::Ecj),
            copy_vif_file: files.contains(&SmallFile::Vif),
            disk_id: disk,
            copy_ecsum_file: files.contains(&SmallFile::Ecsum),
        };
        let mut client = self.client.clone();
        self.ask("VolumeEcShardsCopy", COPY_LIMIT, client.volume_ec_shards_copy(request)).await.map(drop)
    }

    /// What it has mounted of a volume; nothing if it does not know the volume.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn mounted(&self, volume: u32) -> Result<MountedShards, AskError> {
        let call = "VolumeEcShardsInfo";
        let request = VolumeEcShardsInfoRequest { volume_id: volume };
        let mut client = self.client.clone();
        let answer = match self.ask(call, ANSWER_LIMIT, client.volume_ec_shards_info(request)).await {
            Err(AskError::Refused { why, .. }) if why.contains("not found") => {
                return Ok(MountedShards::default());
            }
            answer => answer?,
        };
        let nonsense = |what: String| AskError::Nonsense { address: self.address.clone(), call, what };
        let shards = answer.ec_shard_infos.iter().map(|info| {
            let shard = u8::try_from(info.shard_id).ok().zip(u64::try_from(info.size).ok());
            shard.ok_or_else(|| nonsense(format!("shard {} of {} bytes", info.shard_id, info.size)))
        });
        let ratio = answer.ec_shard_config.filter(|config| config.data_shards > 0).map(|config| {
            Ratio::new(config.data_shards, config.parity_shards)
                .ok_or_else(|| nonsense(format!("{config:?}")))
        });
        Ok(MountedShards { shards: shards.collect::<Result<_, _>>()?, ratio: ratio.transpose()? })
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn status(&self) -> Result<ServerStatus, AskError> {
        let mut client = self.client.clone();
        let asked = client.volume_server_status(VolumeServerStatusRequest {});
        let answer = self.ask("VolumeServerStatus", ANSWER_LIMIT, asked).await?;
        Ok(ServerStatus {
            version: answer.version,
            data_center: answer.data_center,
            rack: answer.rack,
            folders: answer.disk_statuses.into_iter().map(|disk| (disk.dir, disk.free)).collect(),
            maintenance: answer.state.is_some_and(|state| state.maintenance),
        })
    }

    /// A small file of a volume, of at most `most` bytes; `None` if the server does not have it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn small_file(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        most: usize,
    ) -> Result<Option<Vec<u8>>, AskError> {
        let most = most as u64;
        let mut bytes = Vec::new();
        let came = self.pull(volume, file, most + 1, &mut bytes).await?;
        match came {
            Some(came) if came > most => Err(self.too_long(volume, file, most)),
            came => Ok(came.map(|_| bytes)),
        }
    }

    fn too_long(&self, volume: &VolumeName, file: SmallFile, most: u64) -> AskError {
        let what = format!("more than {most} bytes of {volume}{}", file.extension());
        AskError::Nonsense { address: self.address.clone(), call: COPY_FILE, what }
    }

    /// A small file of a volume, however long, to be read window by window.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn open_small_file(
        &self,
        volume: &VolumeName,
        file: SmallFile,
    ) -> Result<SmallFileReader, AskError> {
        let whole = i64::MAX as u64;
        let pieces = self.pieces(volume, file, whole).await?;
        Ok(SmallFileReader { server: self.clone(), pieces, ahead: Vec::new() })
    }

    /// As [`pull_pieces`](Self::pull_pieces), within the limit of one call.
    async fn pull(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
        kept: &mut Vec<u8>,
    ) -> Result<Option<u64>, AskError> {
        let pulled = self.pull_pieces(volume, file, stop, kept);
        let timed_out = || AskError::TimedOut { address: self.address.clone(), call: COPY_FILE };
        tokio::time::timeout(SMALL_FILE_LIMIT, pulled).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Pulls a small file's first `stop` bytes into `kept`; how many came, or `None` if the server does not have it.
    async fn pull_pieces(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
        kept: &mut Vec<u8>,
    ) -> Result<Option<u64>, AskError> {
        let Some(mut pieces) = self.pieces(volume, file, stop).await? else { return Ok(None) };
        let mut came = 0;
        loop {
            let piece = match self.next(COPY_FILE, &mut pieces).await {
                Err(error) if is_missing(&error) => return Ok(None),
                piece => piece?,
            };
            let Some(piece) = piece else { return Ok(Some(came)) };
            came += piece.file_content.len() as u64;
            if came > stop {
                return Err(self.too_long(volume, file, stop));
            }
            kept.extend(piece.file_content);
        }
    }

    /// A small file's first `stop` bytes, in pieces; `None` if the server does not have it, which may show only in the first.
    async fn pieces(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
    ) -> Result<Option<Streaming<CopyFileResponse>>, AskError> {
        let request = CopyFileRequest {
            volume_id: volume.id(),
            ext: file.extension().to_owned(),
            compaction_revision: u32::MAX,
            stop_offset: stop,
            collection: volume.collection().to_owned(),
            is_ec_volume: true,
            ignore_source_file_not_found: false,
        };
        let mut client = self.client.clone();
        match self.ask(COPY_FILE, ANSWER_LIMIT, client.copy_file(request)).await {
            Err(error) if is_missing(&error) => Ok(None),
            pieces => pieces.map(Some),
        }
    }

    /// Bytes of a mounted shard, if it is of this encoding. Nothing checks them.
    ///
    /// # Errors
    /// [`AskError`]; [`Refused`](AskError::Refused) if the shard is not mounted or of another encoding, or the range is
    /// not in it.
    pub async fn read_shard(
        &self,
        volume: u32,
        shard: u8,
        encoding: Encoding,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, AskError> {
        let call = "VolumeEcShardRead";
        let refused = |why: String| AskError::Refused { address: self.address.clone(), call, why };
        let request = VolumeEcShardReadRequest {
            volume_id: volume,
            shard_id: shard.into(),
            offset: i64::try_from(offset).map_err(|error| refused(error.to_string()))?,
            size: bytes as i64,
            encode_ts_ns: encoding.0,
        };
        let mut client = self.client.clone();
        let mut pieces = self.ask(call, ANSWER_LIMIT, client.volume_ec_shard_read(request)).await?;
        let mut read = Vec::with_capacity(bytes);
        while let Some(piece) = self.next(call, &mut pieces).await? {
            if encoding.is_known() && piece.encode_ts_ns != encoding.0 {
                return Err(refused(format!("it is of encoding {}, not {}", piece.encode_ts_ns, encoding.0)));
            }
            read.extend(piece.data);
        }
        if read.len() == bytes {
            Ok(read)
        } else {
            Err(refused(format!("{} of {bytes} bytes came", read.len())))
        }
    }

    async fn next<T>(&self, call: &'static str, pieces: &mut Streaming<T>) -> Result<Option<T>, AskError> {
        let next = tokio::time::timeout(ANSWER_LIMIT, pieces.message()).await;
        let next = next.map_err(|_| AskError::TimedOut { address: self.address.clone(), call })?;
        next.map_err(|status| AskError::of(&self.address, call, &status))
    }

    async fn ask<T>(
        &self,
        call: &'static str,
        limit: Duration,
        question: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AskError> {
        match tokio::time::timeout(limit, question).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(AskError::of(&self.address, call, &status)),
            Err(_) => Err(AskError::TimedOut { address: self.address.clone(), call }),
        }
    }
}

impl SmallFileReader {
    /// The next `bytes` of the file, or what is left of it: nothing at its end, or if the server does not have it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn next_window(&mut self, bytes: usize) -> Result<Vec<u8>, AskError> {
        while self.ahead.len() < bytes
            && let Some(pieces) = &mut self.pieces
        {
            match self.server.next(COPY_FILE, pieces).await {
                Err(error) if is_missing(&error) => self.pieces = None,
                piece => match piece? {
                    Some(piece) => self.ahead.extend(piece.file_content),
                    None => self.pieces = None,
                },
            }
        }
        let rest = self.ahead.split_off(bytes.min(self.ahead.len()));
        Ok(std::mem::replace(&mut self.ahead, rest))
    }
}

fn is_missing(error: &AskError) -> bool {
    matches!(error, AskError::Refused { why, .. } if why.contains("no such file") || why.contains("not found"))
}
