//! Clusters of real processes that are killed, stopped, starved or given false data. Each read or repair
//! either returns the right bytes and reports what happened, or fails with a clear error and loses nothing.

mod c;
mod catalogs;
mod certificates;
mod chunks;
mod claims;
mod cluster;
mod contradictions;
mod edges;
mod embedding;
mod floods;
mod forgeries;
#[path = "../forging/mod.rs"]
mod forging;
mod healing;
mod identity;
mod input;
mod java;
mod journal;
#[path = "../limits/mod.rs"]
mod limits;
mod links;
mod logging;
mod memory;
mod metrics;
mod names;
mod operator;
mod outputs;
mod parity;
mod partitions;
mod pausing;
mod placement;
#[path = "../ports/mod.rs"]
mod ports;
mod processes;
mod python;
mod recoveries;
mod replacing;
mod requestors;
mod roles;
mod room;
mod silence;
mod starting;
mod storage;
mod watching;
mod write_faults;
