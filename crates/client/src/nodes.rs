//! Requests that manage helpers and settings.

use hyper::Method;

use crate::client::encoded;
use crate::{
    Client, ClientError, HistoryEntry, MaintenanceRequest, NodeView, RebalanceRequest, RebalanceView,
    RepairView, ReplaceRequest, SafetyView, SettingsRequest, SettingsView,
};

impl Client {
    /// All helpers, in natural order of their names.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.http().get("/v1/nodes").await
    }

    /// Removes a helper that is down and holds no needed blocks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_node(&self, node: &str) -> Result<NodeView, ClientError> {
        self.http().send(Method::DELETE, &of(node, ""), &()).await
    }

    /// Puts a helper into maintenance for `for_ms` milliseconds from now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn maintain(&self, node: &str, for_ms: u64) -> Result<NodeView, ClientError> {
        self.http().send(Method::PUT, &of(node, "/maintenance"), &MaintenanceRequest { for_ms }).await
    }

    /// Ends the maintenance of a helper.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn end_maintenance(&self, node: &str) -> Result<NodeView, ClientError> {
        self.http().send(Method::DELETE, &of(node, "/maintenance"), &()).await
    }

    /// Moves all blocks that a helper holds, or held, to another one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn replace_node(&self, node: &str, by: &str) -> Result<RepairView, ClientError> {
        self.http().post(&of(node, "/replace"), &ReplaceRequest { by: by.to_owned() }).await
    }

    /// Whether everything stays readable without these helpers, with `leave` further losses to spare.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ok_to_stop(&self, nodes: &[String], leave: u32) -> Result<SafetyView, ClientError> {
        let nodes = encoded(&nodes.join(","));
        self.http().get(&format!("/v1/checks/ok-to-stop?nodes={nodes}&leave={leave}")).await
    }

    /// Whether no stripe has a block on these helpers.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn safe_to_remove(&self, nodes: &[String]) -> Result<SafetyView, ClientError> {
        self.http().get(&format!("/v1/checks/safe-to-remove?nodes={}", encoded(&nodes.join(",")))).await
    }

    /// Moves blocks from full helpers to empty ones, or only lists the moves.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn rebalance(&self, request: RebalanceRequest) -> Result<RebalanceView, ClientError> {
        self.http().post("/v1/rebalances", &request).await
    }

    /// The settings of automatic repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn settings(&self) -> Result<SettingsView, ClientError> {
        self.http().get("/v1/settings").await
    }

    /// Changes the settings of automatic repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_settings(&self, request: &SettingsRequest) -> Result<SettingsView, ClientError> {
        self.http().send(Method::PATCH, "/v1/settings", request).await
    }

    /// The last `most` events, oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn history(&self, most: usize) -> Result<Vec<HistoryEntry>, ClientError> {
        self.http().get(&format!("/v1/history?most={most}")).await
    }
}

fn of(node: &str, what: &str) -> String {
    format!("/v1/nodes/{}{what}", encoded(node))
}
