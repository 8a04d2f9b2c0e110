//! Charges answers to the members that asked, until they are sent.
//!
//! Reads and beginnings of puts are refused if there is no room for their answers: such a request changes nothing, or is
//! undone, so the caller can repeat it. Other changes have happened by then, so their answers are never refused. Their
//! number is limited instead: the turn of a change lasts until its answer is sent, if this is long.
//!
//! A member has few requests of each kind carried out at the same time, and further ones wait. This bounds the memory of
//! answers that are not encoded yet, and the time that the control plane spends on one member. A change that waits for the
//! catalog's disk has no turn meanwhile, so that a disk that hangs does not keep the member from all other changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use cluster::Role;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::shares::{Shares, Turn};

/// The memory for the encoded answers of all members.
const ALL_BYTES: usize = 512 << 20;
/// The part of [`ALL_BYTES`] that one member may use. An answer that is longer takes all of it.
const MEMBER_BYTES: usize = 128 << 20;
/// Answers up to this length are not limited. Their memory is bounded by the numbers of connections and of
/// requests per connection.
const SMALL_BYTES: usize = 4 << 10;
/// The number of bytes per permit of the semaphores.
const UNIT: usize = 4 << 10;
/// Answers are encoded and sent in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;
/// The number of reads, and of beginnings of puts, that a member has carried out at the same time.
const AT_ONCE: usize = 8;
/// The number of other changes that it has carried out: more, because most of their answers are short, and they are
/// recorded in the audit before they are answered.
const CHANGES_AT_ONCE: usize = 64;
/// The longest time that a change waits for its turn; clients such as HDFS give up after 10 s.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// The number of streams of events that a member may have open.
const STREAMS_AT_ONCE: usize = 32;

/// The memory for answers, shared by all connections.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    all: Arc<Semaphore>,
    members: Arc<Shares<Share>>,
    /// The number of permits of each member.
    member_units: usize,
}

/// The share of one member.
#[derive(Debug)]
struct Share {
    memory: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// Separate from reads, because the beginning of a put waits for the catalog's disk.
    puts: Arc<Semaphore>,
    changes: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Share {
    fn new(member_units: usize) -> Self {
        let permits = |number| Arc::new(Semaphore::new(number));
        Self {
            memory: permits(member_units),
            reads: permits(AT_ONCE),
            puts: permits(AT_ONCE),
            changes: permits(CHANGES_AT_ONCE),
            streams: permits(STREAMS_AT_ONCE),
        }
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Changes nothing.
    Read,
    /// Begins a put.
    Put,
    /// Makes any other change.
    Change,
    /// Opens a stream of events. Its turn ends with the stream.
    Stream,
}

/// A member's account of the memory for answers, for one request.
#[derive(Clone, Debug)]
pub(super) struct Account {
    all: Arc<Semaphore>,
    share: Arc<Share>,
    member_units: usize,
    kind: Kind,
    /// The member's turn for the request. It ends with the last clone of the account at the latest.
    turn: Turn,
}

/// Why an answer is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The member's own answers use its share.
    #[error(
        "answers that this member asked for and has not received yet fill its {} MiB of the coordinator's memory",
        MEMBER_BYTES >> 20
    )]
    Member,
    /// The answers of several members use all memory for answers.
    #[error(
        "answers that members have not received yet fill the {} MiB that the coordinator has for them",
        ALL_BYTES >> 20
    )]
    All,
    /// The member has too many streams of events open.
    #[error("this member has {} streams of events open, and may have no more", STREAMS_AT_ONCE)]
    Streams,
    /// The member has too many changes carried out.
    #[error(
        "this change has waited for {} s, because {} changes of this member are being carried out",
        CHANGE_LIMIT.as_secs(),
        CHANGES_AT_ONCE
    )]
    Changes,
}

impl NoRoom {
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::Streams => "close some of these streams, or use the certificate of another member",
            Self::Member => "receive these answers or close their connections, then ask again",
            Self::All => "ask again in a few seconds",
            Self::Changes => {
                "receive the answers to these changes, then ask again; if this persists, check the coordinator's disk"
            }
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::within(ALL_BYTES, MEMBER_BYTES)
    }
}

impl Answers {
    pub(super) fn within(all_bytes: usize, member_bytes: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all_bytes / UNIT)),
            members: Arc::default(),
            member_units: member_bytes / UNIT,
        }
    }

    /// Returns a member's account for a request of this kind.
    pub(super) fn account(&self, member: &Role, kind: Kind) -> Account {
        let share = self.members.of(member, || Share::new(self.member_units));
        Account { all: self.all.clone(), share, member_units: self.member_units, kind, turn: Turn::default() }
    }
}

