//! Clients. Like the client library, they put files stripe by stripe, read them and remove them.
//!
//! A put begins and commits through the API; its stripes are stored over the control connection. A stripe is
//! stored if the helpers report the right digests. A read requests the layout, then all data blocks of each
//! stripe, and checks each block against its recorded digest.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use codes::BlockIndex;
use control::{Answer, FileCommand, FileError, RequestError};
use repair::wire::RequestFailure;
use repair::wire::control::{ClientRequest, Ended, FromNode, ToNode};
use repair::{Assignment, BlockId, Brought, JobId, Refusal, Report, Scheme, StripeId};
use store_api::{BlockSize, PutId};
use views::{FileLayout, FileStripe, FileView, PutRequest, PutStripe, PutView};

use super::api::Asker;
use super::assembly::System;
use super::event::{Happening, ProcessId};
use super::process::Session;
use super::script::Script;
use super::truth::{Bytes, FileTruth};
use crate::dice::Dice;
use crate::disk::{Deliveries, Stored, hash_of};
use crate::stripe::encode_data;

/// Time after which a client gives up an operation.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a file stays readable after a reader has requested the file's layout, even if the file is
/// replaced.
const LEASE: Duration = Duration::from_secs(20);
/// The pause before a failed step is retried.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// A client's requests and operations.
#[derive(Debug, Default)]
struct Client {
    next: u64,
    /// Open requests on the client's connection, by tag.
    requests: BTreeMap<u64, Request>,
    flows: BTreeMap<u64, Flow>,
}

/// A request on the control connection.
#[derive(Debug)]
struct Request {
    flow: u64,
    job: Option<JobId>,
    /// The data blocks, for a put of a stripe.
    sources: Vec<Vec<u8>>,
}

/// All clients.
pub(crate) struct Clients {
    all: BTreeMap<ProcessId, Client>,
    /// Number of files that were read.
    pub(crate) reads: u64,
    /// Number of files that were stored.
    pub(crate) puts: u64,
}

/// An operation: a put, read or removal of a file.
#[derive(Debug)]
struct Flow {
    file: String,
    since: Duration,
    /// Number of failed attempts.
    tries: u32,
    /// Whether a failure of the operation is a violation.
    must: bool,
    what: What,
}

/// A reader's lease on a file. For a reader that has requested the layout, the coordinator keeps the file's
/// stripes, even if the file is replaced.
#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    /// The number of the coordinator's run in which the lease was granted.
    run: u32,
    since: Duration,
}

impl Lease {
    /// Whether the lease is certainly valid.
    fn holds(self, system: &System) -> bool {
        self.run == system.coordinator.run && system.shared.now < self.since + LEASE
    }
}

fn is_unknown_stripe(error: &RequestFailure) -> bool {
    matches!(error, RequestFailure::Refused { detail, .. } if detail.contains("there is no stripe"))
}

#[derive(Debug)]
enum What {
    Put { bytes: Bytes, replace: bool, put: Option<PutView>, next: usize, commits: bool },
    Read { before: FileTruth, layout: Option<FileLayout>, lease: Lease, next: usize, bytes: Vec<u8> },
    Remove,
}

impl Clients {
    /// Creates clients without operations.
    pub(crate) fn new(script: &Script) -> Self {
        let all = script.client_ids().map(|id| (id, Client::default()));
        Self { all: all.collect(), reads: 0, puts: 0 }
    }

    fn client(&mut self, process: ProcessId) -> &mut Client {
        self.all.get_mut(&process).expect("the script names clients that exist")
    }

    /// Whether no client has an operation.
    pub(crate) fn are_idle(&self) -> bool {
        self.all.values().all(|client| client.flows.is_empty())
    }

    fn begin_flow(
        &mut self,
        process: ProcessId,
        file: String,
        must: bool,
        what: What,
        system: &mut System,
    ) -> u64 {
        let since = system.shared.now;
        let client = self.client(process);
        client.next += 1;
        let number = client.next;
        client.flows.insert(number, Flow { file, since, tries: 0, must, what });
        number
    }

