//! Queries a NameNode, and changes HDFS for `mend raid`, with Hadoop's own client, in a child JVM
//! (`mend.hdfs.namenode.Reporter` in `java/hdfs`).
//!
//! The JVM is started on the first query. If it exits or stops answering, the next query starts another one,
//! after a pause that grows with each failure. Queries have numbers, so that several can be in flight at the
//! same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdfs_raid::Omission;
use repair::Permit;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::blocks::ChecksumFormat;
use crate::listing::{
    Attribute, BadLine, Edits, ExistingInodes, FileRef, Listing, LossCounts, OtherLists, Progress, Range,
    Shortage, encoded,
};

const CLASS: &str = "mend.hdfs.namenode.Reporter";
const GREETING: &str = "0 ready 9";
/// Timeout for the JVM's greeting, generous enough for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(30);
/// Timeout for a short query. Hadoop's client takes seconds if it fails over to another NameNode, or if the
/// NameNode is busy.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// Maximum time between two lines of a full listing.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// Number of groups after which a listing is handed over in parts.
pub(crate) const PART: usize = 4096;
/// Capacity of the queue of lines for one query.
const LINES_WAITING: usize = 1024;
/// The greatest length of a line in bytes. An event contains two paths. HDFS creates paths of up to 8,000 characters,
/// which are encoded in up to nine bytes each. Paths become longer when a folder above them is renamed.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Number of lines of the JVM's error output that are kept, to explain why it exited.
const LAST_LINES: usize = 5;

/// How to query a NameNode.
#[derive(Clone, Debug)]
pub struct NameNodeSettings {
    /// The `java` program to run.
    pub java: PathBuf,
    /// The class path: Hadoop's jars and configuration, and Mend's jar.
    pub classpath: String,
    /// `fs.defaultFS`, if it differs from the configuration.
    pub uri: Option<String>,
    /// Additional settings, each `KEY=VALUE`.
    pub settings: Vec<String>,
}

/// Why a query to the NameNode failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// The `java` program cannot be run.
    #[error("cannot run `{java}`: {why}; set `java` in [store.namenode] of mend.toml")]
    NoJava {
        /// The program.
        java: String,
        /// The system's error message.
        why: String,
    },
    /// The JVM exited.
    #[error(
        "the JVM that queries the NameNode has exited: {said}; its class path is `classpath` in \
         [store.namenode] of mend.toml"
    )]
    Ended {
        /// The end of the JVM's error output.
        said: String,
    },
    /// The JVM exited recently and is restarted only after a pause.
    #[error("the JVM that queries the NameNode restarts in {} s: {said}", pause.as_secs().max(1))]
    Pausing {
        /// The remaining pause.
        pause: Duration,
        /// Why the JVM exited.
        said: String,
    },
    /// A question contains a line break. Its second line would be carried out as another question, with the rights of
    /// HDFS's superuser.
    #[error(
        "the question `{word}` for the NameNode was not sent, because it contains a line break; report this error"
    )]
    LineBreak {
        /// The first word of the question.
        word: String,
    },
    /// The JVM did not answer in time and is replaced.
    #[error("the NameNode has not answered for {} s", limit.as_secs())]
    Silent {
        /// The timeout.
        limit: Duration,
    },
    /// HDFS refuses access to a path.
    #[error("HDFS does not list {path}: {why}")]
    Refused {
        /// The path.
        path: String,
        /// HDFS's message.
        why: String,
    },
    /// Hadoop's client reports an error.
    #[error("cannot query the NameNode: {0}")]
    Failed(String),
    /// The NameNode is in safe mode, so it waits for block reports.
    #[error("cannot query the NameNode: it is in safe mode")]
    SafeMode,
    /// The answer cannot be parsed, probably because the class path has another version of Mend's jar.
    #[error("{0}; check that mend-hdfs.jar on the class path is of the same version as mend")]
    Line(#[from] BadLine),
}

/// A handle for queries to a NameNode. Clones share the JVM, which is killed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct NameNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: NameNodeSettings,
    running: tokio::sync::Mutex<Running>,
    next: AtomicU64,
}

