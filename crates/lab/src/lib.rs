//! The lab measures Mend on one machine with shaped links.
//!
//! A [`Network`] is a namespace per node and links whose both ends are shaped; a [`LabCluster`] is a real cluster in it,
//! one process per node; a [`Scenario`] says what to measure, and [`run`] measures it: every repair next to a direct send
//! of one block in the same run, every repaired block compared with the lost one, every run that other programs
//! disturbed repeated or marked. [`figure`] does this for the papers' figures and [`mod@bench`] for our targets. [`seaweedfs`] measures a real SeaweedFS
//! cluster, with Mend beside it and without.
//!
//! Always true: the lab uses no address outside its own namespaces, and [`Network::down`] finds and removes all of
//! it, even after a crash. Deliberately absent: code paths of Mend that only the lab takes. The lab starts the binary
//! that users start and reads through the library that users call.
#![forbid(unsafe_code)]

mod agent;
mod baseline;
pub mod bench;
mod check;
mod command;
mod direct;
mod error;
mod experiment;
pub mod figure;
pub mod hdfs;
mod instruction;
mod lab_cluster;
mod machine;
mod medium;
mod meter;
mod model;
mod network;
mod network_config;
pub mod nodes;
mod plan_cost;
mod report;
mod run;
mod scenario;
pub mod seaweedfs;
mod shell;
mod topology;
mod variant;

pub use check::{CHECK_BYTES, Check, TOLERANCE};
pub use command::{Command, Folders, execute};
pub use error::LabError;
pub use lab_cluster::{LabCluster, Programs};
pub use machine::{CpuTimes, Machine};
pub use medium::DeviceReads;
pub use meter::{CPU_BOUND, LinkBytes, Meter, Metered};
pub use model::{published_timeslots, timeslots};
pub use network::{Doors, LabNode, Names, Network, NetworkError, Status};
pub use plan_cost::PlanCost;
pub use report::{Report, Row, markdown_table, median};
pub use run::{Say, run};
pub use scenario::{
    Destination, Loss, Many, Networks, PacingName, Scenario, ScenarioError, SchemeName, Slice,
};
pub use shell::{Script, ScriptError};
pub use topology::{MOST_NODES, Matrix, Racks, Rate, Topology, TopologyError};
pub use variant::Variant;
