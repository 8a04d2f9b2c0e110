//! Plans that are made while other jobs move data.

use crate::commands::{FileCommand, StripeCommand};
use recovery::{Loads, NodeLoad};
use repair::{Class, JobPhase};

use super::*;

impl TestCluster {
    /// Returns the helpers that are assigned block reads in jobs of a class.
    fn readers(&mut self, class: Class) -> BTreeSet<String> {
        self.answers();
        let reads = |message: &ToNode| match message {
            ToNode::Assign(assignment) => assignment.class == class && !assignment.locals.is_empty(),
            _ => false,
        };
        let nodes = self.nodes.iter().filter(|(_, node)| node.backlog.iter().any(reads));
        nodes.map(|(name, _)| name.clone()).collect()
    }
}

/// Creates a stripe of six blocks, any two of which can decode it. Its first block is lost, and all nodes are
/// frozen.
fn damaged() -> (TestCluster, FileLayout) {
    let mut cluster = TestCluster::new(7);
    let request = PutRequest {
        name: "f".into(),
        bytes: 8192,
        code: Some("rs-6-2".into()),
        block_bytes: None,
        chunk_bytes: None,
        replace: false,
    };
    let put = cluster.ask(|reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply)).unwrap();
    cluster.open(1, ClientRequest::PutStripe { put: put.put, position: 0 });
    cluster.closed(1).unwrap().unwrap();
    cluster.ask(|reply| FileCommand::CommitPut(PutId(put.put), reply)).unwrap();
    let file = cluster.file("f");
    cluster.kill(&home(&file, 0));
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    (cluster, file)
}

impl TestCluster {
    /// Sets the number of tasks that each helper reports. That number says nothing about the size of the
    /// tasks.
    fn say_tasks(&mut self, tasks: impl Fn(&String) -> u32) {
        for name in self.nodes.keys().filter(|name| name.starts_with('h')).cloned().collect::<Vec<_>>() {
            let tasks = tasks(&name);
            self.say(&name, FromNode::Pong { free_bytes: 1 << 30, tasks, write_problem: None });
        }
    }

    fn read_lost(&mut self, tag: u64, file: &FileLayout, scheme: Scheme) {
        let request = ClientRequest::Read {
            stripe: StripeId(file.layout[0].stripe.stripe.clone()),
            blocks: vec![BlockIndex(0)],
            sub_blocks: None,
            window: (0, 4096),
            scheme,
            slice_bytes: None,
            pacing: None,
            verify: false,
            pretend_lost: Vec::new(),
            expected: Vec::new(),
        };
        self.open(tag, request);
    }
}

#[test]
fn a_read_avoids_helpers_that_a_repair_uses() {
    for scheme in [Scheme::Auto, Scheme::Pipelined] {
        let (mut cluster, file) = damaged();
        let stripe = file.layout[0].stripe.stripe.clone();
        cluster.repair(RepairRequest { stripe: Some(stripe), ..RepairRequest::default() });
        let repairing = cluster.readers(Class::Repair);
        assert_eq!(repairing.len(), 2, "{repairing:?}");
        cluster.say_tasks(|name| if repairing.contains(name) { 0 } else { 3 });
        cluster.read_lost(2, &file, scheme);
        let reading = cluster.readers(Class::Read);
        assert!(reading.len() >= 2 && reading.is_disjoint(&repairing), "{scheme}: {repairing:?} {reading:?}");
        assert!(cluster.core().nodes.topology.is_free(), "it is told for one plan");
    }
}

/// A job that plans again must not count its own reservation as traffic of other jobs.
#[test]
fn a_job_does_not_plan_around_its_own_reservation() {
    let (mut cluster, file) = damaged();
    cluster.read_lost(2, &file, Scheme::Pipelined);
    let before: Vec<String> = cluster.readers(Class::Read).into_iter().collect();
    let [keeps, leaves] = &before[..] else { panic!("{before:?}") };
    cluster.nodes.values_mut().for_each(|node| node.backlog.clear());
    cluster.say_tasks(|name| if name == keeps { 0 } else { 3 });
    cluster.kill(leaves);
    cluster.frozen.remove("admin");
    let answers = cluster.answers();
    cluster.frozen.insert("admin".into());
    answers.into_iter().for_each(|(name, answer)| cluster.say(&name, answer));
    let after = cluster.readers(Class::Read);
    assert!(after.len() == 2 && after.contains(keeps), "{before:?} {after:?}");
}

/// Otherwise each tick would cost a look at all nodes for each job on hold.
#[test]
fn a_job_on_hold_is_told_of_no_reservations_before_it_resumes() {
    let (mut cluster, file) = damaged();
    let stripe = file.layout[0].stripe.stripe.clone();
    let repair = cluster.repair(RepairRequest { stripe: Some(stripe), ..RepairRequest::default() }).repair;
    let before = cluster.readers(Class::Repair);
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    let load = |name: &String| NodeLoad {
        node: cluster.nodes[name].node.unwrap(),
        jobs: 1,
        sent_bytes: 1 << 30,
        received_bytes: 1 << 30,
        read_bytes: 1 << 30,
        stored_bytes: 0,
    };
    let mut nodes: Vec<NodeLoad> = before.iter().map(load).collect();
    nodes.sort_by_key(|load| load.node);
    let core = cluster.core();
    core.repairs.scheduler.reserve(&Loads { nodes, links: Vec::new() });
    let (&job, running) = core.jobs.running.first_key_value().unwrap();
    assert_eq!(running.job.phase(), JobPhase::OnHold);
    core.with_job(job, |_, topology, _| assert!(topology.is_free()));
}

/// Repairs give way to reads, so a read counts at most as many of their bytes as it reads of a block. Here it
/// counts as many at each helper, and takes the blocks with the lowest indices.
#[test]
fn neither_a_read_nor_its_explanation_depends_on_how_much_is_left_to_repair() {
    for scheme in [Scheme::Conventional, Scheme::Pipelined] {
        let (mut cluster, file) = damaged();
        cluster.say_tasks(|_| 0);
        let load = |index: usize| {
            let bytes = if index <= 2 { 1 << 30 } else { 8192 };
            NodeLoad {
                node: cluster.nodes[&home(&file, index)].node.unwrap(),
                jobs: 1,
                sent_bytes: bytes,
                received_bytes: bytes,
                read_bytes: bytes,
                stored_bytes: 0,
            }
        };
        let mut nodes: Vec<NodeLoad> = (1..6).map(load).collect();
        nodes.sort_by_key(|load| load.node);
        cluster.core().repairs.scheduler.reserve(&Loads { nodes, links: Vec::new() });
        let request = PlanRequestView {
            stripe: file.layout[0].stripe.stripe.clone(),
            scheme: Some(scheme.name().to_owned()),
            requestor: Some("client".into()),
            ..PlanRequestView::default()
        };
        let explained = cluster.ask(|reply| StripeCommand::Explain(request, reply)).unwrap().nodes;
        let explained: BTreeSet<String> =
            explained.into_values().filter(|name| name.starts_with('h')).collect();
        cluster.read_lost(2, &file, scheme);
        let expected = BTreeSet::from([1, 2].map(|index| home(&file, index)));
        assert_eq!((cluster.readers(Class::Read), explained), (expected.clone(), expected), "{scheme}");
    }
}
