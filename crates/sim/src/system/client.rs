//! Clients: they put files stripe by stripe, read them back and remove them, as the client library does.
//!
//! A put is stored on the control connection and begun and committed through the API. A stripe counts as stored if what the
//! helpers found of its data blocks are the digests of the file's bytes. A read asks for the layout, then for all data blocks
//! of each stripe, and holds each block against its recorded digest.

use control::FileCommand;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use codes::BlockIndex;
use control::{Answer, FileError, RequestError};
use repair::wire::RequestFailure;
use repair::wire::control::{ClientRequest, Ended, FromNode, ToNode};
use repair::{Assignment, BlockId, Brought, JobId, Refusal, Report, Scheme, StripeId};
use stores::BlockSize;
use stores::dir::PutId;
use views::{FileLayout, FileStripe, FileView, PutRequest, PutView};

use super::api::Asker;
use super::event::{Happening, ProcessId};
use super::process::Session;
use super::truth::{Bytes, FileTruth};
use super::world::World;
use crate::dice::Dice;
use crate::disk::{Deliveries, Stored, hash_of};
use crate::stripe::encode_data;

/// A client gives up what it has tried for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// It tries again what failed after so long.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What makes a process a client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    next: u64,
    /// Open requests on its connection, by tag.
    requests: BTreeMap<u64, Request>,
    pub(crate) flows: BTreeMap<u64, Flow>,
}

/// A request on the control connection.
#[derive(Debug)]
struct Request {
    flow: u64,
    job: Option<JobId>,
    /// The data blocks of a stripe that is put.
    sources: Vec<Vec<u8>>,
    /// What came, once its job is forgotten.
    received: Option<Deliveries>,
}

/// Something that a client does with a file.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) file: String,
    since: Duration,
    /// How often it was tried in vain.
    tries: u32,
    /// Whether it must succeed.
    pub(crate) must: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    Put { bytes: Bytes, replace: bool, put: Option<PutView>, next: usize, commits: bool },
    Read { before: FileTruth, layout: Option<FileLayout>, next: usize, bytes: Vec<u8> },
    Remove,
}

impl Client {
    /// What a job has delivered that is forgotten now.
    pub(crate) fn take_delivered(&mut self, job: JobId, delivered: Deliveries) {
        let request = self.requests.values_mut().find(|request| request.job == Some(job));
        request.into_iter().for_each(|request| request.received = Some(delivered.clone()));
    }
}

impl World {
    fn client(&mut self, process: ProcessId) -> &mut Client {
        let process = self.processes.get_mut(&process).expect("it is a process");
        process.client.as_mut().expect("it is a client")
    }

    fn begin_flow(&mut self, process: ProcessId, file: String, must: bool, what: What) -> u64 {
        let since = self.scene.now;
        let client = self.client(process);
        client.next += 1;
        let number = client.next;
        client.flows.insert(number, Flow { file, since, tries: 0, must, what });
        number
    }

    pub(crate) fn put(&mut self, process: ProcessId, file: &str, bytes: Vec<u8>, replace: bool) {
        if !self.processes[&process].alive || !self.truth.begin(file) {
            return;
        }
        let what = What::Put { bytes: Rc::new(bytes), replace, put: None, next: 0, commits: false };
        let flow = self.begin_flow(process, file.to_owned(), false, what);
        self.go_on(process, flow);
    }

    pub(crate) fn read(&mut self, process: ProcessId, file: &str, must: bool) {
        if !self.processes[&process].alive {
            return;
        }
        let before = self.truth.file(file);
        let what = What::Read { before, layout: None, next: 0, bytes: Vec::new() };
        let flow = self.begin_flow(process, file.to_owned(), must, what);
        self.go_on(process, flow);
    }

    pub(crate) fn remove(&mut self, process: ProcessId, file: &str) {
        if !self.processes[&process].alive || !self.truth.begin(file) {
            return;
        }
        let flow = self.begin_flow(process, file.to_owned(), false, What::Remove);
        self.go_on(process, flow);
    }