    pub(crate) fn put(
        &mut self,
        process: ProcessId,
        file: &str,
        bytes: Vec<u8>,
        replace: bool,
        system: &mut System,
    ) {
        if !system.processes.get(process).alive || !system.truth.begin(file) {
            return;
        }
        let what = What::Put { bytes: Rc::new(bytes), replace, put: None, next: 0, commits: false };
        let flow = self.begin_flow(process, file.to_owned(), false, what, system);
        self.go_on(process, flow, system);
    }

    pub(crate) fn read(&mut self, process: ProcessId, file: &str, must: bool, system: &mut System) {
        if !system.processes.get(process).alive {
            return;
        }
        let before = system.truth.file(file);
        let what = What::Read { before, layout: None, lease: Lease::default(), next: 0, bytes: Vec::new() };
        let flow = self.begin_flow(process, file.to_owned(), must, what, system);
        self.go_on(process, flow, system);
    }

    pub(crate) fn remove(&mut self, process: ProcessId, file: &str, system: &mut System) {
        if !system.processes.get(process).alive || !system.truth.begin(file) {
            return;
        }
        let flow = self.begin_flow(process, file.to_owned(), false, What::Remove, system);
        self.go_on(process, flow, system);
    }

    /// Takes the next step of an operation.
    pub(crate) fn go_on(&mut self, process: ProcessId, number: u64, system: &mut System) {
        let life = system.processes.get(process).life;
        let session = system.processes.get(process).session;
        let asker = Asker::Flow { process, life, flow: number };
        let Some(flow) = self.client(process).flows.get(&number) else { return };
        let file = flow.file.clone();
        match &flow.what {
            What::Put { bytes, replace, put: None, .. } => {
                let (bytes, replace) = (bytes.len() as u64, *replace);
                let request = PutRequest {
                    name: file,
                    bytes,
                    code: None,
                    block_bytes: None,
                    chunk_bytes: None,
                    replace,
                };
                system.ask(asker, |reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply));
            }
            What::Put { bytes, put: Some(put), next, .. } if *next >= put.stripes.len() => {
                let (put, bytes) = (PutId(put.put), bytes.clone());
                system.truth.may_be(&file, Some(bytes));
                if let Some(Flow { what: What::Put { commits, .. }, .. }) =
                    self.client(process).flows.get_mut(&number)
                {
                    *commits = true;
                }
                system.ask(asker, |reply| FileCommand::CommitPut(put, reply));
            }
            What::Put { bytes, put: Some(put), next, .. } => {
                let stripe = &put.stripes[*next];
                let sources = data_blocks(bytes, stripe, put.data_blocks);
                let request = ClientRequest::PutStripe { put: put.put, position: stripe.position as u32 };
                self.open(process, number, session, request, sources, system);
            }
            What::Read { layout: None, .. } => system.ask(asker, |reply| FileCommand::Layout(file, reply)),
            What::Read { layout: Some(layout), next, .. } => match layout.layout.get(*next) {
                None => self.end_read(process, number, system),
                Some(stripe) => {
                    let plain = flow.must || flow.tries > 0;
                    let (stripe, k, alpha) = (stripe.clone(), layout.data_blocks, layout.sub_blocks);
                    let request =
                        read_request(&stripe, k, alpha, (!plain).then_some(&mut system.shared.dice));
                    self.open(process, number, session, request, Vec::new(), system);
                }
            },
            What::Remove => {
                system.truth.may_be(&file, None);
                system.ask(asker, |reply| FileCommand::Remove(file, reply));
            }
        }
    }

    /// Sends a request on the control connection, or retries later if there is no connection.
    fn open(
        &mut self,
        process: ProcessId,
        flow: u64,
        session: Session,
        request: ClientRequest,
        sources: Vec<Vec<u8>>,
        system: &mut System,
    ) {
        let Session::Up(connection) = session else { return self.later(process, flow, system) };
        let client = self.client(process);
        client.next += 1;
        let tag = client.next;
        client.requests.insert(tag, Request { flow, job: None, sources });
        system.say(connection, FromNode::Open { tag, request });
    }

    /// Retries a step after a pause. Gives the operation up if it has taken too long.
    fn later(&mut self, process: ProcessId, number: u64, system: &mut System) {
        let (now, life) = (system.shared.now, system.processes.get(process).life);
        let Some(flow) = self.client(process).flows.get(&number) else { return };
        let patience = if flow.must { PATIENCE * 10 } else { PATIENCE };
        if now > flow.since + patience {
            return self.fail(process, number, "no answer in time", system);
        }
        system
            .shared
            .after(TRY_AGAIN, crate::event::Event::System(Happening::GoesOn { process, life, flow: number }));
    }

    /// Handles an answer of the API. `answer` is `None` if the connection broke.
    pub(crate) fn answered(
        &mut self,
        process: ProcessId,
        number: u64,
        answer: Option<Answer>,
        system: &mut System,
    ) {
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        match &mut flow.what {
            What::Put { put: put @ None, .. } => match answer.map(Answer::take::<PutView>) {
                Some(Ok(begun)) => {
                    *put = Some(begun);
                    self.go_on(process, number, system);
                }
                Some(Err(error)) => self.fail(process, number, &error.to_string(), system),
                None => self.fail(process, number, "the coordinator has disconnected", system),
            },
            What::Put { bytes, commits: true, .. } => {
                let bytes = bytes.clone();
                match answer.map(Answer::take::<FileView>) {
                    Some(Ok(_)) => self.end_change(process, number, Some(Some(bytes)), system),
                    _ => {
                        self.abort(process, number, system);
                        self.end_change(process, number, None, system);
                    }
                }
            }
            What::Put { .. } => {}
            What::Read { layout, lease, .. } => match answer.map(Answer::take::<FileLayout>) {
                Some(Ok(found)) => {
                    *layout = Some(found);
                    *lease = Lease { run: system.coordinator.run, since: system.shared.now };
                    self.go_on(process, number, system);
                }
                Some(Err(RequestError::File(FileError::NoSuchFile(_)))) => {
                    self.check_read(process, number, None, system)
                }
                _ => self.later(process, number, system),
            },
            What::Remove => match answer.map(Answer::take::<FileView>) {
                Some(Ok(_)) | Some(Err(RequestError::File(FileError::NoSuchFile(_)))) => {
                    self.end_change(process, number, Some(None), system);
                }
                _ => self.end_change(process, number, None, system),
            },
        }
    }

    /// Ends a change of a file. `is` contains the contents of the file, or is `None` if the outcome is
    /// unknown.
    fn end_change(
        &mut self,
        process: ProcessId,
        number: u64,
        is: Option<Option<Bytes>>,
        system: &mut System,
    ) {
        if let Some(flow) = self.client(process).flows.remove(&number) {
            system.shared.note(|| match &is {
                Some(is) => format!("{} is {}", flow.file, is.as_ref().map_or("gone", |_| "stored")),
                None => format!("the outcome for {} is unknown", flow.file),
            });
            self.puts += u64::from(matches!(is, Some(Some(_))));
            system.truth.end(&flow.file, is);
        }
    }

    /// Gives up an operation.
    fn fail(&mut self, process: ProcessId, number: u64, why: &str, system: &mut System) {
        let Some(flow) = self.client(process).flows.get(&number) else { return };
        let (file, must) = (flow.file.clone(), flow.must);
        system.shared.note(|| format!("{file}: operation abandoned: {why}"));
        if must {
            system.shared.violate(format!("{file} cannot be read at the end: {why}"));
        }
        match self.client(process).flows[&number].what {
            What::Read { .. } => drop(self.client(process).flows.remove(&number)),
            What::Put { .. } | What::Remove => {
                self.abort(process, number, system);
                self.end_change(process, number, None, system);
            }
        }
    }

    fn abort(&mut self, process: ProcessId, number: u64, system: &mut System) {
        if let What::Put { put: Some(put), .. } = &self.client(process).flows[&number].what {
            let put = PutId(put.put);
            system.ask(Asker::Nobody, |reply| FileCommand::AbortPut(put, reply));
        }
    }

    /// Handles the end of a request on the control connection.
    pub(crate) fn closed(
        &mut self,
        process: ProcessId,
        tag: u64,
        result: Result<Ended, RequestFailure>,
        system: &mut System,
    ) {
        let Some(request) = self.client(process).requests.remove(&tag) else { return };
        let (number, job) = (request.flow, request.job);
        let received =
            job.map(|job| system.processes.get_mut(process).take_received(job)).unwrap_or_default();
        if job.is_some() {
            self.forget_sources(process, system);
        }
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        match (&mut flow.what, result) {
            (What::Put { next, .. }, Ok(ended)) => {
                let digests: Vec<_> = request.sources.iter().map(|block| hash_of(block)).collect();
                let mut stored = (0..).map(BlockIndex).zip(digests);
                if stored.all(|(index, digest)| ended.digests.contains(&(index, digest))) {
                    *next += 1;
                    self.go_on(process, number, system);
                } else {
                    self.fail(process, number, "the stored digests differ", system);
                }
            }
            (What::Put { .. }, Err(error)) => self.fail(process, number, &error.to_string(), system),
            (What::Read { .. }, Ok(_)) => self.take_stripe(process, number, &received, system),
            (What::Read { lease, .. }, Err(error)) => {
                let is_leased = lease.holds(system);
                if is_leased && is_unknown_stripe(&error) {
                    system.shared.violate(format!(
                        "a read of {} failed while the file was replaced: {error}",
                        flow.file
                    ));
                }
                self.fail_or_retry(process, number, &error.to_string(), system)
            }
            (What::Remove, _) => {}
        }
    }

    /// Checks the received data blocks of a stripe. If a block does not match its recorded digest, retries
    /// the read; the mismatch is also a violation, unless a fault silently corrupted a block of this stripe.
    /// Wrong bytes that match the recorded digest are always a violation.
    fn take_stripe(&mut self, process: ProcessId, number: u64, received: &Deliveries, system: &mut System) {
        let Some(Flow { what: What::Read { layout: Some(layout), next, .. }, .. }) =
            self.client(process).flows.get(&number)
        else {
            return;
        };
        let (stripe, k) = (layout.layout[*next].clone(), layout.data_blocks);
        let mut data = Vec::new();
        for block in &stripe.stripe.blocks[..k] {
            let id = BlockId(block.block.clone());
            let Some(bytes) = received.get(&id) else {
                return system.shared.violate(format!("{id} was requested but not delivered"));
            };
            let recorded = block.digest.as_ref().and_then(|digest| digest.parse().ok());
            if recorded.is_some_and(|recorded: repair::Digest| recorded != hash_of(bytes)) {
                if !system.truth.forged.contains(&StripeId(stripe.stripe.stripe.clone())) {
                    system.shared.violate(format!("{id} was read with a wrong digest"));
                }
                return self.fail_or_retry(process, number, "its digest differs", system);
            }
            if !system.truth.is_block(&id, bytes) {
                system.shared.violate(format!("{id} was read with wrong bytes"));
            }
            data.extend_from_slice(bytes);
        }
        data.truncate(stripe.data_bytes as usize);
        let Some(Flow { what: What::Read { next, bytes, .. }, .. }) =
            self.client(process).flows.get_mut(&number)
        else {
            return;
        };
        *next += 1;
        bytes.extend(data);
        self.go_on(process, number, system);
    }

    fn fail_or_retry(&mut self, process: ProcessId, number: u64, why: &str, system: &mut System) {
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        flow.tries += 1;
        if let What::Read { layout, next, bytes, .. } = &mut flow.what {
            (*layout, *next) = (None, 0);
            bytes.clear();
        }
        let file = flow.file.clone();
        system.shared.note(|| format!("{file} cannot be read: {why}"));
        let is_removed = system.truth.file(&file).possible.contains(&None);
        if system.script.faults.is_empty() && !is_removed {
            system.shared.violate(format!("{file} cannot be read although there is no fault: {why}"));
        }
        self.later(process, number, system);
    }

    fn end_read(&mut self, process: ProcessId, number: u64, system: &mut System) {
        let Some(Flow { what: What::Read { bytes, .. }, .. }) = self.client(process).flows.get_mut(&number)
        else {
            return;
        };
        let bytes = std::mem::take(bytes);
        self.check_read(process, number, Some(bytes), system);
    }

    /// Checks that the result `got` of a read is possible. It must be contents that the file may have had, or
    /// `None` if the file may not have existed.
    fn check_read(&mut self, process: ProcessId, number: u64, got: Option<Vec<u8>>, system: &mut System) {
        let Some(Flow { file, what: What::Read { before, .. }, .. }) =
            self.client(process).flows.remove(&number)
        else {
            return;
        };
        let now = system.truth.file(&file);
        let changed = now.changes != before.changes || now.writers + before.writers > 0;
        let candidates = if changed { &now.ever } else { &now.possible };
        let is = |candidate: &Option<Bytes>| match (candidate, &got) {
            (Some(bytes), Some(got)) => **bytes == *got,
            (None, None) => true,
            _ => false,
        };
        self.reads += u64::from(got.is_some());
        if !candidates.iter().any(is) {
            let got = got.as_ref().map_or("no file".to_owned(), |got| format!("{} bytes", got.len()));
            system.shared.violate(format!(
                "a read of {file} returned {got}, which are not contents that the file had"
            ));
        }
    }

    // ---- tasks ----

    /// Handles an assignment for a client. Returns `false` if the assignment belongs to no request of the
    /// client. For a put, stores the data blocks on the client's disk; the client's task reads them from
    /// there.
    pub(crate) fn assigned(
        &mut self,
        process: ProcessId,
        assignment: &Assignment,
        system: &mut System,
    ) -> bool {
        let request = assignment.tag.and_then(|tag| self.client(process).requests.get_mut(&tag));
        let Some(request) = request else {
            let report = Report::Refused { why: Refusal::NotBrought { what: Brought::Sources } };
            let (job, epoch) = (assignment.job, assignment.epoch);
            if let Session::Up(connection) = system.processes.get(process).session {
                system.say(connection, FromNode::Report { job, epoch, report });
            }
            return false;
        };
        request.job = Some(assignment.job);
        let sources = request.sources.clone();
        if sources.is_empty() {
            return true;
        }
        self.note_stripe(assignment, &sources, system);
        let disk = &mut system.processes.get_mut(process).disk;
        for local in &assignment.locals {
            let bytes = sources[usize::from(local.index.0)][..local.bytes as usize].to_vec();
            disk.blocks.insert(local.id.clone(), Stored::with(bytes, hash_of));
        }
        true
    }

    /// Records the true blocks of a stripe that is being stored.
    fn note_stripe(&mut self, assignment: &Assignment, data: &[Vec<u8>], system: &mut System) {
        let Some(local) = assignment.locals.first() else { return };
        let Some((stripe, _)) = local.id.0.rsplit_once('.') else { return };
        let stripe = StripeId(stripe.to_owned());
        match system.truth.stripes.get(&stripe) {
            Some(known) if known[..data.len()] == *data => return, // Another plan of the same put.
            Some(_) => system.shared.violate(format!("the name {stripe} was assigned to two stripes")),
            None => {}
        }
        let size = BlockSize::whole(assignment.chunking.block_bytes());
        let chunking = size.chunking(&*system.code).expect("it is a possible size");
        let blocks = encode_data(&*system.code, &chunking, data.to_vec());
        system.truth.stripes.insert(stripe, Rc::new(blocks));
    }

    /// Removes the data blocks of puts from the client's disk once no put needs them.
    fn forget_sources(&mut self, process: ProcessId, system: &mut System) {
        let busy = self.client(process).requests.values().any(|request| !request.sources.is_empty());
        if !busy {
            system.processes.get_mut(process).disk.blocks.clear();
        }
    }

    /// Handles the loss of a client's session. All requests of the client are lost: reads are retried,
    /// changes are given up.
    pub(crate) fn lost_session(&mut self, process: ProcessId, system: &mut System) {
        let requests = std::mem::take(&mut self.client(process).requests);
        for request in requests.into_values() {
            let Some(flow) = self.client(process).flows.get(&request.flow) else { continue };
            match flow.what {
                What::Read { .. } => self.fail_or_retry(process, request.flow, "the session is lost", system),
                What::Put { .. } | What::Remove => {
                    self.fail(process, request.flow, "the session is lost", system)
                }
            }
        }
    }

    /// Handles the death of a client's process, which ends all operations of the client.
    pub(crate) fn died(&mut self, process: ProcessId, system: &mut System) {
        let client = self.client(process);
        client.requests.clear();
        let flows = std::mem::take(&mut client.flows);
        for flow in flows.into_values() {
            match flow.what {
                What::Read { .. } => {}
                What::Put { .. } | What::Remove => system.truth.end(&flow.file, None),
            }
        }
        system.processes.get_mut(process).disk.blocks.clear();
    }

    /// Handles a message to a client that belongs to no job.
    pub(crate) fn hears(&mut self, process: ProcessId, message: ToNode, system: &mut System) {
        if let ToNode::Closed { tag, result } = message {
            self.closed(process, tag, result, system);
        }
    }
}

