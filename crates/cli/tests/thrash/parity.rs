//! Replaces blocks together with their checksums, their labels and the digests in the catalog. Only a parity
//! scrub can detect this.

use std::collections::{BTreeMap, BTreeSet};

use dir::DirCatalog;
use fastrand::Rng;
use repair::NodeId;
use serde_json::Value;
use store_api::{BlockState, Catalog, StripeRecord};

use crate::cluster::COORDINATOR;
use crate::forging::replace_pair;
use crate::report::Section;
use crate::rounds::Thrash;

/// The maximum number of stripes with a replaced block. In each of these stripes, only one block is replaced,
/// so that all other blocks contradict it.
const STRIPES: usize = 4;

/// A replaced block.
struct Replaced {
    stripe: String,
    block: String,
    node: String,
    file: String,
}

impl Thrash {
    /// Replaces blocks of a healthy cluster, has the parity scrub find them, and heals the cluster.
    pub(crate) fn hold_against_parity(&mut self, rng: &mut Rng) {
        let replaced = self.replace_blocks(rng);
        if replaced.is_empty() {
            return;
        }
        let scrub = self.verb(&["scrub", "--parity", "--output", "json"]);
        let view = scrub.json().unwrap_or_default();
        let told = self.verb(&["status", "--output", "json"]).json().unwrap_or_default();
        for block in &replaced {
            self.report.count(Section::Faults, "pair and digest replaced");
            if !is_told(block, &view, &told) {
                self.fail(&format!(
                    "A PARITY SCRUB MISSES {} of stripe {} on {}: exit {:?}, {view}",
                    block.block, block.stripe, block.node, scrub.code
                ));
            }
            self.helpers.of(&block.node).damaged = true;
        }
        if scrub.code != Some(3) {
            self.fail(&format!("a parity scrub finds contradictions and ends so: {}", scrub.words()));
        }
        self.repair_until_whole();
        self.look_for_false_alarms();
        replaced.iter().for_each(|block| self.helpers.of(&block.node).damaged = false);
        let scrub = self.verb(&["scrub", "--parity"]);
        if scrub.code != Some(0) {
            self.fail(&format!("a parity scrub after repair: {}\n{}", scrub.words(), scrub.out_text()));
        }
        let files: BTreeSet<String> = replaced.into_iter().map(|block| block.file).collect();
        for name in files {
            if !self.model.possible(&name).contains(&None) {
                self.read_back(&name);
            }
        }
    }

    /// Replaces one block in each of some stripes, together with its checksums, its label and the digest in
    /// the catalog.
    fn replace_blocks(&mut self, rng: &mut Rng) -> Vec<Replaced> {
        self.report.log("blocks are replaced with all that vouches for them");
        self.cluster.kill(COORDINATOR);
        let mut catalog =
            DirCatalog::open(self.cluster.catalog(), &self.cluster_id()).expect("nobody uses it");
        let nodes = catalog.nodes().expect("readable");
        let names: BTreeMap<NodeId, String> = nodes.into_iter().map(|node| (node.id, node.name)).collect();
        let mut stripes: Vec<StripeRecord> = Vec::new();
        let mut visit = |stripe: StripeRecord, is_pending: bool| {
            stripes.extend((!is_pending && is_whole(&stripe)).then_some(stripe));
        };
        catalog.each_stripe(&mut visit).expect("readable");
        rng.shuffle(&mut stripes);
        stripes.truncate(rng.usize(1..=STRIPES));
        let mut replaced = Vec::new();
        for stripe in stripes {
            let stored: Vec<usize> = (0..stripe.blocks.len()).filter(|&at| is_stored(&stripe, at)).collect();
            let Some(&at) = rng.choice(&stored) else { continue };
            let block = &stripe.blocks[at];
            let node = block.node.expect("it is stored");
            let helper = &names[&node];
            self.cluster.kill(helper);
            let digest = replace_pair(&self.cluster.blocks(helper), &block.id, rng.u64(..));
            let index = codes::BlockIndex(at as u16);
            catalog.publish_all(&stripe.id, &[(index, node, Some(digest))]).expect("written");
            self.report.log(&format!("  {} on {helper}", block.id));
            replaced.push(Replaced {
                stripe: stripe.id.0.clone(),
                block: block.id.0.clone(),
                node: helper.clone(),
                file: stripe.file.as_ref().map(|part| part.name.clone()).unwrap_or_default(),
            });
        }
        drop(catalog);
        self.cluster.start(COORDINATOR);
        for name in self.cluster.helpers() {
            if !self.cluster.is_started(&name) {
                self.cluster.start(&name);
            }
            self.helpers.returns(&name);
        }
        self.await_helpers();
        replaced
    }

    fn cluster_id(&self) -> String {
        let text =
            std::fs::read_to_string(self.cluster.folder().join("mend.toml")).expect("it was made by init");
        let line =
            text.lines().find_map(|line| line.strip_prefix("cluster_id = ")).expect("clusters have ids");
        line.trim_matches('"').to_owned()
    }
}

fn is_stored(stripe: &StripeRecord, at: usize) -> bool {
    let block = &stripe.blocks[at];
    block.state == BlockState::Healthy && block.node.is_some() && block.bytes > 0
}

/// Whether all blocks are present. Only then can parity identify a wrong block.
fn is_whole(stripe: &StripeRecord) -> bool {
    stripe.blocks.iter().all(|block| matches!(block.state, BlockState::Healthy | BlockState::NotStored))
}

/// Whether the scrub or an earlier check has reported the block as wrong, or the scrub lists it among the
/// suspects of a contradictory stripe.
fn is_told(replaced: &Replaced, scrub: &Value, status: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_it = |found: &Value| found["block"] == *replaced.block && found["node"] == *replaced.node;
    let found = list(&scrub["findings"]).iter().chain(&list(&status["lost_lately"])).any(is_it);
    let suspects =
        |stripe: &Value| stripe["stripe"] == *replaced.stripe && list(&stripe["suspects"]).iter().any(is_it);
    found || list(&scrub["parity"]["contradictory"]).iter().any(suspects)
}
