//! Regenerates `fuzz/seeds` with the encoders that a cluster uses: `cargo run -p fuzz --example corpus`.
//!
//! Inputs found by fuzzing are kept; their names start with `found-`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::{Cluster, InitOptions, Role};
use codes::{BlockIndex, CodeSpec};
use dir::DirBlocks;
use repair::wire::RequestFailure;
use repair::wire::control::{BlockHeat, ClientRequest, Ended, FromNode, HeldBlock, ToNode, VERSION};
use repair::wire::edge::{Credit, Direction, FrameHeader, Greeting};
use repair::{
    Assignment, BlockId, BlockProblem, Caps, Chunking, Digest, Due, EdgeKey, Epoch, FilePart, Fingerprint,
    Heat, Job, JobAction, JobId, JobRequest, LocalBlock, NodeId, NodeProfile, Pacing, Permit, Policy,
    Refusal, Report, Scheme, Sent, Sink, SinkEnd, SinkProblem, SliceSet, Stripe, StripeBlock, StripeId,
    StripeLabel, Topology, Verify, Wanted,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use store_api::{BlockRecord, BlockState, FileRecord, NodeRecord, PutId, PutRecord, StripeRecord};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The seeds of one target.
struct Folder {
    path: PathBuf,
    count: usize,
}

impl Folder {
    fn of(target: &str) -> Result<Self> {
        let path = Path::new(SEEDS).join(target);
        std::fs::create_dir_all(&path)?;
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with("found-") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { path, count: 0 })
    }

    fn add(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.count += 1;
        Ok(std::fs::write(self.path.join(format!("{:02}", self.count)), bytes)?)
    }

    fn add_json(&mut self, value: &impl Serialize) -> Result<()> {
        self.add(serde_json::to_vec(value)?)
    }
}

fn main() -> Result<()> {
    edge()?;
    control()?;
    http()?;
    disks()?;
    seaweedfs()?;
    hdfs()?;
    records()?;
    texts()?;
    folder()
}

fn edge() -> Result<()> {
    let mut greetings = Folder::of("edge_greeting")?;
    for (direction, number) in [(Direction::Receive, 1), (Direction::Send, u64::MAX)] {
        let key = EdgeKey([number as u8; 16]);
        greetings.add(Greeting { direction, job: JobId(number), epoch: Epoch(3), key }.encode())?;
    }
    let mut frames = Folder::of("edge_frames")?;
    let frame = |lane, stream, slice, payload: &[u8]| {
        [&FrameHeader::slice(lane, stream, slice, payload).encode()[..], payload].concat()
    };
    frames.add(frame(0, 0, 0, b""))?;
    frames.add([frame(1, 2, 3, b"slice"), frame(0, 0, u32::MAX, &[7; 100])].concat())?;
    let mut credits = Folder::of("edge_credit")?;
    credits.add(Credit::Ready { slice: 0 }.encode())?;
    credits.add(Credit::Received { slice: u32::MAX }.encode())
}

fn control() -> Result<()> {
    let mut up = Folder::of("control_from_node")?;
    for message in from_node() {
        up.add_json(&message)?;
    }
    let mut reports = Folder::of("job_reports")?;
    for message in from_node().iter().filter(|message| matches!(message, FromNode::Report { .. })) {
        reports.add(serde_json::to_string(message)?.replace("17.3", "1.1"))?;
    }
    let mut down = Folder::of("control_to_node")?;
    for message in to_node() {
        down.add_json(&message)?;
    }
    for (code, scheme) in [
        ("rs-4-2", Scheme::Conventional),
        ("rs-4-2", Scheme::Pipelined),
        ("rs-6-4", Scheme::CrrS),
        ("rs-6-4", Scheme::Ppr),
        ("hitchhiker-xor-6-4", Scheme::PipeB),
        ("clay-4-2-3", Scheme::Pipelined),
    ] {
        let all = assignments(code, scheme)?;
        // Only the assignments of the first and the last node are written. One of these nodes is the
        // requestor and the other a source; all other nodes resemble the source.
        let ends = [all.first(), all.last()].into_iter().flatten();
        for assignment in ends {
            down.add_json(&ToNode::Assign(Box::new(assignment.clone())))?;
        }
    }
    Ok(())
}

