//! A client of one volume server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::blocks::{Encoding, Ratio, VolumeName};
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::address::ServerAddress;
use crate::connect::{Life, connect};
use crate::error::AskError;
use crate::generated::volume_server_pb::volume_server_client::VolumeServerClient;
use crate::generated::volume_server_pb::{
    CopyFileRequest, CopyFileResponse, PingRequest, VolumeEcBlobDeleteRequest, VolumeEcShardReadRequest,
    VolumeEcShardsCopyRequest, VolumeEcShardsDeleteRequest, VolumeEcShardsInfoRequest,
    VolumeEcShardsMountRequest, VolumeEcShardsUnmountRequest, VolumeServerStatusRequest,
};
use crate::security::Security;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Timeout for a copy between servers; one call may copy the whole index of a large volume.
const COPY_LIMIT: Duration = Duration::from_secs(600);
/// Upper limit of one message in bytes; servers send files in smaller pieces.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Timeout for reading a whole metadata file.
const SMALL_FILE_LIMIT: Duration = Duration::from_secs(60);
const COPY_FILE: &str = "CopyFile";
const SHARD_READ: &str = "VolumeEcShardRead";
/// The version of the needles' format. A deletion does not depend on it.
const NEEDLE_VERSION: u32 = 3;

/// A client of one volume server. Clones share a connection, which is re-established when it breaks.
#[derive(Clone, Debug)]
pub struct VolumeServer {
    address: ServerAddress,
    client: VolumeServerClient<Channel>,
    /// The state that clones share.
    link: Arc<Link>,
}

/// The state of a connection.
#[derive(Debug)]
struct Link {
    /// Whether a call has failed because the server could not be reached or did not answer.
    has_failed: AtomicBool,
    /// When the server last answered.
    answered: Mutex<Instant>,
}

impl Default for Link {
    fn default() -> Self {
        Self { has_failed: AtomicBool::new(false), answered: Mutex::new(Instant::now()) }
    }
}

/// The metadata files of a volume: all its files other than shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SmallFile {
    /// The index of needles (stored objects), sorted by ID.
    Ecx,
    /// The journal of deleted needles.
    Ecj,
    /// Code, encoding and sizes of the volume.
    Vif,
    /// Checksums of the shards.
    Ecsum,
}

/// A stream of a metadata file; back-pressure stops the server until the next window is read.
#[derive(Debug)]
pub struct SmallFileReader {
    server: VolumeServer,
    /// `None` after the last piece, or if the server does not have the file.
    pieces: Option<Streaming<CopyFileResponse>>,
    /// Bytes received beyond the last window.
    ahead: Vec<u8>,
    modified_ns: i64,
}

/// The shards of a volume that a server has mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedShards {
    /// The shards with their lengths in bytes.
    pub shards: BTreeMap<u8, u64>,
    /// The volume's ratio; `None` if the server is older than 4.48. Servers do not report the encoding; only
    /// the master lists it.
    pub ratio: Option<Ratio>,
}

