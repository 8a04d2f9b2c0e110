//! The stream of events that the coordinator pushes.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use views::PushedEvent;
use views::endpoints::{EventsQuery, GetEvents};

use crate::{Client, ClientError};

/// The maximum size of one event in bytes.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// A stream of events. Dropping it ends the subscription.
pub struct Events {
    client: Client,
    body: Incoming,
    /// The received bytes that are not a whole event yet.
    rest: Vec<u8>,
}

impl Client {
    /// Subscribes to conditions, history and the progress of repairs. With `since_unix_ms`, the stream begins with the
    /// entries of the history since this time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self, since_unix_ms: Option<u64>) -> Result<Events, ClientError> {
        let body = self.http().stream::<GetEvents>(&EventsQuery { since_unix_ms }).await?;
        Ok(Events { client: self.clone(), body, rest: Vec::new() })
    }
}

impl Events {
    /// Returns the next event; `None` when the coordinator has ended the stream.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the connection breaks, [`ClientError::Protocol`] if the coordinator sends something else.
    pub async fn next(&mut self) -> Result<Option<PushedEvent>, ClientError> {
        loop {
            while let Some(event) = take_event(&mut self.rest) {
                if let Some(data) = data_of(&event) {
                    let event =
                        serde_json::from_str(&data).map_err(|error| self.client.http().protocol(error))?;
                    return Ok(Some(event));
                }
            }
            if self.rest.len() > MAX_EVENT_BYTES {
                return Err(self.client.http().protocol("an event is too large"));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| self.client.http().lost(error))?;
            if let Some(bytes) = frame.data_ref() {
                self.rest.extend_from_slice(bytes);
            }
        }
    }
}

/// Removes the first event, which an empty line ends, from what has arrived.
fn take_event(rest: &mut Vec<u8>) -> Option<String> {
    let end = rest.windows(2).position(|pair| pair == b"\n\n")?;
    let event = String::from_utf8_lossy(&rest[..end]).into_owned();
    rest.drain(..end + 2);
    Some(event)
}

/// Returns the data of an event; `None` for a comment, which only keeps the connection alive.
fn data_of(event: &str) -> Option<String> {
    let lines: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let lines = lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line));
    let data = lines.collect::<Vec<_>>().join("\n");
    (!data.is_empty()).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_separated_by_empty_lines_and_comments_have_no_data() {
        let mut rest = b": alive\n\nevent: history\ndata: {\"a\":\ndata: 1}\n\ndata: half".to_vec();
        let events: Vec<_> =
            std::iter::from_fn(|| take_event(&mut rest)).map(|event| data_of(&event)).collect();
        assert_eq!(events, [None, Some("{\"a\":\n1}".to_owned())]);
        assert_eq!(rest, b"data: half");
    }
}