fn from_node() -> Vec<FromNode> {
    let block = BlockId("17.3".into());
    let held = || vec![HeldBlock { id: BlockId("17.3".into()), bytes: 1 << 26 }];
    let report = |report| FromNode::Report { job: JobId(5), epoch: Epoch(2), report };
    let problem = BlockProblem::Corrupt("checksum at byte 4096".into());
    let mut delivered = SliceSet::all(3);
    delivered.insert(7..9);
    let read = ClientRequest::Read {
        stripe: StripeId("17".into()),
        blocks: vec![BlockIndex(0), BlockIndex(1)],
        sub_blocks: Some((0, 2)),
        window: (0, 4096),
        scheme: Scheme::Auto,
        slice_bytes: Some(4096),
        pacing: Some(Pacing::Serial),
        verify: false,
        pretend_lost: vec![BlockIndex(1)],
        expected: Vec::new(),
    };
    let put = ClientRequest::PutStripe { put: 4, position: 1 };
    vec![
        FromNode::RegisterHelper {
            version: VERSION,
            cluster_id: "0123456789abcdef0123456789abcdef".into(),
            address: "127.0.0.1:7410".into(),
            rack: Some("r1".into()),
            rates: repair::StatedRates { up: Some(125_000_000), read: Some(1), ..Default::default() },
            blocks: held(),
            free_bytes: 1 << 40,
            more: false,
            incomplete: Some("no answer from the disk of /data/2".into()),
        },
        FromNode::RegisterClient { version: VERSION, bandwidth: None, rack: None },
        FromNode::Pong { free_bytes: 0, tasks: 3, write_problem: None },
        FromNode::Seen { up: 117_000_000, down: 1 },
        FromNode::Unused { up: Some(1000), down: None },
        FromNode::Removed { block: block.clone() },
        FromNode::Verified { ask: 1, block: block.clone(), result: Ok(Some(digest(0xe306_9283))) },
        FromNode::Verified { ask: 2, block: block.clone(), result: Err(problem.clone()) },
        FromNode::Listed { ask: 3, blocks: held(), more: false },
        FromNode::Open { tag: 1, request: read },
        FromNode::Open { tag: 2, request: put },
        FromNode::Close { tag: 1 },
        FromNode::Garbled { stripe: StripeId("17".into()), block: BlockIndex(1) },
        report(Report::Progress { slices: 3, whole: 2 }),
        report(Report::Delivered),
        report(Report::Waiting {
            receive: vec![
                Due { node: NodeId(1), slice: 7, rested_ms: 1600 },
                Due { node: NodeId(2), slice: 7, rested_ms: 1600 },
            ],
            send: vec![Due { node: NodeId(3), slice: 5, rested_ms: 200 }],
            sent: vec![Sent { node: NodeId(3), before: 5 }],
        }),
        report(Report::Closed { peer: NodeId(1), detail: "reset".into() }),
        report(Report::BadFrame { from: NodeId(1), detail: "checksum".into() }),
        report(Report::BadBlock { block: block.clone(), problem: BlockProblem::Missing }),
        report(Report::SinkFailed { block: block.clone(), problem: SinkProblem::NoSpace }),
        report(Report::Refused { why: Refusal::Assignment { detail: "no pattern".into() } }),
        report(Report::Refused {
            why: Refusal::End { block: block.clone(), end: Box::new(SinkEnd::Taken { checked: false }) },
        }),
        report(Report::Stopped { delivered }),
        report(Report::Sealed { digests: vec![(block.clone(), Some(digest(1)))], hand_over_ms: 600_000 }),
        report(Report::Fingerprinted {
            block: block.clone(),
            seed: 7,
            fingerprints: vec![Fingerprint::zero(); 2],
        }),
        report(Report::Committed),
        report(Report::Reread { block, digest: Some(digest(1)) }),
        FromNode::Verifying { ask: 3 },
        FromNode::UserLoad { bytes_per_s: 50_000_000 },
        FromNode::Heat {
            blocks: vec![
                BlockHeat { id: BlockId("17.3".into()), heat: Heat::VeryHot },
                BlockHeat { id: BlockId("17.4".into()), heat: Heat::Cold },
            ],
        },
    ]
}