/// The status that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The version, such as `4.48`.
    pub version: String,
    /// The server's data centre.
    pub data_center: String,
    /// The server's rack.
    pub rack: String,
    /// The `-dir` folders in the server's order, with the free bytes of each.
    pub folders: Vec<(String, u64)>,
    /// Whether the server is in maintenance and accepts no shards.
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

    /// Returns the file's name for a volume.
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
        Ok(Self { address: address.clone(), client, link: Arc::default() })
    }

    /// Whether a call on this connection has failed because the server could not be reached or did not answer.
    pub(crate) fn has_failed(&self) -> bool {
        self.link.has_failed.load(Ordering::Relaxed)
    }

    /// Returns how long ago the server last answered on this connection.
    pub(crate) fn silence(&self) -> Duration {
        self.link.answered.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Whether the server answers on this connection within some time. A refusal is an answer too.
    pub(crate) async fn answers_within(&self, limit: Duration) -> bool {
        let mut client = self.client.clone();
        let answer = self.ask("Ping", limit, client.ping(PingRequest {})).await;
        answer.is_ok() || !self.has_failed()
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Mounts shards whose files are in the server's folders. The master lists them at once. A shard that is
    /// already mounted is still served from its old file: unmount it first.
    ///
    /// SeaweedFS does not check the files, so the caller must have done so.
    ///
    /// # Errors
    /// [`AskError`]; [`Refused`](AskError::Refused) if a file or the volume's index is missing.
    pub async fn mount(&self, volume: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
        let request = VolumeEcShardsMountRequest {
            volume_id: volume.id(),
            collection: volume.collection().to_owned(),
            shard_ids: shards.iter().map(|&shard| shard.into()).collect(),
        };
        let mut client = self.client.clone();
        self.ask("VolumeEcShardsMount", ANSWER_LIMIT, client.volume_ec_shards_mount(request)).await.map(drop)
    }

    /// Unmounts shards, but keeps their files. Ignores shards that are not mounted.
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

    /// Deletes the files of shards from all disks of the server. Deleting the last shard of a volume deletes
    /// the volume's metadata files too. Unmount the shards first.
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

    /// Makes the server copy metadata files of a volume from another server. `disk` 0 lets the server choose
    /// the disk. If the source has no `.ecsum`, that file is skipped.
    ///
    /// Existing files are overwritten. Only the start of an existing journal is overwritten, so copy a
    /// journal only to a server without one.
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

    /// Returns the shards of a volume that the server has mounted; empty if the server does not know the
    /// volume.
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

    /// Returns the server's status.
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

    /// Reads a metadata file of a volume, of at most `most` bytes; `None` if the server does not have the
    /// file.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn small_file(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        most: usize,
    ) -> Result<Option<Vec<u8>>, AskError> {
        Ok(self.dated_small_file(volume, file, most).await?.map(|(bytes, _)| bytes))
    }

    /// Like [`small_file`](Self::small_file), with the time at which the server's file was modified, in
    /// nanoseconds since 1970; 0 if the server does not report it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn dated_small_file(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        most: usize,
    ) -> Result<Option<(Vec<u8>, i64)>, AskError> {
        let most = most as u64;
        let mut bytes = Vec::new();
        let came = self.pull(volume, file, most + 1, &mut bytes).await?;
        match came {
            Some((came, _)) if came > most => Err(self.too_long(volume, file, most)),
            came => Ok(came.map(|(_, modified_ns)| (bytes, modified_ns))),
        }
    }

    fn too_long(&self, volume: &VolumeName, file: SmallFile, most: u64) -> AskError {
        let what = format!("more than {most} bytes of {volume}{}", file.extension());
        AskError::Nonsense { address: self.address.clone(), call: COPY_FILE, what }
    }

    /// Opens a metadata file of any length, to be read in windows.
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
        Ok(SmallFileReader { server: self.clone(), pieces, ahead: Vec::new(), modified_ns: 0 })
    }

    /// Returns the time at which a server's metadata file was modified, in nanoseconds since 1970; 0 if the server
    /// does not report it. Returns `None` if the server does not have the file, or the file is empty.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn modified_ns(&self, volume: &VolumeName, file: SmallFile) -> Result<Option<i64>, AskError> {
        let came = self.pull(volume, file, 1, &mut Vec::new()).await?;
        Ok(came.filter(|&(bytes, _)| bytes > 0).map(|(_, modified_ns)| modified_ns))
    }

    /// Like [`pull_pieces`](Self::pull_pieces), with a timeout.
    async fn pull(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
        kept: &mut Vec<u8>,
    ) -> Result<Option<(u64, i64)>, AskError> {
        let pulled = self.pull_pieces(volume, file, stop, kept);
        let timed_out = || AskError::TimedOut { address: self.address.clone(), call: COPY_FILE };
        tokio::time::timeout(SMALL_FILE_LIMIT, pulled).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Reads the first `stop` bytes of a metadata file into `kept`. Returns the number of bytes received and the
    /// time at which the file was modified, or `None` if the server does not have the file.
    async fn pull_pieces(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
        kept: &mut Vec<u8>,
    ) -> Result<Option<(u64, i64)>, AskError> {
        let Some(mut pieces) = self.pieces(volume, file, stop).await? else { return Ok(None) };
        let (mut came, mut modified_ns) = (0_u64, 0_i64);
        loop {
            let piece = match self.next(COPY_FILE, &mut pieces).await {
                Err(error) if is_missing(&error) => return Ok(None),
                piece => piece?,
            };
            let Some(piece) = piece else { return Ok(Some((came, modified_ns))) };
            came += piece.file_content.len() as u64;
            modified_ns = modified_ns.max(piece.modified_ts_ns); // Only the first piece contains it.
            if came > stop {
                return Err(self.too_long(volume, file, stop));
            }
            kept.extend(piece.file_content);
        }
    }

    /// Streams the first `stop` bytes of a metadata file. Returns `None` if the server reports at once that
    /// it does not have the file; some servers report that only in place of the first piece.
    async fn pieces(
        &self,
        volume: &VolumeName,
        file: SmallFile,
        stop: u64,
    ) -> Result<Option<Streaming<CopyFileResponse>>, AskError> {
        // Servers answer a request for a file whose name is too long as if they could not read the file.
        if !volume.can_have(file.extension()) {
            return Ok(None);
        }
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

    /// Reads bytes of a mounted shard of this encoding. The bytes are not verified.
    ///
    /// # Errors
    /// [`AskError`]; [`Refused`](AskError::Refused) if the shard is not mounted, belongs to another encoding,
    /// or ends before the range does.
    pub async fn read_shard(
        &self,
        volume: u32,
        shard: u8,
        encoding: Encoding,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, AskError> {
        let call = SHARD_READ;
        let refused = |why: String| AskError::Refused { address: self.address.clone(), call, why };
        let request = VolumeEcShardReadRequest {
            volume_id: volume,
            shard_id: shard.into(),
            offset: i64::try_from(offset).map_err(|error| refused(error.to_string()))?,
            size: bytes as i64,
            file_key: 0,
            encode_ts_ns: encoding.0,
        };
        let mut client = self.client.clone();
        let mut pieces = self.ask(call, ANSWER_LIMIT, client.volume_ec_shard_read(request)).await?;
        let mut read = Vec::with_capacity(bytes);
        while let Some(piece) = self.next(call, &mut pieces).await? {
            if encoding.is_known() && piece.encode_ts_ns != encoding.0 {
                return Err(refused(format!("it has encoding {}, not {}", piece.encode_ts_ns, encoding.0)));
            }
            read.extend(piece.data);
        }
        if read.len() == bytes {
            Ok(read)
        } else {
            Err(refused(format!("only {} of {bytes} bytes arrived", read.len())))
        }
    }

    /// Deletes a needle (a stored object) on this server only. The server adds the deletion to its journal,
    /// and heeds it at once. If shards of the volume are on several disks, only the first disk gets the deletion. Returns
    /// `false` if the volume has no such needle.
    ///
    /// SeaweedFS also answers without an error if the server has mounted nothing of the volume.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn delete_needle(&self, volume: &VolumeName, needle: u64) -> Result<bool, AskError> {
        let request = VolumeEcBlobDeleteRequest {
            volume_id: volume.id(),
            collection: volume.collection().to_owned(),
            file_key: needle,
            version: NEEDLE_VERSION,
        };
        let mut client = self.client.clone();
        match self.ask("VolumeEcBlobDelete", ANSWER_LIMIT, client.volume_ec_blob_delete(request)).await {
            Err(AskError::Refused { why, .. }) if why.contains("needle not found") => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// Whether a server that has mounted a shard answers that a needle is deleted when other servers read the
    /// needle's bytes from this shard.
    ///
    /// # Errors
    /// [`AskError`]; [`Refused`](AskError::Refused) if the shard is not mounted.
    pub async fn is_deleted(&self, volume: u32, shard: u8, needle: u64) -> Result<bool, AskError> {
        let request = VolumeEcShardReadRequest {
            volume_id: volume,
            shard_id: shard.into(),
            offset: 0,
            size: 1,
            file_key: needle,
            encode_ts_ns: 0,
        };
        let mut client = self.client.clone();
        let mut pieces = self.ask(SHARD_READ, ANSWER_LIMIT, client.volume_ec_shard_read(request)).await?;
        let mut is_deleted = false;
        while let Some(piece) = self.next(SHARD_READ, &mut pieces).await? {
            is_deleted |= piece.is_deleted;
        }
        Ok(is_deleted)
    }

    async fn next<T>(&self, call: &'static str, pieces: &mut Streaming<T>) -> Result<Option<T>, AskError> {
        self.heard(call, tokio::time::timeout(ANSWER_LIMIT, pieces.message()).await)
    }

    async fn ask<T>(
        &self,
        call: &'static str,
        limit: Duration,
        question: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AskError> {
        self.heard(call, tokio::time::timeout(limit, question).await).map(Response::into_inner)
    }

    /// Returns the answer to a call, or to a part of it, and notes whether there is one.
    fn heard<T>(
        &self,
        call: &'static str,
        answer: Result<Result<T, Status>, Elapsed>,
    ) -> Result<T, AskError> {
        let answer = match answer {
            Ok(answer) => answer.map_err(|status| AskError::of(&self.address, call, &status)),
            Err(_) => Err(AskError::TimedOut { address: self.address.clone(), call }),
        };
        match &answer {
            Err(error) if error.concerns_connection() => self.link.has_failed.store(true, Ordering::Relaxed),
            _ => *self.link.answered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now(),
        }
        answer
    }
}

impl SmallFileReader {
    /// Returns the time at which the server's file was modified, in nanoseconds since 1970; 0 before the first window
    /// was read, or if the server does not report it.
    pub fn modified_ns(&self) -> i64 {
        self.modified_ns
    }

    /// Returns the next `bytes` bytes of the file, or all that are left. The result is empty at the end of
    /// the file, or if the server does not have the file.
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
                    Some(piece) => {
                        self.modified_ns = self.modified_ns.max(piece.modified_ts_ns);
                        self.ahead.extend(piece.file_content);
                    }
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

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn a_server_is_not_asked_for_a_file_whose_name_is_too_long() {
        let nobody = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let address = "127.0.0.1:8080".parse().expect("an address");
        let server = VolumeServer { address, client: VolumeServerClient::new(nobody), link: Arc::default() };
        let volume = VolumeName::new(&"x".repeat(248), 5).expect("its shards have names");
        assert!(matches!(server.small_file(&volume, SmallFile::Ecsum, 1 << 10).await, Ok(None)));
        assert!(server.small_file(&volume, SmallFile::Vif, 1 << 10).await.is_err(), "nobody answers");
    }
}