/// The running JVM, or the time at which the next one may start.
#[derive(Debug, Default)]
struct Running {
    jvm: Option<Arc<Jvm>>,
    pause: Duration,
    not_before: Option<Instant>,
    said: String,
}

/// The queries that wait for answers, by number; `None` once the JVM has ended.
type Waiting = Arc<Mutex<Option<BTreeMap<u64, mpsc::Sender<String>>>>>;

#[derive(Debug)]
struct Jvm {
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    said: Arc<Mutex<VecDeque<String>>>,
    /// The process; it is killed on drop, unless this was done before.
    child: Mutex<Child>,
}

impl NameNode {
    /// Creates a handle. The JVM is started on the first query.
    pub fn new(settings: NameNodeSettings) -> Self {
        Self(Arc::new(Inner { settings, running: tokio::sync::Mutex::default(), next: AtomicU64::new(1) }))
    }

    /// Starts the JVM if none is running.
    pub(crate) async fn start(&self) -> Result<(), AskError> {
        self.jvm().await.map(drop)
    }

    /// Lists all DataNodes, and all groups of all files below these folders. Calls `heard` with the progress.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn list(
        &self,
        paths: &[String],
        heard: &(dyn Fn(Progress) + Sync),
    ) -> Result<Listing, AskError> {
        self.list_in_parts(paths, &|listing| heard(listing.progress)).await
    }

    /// Lists like [`list`](Self::list). Calls `heard` with the answer so far when there is progress and after each
    /// few thousand groups; `heard` may take out [parts](Listing::take_part).
    pub(crate) async fn list_in_parts(
        &self,
        paths: &[String],
        heard: &(dyn Fn(&mut Listing) + Sync),
    ) -> Result<Listing, AskError> {
        self.ask_and_tell(&format!("list {}", words(paths)), SILENCE_LIMIT, heard).await
    }

    /// Lists all groups of these files, and of all files below these folders. Paths that do not exist are
    /// ignored.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn walk(&self, paths: &[String]) -> Result<Listing, AskError> {
        self.ask(&format!("walk {}", words(paths)), SILENCE_LIMIT).await
    }

    /// Lists all DataNodes, and all files below these folders with the replicas of their blocks, for
    /// [`Listing::into_raid`]. Files that exist only in snapshots are left out. Calls `heard` with the progress.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn files(
        &self,
        folders: &[String],
        heard: &(dyn Fn(Progress) + Sync),
    ) -> Result<Listing, AskError> {
        let question = format!("files {}", words(folders));
        let told = |listing: &mut Listing| heard(listing.progress);
        self.ask_and_tell(&question, SILENCE_LIMIT, &told).await?.outside_safe_mode()
    }

    /// Lists the parity files at or below these paths, each with its source and the replicas of the blocks of
    /// both. A path comes with the parity root above it. Paths that do not exist are ignored. Calls `heard`
    /// with the progress.
    ///
    /// # Errors
    /// [`AskError`], also if HDFS refuses to list a part.
    pub(crate) async fn raided(
        &self,
        paths: &[(String, String)],
        heard: &(dyn Fn(Progress) + Sync),
    ) -> Result<Listing, AskError> {
        let pairs: Vec<String> =
            paths.iter().map(|(root, path)| format!("{}\t{}", encoded(root), encoded(path))).collect();
        let told = |listing: &mut Listing| heard(listing.progress);
        let question = format!("raided {}", pairs.join("\t"));
        self.ask_and_tell(&question, SILENCE_LIMIT, &told).await?.outside_safe_mode()?.complete()
    }

    /// Queries the blocks in these ranges of files, with their replicas. The answer contains these files with
    /// only these blocks, and lacks files that no longer exist.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) async fn blocks(&self, ranges: &[Range]) -> Result<Listing, AskError> {
        let words = ranges.iter().map(|Range { file, start, bytes }| format!("{file} {start} {bytes}"));
        let question = format!("blocks {}", words.collect::<Vec<_>>().join(" "));
        self.ask(&question, LOOK_LIMIT).await?.outside_safe_mode()
    }

    /// Queries Mend's attributes of these files, and returns also those files whose attributes HDFS refuses. Files
    /// that do not exist are ignored.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn attributes(&self, paths: &[String]) -> Result<(Vec<Attribute>, Vec<Omission>), AskError> {
        let answer = self.ask(&format!("attributes {}", words(paths)), SILENCE_LIMIT).await?;
        Ok((answer.attributes, answer.raid.gaps.omitted))
    }

    /// Queries which of these folders do not exist.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn missing(&self, paths: &[String]) -> Result<Vec<String>, AskError> {
        Ok(self.ask(&format!("missing {}", words(paths)), LOOK_LIMIT).await?.missing)
    }

    /// Lists all groups of files that exist only in snapshots of these folders.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn snapshots(&self, paths: &[String]) -> Result<Listing, AskError> {
        self.ask(&format!("snapshots {}", words(paths)), SILENCE_LIMIT).await
    }

    /// Queries which of these files and folders exist, and where.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn existing(&self, inodes: &[u64]) -> Result<ExistingInodes, AskError> {
        let inodes: Vec<String> = inodes.iter().map(u64::to_string).collect();
        Ok(self.ask(&format!("inodes {}", inodes.join(",")), SILENCE_LIMIT).await?.existing)
    }

    /// Queries the end of the NameNode's edit log. The answer contains no events.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn position(&self) -> Result<Edits, AskError> {
        Ok(self.ask("position", LOOK_LIMIT).await?.edits)
    }

    /// Reads the NameNode's edit log from a transaction on, possibly not up to its end. Only HDFS's superuser
    /// may read it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn edits(&self, from: u64) -> Result<Edits, AskError> {
        Ok(self.ask(&format!("edits {from}"), SILENCE_LIMIT).await?.edits)
    }

    /// Queries how many groups lack blocks. This is cheap.
    ///
    /// # Errors
    /// [`AskError`], also if the NameNode is in safe mode, in which it does not look for lost blocks.
    pub async fn loss_counts(&self) -> Result<LossCounts, AskError> {
        Ok(self.ask("counts", LOOK_LIMIT).await?.outside_safe_mode()?.losses.counts)
    }

    /// Queries how long the other lists are that the NameNode writes for [`losses`](Self::losses).
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn other_lists(&self) -> Result<OtherLists, AskError> {
        Ok(self.ask("others", SILENCE_LIMIT).await?.losses.others)
    }

    /// Queries which groups and which blocks of replicated files lack redundancy, by the NameNode's own lists.
    /// The cost is proportional to the [length](LossCounts::total) of the lists, and to that of the
    /// [others](Self::other_lists).
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn losses(&self) -> Result<BTreeMap<i64, Shortage>, AskError> {
        Ok(self.ask("losses", SILENCE_LIMIT).await?.outside_safe_mode()?.losses.groups)
    }

    /// Lists the files with blocks that have no intact replica, or too few, wherever they are; at most some ten
    /// thousand. The NameNode lists them page by page.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) async fn lost_files(&self) -> Result<BTreeSet<String>, AskError> {
        Ok(self.ask("lost", SILENCE_LIMIT).await?.outside_safe_mode()?.losses.files)
    }

    /// Lists all DataNodes.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn nodes(&self) -> Result<Listing, AskError> {
        self.ask("nodes", LOOK_LIMIT).await
    }

    /// Lists all DataNodes, with the folders of live ones.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn volumes(&self) -> Result<Listing, AskError> {
        self.ask("volumes", SILENCE_LIMIT).await
    }

    /// Queries the group that starts at offset `start` of a file. If the group no longer exists, the answer
    /// contains no group.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn group(&self, file: &FileRef, start: u64) -> Result<Listing, AskError> {
        let mut listing = self.ask(&format!("group {file} {start}"), LOOK_LIMIT).await?;
        listing.groups.iter_mut().for_each(|group| group.file = file.clone());
        Ok(listing)
    }

    /// Requests a block token for each of these blocks of the group. In a replicated file, the block at
    /// `start` has the index 0. With the block's token, a DataNode accepts the block from Mend. Returns no
    /// tokens if HDFS does not use block tokens. Only HDFS's superuser may request the keys from which tokens
    /// are made.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn tokens(
        &self,
        file: &FileRef,
        start: u64,
        indices: &[u8],
    ) -> Result<Vec<(u8, Permit)>, AskError> {
        let indices: Vec<String> = indices.iter().map(u8::to_string).collect();
        let question = format!("tokens {file} {start} {}", indices.join(","));
        Ok(self.ask(&question, LOOK_LIMIT).await?.terms.tokens)
    }

    /// Queries the checksum format of a group's blocks from a DataNode that holds one of them; in a
    /// replicated file, that of the block at `start`. `None` if no DataNode does, or Mend does not support
    /// the format.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn checksum(&self, file: &FileRef, start: u64) -> Result<Option<ChecksumFormat>, AskError> {
        Ok(self.ask(&format!("checksum {file} {start}"), SILENCE_LIMIT).await?.terms.checksums)
    }

    /// Requests from a DataNode each block of the group that the NameNode lists there. A DataNode that has lost the
    /// block notices this, and tells the NameNode.
    ///
    /// # Errors
    /// [`AskError`]; not if the DataNode has lost the block or cannot be reached.
    pub async fn touch(&self, file: &FileRef, start: u64, datanode: &str) -> Result<(), AskError> {
        self.ask(&format!("touch {file} {start} {datanode}"), SILENCE_LIMIT).await.map(drop)
    }

    /// Makes a DataNode report all its blocks to the NameNode soon. Only HDFS's superuser may request this.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn report(&self, datanode: &str) -> Result<(), AskError> {
        self.ask(&format!("report {datanode}"), SILENCE_LIMIT).await.map(drop)
    }

    /// Carries out a change of the namespace or of blocks; `limit` is the maximum time without any output.
    ///
    /// # Errors
    /// [`AskError`]. Unless it is [`AskError::Failed`], the change may have been carried out.
    pub(crate) async fn change(&self, call: &str, limit: Duration) -> Result<Listing, AskError> {
        self.ask(call, limit).await
    }

    async fn ask(&self, question: &str, limit: Duration) -> Result<Listing, AskError> {
        self.ask_and_tell(question, limit, &|_| {}).await
    }

    /// Sends a query; `limit` is the maximum time without any output.
    async fn ask_and_tell(
        &self,
        question: &str,
        limit: Duration,
        heard: &(dyn Fn(&mut Listing) + Sync),
    ) -> Result<Listing, AskError> {
        let jvm = self.jvm().await?;
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let answer = jvm.ask(number, question, limit, heard).await;
        if let Err(why @ (AskError::Silent { .. } | AskError::Line(_) | AskError::Ended { .. })) = &answer {
            self.0.running.lock().await.give_up(&jvm, why);
        }
        answer
    }

    /// Returns the running JVM, or starts one.
    async fn jvm(&self) -> Result<Arc<Jvm>, AskError> {
        let mut running = self.0.running.lock().await;
        if let Some(jvm) = &running.jvm {
            return Ok(Arc::clone(jvm));
        }
        let now = Instant::now();
        if let Some(not_before) = running.not_before.filter(|not_before| *not_before > now) {
            return Err(AskError::Pausing { pause: not_before - now, said: running.said.clone() });
        }
        match Jvm::start(&self.0.settings).await {
            Ok(jvm) => {
                running.pause = Duration::ZERO;
                Ok(Arc::clone(running.jvm.insert(Arc::new(jvm))))
            }
            Err(error) => {
                running.wait_before_next(error.to_string());
                Err(error)
            }
        }
    }
}

