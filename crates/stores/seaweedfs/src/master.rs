//! A client of a cluster's masters, which sends each request to the leader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::address::ServerAddress;
use crate::connect::{Life, connect};
use crate::error::AskError;
use crate::generated::master_pb::seaweed_client::SeaweedClient;
use crate::generated::master_pb::{
    GetAdminLockStatusRequest, GetMasterConfigurationRequest, LookupEcVolumeRequest, VolumeListRequest,
};
use crate::listing::Listing;
use crate::lock::{LOCK_NAME, LockHolder};
use crate::security::Security;

/// Timeout of a request.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Upper limit of a response in bytes; a list of 800,000 volumes takes 36 MB.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// A client of one cluster's masters. Clones share the connection.
#[derive(Clone, Debug)]
pub struct MasterClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    masters: Vec<ServerAddress>,
    security: Security,
    leader: Mutex<Option<(ServerAddress, Channel)>>,
}

/// Maintenance that the masters run automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// The shell commands that the masters run, one per line; empty if none.
    pub scripts: String,
    /// The interval between runs.
    pub every: Duration,
}

pub(crate) type Client = SeaweedClient<Channel>;

impl MasterClient {
    /// Creates a client from the addresses of some masters; one suffices, because each master names the
    /// leader. Sends no request yet.
    pub fn new(masters: Vec<ServerAddress>, security: Security) -> Self {
        Self(Arc::new(Inner { masters, security, leader: Mutex::default() }))
    }

    /// Returns the address of the leading master.
    ///
    /// # Errors
    /// [`AskError`] of the last master that was contacted.
    pub async fn leader(&self) -> Result<ServerAddress, AskError> {
        self.leading().await.map(|(address, _)| address)
    }

