//! Encodes answers as JSON, within a limit on the memory of the answers that members have not received yet.
//!
//! Only answers that can be long are limited: those of `GET` and of the beginning of a put. Such a request
//! changes nothing, or is undone if there is no room for its answer, so the caller can repeat it. A member has
//! few of these requests carried out at the same time, which bounds the memory of answers that are not encoded
//! yet; further ones wait.

use std::io;
use std::sync::Arc;

use axum::body::Bytes;
use cluster::Role;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::Shares;

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
/// The number of requests of each kind that a member has carried out at the same time.
const AT_ONCE: usize = 8;

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
}

/// The kinds of requests with long answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Read,
    Put,
}

/// A member's account of the memory for answers, for one request.
#[derive(Clone, Debug)]
pub(super) struct Account {
    all: Arc<Semaphore>,
    share: Arc<Share>,
    member_units: usize,
    kind: Kind,
}

/// A member's turn for a request. It ends when the answer is encoded.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    /// Keeps the share, which the next request of the member uses too.
    _share: Arc<Share>,
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
}

impl NoRoom {
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::Member => "receive these answers or close their connections, then ask again",
            Self::All => "ask again in a few seconds",
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::within(ALL_BYTES, MEMBER_BYTES)
    }
}

impl Answers {
    fn within(all_bytes: usize, member_bytes: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all_bytes / UNIT)),
            members: Arc::default(),
            member_units: member_bytes / UNIT,
        }
    }

    /// Returns a member's account for a request of this kind.
    pub(super) fn account(&self, member: &Role, kind: Kind) -> Account {
        let share = self.members.of(member, || Share {
            memory: Arc::new(Semaphore::new(self.member_units)),
            reads: Arc::new(Semaphore::new(AT_ONCE)),
            puts: Arc::new(Semaphore::new(AT_ONCE)),
        });
        Account { all: self.all.clone(), share, member_units: self.member_units, kind }
    }
}

impl Account {
    /// Waits until the member has few enough requests of this kind.
    pub(super) async fn turn(&self) -> Turn {
        let turns = match self.kind {
            Kind::Read => &self.share.reads,
            Kind::Put => &self.share.puts,
        };
        let permit = turns.clone().acquire_owned().await.expect("the semaphore is never closed");
        Turn { _permit: permit, _share: self.share.clone() }
    }
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
        let room = Room { account, permits: Vec::new(), units: 0 };
        Self { full: Vec::new(), last: Vec::new(), room, no_room: None }
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
        let room = Arc::new(room);
        let charged = |bytes| Bytes::from_owner(Charged { bytes, _room: room.clone() });
        Ok(full.into_iter().map(charged).collect())
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
    /// Takes memory for more bytes of the answer. An answer that has all permits of the member may be longer: it is
    /// the only one of this member.
    fn take(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let Some(account) = &self.account else { return Ok(()) };
        let units = bytes.div_ceil(UNIT).min(account.member_units - self.units);
        let charged = [(&account.share.memory, NoRoom::Member), (&account.all, NoRoom::All)];
        for (memory, full) in charged {
            let permits = memory.clone().try_acquire_many_owned(units as u32);
            self.permits.push(permits.map_err(|_| full)?);
        }
        self.units += units;
        Ok(())
    }
}

/// A piece of an answer. The connection drops it when it is sent.
struct Charged {
    bytes: Vec<u8>,
    _room: Arc<Room>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

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

    #[tokio::test]
    async fn further_requests_of_a_member_wait() {
        let answers = answers();
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(answers.account(&member("ann"), Kind::Read).turn().await);
        }
        let soon = Duration::from_millis(20);
        let next = answers.account(&member("ann"), Kind::Read);
        assert!(timeout(soon, next.turn()).await.is_err());
        timeout(soon, answers.account(&member("ann"), Kind::Put).turn()).await.unwrap();
        timeout(soon, answers.account(&member("bob"), Kind::Read).turn()).await.unwrap();
        turns.pop();
        timeout(soon, next.turn()).await.unwrap();
    }
}