impl Listing {
    /// Returns the answer unless the NameNode is in safe mode.
    pub(crate) fn outside_safe_mode(self) -> Result<Self, AskError> {
        if self.safe_mode { Err(AskError::SafeMode) } else { Ok(self) }
    }
}

impl Running {
    /// Ends a JVM that does not answer.
    fn give_up(&mut self, jvm: &Arc<Jvm>, why: &AskError) {
        if self.jvm.take_if(|running| Arc::ptr_eq(running, jvm)).is_some() {
            jvm.kill(why);
            self.wait_before_next(jvm.last_words());
        }
    }

    fn wait_before_next(&mut self, said: String) {
        self.pause = (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LAST);
        self.not_before = Some(Instant::now() + self.pause);
        self.said = said;
    }
}

impl Jvm {
    async fn start(settings: &NameNodeSettings) -> Result<Self, AskError> {
        let mut child = command(settings).spawn().map_err(|error| AskError::NoJava {
            java: settings.java.display().to_string(),
            why: error.to_string(),
        })?;
        let input = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let said = Arc::new(Mutex::new(VecDeque::new()));
        tokio::spawn(overhear(child.stderr.take().expect("piped"), Arc::clone(&said)));
        let waiting: Waiting = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let jvm = Self {
            input: tokio::sync::Mutex::new(input),
            waiting: Arc::clone(&waiting),
            said,
            child: Mutex::new(child),
        };
        match timeout(START_LIMIT, line(&mut output)).await {
            Ok(Some(greeting)) if greeting == GREETING => {}
            Ok(Some(other)) => return Err(BadLine(other).into()),
            Ok(None) => return Err(jvm.ended().await),
            Err(_) => return Err(AskError::Silent { limit: START_LIMIT }),
        }
        tokio::spawn(deal(output, waiting));
        tracing::info!("a JVM asks the NameNode");
        Ok(jvm)
    }

