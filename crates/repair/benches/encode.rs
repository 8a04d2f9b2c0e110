//! Prints a table of the cost of encoding with each code, compared with Reed-Solomon over the same number of
//! blocks.
//!
//! A put encodes at the client, so the benchmark measures the client's part: the job makes the plan of the
//! put, and the client's own relay carries out its assignment, with memory in place of files and sockets.
//! Results are medians of interleaved repetitions, because the speed of a shared machine changes from minute
//! to minute.

// Benchmarks measure time, which the crate's lints forbid elsewhere.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use codes::{BlockIndex, CodeSpec, SubBlock};
use repair::wire::control::ToNode;
use repair::{
    Action, Assignment, BlockId, Buffer, BufferPool, Chunking, Job, JobAction, JobId, JobRequest, NodeId,
    NodeProfile, Policy, Relay, Scheme, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

const BLOCK_BYTES: u64 = 16 << 20;
/// The buffer budget that an engine gives each of its relays.
const RELAY_BUDGET_BYTES: usize = 512 << 10;
const LEAST_ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(20);
const CLIENT: NodeId = NodeId(1000);

/// The codes to compare; each list begins with its Reed-Solomon reference.
const CODES: [&[&str]; 3] = [
    &[
        "rs-14-10",
        "hitchhiker-xor-14-10",
        "hitchhiker-xorplus-14-10",
        "hitchhiker-nonxor-14-10",
        "clay-14-10-13",
    ],
    &["rs-16-12", "lrc-12-2-2", "rotated-16-12-4"],
    &["rs-17-12", "lrc1-12-2-2"],
];

/// The put of one stripe.
struct Put {
    /// The code's name, followed by a slash and the chunk size in bytes if a block has several chunks.
    name: String,
    code: CodeSpec,
    /// The index of the Reed-Solomon put that this one is compared with.
    reference: usize,
    assignment: Assignment,
    data: Vec<Vec<u8>>,
    /// The buffer pool that a client keeps from one stripe to the next.
    kept: Cell<BufferPool>,
}

/// How the benchmark answers the relay's reads.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// With the block's bytes, copied from memory, which corresponds to reading a cached file.
    Copied,
    /// With the buffer's current contents, so that only the relay is timed.
    Skipped,
}

impl Put {
    fn new(name: &str, reference: usize) -> Self {
        let (code, chunk) = name.split_once('/').unzip();
        let code: CodeSpec = code.unwrap_or(name).parse().expect("a code's name");
        let chunk = chunk.map(|bytes| bytes.parse().expect("bytes of a chunk"));
        let built = code.build().expect("a code");
        let data = (0..built.data_blocks()).map(|block| noise(BLOCK_BYTES as usize, block as u64)).collect();
        let assignment = assignment(&code, chunk);
        Self { name: name.to_owned(), assignment, code, reference, data, kept: Cell::default() }
    }

    fn data_bytes(&self) -> u64 {
        self.data.len() as u64 * BLOCK_BYTES
    }

    /// Encodes the stripe; calls `sent` for every frame that leaves the client.
    fn encode(&self, reads: Reads, mut sent: impl FnMut(usize, u16, u32, &[u8])) {
        let mut relay = Relay::new(&self.assignment, RELAY_BUDGET_BYTES, self.kept.take())
            .expect("an assignment of the job's");
        while let Some(action) = relay.poll() {
            match action {
                Action::ReadAhead { .. } => {}
                Action::Read { slice, locals, transfer } => {
                    let mut buffers: Vec<Buffer> =
                        locals.clone().map(|_| relay.buffer(transfer.buffer_bytes())).collect();
                    if reads == Reads::Copied {
                        let data = &self.data[usize::from(transfer.block().0)];
                        let copy = |at: u64, bytes: &mut [u8]| -> Result<bool, Infallible> {
                            bytes.copy_from_slice(&data[at as usize..][..bytes.len()]);
                            Ok(true)
                        };
                        let _ = transfer.read(data.len() as u64, &mut buffers, copy);
                    }
                    for (local, buffer) in locals.zip(buffers) {
                        relay.handle_read(slice, local, buffer).expect("a read of the length asked for");
                    }
                }
                Action::Send { outlet, stream, slice, buffer, .. } => {
                    sent(outlet, stream, slice, &buffer);
                    relay.handle_sent(slice, buffer);
                }
                Action::Deliver { slice, buffer, .. } => relay.handle_delivered(slice, buffer),
                Action::Finished => {
                    self.kept.set(relay.into_pool());
                    return;
                }
            }
        }
        panic!("a relay that waits for nothing does not stop");
    }

    /// Processor seconds of one put. They vary less with other load on the machine than wall time does.
    fn seconds(&self, reads: Reads) -> f64 {
        let started = cpu_seconds();
        self.encode(reads, |_, _, _, _| {});
        cpu_seconds() - started
    }

    /// Processor seconds of a client's first put, with an empty pool.
    fn first(&self) -> f64 {
        let samples = (0..LEAST_ROUNDS).map(|_| {
            self.kept.take();
            self.seconds(Reads::Copied)
        });
        median(samples.collect())
    }