fn to_node() -> Vec<ToNode> {
    let (job, epoch, block) = (JobId(5), Epoch(2), BlockId("17.3".into()));
    let ended = Ended {
        scheme: Some(Scheme::Cyclic),
        replanned: vec!["h1 fell silent".into()],
        parity: None,
        digests: vec![(BlockIndex(0), strong())],
    };
    let fingerprint = ToNode::Fingerprint {
        job,
        epoch,
        block: LocalBlock {
            index: BlockIndex(3),
            id: block.clone(),
            bytes: 4 << 20,
            digest: Some(digest(7)),
        },
        chunking: Chunking::new(4 << 20, 1 << 20, 4).expect("it divides"),
        window: (0, 1 << 20),
        seed: u64::MAX,
    };
    vec![
        ToNode::Registered { node: NodeId(1) },
        ToNode::Refused { reason: "another cluster".into(), passing: false },
        ToNode::Ping,
        ToNode::Limits(Caps { repairs_up: Some(1), repairs_down: Some(125_000_000), ..Caps::default() }),
        ToNode::Spare,
        ToNode::Stop { job, epoch },
        ToNode::Seal { job, epoch },
        fingerprint,
        ToNode::Commit { job, epoch },
        ToNode::Reread { job, epoch, block: block.clone(), digest: Some(digest(7)) },
        ToNode::Reread { job, epoch, block: block.clone(), digest: None },
        ToNode::Forget { job },
        ToNode::Remove { block: block.clone() },
        ToNode::Verify { ask: 1, block: block.clone(), digest: Some(digest(7)) },
        ToNode::Verify { ask: 3, block, digest: None },
        ToNode::List { ask: 2 },
        ToNode::Closed { tag: 1, result: Ok(ended) },
        ToNode::Closed {
            tag: 2,
            result: Err(RequestFailure::TooMuchLost { detail: "2 blocks are needed".into() }),
        },
        ToNode::Closed { tag: 3, result: Err(RequestFailure::CalledOff) },
        ToNode::AtRisk { job },
    ]
}

/// Returns the assignments of a repair that rebuilds block 1 on a node without a block of the stripe.
fn assignments(code: &str, scheme: Scheme) -> Result<Vec<Assignment>> {
    let code = code.parse::<CodeSpec>()?.build()?;
    let (n, block_bytes) = (code.blocks() as u32, 8192 * code.sub_blocks() as u64);
    let mut topology = Topology::new();
    for node in 0..=n {
        let address = format!("127.0.0.1:{}", 7410 + node);
        topology.set(NodeId(node), NodeProfile::helper(format!("h{node}"), address));
    }
    let blocks = (0..n).map(|index| StripeBlock {
        id: BlockId(format!("1.{index}")),
        bytes: block_bytes,
        holder: (index != 1).then_some(NodeId(index)),
        digest: Some(digest(index)),
    });
    let stripe = Stripe {
        id: StripeId("1".into()),
        chunking: Chunking::of(&*code, block_bytes, Some(block_bytes / 2))?,
        code,
        blocks: blocks.collect(),
        label: Some(label()),
    };
    let request = JobRequest {
        job: JobId(1),
        window: 0..stripe.sub_block_bytes(),
        stripe,
        wanted: vec![Wanted { block: BlockIndex(1), requestor: NodeId(n) }],
        sub_blocks: None,
        policy: Policy { scheme, slice_bytes: Some(4096), ..Policy::default() },
        verify: Verify::default(),
        publish: true,
        tag: None,
        permits: vec![(BlockIndex(1), Permit::new(b"a token".to_vec())?)],
    };
    let mut job = Job::new(request, [1; 32], &topology, Duration::ZERO);
    let assigned = std::iter::from_fn(|| job.poll()).filter_map(|action| match action {
        JobAction::Tell { message: ToNode::Assign(assignment), .. } => Some(*assignment),
        _ => None,
    });
    Ok(assigned.collect())
}

