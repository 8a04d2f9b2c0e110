//! Reads members' messages within bounds. Each kind of message has a maximum length. All messages on their
//! way to the control plane together use at most [`ROOM_BYTES`] of memory, those of one member at most
//! [`MEMBER_ROOM_BYTES`]. A member that sends a message too slowly is disconnected, because the memory for it is
//! reserved at its beginning. Lists of blocks are read from at most two helpers at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cluster::Role;
use repair::wire::control::{self, FromNode, HeldBlock, KIND_BYTES, LISTING_PART_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connections::{EndReason, patient};
use crate::shares::Shares;

/// Limit in bytes on messages that were announced by their length but not yet handled by the control plane,
/// over all connections.
const ROOM_BYTES: usize = 64 << 20;
/// The part of [`ROOM_BYTES`] that one member may use, over all of its connections. It has room for any message.
const MEMBER_ROOM_BYTES: usize = 16 << 20;
/// Timeout for receiving a message, from the time at which there is room for it.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// Messages up to this length do not count against [`ROOM_BYTES`]. Their memory is bounded anyway: each
/// connection reads one message at a time, and the queue to the control plane is bounded.
const SMALL_BYTES: usize = 4 << 10;
/// The number of bytes of [`ROOM_BYTES`] per permit of the semaphore.
const ROOM_UNIT: usize = 1 << 10;
/// Maximum length of a client's registration in bytes.
const CLIENT_HELLO_BYTES: usize = 1 << 10;
/// Timeout for receiving the first message.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a helper's list of blocks in bytes of JSON, enough for more than a million blocks.
const LISTING_BYTES: usize = 64 << 20;
/// The number of helpers whose lists may be in memory at the same time.
const LISTINGS_AT_ONCE: usize = 2;
/// Timeout for receiving a list.
const LISTING_LIMIT: Duration = Duration::from_secs(60);
/// Messages are read in steps of this size, and memory is allocated only as bytes arrive.
const READ_STEP_BYTES: usize = 1 << 20;
/// Capacity of the read buffer.
const BUFFER_BYTES: usize = 8 << 10;

/// A message's share of the memory for messages. It is returned when the control plane has handled the
/// message.
#[derive(Debug, Default)]
pub(crate) struct Room {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// The memory for messages, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Rooms {
    messages: Arc<Semaphore>,
    /// The shares of members that have connections or messages.
    members: Arc<Shares<Semaphore>>,
    listings: Arc<Semaphore>,
    message_limit: Duration,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            messages: Arc::new(Semaphore::new(ROOM_BYTES / ROOM_UNIT)),
            members: Arc::default(),
            listings: Arc::new(Semaphore::new(LISTINGS_AT_ONCE)),
            message_limit: MESSAGE_LIMIT,
        }
    }
}

impl Rooms {
    /// Returns a member's share of the memory for messages.
    fn of_member(&self, member: &Role) -> Arc<Semaphore> {
        self.members.of(member, || Semaphore::new(MEMBER_ROOM_BYTES / ROOM_UNIT))
    }
}

/// The incoming messages of one connection.
pub(crate) struct Inbox<R> {
    stream: BufReader<R>,
    rooms: Rooms,
    /// The member's share of the memory for messages.
    share: Arc<Semaphore>,
    /// Messages that arrived between the parts of a list.
    between: VecDeque<FromNode>,
}

impl<R: AsyncRead + Unpin> Inbox<R> {
    pub(crate) fn new(stream: R, rooms: Rooms, member: &Role) -> Self {
        let share = rooms.of_member(member);
        Self {
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            rooms,
            share,
            between: VecDeque::new(),
        }
    }

    /// Receives the first message of a client.
    pub(crate) async fn client_hello(&mut self) -> Result<FromNode, EndReason> {
        soon(HELLO_LIMIT, self.read(CLIENT_HELLO_BYTES)).await
    }