    /// Asserts that the encoding is correct, since a fast wrong one would make the table meaningless.
    fn assert_right(&self) {
        let code = self.code.build().expect("a code");
        let encoding = code.encoding();
        let chunking = &self.assignment.chunking;
        let first =
            |sub: u16, bytes: u64| chunking.ranges(sub, 0..bytes).next().expect("sub-blocks have bytes");
        let slice_bytes = u64::from(self.assignment.geometry.slice_bytes);
        let checked = first(0, slice_bytes.min(chunking.sub_block_bytes()).min(4096));
        let checked = (checked.end - checked.start) as usize;
        let start = |source: &SubBlock| first(source.sub, checked as u64).start as usize;
        let sources: Vec<&[u8]> = encoding
            .sources()
            .iter()
            .map(|source| &self.data[usize::from(source.block.0)][start(source)..][..checked])
            .collect();
        let parity = encoding.apply(&sources);
        self.encode(Reads::Copied, |outlet, stream, slice, bytes| {
            let block = self.assignment.outlets[outlet].to.0 as usize;
            if slice == 0 && block >= self.data.len() {
                let row = (block - self.data.len()) * code.sub_blocks() + usize::from(stream);
                assert_eq!(bytes[..checked], parity[row], "{}, block {block}, stream {stream}", self.code);
            }
        });
    }
}

/// The client's assignment in a put; block i goes to node i.
fn assignment(code: &CodeSpec, chunk_bytes: Option<u64>) -> Assignment {
    let code = code.build().expect("a code");
    let mut topology = Topology::new();
    topology.set(CLIENT, NodeProfile::client("client"));
    for node in 0..code.blocks() as u32 {
        let address = format!("127.0.0.1:{}", 7410 + node);
        topology.set(NodeId(node), NodeProfile::helper(format!("h{node}"), address));
    }
    let blocks = (0..code.blocks()).map(|index| StripeBlock {
        id: BlockId(format!("1.{index}")),
        bytes: BLOCK_BYTES,
        holder: (index < code.data_blocks()).then_some(CLIENT),
        digest: None,
    });
    let wanted = |index: u16| Wanted { block: BlockIndex(index), requestor: NodeId(u32::from(index)) };
    let stripe = Stripe {
        id: StripeId("1".into()),
        chunking: Chunking::of(&*code, BLOCK_BYTES, chunk_bytes).expect("chunks that divide a block"),
        blocks: blocks.collect(),
        code: code.clone(),
        label: None,
    };
    let request = JobRequest {
        job: JobId(1),
        window: 0..stripe.sub_block_bytes(),
        stripe,
        wanted: (0..code.blocks() as u16).map(wanted).collect(),
        sub_blocks: None,
        policy: Policy { scheme: Scheme::Conventional, ..Policy::default() },
        verify: Verify::default(),
        publish: true,
        tag: Some(1),
        permits: Vec::new(),
    };
    let mut job = Job::new(request, [1; 32], &topology, Duration::ZERO);
    std::iter::from_fn(|| job.poll())
        .find_map(|action| match action {
            JobAction::Tell { node: CLIENT, message: ToNode::Assign(assignment) } => Some(*assignment),
            _ => None,
        })
        .expect("the client encodes")
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
    let mut noise = vec![0; bytes];
    for chunk in noise.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
    }
    noise
}

/// The puts of all codes, or of the named ones; the first name is the reference.
fn puts(named: &[String]) -> Vec<Put> {
    let all = CODES.map(|names| names.iter().copied().map(String::from).collect());
    let lists = if named.is_empty() { all.to_vec() } else { vec![named.to_vec()] };
    let mut puts: Vec<Put> = Vec::new();
    for names in lists {
        let reference = puts.len();
        puts.extend(names.iter().map(|name| Put::new(name, reference)));
    }
    puts
}

/// The median seconds of each put, measured in turn.
fn medians(puts: &[Put], reads: Reads) -> Vec<f64> {
    let mut samples = vec![Vec::new(); puts.len()];
    let started = Instant::now();
    // The first round only warms caches and page tables.
    for round in 0.. {
        for (put, samples) in puts.iter().zip(&mut samples) {
            let seconds = put.seconds(reads);
            if round > 0 {
                samples.push(seconds);
            }
        }
        if round >= LEAST_ROUNDS && started.elapsed() > TIME {
            break;
        }
    }
    samples.into_iter().map(median).collect()
}

/// The processor time of this thread.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn cpu_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown CPU".into(), |name| name.trim_start_matches([' ', '\t', ':']).into())
}

fn main() {
    let named: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let puts = puts(&named);
    puts.iter().for_each(Put::assert_right);
    let first: Vec<f64> = puts.iter().map(Put::first).collect();
    let columns = [Reads::Copied, Reads::Skipped].map(|reads| medians(&puts, reads));

    println!("{}, one thread, kernel {}", cpu_name(), gf::Kernel::best().name());
    println!(
        "A client's relay at a put: GB of data for a second of the processor, and its time over that of RS with"
    );
    println!(
        "as many blocks; medians. put: blocks of 16 MiB copied out of memory and encoded; relay: encoded only;"
    );
    println!("first: a put with no relay before it, which makes its buffers and looks for its passes");
    println!();
    println!(
        "{:<26}{:>10}{:>10}{:>12}{:>10}{:>12}",
        "", "put GB/s", "over RS", "relay GB/s", "over RS", "first GB/s"
    );
    for (index, put) in puts.iter().enumerate() {
        print!("{:<26}", put.name);
        for (seconds, width) in columns.iter().zip([10, 12]) {
            let speed = put.data_bytes() as f64 / 1e9 / seconds[index];
            let over = (seconds[index] / seconds[put.reference] - 1.0) * 100.0;
            print!("{:>width$.2}{:>10}", speed, format!("{over:+.0}%"));
        }
        println!("{:>12.2}", put.data_bytes() as f64 / 1e9 / first[index]);
    }
}