fn http() -> Result<()> {
    let mut requests = Folder::of("api_request")?;
    requests.add_json(&views::PutRequest {
        name: "film".into(),
        bytes: 70_000,
        code: Some("rs-6-4".into()),
        block_bytes: Some(8192),
        chunk_bytes: Some(4096),
        replace: true,
    })?;
    requests.add_json(&views::RepairRequest { all: true, ..views::RepairRequest::default() })?;
    requests.add_json(&views::RepairRequest {
        drain: Some("h1".into()),
        way: Some("both".into()),
        requestors: vec!["h2".into()],
        ..views::RepairRequest::default()
    })?;
    requests.add_json(&views::CapsRequest { cluster: Some(1 << 20), ..views::CapsRequest::default() })?;
    requests.add_json(&views::PlanRequestView {
        stripe: "17".into(),
        blocks: vec![1],
        requestor: Some("client".into()),
        ..views::PlanRequestView::default()
    })?;
    let mut answers = Folder::of("api_answer")?;
    answers.add_json(&layout())?;
    answers.add_json(&vec![layout().file])?;
    answers.add_json(&layout().layout[0].stripe)?;
    answers.add_json(&repair())?;
    answers.add_json(&views::ErrorBody { error: "there is no file `x`".into(), next_step: "mend ls".into() })
}

fn layout() -> views::FileLayout {
    let stripe = |position: u64, file_offset, data_bytes, block_bytes| views::FileStripe {
        position,
        file_offset,
        data_bytes,
        stripe: views::StripeView {
            stripe: format!("{}", 17 + position),
            code: "rs-3-2".into(),
            block_bytes,
            chunk_bytes: (block_bytes > 8192).then_some(8192),
            readable: true,
            survives: 1,
            helpers: 1,
            blocks: vec![views::BlockView {
                block: "17.0".into(),
                index: 0,
                bytes: block_bytes,
                node: Some("h1".into()),
                state: views::BlockState::Healthy,
                replicas: Vec::new(),
                digest: Some("crc32c-list:e3069283".into()),
            }],
        },
    };
    views::FileLayout {
        file: views::FileView {
            name: "film".into(),
            bytes: 70_000,
            code: "rs-3-2".into(),
            block_bytes: 32_768,
            chunk_bytes: Some(8192),
            stripes: 2,
            created_unix_ms: 1_790_000_000_000,
        },
        data_blocks: 2,
        sub_blocks: 4,
        layout: vec![stripe(0, 0, 65_536, 32_768), stripe(1, 65_536, 4464, 4096)],
    }
}

fn repair() -> views::RepairView {
    views::RepairView {
        repair: 1,
        target: "all".into(),
        scheme: "auto".into(),
        policy: "even".into(),
        state: views::RepairState::Done,
        by_itself: false,
        counts: views::RepairCounts {
            stripes: 1,
            stripes_done: 1,
            stripes_failed: 0,
            blocks_rebuilt: 1,
            bytes_rebuilt: 4096,
            bytes: 4096,
        },
        started_unix_ms: 0,
        ended_unix_ms: Some(1),
        progress: Some(views::ProgressView {
            rate_bytes_per_s: Some(4096),
            soonest_ms: None,
            latest_ms: None,
            limited_by: Some("the uplink of h3".into()),
            elapsed_ms: 1000,
            bound_ms: Some(500),
        }),
        reasons: Vec::new(),
        unknown: Vec::new(),
        version: 0,
        items: Vec::new(),
    }
}

/// Stores blocks as a helper does, and writes their checksum files as seeds.
fn disks() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut files = Folder::of("checksum_file")?;
    for (index, bytes) in [0_usize, 1, 4096, 9000].into_iter().enumerate() {
        let root = scratch.path().join(index.to_string());
        let blocks = DirBlocks::open(root.clone())?;
        let mut writer = blocks.create(&Sink {
            index: BlockIndex(3),
            id: BlockId("17.3".into()),
            bytes: bytes as u64,
            digest: None,
            end: SinkEnd::Kept { label: (index > 0).then(label).map(Box::new), permit: None },
        })?;
        writer.write_at(0, &vec![7; bytes])?;
        writer.seal()?;
        writer.commit()?;
        files.add(std::fs::read(checksums_below(&root)?)?)?;
    }
    let mut names = Folder::of("block_name")?;
    ["17.3", "a-B_c", "0"].iter().try_for_each(|name| names.add(name))
}

