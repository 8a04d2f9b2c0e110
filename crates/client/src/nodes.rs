//! The client's methods for operators who manage helpers.

use views::endpoints::*;

use crate::{
    AuditEntry, Client, ClientError, Condition, ConditionCode, FileWorkReport, HistoryEntry,
    MaintenanceRequest, MuteRequest, NodeView, RebalanceRequest, RebalanceView, RepairView, ReplaceRequest,
    SafetyView, SettingsRequest, SettingsView,
};

impl Client {
    /// Lists all helpers, sorted by name in natural order (`h2` before `h10`).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.http().ask::<ListNodes>(()).await
    }

    /// Removes a helper that is down and holds no needed blocks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_node(&self, node: &str) -> Result<NodeView, ClientError> {
        self.http().ask::<RemoveNode>(node.to_owned()).await
    }

    /// Puts a helper into maintenance for `for_ms` milliseconds from now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn maintain(&self, node: &str, for_ms: u64) -> Result<NodeView, ClientError> {
        self.http().send::<Maintain>(node.to_owned(), &MaintenanceRequest { for_ms }).await
    }

    /// Ends the maintenance of a helper.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn end_maintenance(&self, node: &str) -> Result<NodeView, ClientError> {
        self.http().ask::<EndMaintenance>(node.to_owned()).await
    }

    /// Moves all blocks that a helper holds, or held before it failed, to another helper.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn replace_node(&self, node: &str, by: &str) -> Result<RepairView, ClientError> {
        self.http().send::<ReplaceNode>(node.to_owned(), &ReplaceRequest { by: by.to_owned() }).await
    }

    /// Whether every stripe stays readable if these helpers stop, even if `leave` further helpers are lost.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ok_to_stop(&self, nodes: &[String], leave: u32) -> Result<SafetyView, ClientError> {
        self.http().query::<OkToStop>((), &StopQuery { nodes: nodes.join(","), leave }).await
    }

    /// Whether no stripe has a block on these helpers.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn safe_to_remove(&self, nodes: &[String]) -> Result<SafetyView, ClientError> {
        self.http().query::<SafeToRemove>((), &NodesQuery { nodes: nodes.join(",") }).await
    }

    /// Moves blocks from full helpers to emptier helpers. With `dry_run`, only lists the moves.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn rebalance(&self, request: RebalanceRequest) -> Result<RebalanceView, ClientError> {
        self.http().send::<Rebalance>((), &request).await
    }

    /// Returns the settings of automatic repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn settings(&self) -> Result<SettingsView, ClientError> {
        self.http().ask::<GetSettings>(()).await
    }

    /// Changes the settings of automatic repair.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_settings(&self, request: &SettingsRequest) -> Result<SettingsView, ClientError> {
        self.http().send::<ChangeSettings>((), request).await
    }

    /// Mutes a condition of the cluster.
    ///
    /// # Errors
    /// [`ClientError`]; "not found" if the cluster does not have the condition now.
    pub async fn mute(&self, code: ConditionCode, request: &MuteRequest) -> Result<Condition, ClientError> {
        self.http().send::<Mute>(code.name().to_owned(), request).await
    }

    /// Ends the mute of a condition.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn unmute(&self, code: ConditionCode) -> Result<Condition, ClientError> {
        self.http().ask::<Unmute>(code.name().to_owned()).await
    }

    /// Returns the last `most` events of the cluster's history since a time, oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn history(
        &self,
        since_unix_ms: Option<u64>,
        most: usize,
    ) -> Result<Vec<HistoryEntry>, ClientError> {
        self.http().query::<GetHistory>((), &HistoryQuery { most: Some(most), since_unix_ms }).await
    }

    /// Records in the history that the work of this program on a file of the store has ended.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn note_file_work(&self, report: &FileWorkReport) -> Result<(), ClientError> {
        self.http().send::<NoteFileWork>((), report).await.map(drop)
    }

    /// Returns the last `most` requests since a time that changed something or tried to, oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn audit(
        &self,
        since_unix_ms: Option<u64>,
        most: usize,
    ) -> Result<Vec<AuditEntry>, ClientError> {
        self.http().query::<GetAudit>((), &HistoryQuery { most: Some(most), since_unix_ms }).await
    }
}
