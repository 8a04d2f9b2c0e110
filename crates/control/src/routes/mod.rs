//! What events mean to several machines, in their order.

mod blocks;
mod connections;
mod jobs;
mod repairs;
mod requests;
mod storage;