/// Writes files that SeaweedFS 4.48 created, and names in the format of SeaweedFS's shard files.
fn seaweedfs() -> Result<()> {
    Folder::of("ecsum")?.add(include_bytes!("../../stores/seaweedfs/testdata/4.48.ecsum"))?;
    Folder::of("vif")?.add(include_bytes!("../../stores/seaweedfs/testdata/4.48.vif"))?;
    let mut names = Folder::of("shard_name")?;
    ["17.ec03", "pictures_17.ec31", "a_b_4294967295.ec00"].iter().try_for_each(|name| names.add(name))
}

/// Writes checksum files with HDFS's header and one checksum, and names in the format of HDFS.
fn hdfs() -> Result<()> {
    let mut files = Folder::of("hdfs_meta")?;
    for header in [[0, 1, 2, 0, 0, 2, 0], [0, 1, 1, 0, 0, 16, 0]] {
        files.add([&header[..], &[0x36, 0x4b, 0x3f, 0xb7]].concat())?;
    }
    let mut names = Folder::of("hdfs_name")?;
    [
        "blk_-9223372036854775792_1001",
        "blk_1073741825_1002",
        "RS-6-3-1024k",
        "XOR-2-1-64k",
        "rs-legacy-6-3-1024k",
    ]
    .iter()
    .try_for_each(|name| names.add(name))?;
    let mut said = Folder::of("datanode_answer")?;
    [&b"\x02\x08\x00"[..], b"\x02\x08\x05", b"\x06\x08\x01\x2a\x02no"]
        .iter()
        .try_for_each(|answer| said.add(answer))?;
    let node = "n 0 2f3c 10.0.0.1:9866\nd 0 /default-rack live normal 12\n";
    let mut answers = Folder::of("namenode_answer")?;
    answers.add(format!("safe\n{node}v 0 /data/1\nw 0 access is refused\n"))?;
    answers.add(format!("{node}g 16390 0 -9223372036854775792 1001 1500 RS-6-3-1024k old 0:0,6:0\n"))?;
    answers.add(format!("{node}g 16390 0 -9223372036854775776 1001 9 HHXOR-6-3-1024k new -\n"))?;
    answers.add("t 0 YSB0b2tlbg==\nt 8 YW5vdGhlcg==\n")?;
    let held =
        "p 16390 %2Fa%2F.snapshot%2Fs1%2Fb\ng 16390 0 -9223372036854775792 1001 9 RS-6-3-1024k open 0:0\n";
    answers.add(format!("{node}a 900 12\n{held}s 1 2 1\nx %2Fc+d no permission\n"))?;
    let file = "D %2Fa 1700000000000 16392 =ada\nF 16393 %2Fa%2Fb 1500 1024 3 1700000000001 replicated closed =ada\n";
    answers.add(format!("{node}S %2Fc\n{file}B 1073741825 1001 1024 0\nB 1073741826 1001 476 -\n"))?;
    answers.add(
        "X %2Fa user.mend.raid =never\nX %2Fa user.mend.other =\n\
         X %2Fp%2Fa trusted.mend.members =1+1073741825.1001.512,..9\n",
    )
}

/// Returns an example of the label that is stored with a block: it describes the block's stripe and file.
fn label() -> StripeLabel {
    StripeLabel {
        cluster: "0123456789abcdef0123456789abcdef".into(),
        stripe: StripeId("17-k3f9x2".into()),
        code: "rs-14-10".parse().expect("a code's name"),
        block_bytes: 9000,
        chunk_bytes: None,
        file: FilePart {
            name: "film".into(),
            bytes: 70_000,
            block_bytes: 9000,
            chunk_bytes: None,
            position: 0,
            put: "1-k3f9x2".into(),
            begun_unix_ms: 1_790_000_000_000,
        },
    }
}