    /// Receives the first message of a helper, including its whole list of blocks.
    pub(crate) async fn helper_hello(&mut self) -> Result<(FromNode, Room), EndReason> {
        // Acquire the memory before reading: connections that wait then use none.
        let room = self.listing_room().await;
        let mut hello = soon(HELLO_LIMIT, self.read(LISTING_PART_BYTES * 2)).await?;
        if let FromNode::RegisterHelper { blocks, more: more @ true, .. } = &mut hello {
            let rest = self.rest_of_listing(|message| match message {
                FromNode::Held { blocks, more } => Ok((blocks, more)),
                other => Err(Box::new(other)),
            });
            blocks.extend(soon(LISTING_LIMIT, rest).await?);
            *more = false;
        }
        Ok((hello, room))
    }

    /// Receives the next message; the parts of a list of blocks are joined into one message. Lists of others than
    /// helpers are refused, because nobody asks for them and few are received at a time.
    pub(crate) async fn next(&mut self, is_helper: bool) -> Result<(FromNode, Room), EndReason> {
        if let Some(message) = self.between.pop_front() {
            return Ok((message, Room::default()));
        }
        let (length, start) = self.begin(control::MAX_MESSAGE_BYTES as usize).await?;
        let room = self.room_for(length).await;
        let message = soon(self.rooms.message_limit, self.finish(length, start)).await?;
        let FromNode::Listed { ask, mut blocks, more: true } = message else { return Ok((message, room)) };
        if !is_helper {
            return Err(EndReason::UnaskedList);
        }
        drop(room); // While waiting for its turn, a connection must not occupy memory that others need.
        let room = self.listing_room().await;
        let rest = self.rest_of_listing(|message| match message {
            FromNode::Listed { ask: other, blocks, more } if other == ask => Ok((blocks, more)),
            other => Err(Box::new(other)),
        });
        blocks.extend(soon(LISTING_LIMIT, rest).await?);
        Ok((FromNode::Listed { ask, blocks, more: false }, room))
    }

    /// Reads and discards bytes until the stream ends.
    pub(crate) async fn drain(&mut self) {
        // An error also means that no more bytes will arrive.
        let _ = tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await;
    }

    /// Receives the remaining parts of a list of blocks.
    async fn rest_of_listing(
        &mut self,
        part: impl Fn(FromNode) -> Result<(Vec<HeldBlock>, bool), Box<FromNode>>,
    ) -> Result<Vec<HeldBlock>, EndReason> {
        let (mut all, mut bytes) = (Vec::new(), LISTING_PART_BYTES);
        loop {
            let (length, start) = self.begin(control::MAX_MESSAGE_BYTES as usize).await?;
            bytes += length;
            if bytes > LISTING_BYTES {
                return Err(EndReason::LongListing { blocks: all.len(), limit: LISTING_BYTES });
            }
            match part(self.finish(length, start).await?) {
                Ok((blocks, more)) => {
                    all.extend(blocks);
                    if !more {
                        return Ok(all);
                    }
                }
                // The message's length was added to that of the list, so such messages are bounded too.
                Err(other) => self.between.push_back(*other),
            }
        }
    }

    /// Receives one message of at most `most` bytes.
    async fn read(&mut self, most: usize) -> Result<FromNode, EndReason> {
        let (length, start) = self.begin(most).await?;
        self.finish(length, start).await
    }

    /// Reads the length of the next message, and the bytes at its start that contain the message's kind.
    /// Fails if the length exceeds `most` or the limit for this kind.
    async fn begin(&mut self, most: usize) -> Result<(usize, Vec<u8>), EndReason> {
        let mut length = [0; 4];
        patient(self.stream.read_exact(&mut length)).await?;
        let length = control::decode_length(length)?;
        if length > most {
            return Err(EndReason::LongMessage { length, limit: most });
        }
        let mut start = vec![0; length.min(KIND_BYTES)];
        patient(self.stream.read_exact(&mut start)).await?;
        match control::limit(&start) {
            limit if length > limit => Err(EndReason::LongMessage { length, limit }),
            _ => Ok((length, start)),
        }
    }