impl Account {
    /// Waits until the member has few enough requests of this kind.
    ///
    /// # Errors
    /// If the member has too many streams of events. A further one does not wait, because the others may stay open for
    /// days. If a change has waited for [`CHANGE_LIMIT`].
    pub(super) async fn take_turn(&self) -> Result<(), NoRoom> {
        let turns = self.turns().clone();
        let permit = match self.kind {
            Kind::Stream => turns.try_acquire_owned().map_err(|_| NoRoom::Streams)?,
            Kind::Change => timeout(CHANGE_LIMIT, next_of(turns)).await.map_err(|_| NoRoom::Changes)?,
            Kind::Read | Kind::Put => next_of(turns).await,
        };
        self.turn.begin(permit);
        Ok(())
    }

    /// Waits for another turn if that of a change has ended while the change waited for the storage. The wait has no limit,
    /// because the change has happened.
    pub(super) async fn resume_turn(&self) {
        if self.kind == Kind::Change && !self.turn.lasts() {
            self.turn.begin(next_of(self.turns().clone()).await);
        }
    }

    fn turns(&self) -> &Arc<Semaphore> {
        match self.kind {
            Kind::Read => &self.share.reads,
            Kind::Put => &self.share.puts,
            Kind::Change => &self.share.changes,
            Kind::Stream => &self.share.streams,
        }
    }

    /// Returns the turn of a change, which ends while the change waits for the storage.
    pub(super) fn turn_of_change(&self) -> Option<Turn> {
        (self.kind == Kind::Change).then(|| self.turn.clone())
    }

    /// Ends the turn.
    pub(super) fn end_turn(&self) {
        self.turn.end();
    }

    /// Whether the request changes nothing.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Stream)
    }
}

/// Waits for the next permit.
async fn next_of(turns: Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.acquire_owned().await.expect("the semaphore is never closed")
}

/// Charges an answer that is in memory already. Without an account, the answer is not limited.
///
/// # Errors
/// If there is no room for the answer.
pub(super) fn charge(answer: Bytes, account: Option<Account>) -> Result<Bytes, NoRoom> {
    if answer.len() <= SMALL_BYTES {
        return Ok(answer);
    }
    let mut room = Room::new(account);
    room.take(answer.len())?;
    Ok(Bytes::from_owner(Piece { bytes: answer, _room: room.complete() }))
}

/// Encodes an answer in pieces, and charges it to the account. Without an account, the answer is not limited.
///
/// # Errors
/// If there is no room for the answer.
pub(super) fn encode(answer: &impl Serialize, account: Option<Account>) -> Result<Vec<Bytes>, NoRoom> {
    let mut pieces = Pieces::new(account);
    match serde_json::to_writer(&mut pieces, answer) {
        Ok(()) => pieces.finish(),
        Err(error) => Err(pieces.no_room.unwrap_or_else(|| panic!("views have string keys: {error}"))),
    }
}

/// The pieces of an answer that is being encoded.
struct Pieces {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    room: Room,
    /// Why the encoding failed.
    no_room: Option<NoRoom>,
}

impl Pieces {
    fn new(account: Option<Account>) -> Self {
        Self { full: Vec::new(), last: Vec::new(), room: Room::new(account), no_room: None }
    }