fn checksums_below(root: &Path) -> Result<PathBuf> {
    for shard in std::fs::read_dir(root)?.filter_map(|entry| std::fs::read_dir(entry.ok()?.path()).ok()) {
        for file in shard {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "crc") {
                return Ok(path);
            }
        }
    }
    Err("a stored block has no checksum file".into())
}

fn records() -> Result<()> {
    let mut records = Folder::of("catalog_record")?;
    let code: CodeSpec = "clay-6-4-5".parse()?;
    let block = |index: u32, state| BlockRecord {
        id: BlockId(format!("17.{index}")),
        bytes: 8192,
        node: (index != 2).then_some(NodeId(index)),
        state,
        replicas: Vec::new(),
        digest: (index > 0).then(|| digest(index)),
    };
    records.add_json(&StripeRecord {
        id: StripeId("17".into()),
        code: code.clone(),
        block_bytes: 8192,
        chunk_bytes: Some(4096),
        blocks: vec![
            block(0, BlockState::Missing),
            block(1, BlockState::Healthy),
            block(2, BlockState::Corrupt),
            block(3, BlockState::Unreadable),
        ],
        file: Some(label().file),
    })?;
    records.add_json(&FileRecord {
        name: "film".into(),
        bytes: 70_000,
        code: code.clone(),
        block_bytes: 8192,
        chunk_bytes: Some(4096),
        stripes: vec![StripeId("17".into()), StripeId("18".into())],
        created_unix_ms: 1_790_000_000_000,
    })?;
    records.add_json(&NodeRecord { id: NodeId(1), name: "h1".into(), address: Some("h1:7410".into()) })?;
    let name = "film".into();
    records.add_json(&PutRecord {
        id: PutId(1),
        name,
        bytes: 70_000,
        code,
        block_bytes: 8192,
        chunk_bytes: None,
        replace: false,
        name_of_put: "1-k3f9x2".into(),
        begun_unix_ms: 1_790_000_000_000,
    })
}

fn texts() -> Result<()> {
    let texts: [(&str, &[&str]); 5] = [
        ("byte_range", &["0-99", "1MiB+4KiB", "1000-", "0+0", "1.5KiB-2KiB"]),
        ("address", &["127.0.0.1:7410", "[::1]:7410", "node7.example:1", "::1", "h1"]),
        ("quantity", &["64MiB", "1.5GiB", "4096", "1gbit", "2.5Mbit/s", "100MB/s", "0"]),
        ("role_name", &["coordinator.mend", "h1.helper.mend", "admin.client.mend"]),
        (
            "code_spec",
            &[
                "rs-14-10",
                "RS(9,6)-jerasure",
                "rs-9-6-qfs",
                "lrc-12-2-2",
                "lrc1-6-2-2",
                "rotated-9-6-4",
                "hitchhiker-xor+-6-4",
                "clay-6-4-5",
                "pipelined",
            ],
        ),
    ];
    for (target, seeds) in texts {
        let mut folder = Folder::of(target)?;
        seeds.iter().try_for_each(|seed| folder.add(seed))?;
    }
    Ok(())
}

/// Writes the configuration and certificates of a cluster folder.
fn folder() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let options = InitOptions { helpers: 2, ..InitOptions::default() };
    let cluster = Cluster::init(&scratch.path().join("demo"), &options)?;
    let mut configs = Folder::of("config")?;
    let text = std::fs::read_to_string(cluster.config_path())?;
    configs.add(&text)?;
    configs.add(format!(
        "{text}rack = \"r1\"\nbandwidth = \"1gbit\"\nadvertise = \"h2.example:7412\"\nblocks = \"/srv/b\"\n"
    ))?;
    let mut certificates = Folder::of("certificate")?;
    for role in [Role::Coordinator, Role::Helper("h1".parse()?), Role::default_client()] {
        certificates.add(CertificateDer::from_pem_file(cluster.certificate(&role))?)?;
    }
    Ok(())
}

fn digest(sum: u32) -> Digest {
    Digest::of_u32("crc32c-list", sum)
}

/// Returns a digest of the kind that `dir` uses today.
fn strong() -> Digest {
    Digest::new(store_api::DIGEST_KIND, &[7; 32]).expect("32 bytes")
}
