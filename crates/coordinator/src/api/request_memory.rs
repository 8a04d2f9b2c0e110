//! Bounds the memory of requests. A request is charged to its member from the arrival of its head until it is answered,
//! for its head and for the body that it announces. If there is no room, it is refused before its body is read: a request
//! that waited for room would itself occupy memory.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cluster::Role;
use serving::Caller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::asking::ApiError;
use super::routing::REQUEST_BYTES;
use crate::shares::Shares;

/// The memory for the requests of all members, in bytes as they are sent. A parsed body is several times as large.
const ALL_BYTES: usize = 32 << 20;
/// The part of [`ALL_BYTES`] that one member may use.
const MEMBER_BYTES: usize = 8 << 20;
/// The number of bytes per permit of the semaphores.
const UNIT: usize = 1 << 10;
/// The memory of a header line in addition to its text.
const LINE_BYTES: usize = 64;

/// The memory for requests, shared by all connections.
#[derive(Clone, Debug)]
pub(super) struct RequestMemory {
    all: Arc<Semaphore>,
    members: Arc<Shares<Semaphore>>,
    /// The number of permits of each member.
    member_units: usize,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Crowded {
    /// The member's own requests use its share.
    #[error(
        "requests of this member that are not answered yet fill its {} MiB of the coordinator's memory",
        MEMBER_BYTES >> 20
    )]
    Member,
    /// The requests of several members use all memory for requests.
    #[error(
        "requests that are not answered yet fill the {} MiB that the coordinator has for them",
        ALL_BYTES >> 20
    )]
    All,
}

impl Crowded {
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::Member => "await the answers to these requests, then ask again",
            Self::All => "ask again in a few seconds",
        }
    }
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self::within(ALL_BYTES, MEMBER_BYTES)
    }
}

impl RequestMemory {
    fn within(all_bytes: usize, member_bytes: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all_bytes / UNIT)),
            members: Arc::default(),
            member_units: member_bytes / UNIT,
        }
    }

    /// Takes the memory for a request, until the result is dropped.
    fn take(&self, member: &Role, bytes: usize) -> Result<[OwnedSemaphorePermit; 2], Crowded> {
        let units = bytes.div_ceil(UNIT) as u32;
        let share = self.members.of(member, || Semaphore::new(self.member_units));
        let own = share.try_acquire_many_owned(units).map_err(|_| Crowded::Member)?;
        let of_all = self.all.clone().try_acquire_many_owned(units).map_err(|_| Crowded::All)?;
        Ok([own, of_all])
    }
}

/// Charges a request to its caller.
pub(super) async fn charge(
    State(memory): State<RequestMemory>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    // A caller without a role is refused at once.
    let Some(member) = &caller.role else { return next.run(request).await };
    match memory.take(member, length(&request)) {
        Ok(_taken) => next.run(request).await,
        Err(crowded) => ApiError::from(crowded).into_response(),
    }
}

/// Returns the most memory that a request needs, in bytes. A body of unknown length may have the largest one.
fn length(request: &Request) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES);
    let body = request.body().size_hint().upper().map_or(REQUEST_BYTES, |bytes| bytes as usize);
    target + lines.sum::<usize>() + body.min(REQUEST_BYTES)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn member(name: &str) -> Role {
        Role::Client(name.parse().unwrap())
    }

    #[test]
    fn members_have_equal_shares_of_the_memory() {
        let memory = RequestMemory::within(8 * UNIT, 4 * UNIT);
        let first = memory.take(&member("ann"), 3 * UNIT + 1).unwrap();
        assert_eq!(memory.take(&member("ann"), 1).unwrap_err(), Crowded::Member);
        let second = memory.take(&member("bob"), 3 * UNIT).unwrap();
        assert_eq!(memory.take(&member("eve"), 2 * UNIT).unwrap_err(), Crowded::All);
        drop(memory.take(&member("eve"), UNIT).unwrap());
        drop(first);
        drop(memory.take(&member("ann"), 4 * UNIT).unwrap());
        drop(second);
        assert_eq!(memory.all.available_permits(), 8, "everything was given back");
    }

    #[test]
    fn the_announced_length_counts() {
        let of = |body: Body| length(&Request::builder().uri("/v1/puts?x=y").body(body).unwrap());
        let head = "/v1/puts?x=y".len();
        assert_eq!(of(Body::empty()), head);
        assert_eq!(of(Body::from("{}")), head + 2);
        assert_eq!(of(Body::from(vec![0_u8; 2 * REQUEST_BYTES])), head + REQUEST_BYTES);
        let unknown = tokio_stream::iter([Ok::<_, std::io::Error>("{}")]);
        assert_eq!(of(Body::from_stream(unknown)), head + REQUEST_BYTES);
        let with_line = Request::builder().uri("/").header("name", "value").body(Body::empty()).unwrap();
        assert_eq!(length(&with_line), 1 + 9 + LINE_BYTES);
    }
}