    fn finish(self) -> Result<Vec<Bytes>, NoRoom> {
        let Self { mut full, mut last, mut room, .. } = self;
        if full.is_empty() && last.len() <= SMALL_BYTES {
            return Ok(vec![last.into()]);
        }
        room.take(last.len())?;
        if !last.is_empty() {
            last.shrink_to_fit();
            full.push(last);
        }
        let room = room.complete();
        let piece = |bytes: Vec<u8>| Piece { bytes: bytes.into(), _room: room.clone() };
        Ok(full.into_iter().map(|bytes| Bytes::from_owner(piece(bytes))).collect())
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.last.len());
        self.last.extend_from_slice(&bytes[..taken]);
        if self.last.len() == PIECE_BYTES {
            self.room.take(PIECE_BYTES).map_err(|why| {
                self.no_room = Some(why);
                io::Error::other(why)
            })?;
            self.full.push(std::mem::replace(&mut self.last, Vec::with_capacity(PIECE_BYTES)));
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The memory that an answer occupies, until all of it is sent.
struct Room {
    account: Option<Account>,
    permits: Vec<OwnedSemaphorePermit>,
    /// The number of the member's permits that the answer has.
    units: usize,
}

impl Room {
    fn new(account: Option<Account>) -> Self {
        Self { account, permits: Vec::new(), units: 0 }
    }

    /// Takes memory for more bytes of the answer. An answer that has all permits of the member may be longer: it is
    /// the only one of this member. The answer to a change takes none; its turn limits it.
    fn take(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let Some(account) = self.account.as_ref().filter(|account| account.kind != Kind::Change) else {
            return Ok(());
        };
        let units = bytes.div_ceil(UNIT).min(account.member_units - self.units);
        let charged = [(&account.share.memory, NoRoom::Member), (&account.all, NoRoom::All)];
        for (memory, full) in charged {
            let permits = memory.clone().try_acquire_many_owned(units as u32);
            self.permits.push(permits.map_err(|_| full)?);
        }
        self.units += units;
        Ok(())
    }

    /// Returns the room of a whole answer, for its pieces. The turn of a change lasts until they are sent, and that of a
    /// stream until the stream ends.
    fn complete(self) -> Arc<Self> {
        if let Some(account) = &self.account
            && matches!(account.kind, Kind::Read | Kind::Put)
        {
            account.end_turn();
        }
        Arc::new(self)
    }
}

/// A piece of an answer. The connection drops it when it is sent.
struct Piece {
    bytes: Bytes,
    _room: Arc<Room>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn member(name: &str) -> Role {
        Role::Client(name.parse().unwrap())
    }

    /// Memory for two members' shares of 4 MiB each.
    fn answers() -> Answers {
        Answers::within(8 * MIB, 4 * MIB)
    }

    /// Encodes an answer of this length.
    fn encoded(answers: &Answers, name: &str, bytes: usize) -> Result<Vec<Bytes>, NoRoom> {
        encode(&"x".repeat(bytes - 2), Some(answers.account(&member(name), Kind::Read)))
    }

    #[test]
    fn pieces_are_the_json_of_the_answer() {
        for length in [0, 1, SMALL_BYTES, PIECE_BYTES - 2, PIECE_BYTES - 1, 3 * PIECE_BYTES + 5] {
            let answer = "é".repeat(length / 2);
            let pieces = encode(&answer, Some(answers().account(&member("ann"), Kind::Read))).unwrap();
            assert_eq!(pieces.concat(), serde_json::to_vec(&answer).unwrap());
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        }
    }

    #[test]
    fn a_member_has_a_limit_for_answers_that_are_not_sent() {
        let answers = answers();
        let first = encoded(&answers, "ann", 3 * MIB).unwrap();
        assert_eq!(encoded(&answers, "ann", 2 * MIB).unwrap_err(), NoRoom::Member);
        encoded(&answers, "ann", MIB).unwrap();
        encoded(&answers, "bob", 3 * MIB).unwrap();
        // The connection may drop the pieces one by one; the last one gives the memory back.
        let mut pieces = first.into_iter();
        let last = pieces.next_back();
        drop(pieces);
        assert_eq!(encoded(&answers, "ann", 2 * MIB).unwrap_err(), NoRoom::Member);
        drop(last);
        encoded(&answers, "ann", 3 * MIB).unwrap();
        assert_eq!(answers.all.available_permits(), 8 * MIB / UNIT, "everything was given back");
    }

    #[test]
    fn all_members_together_have_a_limit() {
        let answers = answers();
        let kept = ["ann", "bob"].map(|name| encoded(&answers, name, 4 * MIB).unwrap());
        assert_eq!(encoded(&answers, "eve", MIB).unwrap_err(), NoRoom::All);
        encoded(&answers, "eve", SMALL_BYTES).unwrap();
        drop(kept);
        encoded(&answers, "eve", MIB).unwrap();
    }

    #[test]
    fn an_answer_longer_than_the_limit_is_sent_if_it_is_the_only_one() {
        let answers = answers();
        let long = encoded(&answers, "ann", 20 * MIB).unwrap();
        assert_eq!(encoded(&answers, "ann", MIB).unwrap_err(), NoRoom::Member);
        encoded(&answers, "bob", 4 * MIB).unwrap();
        drop(long);
        let short = encoded(&answers, "ann", MIB).unwrap();
        assert_eq!(encoded(&answers, "ann", 20 * MIB).unwrap_err(), NoRoom::Member);
        drop(short);
    }

    const SOON: Duration = Duration::from_millis(20);

    /// Returns an account whose turn has come; `None` if it does not come soon.
    async fn turn(answers: &Answers, name: &str, kind: Kind) -> Option<Account> {
        let account = answers.account(&member(name), kind);
        timeout(SOON, account.take_turn()).await.ok()?.unwrap();
        Some(account)
    }

    async fn turns(answers: &Answers, kind: Kind, number: usize) -> Vec<Account> {
        let mut turns = Vec::new();
        for _ in 0..number {
            turns.push(turn(answers, "ann", kind).await.unwrap());
        }
        turns
    }

    #[tokio::test]
    async fn further_requests_of_a_member_wait() {
        let answers = answers();
        let mut taken = turns(&answers, Kind::Read, AT_ONCE).await;
        assert!(turn(&answers, "ann", Kind::Read).await.is_none());
        for (name, kind) in
            [("ann", Kind::Put), ("ann", Kind::Change), ("ann", Kind::Stream), ("bob", Kind::Read)]
        {
            assert!(turn(&answers, name, kind).await.is_some(), "{name} {kind:?}");
        }
        // The turn of a read ends when its answer is encoded, although nothing of it is sent.
        let kept = encode(&"x".repeat(MIB), taken.pop()).unwrap();
        turn(&answers, "ann", Kind::Read).await.unwrap();
        drop(kept);
    }

    #[tokio::test]
    async fn the_turn_of_a_change_lasts_until_its_long_answer_is_sent() {
        let answers = answers();
        let mut taken = turns(&answers, Kind::Change, CHANGES_AT_ONCE).await;
        let long = encode(&"x".repeat(20 * MIB), taken.pop()).expect("it has happened");
        assert!(turn(&answers, "ann", Kind::Change).await.is_none());
        drop(long);
        turn(&answers, "ann", Kind::Change).await.unwrap();
        let short = encode(&"x".repeat(100), taken.pop()).unwrap();
        turn(&answers, "ann", Kind::Change).await.unwrap();
        drop(short);
    }

    /// As if 64 abandoned changes waited for the catalog's disk.
    #[tokio::test]
    async fn changes_that_wait_for_the_storage_have_no_turn() {
        let answers = answers();
        let waiting = turns(&answers, Kind::Change, CHANGES_AT_ONCE).await;
        let refused = answers.account(&member("ann"), Kind::Change).take_turn().await;
        assert_eq!(refused, Err(NoRoom::Changes));
        waiting.iter().filter_map(Account::turn_of_change).for_each(|turn| turn.end());
        let others = turns(&answers, Kind::Change, CHANGES_AT_ONCE).await;
        assert!(timeout(SOON, waiting[0].resume_turn()).await.is_err(), "its answer waits for a turn");
        drop(others);
        waiting[0].resume_turn().await;
        waiting[0].resume_turn().await;
        assert_eq!(waiting[0].share.changes.available_permits(), CHANGES_AT_ONCE - 1, "it has one turn");
    }

    #[tokio::test]
    async fn the_turn_of_a_stream_outlasts_its_events() {
        let answers = answers();
        let open = turns(&answers, Kind::Stream, STREAMS_AT_ONCE).await;
        drop(charge(vec![7_u8; MIB].into(), open.first().cloned()).unwrap());
        let refused = answers.account(&member("ann"), Kind::Stream).take_turn().await;
        assert_eq!(refused, Err(NoRoom::Streams));
    }

    #[tokio::test]
    async fn further_streams_of_a_member_are_refused() {
        let answers = answers();
        let mut open = turns(&answers, Kind::Stream, STREAMS_AT_ONCE).await;
        let refused = answers.account(&member("ann"), Kind::Stream).take_turn().await;
        assert_eq!(refused, Err(NoRoom::Streams));
        turn(&answers, "bob", Kind::Stream).await.unwrap();
        open.pop();
        turn(&answers, "ann", Kind::Stream).await.unwrap();
    }

    #[test]
    fn an_answer_that_is_in_memory_is_charged() {
        let answers = answers();
        let account = || Some(answers.account(&member("ann"), Kind::Read));
        let kept = charge(vec![7_u8; 3 * MIB].into(), account()).unwrap();
        assert_eq!(charge(vec![7_u8; 2 * MIB].into(), account()), Err(NoRoom::Member));
        assert_eq!(charge(vec![7_u8; SMALL_BYTES].into(), account()).unwrap().len(), SMALL_BYTES);
        drop(kept);
        assert_eq!(charge(vec![7_u8; 2 * MIB].into(), account()).unwrap().len(), 2 * MIB);
    }
}