/// Returns the data blocks of a stripe, padded with zeros.
fn data_blocks(bytes: &[u8], stripe: &PutStripe, count: usize) -> Vec<Vec<u8>> {
    let start = stripe.file_offset as usize;
    let data = &bytes[start..start + stripe.data_bytes as usize];
    let block = |index: usize| {
        let from = (index * stripe.block_bytes as usize).min(data.len());
        let to = (from + stripe.block_bytes as usize).min(data.len());
        let mut block = data[from..to].to_vec();
        block.resize(stripe.block_bytes as usize, 0);
        block
    };
    (0..count).map(block).collect()
}

/// Returns a request to read all data blocks of a stripe. With `dice`, the request names a random scheme and
/// may pretend that a block is lost.
fn read_request(stripe: &FileStripe, k: usize, alpha: usize, dice: Option<&mut Dice>) -> ClientRequest {
    let (mut scheme, mut verify, mut pretend_lost) = (Scheme::Auto, false, Vec::new());
    if let Some(dice) = dice {
        let schemes: Vec<Scheme> =
            Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::Migration).collect();
        (scheme, verify) = (dice.pick(&schemes), dice.one_in(4));
        pretend_lost.extend(dice.one_in(2).then(|| BlockIndex(dice.below(k as u64) as u16)));
    }
    ClientRequest::Read {
        stripe: StripeId(stripe.stripe.stripe.clone()),
        blocks: (0..k as u16).map(BlockIndex).collect(),
        sub_blocks: None,
        window: (0, stripe.stripe.block_bytes / alpha as u64),
        scheme,
        slice_bytes: None,
        pacing: None,
        verify,
        pretend_lost,
        expected: Vec::new(),
    }
}
