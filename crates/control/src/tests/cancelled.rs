//! Jobs that are cancelled while helpers commit their blocks.

use super::*;

impl TestCluster {
    /// Lets the nodes answer until helpers are told to commit blocks. Freezes these helpers, and returns their names.
    fn freeze_committing(&mut self) -> Vec<String> {
        let commits = |node: &PlayedNode| {
            let mut messages = node.inbox.iter().chain(&node.backlog);
            messages.any(|message| matches!(message, ToNode::Commit { .. }))
        };
        for _ in 0..1000 {
            let committing = self.nodes.iter().filter(|(_, node)| commits(node));
            let names: Vec<String> = committing.map(|(name, _)| name.clone()).collect();
            if !names.is_empty() {
                self.frozen.extend(names.iter().cloned());
                return names;
            }
            self.answers().into_iter().for_each(|(name, answer)| self.say(&name, answer));
            self.now += Duration::from_millis(50);
            self.tick();
            self.pump();
        }
        panic!("no helper is told to commit a block");
    }
}

/// The helper with the lost block returns while another one commits the rebuilt block.
#[test]
fn a_block_that_was_committed_although_the_lost_one_is_back_is_read_back_and_counts() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let before = home(&file, 0);
    cluster.kill(&before);
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let repair = cluster.repair_all().repair;
    cluster.frozen.clear();
    let now = cluster.freeze_committing().remove(0);
    cluster.start(&before);
    assert_eq!(cluster.status().work.jobs.len(), 1, "the block may exist by now");
    cluster.frozen.clear();
    cluster.play();
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 1), "{view:#?}");
    assert_eq!(home(&cluster.file("f"), 0), now);
}

/// A helper of a put dies, and another one takes its block. Only the record of that names the other one.
#[test]
fn an_aborted_put_leaves_no_blocks_on_stand_ins_although_a_helper_still_commits() {
    let mut cluster = TestCluster::new(5);
    let put = cluster.begin("f", 8192).unwrap().put;
    let helpers: Vec<String> = (1..=5).map(|at| format!("h{at}")).collect();
    cluster.frozen.extend(helpers.iter().cloned());
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    let (chosen, others): (Vec<&String>, Vec<&String>) =
        helpers.iter().partition(|name| cluster.nodes[*name].is_assigned());
    assert_eq!((chosen.len(), others.len()), (4, 1));
    let (dead, slow, stand_in) = (chosen[0], chosen[1], others[0]);
    cluster.kill(dead);
    cluster.frozen.clear();
    let committing = cluster.freeze_committing();
    assert!(committing.contains(slow) && committing.contains(stand_in), "{committing:?}");
    cluster.frozen = BTreeSet::from([slow.clone()]);
    cluster.play();
    assert!(!cluster.node(stand_in).disk.is_empty());
    cluster.ask(|reply| FileCommand::AbortPut(PutId(put), reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    assert!(cluster.nodes.values().all(|node| node.disk.is_empty()));
}