    /// Takes the next step of a flow.
    pub(crate) fn go_on(&mut self, process: ProcessId, number: u64) {
        let life = self.processes[&process].life;
        let session = self.processes[&process].session;
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
                self.ask(asker, |reply| FileCommand::BeginPut(request, reply));
            }
            What::Put { bytes, put: Some(put), next, .. } if *next >= put.stripes.len() => {
                let (put, bytes) = (PutId(put.put), bytes.clone());
                self.truth.may_be(&file, Some(bytes));
                if let Some(Flow { what: What::Put { commits, .. }, .. }) =
                    self.client(process).flows.get_mut(&number)
                {
                    *commits = true;
                }
                self.ask(asker, |reply| FileCommand::CommitPut(put, reply));
            }
            What::Put { bytes, put: Some(put), next, .. } => {
                let stripe = &put.stripes[*next];
                let start = stripe.file_offset as usize;
                let data = &bytes[start..start + stripe.data_bytes as usize];
                let block = |index: usize| {
                    let from = (index * stripe.block_bytes as usize).min(data.len());
                    let to = (from + stripe.block_bytes as usize).min(data.len());
                    let mut block = data[from..to].to_vec();
                    block.resize(stripe.block_bytes as usize, 0);
                    block
                };
                let sources = (0..put.data_blocks).map(block).collect();
                let request = ClientRequest::PutStripe { put: put.put, position: stripe.position as u32 };
                self.open(process, number, session, request, sources);
            }
            What::Read { layout: None, .. } => self.ask(asker, |reply| FileCommand::Layout(file, reply)),
            What::Read { layout: Some(layout), next, .. } => match layout.layout.get(*next) {
                None => self.end_read(process, number),
                Some(stripe) => {
                    let plain = flow.must || flow.tries > 0;
                    let (stripe, k, alpha) = (stripe.clone(), layout.data_blocks, layout.sub_blocks);
                    let request = read_request(&stripe, k, alpha, (!plain).then_some(&mut self.scene.dice));
                    self.open(process, number, session, request, Vec::new());
                }
            },
            What::Remove => {
                self.truth.may_be(&file, None);
                self.ask(asker, |reply| FileCommand::Remove(file, reply));
            }
        }
    }

    /// Opens a request on the control connection, if there is one.
    fn open(
        &mut self,
        process: ProcessId,
        flow: u64,
        session: Session,
        request: ClientRequest,
        sources: Vec<Vec<u8>>,
    ) {
        let Session::Up(connection) = session else { return self.later(process, flow) };
        let client = self.client(process);
        client.next += 1;
        let tag = client.next;
        client.requests.insert(tag, Request { flow, job: None, sources, received: None });
        self.say(connection, FromNode::Open { tag, request });
    }

    /// Tries a step again after a pause, unless that was done for too long already.
    fn later(&mut self, process: ProcessId, number: u64) {
        let (now, calm, life) = (self.scene.now, self.calm_since.is_some(), self.processes[&process].life);
        let Some(flow) = self.client(process).flows.get(&number) else { return };
        let patience = if flow.must && calm { PATIENCE * 10 } else { PATIENCE };
        if now > flow.since + patience {
            return self.fail(process, number, "nobody answers in time");
        }
        self.scene
            .after(TRY_AGAIN, crate::event::Event::System(Happening::GoesOn { process, life, flow: number }));
    }

    /// The API has answered, or its connection broke.
    pub(crate) fn flow_answered(&mut self, process: ProcessId, number: u64, answer: Option<Answer>) {
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        match &mut flow.what {
            What::Put { put: put @ None, .. } => match answer.map(Answer::take::<PutView>) {
                Some(Ok(begun)) => {
                    *put = Some(begun);
                    self.go_on(process, number);
                }
                Some(Err(error)) => self.fail(process, number, &error.to_string()),
                None => self.fail(process, number, "the coordinator is gone"),
            },
            What::Put { bytes, commits: true, .. } => {
                let bytes = bytes.clone();
                match answer.map(Answer::take::<FileView>) {
                    Some(Ok(_)) => self.end_change(process, number, Some(Some(bytes))),
                    _ => {
                        self.abort(process, number);
                        self.end_change(process, number, None);
                    }
                }
            }
            What::Put { .. } => {}
            What::Read { layout, .. } => match answer.map(Answer::take::<FileLayout>) {
                Some(Ok(found)) => {
                    *layout = Some(found);
                    self.go_on(process, number);
                }
                Some(Err(RequestError::File(FileError::NoSuchFile(_)))) => {
                    self.check_read(process, number, None)
                }
                _ => self.later(process, number),
            },
            What::Remove => match answer.map(Answer::take::<FileView>) {
                Some(Ok(_)) | Some(Err(RequestError::File(FileError::NoSuchFile(_)))) => {
                    self.end_change(process, number, Some(None));
                }
                _ => self.end_change(process, number, None),
            },
        }
    }

    /// A change of a file is over.
    fn end_change(&mut self, process: ProcessId, number: u64, is: Option<Option<Bytes>>) {
        if let Some(flow) = self.client(process).flows.remove(&number) {
            self.scene.note(|| match &is {
                Some(is) => format!("{} is {}", flow.file, is.as_ref().map_or("gone", |_| "stored")),
                None => format!("whether {} is changed is not known", flow.file),
            });
            self.puts += u64::from(matches!(is, Some(Some(_))));
            self.truth.end(&flow.file, is);
        }
    }

    /// A flow is given up.
    fn fail(&mut self, process: ProcessId, number: u64, why: &str) {
        let Some(flow) = self.client(process).flows.get(&number) else { return };
        let (file, must) = (flow.file.clone(), flow.must);
        self.scene.note(|| format!("{file}: given up, {why}"));
        if must {
            self.scene.violate(format!("{file} cannot be read at the end: {why}"));
        }
        match self.client(process).flows[&number].what {
            What::Read { .. } => drop(self.client(process).flows.remove(&number)),
            What::Put { .. } | What::Remove => {
                self.abort(process, number);
                self.end_change(process, number, None);
            }
        }
    }

    fn abort(&mut self, process: ProcessId, number: u64) {
        if let What::Put { put: Some(put), .. } = &self.client(process).flows[&number].what {
            let put = PutId(put.put);
            self.ask(Asker::Nobody, |reply| FileCommand::AbortPut(put, reply));
        }
    }

    /// A request on the control connection has ended.
    pub(crate) fn closed(&mut self, process: ProcessId, tag: u64, result: Result<Ended, RequestFailure>) {
        let Some(request) = self.client(process).requests.remove(&tag) else { return };
        let (number, job) = (request.flow, request.job);
        let received = match (request.received, job) {
            (Some(received), _) => received,
            (None, Some(job)) => self.processes[&process].delivered(job),
            (None, None) => Deliveries::default(),
        };
        if let Some(job) = job {
            self.forget_sources(process, job);
        }
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        match (&mut flow.what, result) {
            (What::Put { next, .. }, Ok(ended)) => {
                let digests: Vec<_> = request.sources.iter().map(|block| hash_of(block)).collect();
                let mut stored = (0..).map(BlockIndex).zip(digests);
                if stored.all(|(index, digest)| ended.digests.contains(&(index, digest))) {
                    *next += 1;
                    self.go_on(process, number);
                } else {
                    self.fail(process, number, "something else was stored");
                }
            }
            (What::Put { .. }, Err(error)) => self.fail(process, number, &error.to_string()),
            (What::Read { .. }, Ok(_)) => self.take_stripe(process, number, &received),
            (What::Read { .. }, Err(error)) => self.fail_or_retry(process, number, &error.to_string()),
            (What::Remove, _) => {}
        }
    }

    /// The data blocks of a stripe have come: they are what was stored, or their digests tell.
    fn take_stripe(&mut self, process: ProcessId, number: u64, received: &Deliveries) {
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
                return self.scene.violate(format!("{id} was read and has not come"));
            };
            let recorded = block.digest.as_ref().and_then(|digest| digest.parse().ok());
            if recorded.is_some_and(|recorded: repair::Digest| recorded != hash_of(bytes)) {
                if !self.forged.contains(&StripeId(stripe.stripe.stripe.clone())) {
                    self.scene.violate(format!("{id} was read as something else"));
                }
                return self.fail_or_retry(process, number, "its digest differs");
            }
            if !self.truth.is_block(&id, bytes) {
                self.scene.violate(format!("{id} was read with wrong bytes"));
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
        self.go_on(process, number);
    }

    fn fail_or_retry(&mut self, process: ProcessId, number: u64, why: &str) {
        let Some(flow) = self.client(process).flows.get_mut(&number) else { return };
        flow.tries += 1;
        if let What::Read { layout, next, bytes, .. } = &mut flow.what {
            (*layout, *next) = (None, 0);
            bytes.clear();
        }
        let file = flow.file.clone();
        self.scene.note(|| format!("{file} cannot be read: {why}"));
        let is_removed = self.truth.file(&file).possible.contains(&None);
        if self.script.faults.is_empty() && !is_removed {
            self.scene.violate(format!("nothing is broken, and {file} cannot be read: {why}"));
        }
        self.later(process, number);
    }

    fn end_read(&mut self, process: ProcessId, number: u64) {
        let Some(Flow { what: What::Read { bytes, .. }, .. }) = self.client(process).flows.get_mut(&number)
        else {
            return;
        };
        let bytes = std::mem::take(bytes);
        self.check_read(process, number, Some(bytes));
    }

    /// A file was read, or is not there: it must be one that may be there.
    fn check_read(&mut self, process: ProcessId, number: u64, got: Option<Vec<u8>>) {
        let Some(Flow { file, what: What::Read { before, .. }, .. }) =
            self.client(process).flows.remove(&number)
        else {
            return;
        };
        let now = self.truth.file(&file);
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
            self.scene.violate(format!("{file} reads as {got}, which it cannot be"));
        }
    }

    // ---- tasks ----

    /// An assignment for a client: it brings along what the request is about.
    pub(crate) fn client_assigned(&mut self, process: ProcessId, assignment: &Assignment) -> bool {
        let request = assignment.tag.and_then(|tag| self.client(process).requests.get_mut(&tag));
        let Some(request) = request else {
            let report = Report::Refused { why: Refusal::NotBrought { what: Brought::Sources } };
            let (job, epoch) = (assignment.job, assignment.epoch);
            if let Session::Up(connection) = self.processes[&process].session {
                self.say(connection, FromNode::Report { job, epoch, report });
            }
            return false;
        };
        request.job = Some(assignment.job);
        let sources = request.sources.clone();
        if sources.is_empty() {
            return true;
        }
        self.note_stripe(assignment, &sources);
        let disk = &mut self.processes.get_mut(&process).expect("it is a process").disk;
        for local in &assignment.locals {
            let bytes = sources[usize::from(local.index.0)][..local.bytes as usize].to_vec();
            disk.blocks.insert(local.id.clone(), Stored::with(bytes, hash_of));
        }
        true
    }

    /// What the blocks of a stripe have to be that is being stored.
    fn note_stripe(&mut self, assignment: &Assignment, data: &[Vec<u8>]) {
        let Some(local) = assignment.locals.first() else { return };
        let Some((stripe, _)) = local.id.0.rsplit_once('.') else { return };
        let size = BlockSize::whole(assignment.chunking.block_bytes());
        let chunking = size.chunking(&*self.code).expect("it is a possible size");
        let blocks = encode_data(&*self.code, &chunking, data.to_vec());
        self.truth.stripes.insert(StripeId(stripe.to_owned()), Rc::new(blocks));
    }

    /// A client has no blocks but those that it puts.
    fn forget_sources(&mut self, process: ProcessId, _job: JobId) {
        let busy = self.client(process).requests.values().any(|request| !request.sources.is_empty());
        if !busy {
            self.processes.get_mut(&process).expect("it is a process").disk.blocks.clear();
        }
    }

    /// The session of a client is lost: its requests are, and what they were for is tried again or given up.
    pub(crate) fn client_lost_session(&mut self, process: ProcessId) {
        let requests = std::mem::take(&mut self.client(process).requests);
        for request in requests.into_values() {
            let Some(flow) = self.client(process).flows.get(&request.flow) else { continue };
            match flow.what {
                What::Read { .. } => self.fail_or_retry(process, request.flow, "the session is lost"),
                What::Put { .. } | What::Remove => self.fail(process, request.flow, "the session is lost"),
            }
        }
    }

    /// A client's process is gone, and what it was doing with it.
    pub(crate) fn client_died(&mut self, process: ProcessId) {
        let client = self.client(process);
        client.requests.clear();
        let flows = std::mem::take(&mut client.flows);
        for flow in flows.into_values() {
            match flow.what {
                What::Read { .. } => {}
                What::Put { .. } | What::Remove => self.truth.end(&flow.file, None),
            }
        }
        self.processes.get_mut(&process).expect("it is a process").disk.blocks.clear();
    }

    /// What a client is told outside of jobs.
    pub(crate) fn client_hears(&mut self, process: ProcessId, message: ToNode) {
        if let ToNode::Closed { tag, result } = message {
            self.closed(process, tag, result);
        }
    }
}

/// A read of all data blocks of a stripe; with dice by some scheme, and as if a block were lost.
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
    }
}
