//! The lab measures Mend on one machine with shaped links.
//!
//! A [`Network`] has a namespace per node and links shaped at both ends. A [`LabCluster`] is a real cluster
//! in such a network, with one process per node. A [`Scenario`] describes what to measure, and [`run`]
//! measures it: every repair is compared with a direct send of one block in the same run, every repaired
//! block is compared with the lost one, and runs disturbed by other programs are repeated or marked.
//! [`figure`] measures the scenarios of the papers' figures, and [`mod@bench`] those of our targets.
//! [`seaweedfs`] and [`hdfs`] measure real clusters with and without Mend, and [`hdfs_raid`] measures encoded files of
//! HDFS.
//!
//! Invariants: the lab uses no address outside its own namespaces, and [`Network::down`] finds and removes
//! everything, even after a crash. Mend has no code path for the lab: the lab starts the binary that users
//! start, and reads through the library that users call.
#![forbid(unsafe_code)]

mod agent;
mod baseline;
pub mod bench;
mod check;
mod checkout;
mod command;
mod direct;
mod disk_limits;
mod error;
mod experiment;
pub mod figure;
mod figures;
mod finding;
mod folders;
pub mod hdfs;
pub mod hdfs_raid;
mod instruction;
mod kept;
mod lab_cluster;
mod machine;
mod medium;
mod meter;
mod model;
mod network;
mod network_config;
pub mod nodes;
mod pages;
mod parts;
mod plan_cost;
mod report;
mod run;
mod scenario;
pub mod seaweedfs;
mod shell;
mod topology;
mod variant;

pub use check::{CHECK_BYTES, Check, TOLERANCE};
pub use checkout::PublishError;
pub use command::{Command, execute};
pub use error::LabError;
pub use folders::Folders;
pub use lab_cluster::{LabCluster, Programs};
pub use machine::{CpuTimes, Machine};
pub use medium::DeviceReads;
pub use meter::{CPU_BOUND, LinkBytes, Meter, Metered};
pub use model::{published_timeslots, timeslots};
pub use network::{Doors, LabNode, Names, Network, NetworkError, Status};
pub use plan_cost::PlanCost;
pub use report::{Case, Load, Moved, Report, Row, Times, markdown_table, median};
pub use run::{Placement, Say, run};
pub use scenario::{
    Destination, Loss, Many, Networks, PacingName, Scenario, ScenarioError, SchemeName, Slice,
};
pub use shell::{Script, ScriptError};
pub use topology::{MOST_NODES, Matrix, Racks, Rate, Topology, TopologyError};
pub use variant::Variant;
