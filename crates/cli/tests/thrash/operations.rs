//! Users' operations, drawn in advance for a round.

use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;

use crate::clients::Fate;
use crate::cluster::Cluster;
use crate::content::Content;
use crate::model::{Model, State};

/// The number of file names, which are used again and again.
const NAMES: u64 = 20;
/// Once the total size of all files exceeds this number of bytes, files are removed.
const MOST_BYTES: usize = 80 << 20;
const SCHEMES: [&str; 6] = ["auto", "conventional", "ppr", "crr-s", "pipelined", "cyclic"];

const SCRUBS: [Option<&str>; 3] = [None, Some("--parity"), Some("--remove-orphans")];

/// A verb with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Put {
        name: String,
        content: Content,
        code: String,
        block_bytes: usize,
        chunks: usize,
        replace: bool,
    },
    Get {
        name: String,
        range: Option<(usize, usize)>,
        verify: bool,
        to_file: bool,
        scheme: &'static str,
    },
    Remove {
        name: String,
    },
    Repair,
    Scrub {
        option: Option<&'static str>,
    },
    /// Begins a drain of a helper. The drain is stopped at the end of the round.
    Drain {
        helper: String,
    },
    /// Recovers a helper. Fails if the helper is up.
    Recover {
        helper: String,
    },
    Status,
    List,
}

/// One invocation of `mend`.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The base name of the operation's input and output files.
    pub label: String,
    /// The operation's start time, relative to the start of the round.
    pub at: Duration,
    pub verb: Verb,
    pub fate: Fate,
}

impl Verb {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Put { replace: true, .. } => "replace",
            Self::Put { .. } => "put",
            Self::Get { range: Some(_), .. } => "get range",
            Self::Get { verify: true, .. } => "get verified",
            Self::Get { .. } => "get",
            Self::Remove { .. } => "rm",
            Self::Repair => "repair",
            Self::Scrub { .. } => "scrub",
            Self::Drain { .. } => "drain",
            Self::Recover { .. } => "recover",
            Self::Status => "status",
            Self::List => "ls",
        }
    }

    /// Returns the name of the file that the verb writes, and its new contents.
    pub fn writes(&self) -> Option<(&str, State)> {
        match self {
            Self::Put { name, content, .. } => Some((name, Some(*content))),
            Self::Remove { name } => Some((name, None)),
            _ => None,
        }
    }
}

impl Operation {
    /// Returns the input file of a put.
    pub fn source(&self, cluster: &Cluster) -> PathBuf {
        cluster.path("operations").join(format!("{}.src", self.label))
    }

    /// Returns the output file of a get.
    pub fn target(&self, cluster: &Cluster) -> PathBuf {
        cluster.path("operations").join(format!("{}.got", self.label))
    }

    /// Returns the command-line arguments.
    pub fn arguments(&self, cluster: &Cluster) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().expect("our folders have plain names").to_owned();
        let mut words: Vec<String> = Vec::new();
        match &self.verb {
            Verb::Put { name, code, block_bytes, chunks, replace, .. } => {
                let (source, block) = (text(self.source(cluster)), block_bytes.to_string());
                let chunk = (block_bytes / chunks).to_string();
                words.extend(
                    ["put", &source, "--name", name, "--code", code, "--block-size", &block].map(Into::into),
                );
                words.extend(["--chunk", &chunk].map(Into::into));
                words.extend(replace.then(|| "--replace".to_owned()));
            }
            Verb::Get { name, range, verify, to_file, scheme } => {
                let out = if *to_file { text(self.target(cluster)) } else { "-".to_owned() };
                words.extend(["get", name, "-o", &out, "--scheme", scheme].map(Into::into));
                if let Some((first, length)) = range {
                    words.extend(["--range".to_owned(), format!("{first}+{length}")]);
                }
                words.extend(verify.then(|| "--verify".to_owned()));
            }
            Verb::Remove { name } => words.extend(["rm", name].map(Into::into)),
            Verb::Repair => words.extend(["repair", "--all"].map(Into::into)),
            Verb::Scrub { option } => {
                words.extend(["scrub"].iter().chain(option).map(|&word| word.to_owned()))
            }
            Verb::Drain { helper } => {
                words.extend(["node", "drain", helper, "--no-wait"].map(Into::into));
            }
            Verb::Recover { helper } => {
                words.extend(["node", "recover", helper, "--no-wait"].map(Into::into));
            }
            Verb::Status => words.extend(["status", "--output", "json"].map(Into::into)),
            Verb::List => words.push("ls".to_owned()),
        }
        words
    }
}

/// Draws the operations of a round. No two of them write the same file.
pub fn draw(rng: &mut Rng, model: &Model, codes: &[&str], helpers: usize, round: u64) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    for number in 0..rng.u64(1..=5) {
        let verb = draw_verb(rng, model, (codes, helpers), round * 10 + number);
        let writes = verb.writes().map(|(name, _)| name);
        let taken = operations
            .iter()
            .any(|other| writes.is_some() && other.verb.writes().map(|(name, _)| name) == writes);
        let verb = if taken { Verb::Status } else { verb };
        let label = format!("{round:05}-{number}-{}", verb.word().replace(' ', "-"));
        let at = Duration::from_millis(rng.u64(..400));
        let fate = draw_fate(rng, &verb);
        operations.push(Operation { label, at, verb, fate });
    }
    let readers = readers(rng, &operations, round);
    operations.into_iter().chain(readers).collect()
}

