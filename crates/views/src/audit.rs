//! The audit: who changed what.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A request to the API that changes something, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// The entry's number; increases by 1.
    pub number: u64,
    /// Time of the answer, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The request and its result.
    #[serde(flatten)]
    pub request: AuditedRequest,
}

/// A request to the API that changes something, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditedRequest {
    /// The role and the name in the caller's certificate, such as `client admin`.
    pub member: String,
    /// The caller's IP address; `-` for the first use of a new certificate.
    pub address: String,
    /// The method and the path with its parameter, such as `POST /v1/repairs`; or `new certificate`.
    pub request: String,
    /// The fields of the body and the query that the request has set; null if there are none, and text that is cut
    /// off if they are longer than 4 KiB.
    pub arguments: Value,
    /// The HTTP status of the answer: 200 if the request was carried out.
    pub status: u16,
    /// The reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