    /// Lists all servers and all EC shards.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn list(&self) -> Result<Listing, AskError> {
        self.list_some(Vec::new()).await
    }

    /// Lists all servers, and the EC shards of these volumes. Only these ordinary volumes are listed, too.
    /// Masters before 4.48 always list all volumes; the shards are filtered here.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn list_volumes(&self, volumes: &[u32]) -> Result<Listing, AskError> {
        let mut listing = self.list_some(volumes.to_vec()).await?;
        listing.volumes.retain(|volume, _| volumes.contains(volume));
        Ok(listing)
    }

    async fn list_some(&self, volume_ids: Vec<u32>) -> Result<Listing, AskError> {
        let request = VolumeListRequest { volume_ids };
        let (_, answer) = self
            .ask("VolumeList", |mut client: Client| {
                let request = request.clone();
                async move { client.volume_list(request).await }
            })
            .await?;
        Ok(Listing::of(&answer.topology_info.unwrap_or_default()))
    }

    /// Returns the servers of each shard of a volume; empty if the master knows no EC volume with this ID.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn lookup(&self, volume: u32) -> Result<Vec<(u8, Vec<ServerAddress>)>, AskError> {
        let call = "LookupEcVolume";
        let request = LookupEcVolumeRequest { volume_id: volume };
        let answer =
            self.ask(call, |mut client: Client| async move { client.lookup_ec_volume(request).await }).await;
        let (address, answer) = match answer {
            Err(AskError::Refused { why, .. }) if why.contains("not found") => return Ok(Vec::new()),
            other => other?,
        };
        let nonsense = |what: String| AskError::Nonsense { address: address.clone(), call, what };
        let shards = answer.shard_id_locations.into_iter().map(|shard| {
            let id =
                u8::try_from(shard.shard_id).map_err(|_| nonsense(format!("shard {}", shard.shard_id)))?;
            let holders = shard.locations.iter().map(|at| ServerAddress::listed(&at.url, at.grpc_port));
            let holders =
                holders.collect::<Result<Vec<_>, _>>().map_err(|error| nonsense(error.to_string()))?;
            Ok((id, holders))
        });
        let shards: Result<Vec<_>, AskError> = shards.collect();
        Ok(shards?.into_iter().filter(|(_, holders)| !holders.is_empty()).collect())
    }

    /// Returns the current holder of the lock; `None` if it is free.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn lock_holder(&self) -> Result<Option<LockHolder>, AskError> {
        let request = GetAdminLockStatusRequest { lock_name: LOCK_NAME.to_owned() };
        let call = "GetAdminLockStatus";
        let (_, answer) = self
            .ask(call, |mut client: Client| {
                let request = request.clone();
                async move { client.get_admin_lock_status(request).await }
            })
            .await?;
        Ok(answer.is_locked.then_some(LockHolder { client: answer.client_name, message: answer.message }))
    }

    /// Returns the maintenance that the masters run automatically, according to their `master.toml`.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn maintenance(&self) -> Result<Maintenance, AskError> {
        let request = GetMasterConfigurationRequest {};
        let call = "GetMasterConfiguration";
        let (_, answer) = self
            .ask(call, |mut client: Client| async move { client.get_master_configuration(request).await })
            .await?;
        let every = Duration::from_secs(60 * u64::from(answer.maintenance_sleep_minutes));
        Ok(Maintenance { scripts: answer.maintenance_scripts, every })
    }

    /// Sends a request to the leader. If that master has failed or no longer leads, finds the leader again
    /// and retries once.
    async fn ask<T, F: Future<Output = Result<Response<T>, Status>> + Send>(
        &self,
        call: &'static str,
        question: impl Fn(Client) -> F + Sync,
    ) -> Result<(ServerAddress, T), AskError> {
        match self.ask_once(call, &question).await {
            Err(error) if error.concerns_one_master() => {
                self.forget_leader().await;
                self.ask_once(call, &question).await
            }
            answer => answer,
        }
    }

    async fn ask_once<T, F: Future<Output = Result<Response<T>, Status>> + Send>(
        &self,
        call: &'static str,
        question: &(impl Fn(Client) -> F + Sync),
    ) -> Result<(ServerAddress, T), AskError> {
        let (address, channel) = self.leading().await?;
        match tokio::time::timeout(ANSWER_LIMIT, question(client(channel))).await {
            Ok(Ok(answer)) => Ok((address, answer.into_inner())),
            Ok(Err(status)) => Err(AskError::of(&address, call, &status)),
            Err(_) => Err(AskError::TimedOut { address, call }),
        }
    }

    pub(crate) async fn forget_leader(&self) {
        *self.0.leader.lock().await = None;
    }

    /// Opens a separate connection to the leader.
    pub(crate) async fn own_connection(&self) -> Result<(ServerAddress, Client), AskError> {
        let (address, _) = self.leading().await?;
        let channel = connect(&address, &self.0.security, Life::Once).await;
        if channel.is_err() {
            self.forget_leader().await;
        }
        Ok((address, client(channel?)))
    }

    async fn leading(&self) -> Result<(ServerAddress, Channel), AskError> {
        let mut known = self.0.leader.lock().await;
        if let Some(leader) = &*known {
            return Ok(leader.clone());
        }
        let leader = self.find_leader().await?;
        Ok(known.insert(leader).clone())
    }

    /// Asks the masters in turn for the leader. If a master names another one as the leader, that one is
    /// asked next.
    async fn find_leader(&self) -> Result<(ServerAddress, Channel), AskError> {
        let mut next: VecDeque<_> = self.0.masters.iter().cloned().collect();
        let mut asked = Vec::new();
        let mut worst = None;
        while let Some(master) = next.pop_front() {
            if asked.contains(&master) {
                continue;
            }
            asked.push(master.clone());
            match self.who_leads(&master).await {
                Ok((leader, channel)) if leader == master => return Ok((leader, channel)),
                Ok((leader, _)) => next.push_front(leader),
                Err(error) => worst = Some(error),
            }
        }
        Err(worst.unwrap_or_else(|| AskError::Nonsense {
            address: asked.into_iter().next().expect("at least one master"),
            call: "GetMasterConfiguration",
            what: "a cycle of masters that name each other as leader".to_owned(),
        }))
    }

    async fn who_leads(&self, master: &ServerAddress) -> Result<(ServerAddress, Channel), AskError> {
        let call = "GetMasterConfiguration";
        let channel = connect(master, &self.0.security, Life::Renewed).await?;
        let mut client = client(channel.clone());
        let asked = client.get_master_configuration(GetMasterConfigurationRequest {});
        let answer = tokio::time::timeout(ANSWER_LIMIT, asked).await;
        let answer = answer.map_err(|_| AskError::TimedOut { address: master.clone(), call })?;
        let leader = answer.map_err(|status| AskError::of(master, call, &status))?.into_inner().leader;
        match leader.parse() {
            Ok(leader) => Ok((leader, channel)),
            Err(_) => Err(AskError::NotLeader { address: master.clone(), leader: None }),
        }
    }
}

fn client(channel: Channel) -> Client {
    SeaweedClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES)
}