/// Returns `get` operations on files that are being replaced. Each must return the old version of the file or
/// the new one.
fn readers(rng: &mut Rng, operations: &[Operation], round: u64) -> Vec<Operation> {
    let replaces =
        operations.iter().filter(|operation| matches!(operation.verb, Verb::Put { replace: true, .. }));
    let mut readers = Vec::new();
    for write in replaces {
        let (name, _) = write.verb.writes().expect("it is a put");
        for _ in 0..rng.usize(..3) {
            let (to_file, scheme) = (rng.bool(), *rng.choice(&SCHEMES).expect("not empty"));
            let verb = Verb::Get { name: name.to_owned(), range: None, verify: rng.bool(), to_file, scheme };
            let label = format!("{round:05}-reader-{}", readers.len());
            let at = write.at + Duration::from_millis(rng.u64(..300));
            readers.push(Operation { label, at, verb, fate: Fate::Spared });
        }
    }
    readers
}

fn draw_fate(rng: &mut Rng, verb: &Verb) -> Fate {
    let kill = match verb {
        Verb::Put { .. } => 15,
        Verb::Remove { .. } | Verb::Repair => 20,
        Verb::Get { .. } => 8,
        Verb::Drain { .. } => 0,
        _ => 2,
    };
    // Most operations take a fraction of a second, and faults matter most at the start.
    let longest = *rng.choice(&[40, 120, 400, 1500]).expect("not empty");
    let after = Duration::from_millis(rng.u64(..longest));
    let pause = Duration::from_millis(if rng.u32(..3) == 0 { rng.u64(..7000) } else { rng.u64(..800) });
    match rng.u32(..100) {
        dice if dice < kill => Fate::Killed { after },
        dice if dice < kill + 4 => Fate::Stopped { after, pause },
        _ => Fate::Spared,
    }
}

fn draw_verb(rng: &mut Rng, model: &Model, (codes, helpers): (&[&str], usize), number: u64) -> Verb {
    let present = model.present();
    if model.bytes() > MOST_BYTES
        && let Some(name) = rng.choice(&present)
    {
        return Verb::Remove { name: name.clone() };
    }
    match rng.u32(..100) {
        0..26 => draw_put(rng, model, codes, number),
        26..30 => Verb::Remove { name: draw_name(rng, &present) },
        30..39 => Verb::Repair,
        39..43 => Verb::Scrub { option: *rng.choice(&SCRUBS).expect("not empty") },
        43..46 => Verb::Status,
        46..48 => Verb::List,
        48..74 => draw_get(rng, model, &present, false),
        74..94 => draw_get(rng, model, &present, true),
        94..97 => Verb::Recover { helper: format!("h{}", rng.usize(1..=helpers)) },
        _ => Verb::Drain { helper: format!("h{}", rng.usize(1..=helpers)) },
    }
}

/// Draws a file name, mostly that of an existing file.
fn draw_name(rng: &mut Rng, present: &[String]) -> String {
    let any = format!("file {}", rng.u64(..NAMES));
    rng.choice(present).filter(|_| any != "file 0").cloned().unwrap_or(any)
}

fn draw_put(rng: &mut Rng, model: &Model, codes: &[&str], number: u64) -> Verb {
    let name = format!("file {}", rng.u64(..NAMES));
    let (bytes, blocks): (usize, &[usize]) = match rng.u32(..10) {
        0 => (rng.usize(..100), &[4 << 10, 64 << 10]),
        1..6 => (rng.usize(..700_000), &[16 << 10, 64 << 10, 128 << 10]),
        6..9 => (rng.usize(..4_000_000), &[64 << 10, 256 << 10]),
        _ => (rng.usize(..16_000_000), &[256 << 10, 1 << 20]),
    };
    let block_bytes = *rng.choice(blocks).expect("not empty");
    let code = (*rng.choice(codes).expect("not empty")).to_owned();
    // Codes without sub-blocks ignore the number of chunks.
    let chunks = *rng.choice(&[1, 1, 2, 4]).expect("not empty");
    // One in ten puts is drawn such that it must be refused: it replaces a file that does not exist, or
    // creates a file that already exists.
    let replace = model.possible(&name).iter().any(Option::is_some) != (rng.u32(..10) == 0);
    let content = Content { number: rng.u64(..) ^ number, bytes };
    Verb::Put { name, content, code, block_bytes, chunks, replace }
}

fn draw_get(rng: &mut Rng, model: &Model, present: &[String], in_part: bool) -> Verb {
    let name = draw_name(rng, present);
    let bytes = model.possible(&name).iter().flatten().map(|content| content.bytes).next().unwrap_or(1000);
    let range = (in_part && bytes > 0).then(|| {
        let first = rng.usize(..bytes);
        (first, rng.usize(1..=bytes - first))
    });
    let scheme = *rng.choice(&SCHEMES).expect("not empty");
    let verify = !in_part && rng.u32(..4) == 0;
    Verb::Get { name, range, verify, to_file: rng.bool(), scheme }
}