    /// Reads the rest of a message.
    async fn finish(&mut self, length: usize, start: Vec<u8>) -> Result<FromNode, EndReason> {
        let mut message = start;
        while message.len() < length {
            let from = message.len();
            message.resize(length.min(from + READ_STEP_BYTES), 0);
            patient(self.stream.read_exact(&mut message[from..])).await?;
        }
        Ok(control::decode(&message)?)
    }

    async fn room_for(&self, length: usize) -> Room {
        if length <= SMALL_BYTES {
            return Room::default();
        }
        let units = length.div_ceil(ROOM_UNIT) as u32;
        let mut permits = Vec::new();
        for semaphore in [&self.share, &self.rooms.messages] {
            let permit = semaphore.clone().acquire_many_owned(units).await;
            permits.push(permit.expect("the semaphore is never closed"));
        }
        Room { _permits: permits }
    }

    async fn listing_room(&self) -> Room {
        let permit = self.rooms.listings.clone().acquire_owned().await;
        Room { _permits: vec![permit.expect("the semaphore is never closed")] }
    }
}

/// Limits the total time of an operation, even if bytes keep arriving.
async fn soon<T>(limit: Duration, work: impl Future<Output = Result<T, EndReason>>) -> Result<T, EndReason> {
    timeout(limit, work).await.unwrap_or(Err(EndReason::Slow(limit)))
}

#[cfg(test)]
mod tests {
    use repair::BlockId;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    fn blocks(count: usize) -> Vec<HeldBlock> {
        (0..count)
            .map(|at| HeldBlock { id: BlockId(format!("{at}.{}", "x".repeat(180))), bytes: 1 })
            .collect()
    }

    fn inbox(rooms: &Rooms) -> (DuplexStream, Inbox<DuplexStream>) {
        inbox_of("h1", rooms)
    }

    fn inbox_of(helper: &str, rooms: &Rooms) -> (DuplexStream, Inbox<DuplexStream>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        (ours, Inbox::new(theirs, rooms.clone(), &Role::Helper(helper.parse().unwrap())))
    }

