//! Control connections: mutual TLS, registration, pings, and messages in both directions.
//!
//! A peer's identity comes from its certificate only. Each connection has one task that reads and writes
//! concurrently; if reading or writing fails, the connection ends. This module decides only whether a
//! connection stays open; the control plane interprets the messages. Pings start with the connection, so that
//! a peer waiting for the answer to its registration can tell that the coordinator is alive.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use cluster::{Cluster, Name, Role};
use repair::wire::control::{self, ControlError, FromNode, ToNode};
use serving::{Admitted, Door, MemberSlot, TELL_EVERY, expired};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use crate::configuration::Configuration;
use crate::inbox::{Inbox, Room, Rooms};
use crate::incoming::{Events, Incoming, OUTBOX_MESSAGES, Outbox};
use ::control::{ConnectionId, Event};

const PING_EVERY: Duration = Duration::from_secs(1);
/// A node that sends nothing for this long is treated as lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// How long a message that is not urgent waits for others, to be sent with them.
const COMPANY_LIMIT: Duration = Duration::from_millis(10);
/// The time that a refused node gets to read the reason.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

type Stream = TlsStream<TcpStream>;

/// The server of control connections.
pub(crate) struct ControlServer {
    pub listener: TcpListener,
    pub door: Arc<Door>,
    pub cluster: Cluster,
    pub events: Events,
}

/// State shared by all connections.
struct Shared {
    door: Arc<Door>,
    configuration: Configuration,
    events: Events,
    next_connection: AtomicU64,
    rooms: Rooms,
    /// Helpers that are registering. A helper may register on only one connection at a time.
    joining: Mutex<BTreeSet<Name>>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndReason {
    #[error("it closed the connection")]
    Closed,
    #[error("it sent no message for {} s", SILENCE_LIMIT.as_secs())]
    Silent,
    #[error("its message was not complete within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("{0}")]
    Io(io::Error),
    #[error(transparent)]
    Message(#[from] ControlError),
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    LongMessage { length: usize, limit: usize },
    #[error(
        "its list of blocks is too long: {blocks} blocks fill the limit of {limit} bytes, and more follow"
    )]
    LongListing { blocks: usize, limit: usize },
    #[error("it sent a list of blocks, which only a helper is asked for")]
    UnaskedList,
    #[error("its certificate has expired: run `mend renew` on the machine with ca.key")]
    Expired,
    #[error("the coordinator closed the connection")]
    Dropped,
}

impl EndReason {
    /// Whether the node may succeed if it retries, for example if its machine was suspended while it
    /// registered.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Closed | Self::Silent | Self::Slow(_) | Self::Io(_) | Self::Dropped)
    }
}

impl From<io::Error> for EndReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl ControlServer {
    /// Serves until the future is dropped, which also drops all connections.
    pub(crate) async fn serve(self) {
        let shared = Arc::new(Shared {
            door: self.door.clone(),
            configuration: Configuration::new(self.cluster),
            events: self.events,
            next_connection: AtomicU64::new(1),
            rooms: Rooms::default(),
            joining: Mutex::default(),
        });
        let mut connections = JoinSet::new();
        let mut tell = interval(TELL_EVERY);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, address)) => {
                        connections.spawn(shared.clone().connection(socket, address));
                    }
                    Err(error) => self.door.pause_after(error).await,
                },
                Some(_) = connections.join_next() => {}
                _ = tell.tick() => self.door.tell_rest(),
            }
        }
    }
}

impl Shared {
    async fn connection(self: Arc<Self>, socket: TcpStream, address: SocketAddr) {
        let Some(admitted) = self.door.enter(socket, address).await else { return };
        let Admitted { stream, role, expires, slot } = admitted;
        if let (Some(role), Some(expires)) = (role.clone(), expires) {
            // An error means that the coordinator is stopping.
            let _ = self.events.send(Incoming::Event(Event::Certificate { role, expires })).await;
        }
        let (reader, writer) = tokio::io::split(stream);
        match role {
            None => {
                let reason = "its certificate is neither a helper's nor a client's";
                self.refuse(writer, address, reason, false).await
            }
            Some(role) => self.converse(role, expires, address, slot, reader, writer).await,
        }
    }