    async fn ask(
        &self,
        number: u64,
        question: &str,
        limit: Duration,
        heard: &(dyn Fn(&mut Listing) + Sync),
    ) -> Result<Listing, AskError> {
        if question.contains(['\n', '\r']) {
            let word = question.split_ascii_whitespace().next().unwrap_or_default().to_owned();
            return Err(AskError::LineBreak { word });
        }
        let (sender, mut lines) = mpsc::channel(LINES_WAITING);
        match locked(&self.waiting).as_mut() {
            Some(waiting) => drop(waiting.insert(number, sender)),
            None => return Err(AskError::Ended { said: self.last_words() }),
        }
        let asked = async {
            let mut input = self.input.lock().await;
            input.write_all(format!("{number} {question}\n").as_bytes()).await
        };
        match timeout(limit, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(self.ended().await),
            Err(_) => return Err(AskError::Silent { limit }),
        }
        let mut listing = Listing::default();
        let mut told = Progress::default();
        loop {
            let until = Instant::now() + limit;
            let line = tokio::select! {
                line = lines.recv() => line,
                () = sleep_until(until) => return Err(AskError::Silent { limit }),
            };
            match line.as_deref() {
                None => return Err(self.ended().await),
                Some("done") => return Ok(listing),
                Some(line) => match line.strip_prefix("failed ") {
                    Some(why) => return Err(AskError::Failed(why.to_owned())),
                    None => listing.take(line)?,
                },
            }
            if listing.progress != told || listing.groups.len() >= PART {
                told = listing.progress;
                heard(&mut listing);
            }
        }
    }

