//! The start: Control is created from the contents of the storage, and waits until helpers have registered.

use std::time::Duration;

use rand::rngs::StdRng;
use serde_json::Value;

use crate::audit::Audit;
use crate::base::{Base, SETTLE_LIMIT};
use crate::conditions::Conditions;
use crate::control::{Control, facts, outer_facts};
use crate::history::History;
use crate::jobs::Jobs;
use crate::jobs::link_tests::LinkTests;
use crate::nodes::Nodes;
use crate::nodes::capping::Capping;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::scrub::state::Scrubs;
use crate::settings::Settings;
use crate::storing::Storing;
use crate::storing::storage_thread::Opened;
use crate::stripes::Stripes;
use crate::stripes::surplus::Surplus;

impl Control {
    /// Creates a coordinator from the contents of its storage. Repairs that the previous coordinator left
    /// unfinished are queued again.
    pub fn new(settings: Settings, opened: Opened, rng: StdRng, unix_ms: u64) -> Self {
        let Opened { picture, store, unlisted, numbers, records, .. } = opened;
        let mut core = Self {
            base: Base { settings, store, now: Duration::ZERO, unix_ms },
            nodes: Nodes::default(),
            capping: Capping::default(),
            stripes: Stripes::new(picture, unlisted),
            surplus: Surplus::default(),
            jobs: Jobs::default(),
            link_tests: LinkTests::default(),
            repairs: Repairs::new(store),
            scrub: Scrubs::default(),
            storing: Storing::default(),
            history: History::default(),
            conditions: Conditions::default(),
            audit: Audit::default(),
            out: Out::new(rng, numbers),
        };
        core.recall(&records);
        core.pass_on();
        core
    }

    /// Restores the state that the previous coordinator recorded.
    fn recall(&mut self, records: &[(String, Value)]) {
        self.stripes.picture.nodes().values().for_each(|node| self.nodes.know_node(&self.base, node));
        self.nodes.registry.recall_leaving(records);
        self.nodes.recall_measured(records);
        self.nodes.lay_links(&self.base);
        self.capping.recall(records);
        self.capping.tell_trunks(&self.base, &mut self.out);
        self.requeue_repairs(records);
        self.scrub.recall_scrub(records);
        self.scrub.recall_background_scrub(records);
        self.stripes.condemned.recall(records);
        self.history.recall_history(records, &mut self.out);
        self.conditions.recall(records, &mut self.out);
        self.audit.recall(records, &mut self.out);
        self.stripes.recall_contradictions(outer_facts!(self), records, &mut self.out);
        self.nodes.registry.recall_outages(&self.base, records, &mut self.out);
        let repairs = &mut self.repairs;
        repairs.nodes.recall(self.nodes.registry.gone(), &repairs.queue);
        let nodes = &mut self.nodes;
        nodes.maintenance.recall((&self.base, &nodes.registry), records, &mut self.out);
        self.nodes.recall_settings(records);
        self.stripes.newer.recall(&self.stripes.picture, records);
        self.scrub.proof.recall(facts!(self), records);
        self.settle();
    }

    /// Ends the start-up phase once the store has been listed and all expected helpers have reconnected or
    /// timed out.
    pub(crate) fn settle(&mut self) {
        let expected = || self.nodes.registry.awaited(&self.base).next().is_none();
        let is_listed = self.stripes.news.unlisted().is_none();
        if !self.nodes.settled && is_listed && (self.base.now >= SETTLE_LIMIT || expected()) {
            self.nodes.settled = true;
            self.nodes.registry.find_absent(&self.base, &mut self.out);
            self.stripes.after_settling(outer_facts!(self), &self.jobs, &mut self.out);
        }
    }
}