    /// Sends the beginning of a report of this length.
    async fn begin_report(ours: &mut DuplexStream, length: u32) {
        ours.write_all(&length.to_be_bytes()).await.unwrap();
        ours.write_all(&[&br#"{"report":{"job":1,"epoch":1"#[..], &[b' '; 1000]].concat()).await.unwrap();
    }

    #[tokio::test]
    async fn a_list_in_parts_is_one_message_and_gives_its_room_back() {
        let rooms = Rooms::default();
        let (mut ours, mut inbox) = inbox(&rooms);
        let said = tokio::spawn(async move {
            let parts = control::parts(blocks(20_000));
            let last = parts.len() - 1;
            assert!(last > 3);
            for (at, blocks) in parts.into_iter().enumerate() {
                let part = FromNode::Listed { ask: 7, blocks, more: at < last };
                ours.write_all(&control::encode(&part)).await.unwrap();
                let pong = FromNode::Pong { free_bytes: 0, tasks: 0, write_problem: None };
                ours.write_all(&control::encode(&pong)).await.unwrap();
            }
            ours
        });
        let (message, room) = inbox.next(true).await.unwrap();
        assert_eq!(message, FromNode::Listed { ask: 7, blocks: blocks(20_000), more: false });
        assert_eq!(rooms.listings.available_permits(), LISTINGS_AT_ONCE - 1);
        drop(room);
        let (between, _) = inbox.next(true).await.unwrap();
        assert_eq!(
            between,
            FromNode::Pong { free_bytes: 0, tasks: 0, write_problem: None },
            "nothing is lost"
        );
        assert_eq!(rooms.listings.available_permits(), LISTINGS_AT_ONCE);
        assert_eq!(rooms.messages.available_permits(), ROOM_BYTES / ROOM_UNIT);
        drop(said.await);
    }

    #[tokio::test]
    async fn a_list_from_a_plug_in_takes_nobodys_turn() {
        let rooms = Rooms::default();
        let (mut ours, mut inbox) = inbox(&rooms);
        let part = FromNode::Listed { ask: 7, blocks: blocks(1), more: true };
        ours.write_all(&control::encode(&part)).await.unwrap();
        assert!(matches!(inbox.next(false).await, Err(EndReason::UnaskedList)));
        assert_eq!(rooms.listings.available_permits(), LISTINGS_AT_ONCE);
    }

    #[tokio::test]
    async fn each_kind_of_message_has_a_maximum_length() {
        let rooms = Rooms::default();
        for (start, length, taken) in [
            (&br#"{"seen":{"up":1000000,"dow"#[..], 2 << 10, false),
            (br#"{"open":{"tag":1,"request""#, 65 << 10, false),
            (br#"{"report":{"job":1,"epoch""#, 17 << 20, false),
            (br#"{"report":{"job":1,"epoch""#, 8 << 20, true),
        ] {
            let (mut ours, mut inbox) = inbox(&rooms);
            ours.write_all(&(length as u32).to_be_bytes()).await.unwrap();
            ours.write_all(start).await.unwrap();
            drop(ours);
            let error = inbox.next(true).await.unwrap_err();
            assert_eq!(matches!(error, EndReason::LongMessage { .. }), !taken, "{error}");
        }
    }

    #[tokio::test]
    async fn announced_bytes_of_all_connections_are_bounded() {
        let rooms = Rooms::default();
        let mut open = Vec::new();
        for helper in 0..6 {
            let (mut ours, mut inbox) = inbox_of(&format!("h{helper}"), &rooms);
            begin_report(&mut ours, 16 << 20).await;
            open.push((ours, tokio::spawn(async move { inbox.next(true).await.map(drop) })));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Four connections occupy all memory, and two wait.
        assert_eq!(rooms.messages.available_permits(), 0);
        for (ours, reading) in open {
            drop(ours);
            reading.await.unwrap().unwrap_err();
        }
        assert_eq!(rooms.messages.available_permits(), ROOM_BYTES / ROOM_UNIT);
    }

    #[tokio::test]
    async fn announced_bytes_of_one_member_are_bounded() {
        let rooms = Rooms::default();
        let mut open = Vec::new();
        for _ in 0..3 {
            let (mut ours, mut inbox) = inbox(&rooms);
            begin_report(&mut ours, 10 << 20).await;
            open.push((ours, tokio::spawn(async move { inbox.next(true).await.map(drop) })));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        // One connection occupies memory, and the member's others wait.
        assert_eq!(rooms.messages.available_permits(), (ROOM_BYTES - (10 << 20)) / ROOM_UNIT);
        for (ours, reading) in open {
            drop(ours);
            reading.await.unwrap().unwrap_err();
        }
        drop(inbox_of("h2", &rooms));
        assert_eq!(rooms.members.count(), 1, "members without connections are forgotten");
    }

    #[tokio::test]
    async fn a_message_that_arrives_piece_by_piece_gives_its_room_back() {
        let rooms = Rooms { message_limit: Duration::from_millis(50), ..Rooms::default() };
        let (mut ours, mut inbox) = inbox(&rooms);
        begin_report(&mut ours, 1 << 20).await;
        let sending = tokio::spawn(async move {
            while ours.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(matches!(inbox.next(true).await, Err(EndReason::Slow(_))));
        assert_eq!(rooms.messages.available_permits(), ROOM_BYTES / ROOM_UNIT);
        drop(inbox);
        sending.await.unwrap();
    }
}