    /// Kills the process, so that no change that it was asked for takes effect later. Other queries may be waiting for its
    /// answers; they end with [`AskError::Ended`].
    fn kill(&self, why: &AskError) {
        if !matches!(why, AskError::Ended { .. }) {
            note(&self.said, format!("Mend has ended it: {why}"));
        }
        if let Err(error) = locked(&self.child).start_kill() {
            tracing::debug!(%error, "cannot kill the JVM that queries the NameNode, as it has exited");
        }
    }

    /// Waits a moment for the last error output of a JVM that has exited. Returns the error.
    async fn ended(&self) -> AskError {
        tokio::time::sleep(Duration::from_millis(200)).await;
        AskError::Ended { said: self.last_words() }
    }

    fn last_words(&self) -> String {
        let said = locked(&self.said);
        if said.is_empty() {
            return "no error output".to_owned();
        }
        said.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

fn command(settings: &NameNodeSettings) -> Command {
    let mut command = Command::new(&settings.java);
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(&settings.classpath).arg(CLASS);
    let uri = settings.uri.iter().map(|uri| format!("fs.defaultFS={uri}"));
    for setting in uri.chain(settings.settings.iter().cloned()) {
        command.args([OsString::from("-D"), setting.into()]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Reads the next line; `None` at the end of the output, or if the line is too long.
async fn line(output: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut text = String::new();
    let read = output.take(MAX_LINE_BYTES).read_line(&mut text).await;
    match read {
        Ok(bytes) if bytes > 0 && text.ends_with('\n') => Some(text.trim_end().to_owned()),
        _ => None,
    }
}

/// Distributes lines to the queries that wait for them, until the output ends.
async fn deal(mut output: BufReader<ChildStdout>, waiting: Waiting) {
    while let Some(text) = line(&mut output).await {
        let Some((number, rest)) = text.split_once(' ') else { break };
        let Ok(number) = number.parse::<u64>() else { break };
        let is_last = rest == "done" || rest.starts_with("failed ");
        let asker = {
            let mut waiting = locked(&waiting);
            let waiting = waiting.as_mut().expect("the map is taken only at the end");
            if is_last { waiting.remove(&number) } else { waiting.get(&number).cloned() }
        };
        // If the caller has given up, its query is removed.
        if let Some(asker) = asker
            && asker.send(rest.to_owned()).await.is_err()
            && let Some(waiting) = locked(&waiting).as_mut()
        {
            waiting.remove(&number);
        }
    }
    *locked(&waiting) = None; // This fails all waiting queries.
}

/// Keeps the last lines of the JVM's error output.
async fn overhear(errors: impl AsyncRead + Unpin, said: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!(target: "hdfs::jvm", "{line}");
        note(&said, line);
    }
}

/// Adds a line to the last ones.
fn note(said: &Mutex<VecDeque<String>>, line: String) {
    let mut said = locked(said);
    if said.len() == LAST_LINES {
        said.pop_front();
    }
    said.push_back(line);
}

/// Returns paths as the words of a question. A path may contain every character but a slash within a name.
fn words(paths: &[String]) -> String {
    paths.iter().map(|path| encoded(path)).collect::<Vec<_>>().join("\t")
}

/// Locks a mutex and ignores poisoning: the data is consistent even if a holder panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::listing::Edit;

    /// Creates a `NameNode` that runs a shell script in place of `java`. The script plays the JVM's part.
    ///
    /// A separate process writes the script. If this process wrote the script, a child process that another
    /// test forks at that moment would inherit the open file, and the system refuses to run a file that is
    /// open for writing ("Text file busy").
    pub(crate) fn namenode(folder: &std::path::Path, script: &str) -> NameNode {
        let (text, java) = (folder.join("text"), folder.join("java"));
        fs::write(&text, format!("#!/bin/sh\n{script}")).unwrap();
        let installed =
            std::process::Command::new("install").args(["-m", "755"]).args([&text, &java]).status();
        assert!(installed.unwrap().success());
        let classpath = "x".to_owned();
        NameNode::new(NameNodeSettings { java, classpath, uri: None, settings: Vec::new() })
    }

    #[tokio::test]
    async fn answers_in_any_order_reach_their_queries() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo '0 ready 9'; read a; read b
            echo \"${b%% *} n 0 second a:1\"; echo \"${a%% *} n 0 first a:1\"; echo \"${b%% *} done\"; echo \"${a%% *} done\"; read c";
        let namenode = namenode(folder.path(), script);
        let file = FileRef { inode: 1, held_at: None };
        let (first, second) = tokio::join!(namenode.nodes(), namenode.group(&file, 2));
        assert_eq!(first.unwrap().nodes[0].uuid, "first");
        assert_eq!(second.unwrap().nodes[0].uuid, "second");
    }

    #[tokio::test]
    async fn a_jvm_that_exits_is_explained_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let script = "cd $(dirname $0); if [ -e ran ]; then
                echo '0 ready 9'; read a; echo \"${a%% *} safe\"; echo \"${a%% *} done\"; read b
            fi; touch ran; echo '0 ready 9'; read a; echo 'no such class' >&2";
        let namenode = namenode(folder.path(), script);
        let ended = namenode.nodes().await.unwrap_err().to_string();
        assert!(ended.contains("no such class") && ended.contains("classpath"), "{ended}");
        let pausing = namenode.nodes().await.unwrap_err();
        assert!(matches!(pausing, AskError::Pausing { .. }), "{pausing}");
        tokio::time::sleep(PAUSE_FIRST).await;
        assert!(namenode.nodes().await.unwrap().safe_mode);
    }

    /// A query that waits for a long answer has a handle on the same JVM.
    #[tokio::test]
    async fn a_jvm_that_does_not_answer_in_time_is_killed_while_others_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let namenode = namenode(folder.path(), "echo '0 ready 9'; while read a; do :; done");
        let both = async {
            tokio::join!(namenode.volumes(), namenode.change("replicate", Duration::from_millis(300)))
        };
        let (waiting, late) = timeout(SILENCE_LIMIT / 4, both).await.expect("both end");
        assert!(matches!(late, Err(AskError::Silent { .. })), "{late:?}");
        let ended = waiting.unwrap_err();
        assert!(matches!(ended, AskError::Ended { .. }), "{ended}");
        assert!(ended.to_string().contains("Mend has ended it"), "{ended}");
    }

