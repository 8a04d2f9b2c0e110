//! HTTP over mutual TLS: admission of connections, and metrics in the text format of OpenMetrics.
//!
//! The coordinator serves its API with it, and a helper its metrics. Metrics for the same machine need no TLS. The
//! coordinator's control connections use the same admission.

#![forbid(unsafe_code)]

mod door;
mod http;
mod openmetrics;

pub use door::{Admitted, Door, MemberSlot, TELL_EVERY, expired};
pub use http::{Caller, serve, serve_plain};
pub use openmetrics::{CONTENT_TYPE, Figures, Writer, text};
