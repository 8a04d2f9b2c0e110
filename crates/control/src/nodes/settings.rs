//! The settings that can be changed while the coordinator runs.

use cluster::RepairAfter;
use serde_json::Value;
use views::SettingsRequest;

use crate::base::Base;
use crate::error::NodeError;
use crate::nodes::Nodes;
use crate::out::Out;

/// The record key of the time after which the blocks of an absent helper are rebuilt.
const REPAIR_AFTER_KEY: &str = "setting/repair-after";

impl Nodes {
    /// Changes the settings and records them.
    pub(crate) fn change_settings(
        &mut self,
        base: &Base,
        request: &SettingsRequest,
        out: &mut Out,
    ) -> Result<(), NodeError> {
        if let Some(text) = &request.repair_after {
            self.repair_after_set = match text.as_str() {
                "default" => None,
                text => Some(text.parse::<RepairAfter>()?),
            };
            match self.repair_after_set {
                Some(after) => out.keep_record(REPAIR_AFTER_KEY.to_owned(), &after),
                None => out.forget_record(REPAIR_AFTER_KEY.to_owned()),
            }
            tracing::info!(repair_after = %self.repair_after(base), "settings changed");
        }
        Ok(())
    }

    /// Restores the settings that an earlier coordinator recorded.
    pub(crate) fn recall_settings(&mut self, records: &[(String, Value)]) {
        let set = records.iter().find(|(key, _)| key == REPAIR_AFTER_KEY);
        self.repair_after_set = set.and_then(|(_, value)| serde_json::from_value(value.clone()).ok());
    }
}