    async fn converse(
        &self,
        role: Role,
        expires: Option<SystemTime>,
        address: SocketAddr,
        slot: MemberSlot,
        reader: ReadHalf<Stream>,
        writer: WriteHalf<Stream>,
    ) {
        let (cluster, is_current) = self.configuration.read().await;
        if let Role::Helper(name) = &role
            && let Some(reason) = unknown_helper(&cluster, name)
        {
            // An old configuration may lack a new helper, which then tries again.
            return self.refuse(writer, address, &reason, !is_current).await;
        }
        if cluster.config().encrypts_data_edges()
            && self.events.send(Incoming::Event(Event::EncryptEdges)).await.is_err()
        {
            return; // The coordinator is stopping.
        }
        // An error means that the coordinator is stopping.
        let _ = self.events.send(Incoming::Event(Event::Listed(cluster.config().helper_names()))).await;
        match cluster.config().network() {
            Ok(network) => drop(self.events.send(Incoming::Event(Event::Network(Box::new(network)))).await),
            // The earlier network settings remain in force.
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the racks and links in the reloaded mend.toml are invalid; the previous ones stay in \
                     effect"
                )
            }
        }
        let connection = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        let (outbox, messages) = mpsc::channel(OUTBOX_MESSAGES);
        let inbox = Inbox::new(reader, self.rooms.clone(), &role);
        let reading = self.read_all(connection, &role, address, inbox, outbox);
        tokio::pin!(reading);
        let why = tokio::select! {
            why = &mut reading => why,
            written = write_all(writer, messages) => match written {
                Ok(()) => {
                    let _ = timeout(FAREWELL_LIMIT, reading).await;
                    EndReason::Dropped
                }
                Err(why) => why,
            },
            () = slot.displaced() => EndReason::Dropped,
            () = expired(expires) => EndReason::Expired,
        };
        tracing::debug!(%role, %address, %why, "a control connection ended");
        let left = Event::Left { connection, why: why.to_string() };
        // An error means that the coordinator is stopping.
        let _ = self.events.send(Incoming::Event(left)).await;
    }

    /// Forwards a node's messages to the control plane, starting with its registration.
    async fn read_all(
        &self,
        connection: ConnectionId,
        role: &Role,
        address: SocketAddr,
        mut inbox: Inbox<ReadHalf<Stream>>,
        outbox: Outbox,
    ) -> EndReason {
        let (hello, room) = match self.hello(role, &mut inbox).await {
            Ok(hello) => hello,
            Err((reason, passing)) => {
                self.door.refused(address, &reason);
                // The outbox is new, so it has room.
                let _ = outbox.try_send(ToNode::Refused { reason, passing });
                drop(outbox);
                inbox.drain().await; // Closing a socket with unread bytes would discard the answer.
                return EndReason::Dropped;
            }
        };
        let joined =
            Incoming::Joined { connection, role: role.clone(), hello: Box::new(hello), outbox, room };
        if self.events.send(joined).await.is_err() {
            return EndReason::Dropped; // The coordinator is stopping.
        }
        loop {
            let (message, room) = match inbox.next(matches!(role, Role::Helper(_))).await {
                Ok((message, room)) => (Box::new(message), room),
                Err(why) => return why,
            };
            if self.events.send(Incoming::Said { connection, message, room }).await.is_err() {
                return EndReason::Dropped;
            }
        }
    }

    /// Receives a peer's first message. On failure, returns the reason and whether a retry may succeed.
    async fn hello(
        &self,
        role: &Role,
        inbox: &mut Inbox<ReadHalf<Stream>>,
    ) -> Result<(FromNode, Room), (String, bool)> {
        let hello = match role {
            Role::Helper(name) => {
                let _joining = Joining::begin(&self.joining, name)
                    .ok_or_else(|| (format!("helper {name} is registering on another connection"), true))?;
                inbox.helper_hello().await
            }
            _ => inbox.client_hello().await.map(|hello| (hello, Room::default())),
        };
        hello.map_err(|why| (format!("registration failed: {why}"), why.is_passing()))
    }

    async fn refuse(&self, mut writer: WriteHalf<Stream>, address: SocketAddr, reason: &str, passing: bool) {
        self.door.refused(address, reason);
        let message = control::encode(&ToNode::Refused { reason: reason.to_owned(), passing });
        if patient(writer.write_all(&message)).await.is_ok() {
            let _ = patient(writer.shutdown()).await;
        }
    }
}