    /// The owner of a file chooses its name.
    #[tokio::test]
    async fn names_with_line_breaks_are_no_questions() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo '0 ready 9'; while read number line; do
                echo \"$line\" >>asked; echo \"$number done\"
            done";
        let namenode = namenode(folder.path(), &format!("cd $(dirname $0); {script}"));
        let paths = ["/d/x\n9 delete %2Fother".to_owned(), "/d/y\r9 delete\t/other".to_owned()];
        namenode.missing(&paths).await.unwrap();
        namenode.list(&paths, &|_| {}).await.unwrap();
        namenode.snapshots(&paths).await.unwrap();
        let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
        let encoded = paths.each_ref().map(|path| encoded(path)).join("\t");
        let expected = ["missing", "list", "snapshots"].map(|word| format!("{word} {encoded}\n")).concat();
        assert_eq!(asked, expected);
        for question in ["report a:1\n9 delete %2Fother", "report a:1\r"] {
            let refused = namenode.change(question, LOOK_LIMIT).await.unwrap_err();
            assert!(matches!(&refused, AskError::LineBreak { word } if word == "report"), "{refused}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("asked")).unwrap(), asked);
    }

    #[tokio::test]
    async fn events_of_the_longest_paths_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo '0 ready 9'; read a; path=%2F$(printf '%08000d' 0 | sed 's/0/%E6%97%A5/g')
            echo \"${a%% *} r $path $path\"; echo \"${a%% *} e 2\"; echo \"${a%% *} done\"; read b";
        let edits = namenode(folder.path(), script).edits(1).await.unwrap();
        let path = format!("/{}", "\u{65e5}".repeat(8000));
        assert_eq!(edits.events, [Edit::Renamed { from: path.clone(), to: path }]);
    }

    #[tokio::test]
    async fn failures_of_queries_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let refused = namenode(
            folder.path(),
            "echo '0 ready 9'; read a; echo \"${a%% *} failed no permission\"; read b",
        );
        let error = refused.nodes().await.unwrap_err().to_string();
        assert!(error.contains("no permission"), "{error}");
        let other = namenode(folder.path(), "echo 'Usage: java'");
        assert!(matches!(other.nodes().await.unwrap_err(), AskError::Line(_)));
        let none = NameNodeSettings {
            java: folder.path().join("none"),
            classpath: String::new(),
            uri: None,
            settings: Vec::new(),
        };
        assert!(matches!(NameNode::new(none).nodes().await.unwrap_err(), AskError::NoJava { .. }));
    }
}
