//! A helper's reports, delivered to the coordinator's job in every phase of a repair.

use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::wire::control::{self, FromNode, ToNode};
use repair::{
    BlockId, Chunking, Digest, Fingerprint, Job, JobAction, JobId, JobRequest, NodeId, NodeProfile, Policy,
    Report, Scheme, SliceSet, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

/// The nodes that send the fuzzed report: the requestor, and one of the sources.
const SPEAKERS: [NodeId; 2] = [NodeId(4), NodeId(0)];
/// The number of runs for each report and sender. Run i delivers the fuzzed report after i honest reports (i
/// from 0). So the report arrives in every phase of a job, from the first plan to the read-back.
const REPORTS_BEFORE: usize = 7;
/// The maximum number of time steps. A job that has not ended by then is considered hung.
const STEPS: usize = 4000;
const STEP: Duration = Duration::from_millis(250);
fn digest() -> Digest {
    Digest::of_u32("crc32c", 17)
}

/// Decodes a helper's message. If it is a report, delivers it to a job in every phase.
pub(crate) fn reports(bytes: &[u8]) -> bool {
    let Ok(FromNode::Report { report, .. }) = control::decode(bytes) else { return false };
    for before in 0..REPORTS_BEFORE {
        for speaker in SPEAKERS {
            FuzzedJob::new().play(before, speaker, &report);
        }
    }
    true
}

/// A repair of block 1 of RS(4,2), with well-behaved nodes.
struct FuzzedJob {
    topology: Topology,
    job: Job,
    now: Duration,
}

impl FuzzedJob {
    fn new() -> Self {
        let code = CodeSpec::reed_solomon(4, 2).build().expect("there is such a code");
        let mut topology = Topology::new();
        for node in 0..=4 {
            let address = format!("h{node}:7410");
            topology.set(NodeId(node), NodeProfile::helper(format!("h{node}"), address));
        }
        let blocks = (0..4).map(|index| StripeBlock {
            id: BlockId(format!("1.{index}")),
            bytes: 8192,
            holder: (index != 1).then_some(NodeId(index)),
            digest: (index == 1).then(digest),
        });
        let stripe = Stripe {
            id: StripeId("1".into()),
            chunking: Chunking::whole(&*code, 8192),
            code,
            blocks: blocks.collect(),
            label: None,
        };
        let wanted = vec![Wanted { block: BlockIndex(1), requestor: SPEAKERS[0] }];
        let request = JobRequest {
            job: JobId(1),
            stripe,
            wanted,
            window: 0..8192,
            sub_blocks: None,
            policy: Policy { scheme: Scheme::Pipelined, slice_bytes: Some(4096), ..Policy::default() },
            verify: Verify { parity: true, stretch_bytes: 64, reread: true, ..Verify::default() },
            publish: true,
            tag: None,
            permits: Vec::new(),
        };
        let job = Job::new(request, [1; 32], &topology, Duration::ZERO);
        Self { topology, job, now: Duration::ZERO }
    }

    /// Runs the job to its end. Nodes report honestly, except that `speaker` sends `report` after `before`
    /// honest reports.
    fn play(&mut self, before: usize, speaker: NodeId, report: &Report) {
        let mut reports = 0;
        for _ in 0..STEPS {
            while let Some(action) = self.job.poll() {
                let Some((node, answer)) = self.answer(action) else { continue };
                if reports == before {
                    self.hear(speaker, report.clone());
                }
                reports += 1;
                self.hear(node, answer);
            }
            if self.job.is_finished() {
                return;
            }
            self.now += STEP;
            self.job.handle_tick(&self.topology, self.now);
        }
        panic!("{report:?} of {speaker} after {before} reports hangs the job: {:?}", self.job.state());
    }

    fn hear(&mut self, node: NodeId, report: Report) {
        let epoch = self.job.epoch();
        self.job.handle_report(node, epoch, report, &self.topology, self.now);
        let _ = self.job.state();
    }

    fn answer(&self, action: JobAction) -> Option<(NodeId, Report)> {
        let block = || BlockId("1.1".into());
        let JobAction::Tell { node, message } = action else { return None };
        let report = match message {
            ToNode::Assign(assignment) if !assignment.sinks.is_empty() => Report::Delivered,
            ToNode::Stop { .. } => Report::Stopped { delivered: SliceSet::new() },
            ToNode::Seal { .. } => {
                Report::Sealed { digests: vec![(block(), Some(digest()))], hand_over_ms: 0 }
            }
            ToNode::Fingerprint { block, seed, .. } => {
                Report::Fingerprinted { block: block.id, seed, fingerprints: vec![Fingerprint::zero()] }
            }
            ToNode::Commit { .. } => Report::Committed,
            ToNode::Reread { block, .. } => Report::Reread { block, digest: Some(digest()) },
            _ => return None,
        };
        Some((node, report))
    }
}
