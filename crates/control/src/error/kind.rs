//! The kinds of refusals, and words that the refusals of all topics share.

/// The advice for a request that is invalid as it stands.
pub(crate) const CORRECT_IT: &str = "correct the request; `mend openapi` describes every request";

/// The kind of a refusal. The HTTP layer maps it to a status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The given name or number does not exist.
    NotFound,
    /// The request is invalid and can never succeed.
    Invalid,
    /// The request contradicts the present state.
    Conflict,
    /// The subject of the request is in use at the moment.
    InUse,
    /// The request cannot be carried out now, but may be later.
    Unavailable,
    /// The coordinator or its disk is at fault.
    Internal,
}

/// Joins names with commas; `none` if there are no names.
pub(crate) fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