/// Returns the reason to refuse a helper that is missing in the cluster's configuration. `None` if it is
/// listed.
fn unknown_helper(cluster: &Cluster, name: &Name) -> Option<String> {
    if cluster.config().helper(name).is_some() {
        return None;
    }
    let path = cluster.config_path();
    Some(format!(
        "helper {name} is not in the coordinator's {}; add it there with `mend node add`",
        path.display()
    ))
}

/// Marks a helper as registering. Dropping this value removes the mark.
struct Joining<'a> {
    names: &'a Mutex<BTreeSet<Name>>,
    name: &'a Name,
}

impl<'a> Joining<'a> {
    fn begin(names: &'a Mutex<BTreeSet<Name>>, name: &'a Name) -> Option<Self> {
        let begun = names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        begun.then_some(Self { names, name })
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(self.name);
    }
}

/// Encodes a message. If it is not urgent, waits a moment for the next messages and adds them, up to the
/// first urgent one. Each separate record would cost both ends system calls, and wake the node.
async fn encode_with_company(first: &ToNode, messages: &mut mpsc::Receiver<ToNode>) -> Vec<u8> {
    let (mut bytes, mut waits) = (control::encode(first), can_wait(first));
    let until = Instant::now() + COMPANY_LIMIT;
    while waits && let Ok(Some(next)) = timeout_at(until, messages.recv()).await {
        bytes.extend(control::encode(&next));
        waits = can_wait(&next);
    }
    bytes
}

/// Whether a message is not urgent, because no other step waits for its effect.
fn can_wait(message: &ToNode) -> bool {
    matches!(message, ToNode::Forget { .. })
}

/// Writes queued messages in batches, with a flush after each, and pings in between.
async fn write_all(
    mut writer: WriteHalf<Stream>,
    mut messages: mpsc::Receiver<ToNode>,
) -> Result<(), EndReason> {
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset(); // The handshake has just shown that the coordinator is alive.
    loop {
        let mut bytes = tokio::select! {
            message = messages.recv() => match message {
                Some(message) => encode_with_company(&message, &mut messages).await,
                None => break,
            },
            _ = pings.tick() => control::encode(&ToNode::Ping),
        };
        while let Ok(next) = messages.try_recv() {
            bytes.extend(control::encode(&next));
        }
        patient(writer.write_all(&bytes)).await?;
        patient(writer.flush()).await?;
    }
    patient(writer.shutdown()).await
}

/// Runs an I/O operation with the timeout for silent nodes.
pub(crate) async fn patient<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, EndReason> {
    match timeout(SILENCE_LIMIT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(EndReason::Silent),
    }
}

#[cfg(test)]
mod tests {
    use repair::{Epoch, JobId};

    use super::*;

    const JOB: JobId = JobId(1);
    const FORGET: ToNode = ToNode::Forget { job: JOB };
    const STOP: ToNode = ToNode::Stop { job: JOB, epoch: Epoch(1) };

    fn encoded(messages: &[ToNode]) -> Vec<u8> {
        messages.iter().flat_map(control::encode).collect()
    }

    #[tokio::test]
    async fn a_message_to_forget_a_job_is_sent_with_the_next_urgent_one() {
        let (outbox, mut messages) = mpsc::channel(8);
        for message in [FORGET, STOP, STOP] {
            outbox.send(message).await.unwrap();
        }
        let batch = encode_with_company(&FORGET, &mut messages).await;
        assert_eq!(batch, encoded(&[FORGET, FORGET, STOP]));
        assert_eq!(encode_with_company(&STOP, &mut messages).await, encoded(&[STOP]));
        assert_eq!(messages.recv().await, Some(STOP));
    }

    #[tokio::test]
    async fn a_message_to_forget_a_job_is_sent_alone_if_no_other_comes() {
        let (outbox, mut messages) = mpsc::channel(8);
        assert_eq!(encode_with_company(&FORGET, &mut messages).await, encoded(&[FORGET]));
        drop(outbox);
        assert_eq!(encode_with_company(&FORGET, &mut messages).await, encoded(&[FORGET]));
    }
}
