//! Puts. Clients begin and commit them through the API, and request the storing of each stripe on their
//! control connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::wire::RequestFailure;
use repair::wire::control::ToNode;
use repair::{Accepts, JobRequest, NodeId, Scheme, Stripe, StripeBlock, Verify, Wanted};
use serde_json::Value;
use store_api::{
    Answer, BlockSize, FileRecord, FileWrite, PutError, PutId, PutRecord, StoreChange, StoreError,
    StripeRecord, Write,
};

use crate::base::{Base, SETTLE_LIMIT};
use crate::effect::Reply;
use crate::error::{FileError, LayoutError, RequestError};
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::jobs::Requests;
use crate::jobs::continuation::{Begun, PutThen};
use crate::jobs::open_puts::{OpenPut, OpenPuts};
use crate::jobs::owner::Owner;
use crate::jobs::placement::{Candidate, Domains, spread};
use crate::jobs::requests::policy;
use crate::nodes::{Nodes, sorted};
use crate::out::{Out, answer};
use crate::stripes::layout::{self, BadBytes, BadSize};
use views::{FileView, MAX_ANSWER_BYTES, PutRequest, PutStripe, PutView};

/// How long a put may stay open after its last client has disconnected. A put that is not committed or
/// resumed in this time is aborted.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);
/// The time that a put may stay open before its first stripe.
const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// The maximum number of stripes of a put. One answer lists all of them, and another lists all their blocks.
const MAX_STRIPES: u64 = 1 << 20;
/// Upper bounds for the JSON of a stripe without blocks, and of each of its blocks, in the layout of a file.
const STRIPE_JSON_BYTES: u64 = 512;
const BLOCK_JSON_BYTES: u64 = 320;

/// Returns the maximum number of stripes of a file. A client can read a file only if the answer with the file's
/// layout is not longer than [`MAX_ANSWER_BYTES`].
fn max_stripes(code: &dyn Code) -> u64 {
    let stripe_bytes = STRIPE_JSON_BYTES + code.blocks() as u64 * BLOCK_JSON_BYTES;
    MAX_STRIPES.min(MAX_ANSWER_BYTES as u64 / stripe_bytes)
}

impl Jobs {
    /// Returns the number of blocks that a node holds or will get from running jobs.
    pub(crate) fn used(&self, facts: Facts<'_>, node: NodeId) -> usize {
        let coming = self.running.values().filter(|running| running.is_target(node)).count();
        facts.stripes.picture.block_count(node) + coming
    }
}

impl OpenPuts {
    /// Handles the end of the write by which a put begins.
    pub(crate) fn begun(
        &mut self,
        base: &Base,
        begun: Begun,
        result: Result<Answer, StoreError>,
        out: &mut Out,
    ) {
        let Begun { member, code, bytes, size, stripes, reply } = begun;
        self.has_begun(&member);
        match result {
            Ok(Answer::Put(put)) => {
                let until = Some(base.now + IDLE_LIMIT);
                self.puts.insert(put, OpenPut { member, clients: BTreeSet::new(), until });
                out.answer(reply, Ok(put_view(put, &*code, bytes, size, stripes)));
            }
            Ok(other) => unreachable!("expected a put number, got {other:?}"),
            Err(error) => out.answer(reply, Err(error.into())),
        }
    }

    /// Handles the end of the write by which a put is committed.
    pub(crate) fn committed(
        &mut self,
        put: PutId,
        reply: Reply<FileView>,
        result: Result<Answer, StoreError>,
        out: &mut Out,
    ) {
        self.ending.remove(&put);
        match result {
            Ok(Answer::File(file)) => {
                self.puts.remove(&put);
                out.answer(reply, Ok(file_view(&file)));
            }
            Ok(other) => unreachable!("expected the committed file, got {other:?}"),
            Err(error) => out.answer(reply, Err(error.into())),
        }
    }

    /// Handles the end of the write by which a put is aborted.
    pub(crate) fn aborted(
        &mut self,
        base: &Base,
        put: PutId,
        reply: Option<Reply<Value>>,
        result: Result<Answer, StoreError>,
        out: &mut Out,
    ) {
        self.ending.remove(&put);
        let known = !matches!(result, Err(StoreError::Put(PutError::NoSuchPut(_))));
        if let (Err(error), true) = (&result, known) {
            // The abort is retried if no client resumes the put within the time limit.
            tracing::error!(%put, %error, "cannot abort a put");
            if let Some(open) = self.puts.get_mut(&put) {
                open.until = Some(base.now + ORPHAN_LIMIT);
            }
        } else {
            self.puts.remove(&put);
        }
        if let Some(reply) = reply {
            let done = result.map(|_| serde_json::json!({ "aborted": put.0 }));
            answer(reply, done, out);
        }
    }

    /// Handles the disconnect of a client: sets a deadline for each put that no other client is storing. A
    /// put that is neither committed nor resumed by then is aborted.
    pub(super) fn orphan(&mut self, base: &Base, client: NodeId) {
        for put in self.puts.values_mut() {
            if put.clients.remove(&client) && put.clients.is_empty() {
                put.until = Some(base.now + ORPHAN_LIMIT);
            }
        }
    }

    /// Returns the puts that were not continued in time.
    pub(crate) fn idle(&self, now: Duration) -> Vec<PutId> {
        let late = self.puts.iter().filter(|(_, put)| put.until.is_some_and(|until| until <= now));
        late.map(|(&put, _)| put).filter(|put| !self.ending.contains(put)).collect()
    }

    /// Returns the puts in `changes` that no client knows: these puts are durable, although their requests
    /// were refused.
    pub(crate) fn unknown(&self, changes: &[StoreChange]) -> Vec<PutId> {
        let puts = changes.iter().filter_map(|change| match change {
            StoreChange::Put(put) => Some(put.id),
            _ => None,
        });
        puts.filter(|put| !self.puts.contains_key(put)).collect()
    }

    /// Lets a client store stripes of a put, which is then not aborted.
    fn adopt(&mut self, put: PutId, client: NodeId) {
        if let Some(open) = self.puts.get_mut(&put) {
            open.clients.insert(client);
            open.until = None;
        }
    }
}

impl Jobs {
    pub(crate) fn stripe_allocated(
        &mut self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
        (put, position): (PutId, u32),
        result: Result<Answer, StoreError>,
        out: &mut Out,
    ) {
        self.puts.allocating.remove(&(put, position));
        let requests = self.clients.get_mut(&client);
        let begins = requests.is_some_and(|requests| requests.opening.remove(&tag));
        if !begins {
            return facts.nodes.send(
                client,
                ToNode::Closed { tag, result: Err(RequestFailure::CalledOff) },
                out,
            );
        }
        let started = match result {
            Ok(Answer::Stripe(_)) if self.puts.ending.contains(&put) => Err(PutError::NoSuchPut(put).into()),
            Ok(Answer::Stripe(stripe)) => {
                self.start_put_job(facts, client, tag, (put, position), &stripe, out)
            }
            Ok(other) => unreachable!("expected the allocated stripe, got {other:?}"),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = started {
            facts.nodes.refuse_request(client, tag, &error, out);
        }
    }

    fn start_put_job(
        &mut self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
        (put, position): (PutId, u32),
        allocated: &StripeRecord,
        out: &mut Out,
    ) -> Result<(), RequestError> {
        let code = facts.stripes.codes.get(&allocated.code)?;
        let data_blocks = code.data_blocks();
        let holder = |index: usize| (index < data_blocks).then_some(client);
        let blocks = allocated.blocks.iter().enumerate().map(|(index, block)| StripeBlock {
            id: block.id.clone(),
            bytes: block.bytes,
            holder: holder(index),
            digest: None,
        });
        let (id, blocks) = (allocated.id.clone(), blocks.collect());
        let label = allocated.label(&facts.base.settings.cluster_id);
        let chunking = allocated.size().chunking(&*code)?;
        let stripe = Stripe { id, blocks, code, chunking, label };
        let nodes = allocated.blocks.iter().map(|block| block.node.expect("an allocated block has a node"));
        let wanted = (0..).map(BlockIndex).zip(nodes);
        let request = JobRequest {
            job: out.next_job()?,
            window: 0..stripe.sub_block_bytes(),
            stripe,
            wanted: wanted.map(|(block, requestor)| Wanted { block, requestor }).collect(),
            sub_blocks: None,
            // The client holds all data blocks, so the planner has no choice.
            policy: policy(Scheme::Conventional, None),
            // Parity blocks are computed by helpers, and their digests are trusted later.
            verify: Verify { parity: true, ..Verify::default() },
            publish: true,
            tag: Some(tag),
            permits: Vec::new(),
        };
        self.start_request(client, tag, Owner::Put { client, tag, put, position }, request, out);
        Ok(())
    }
}

impl Jobs {
    pub(crate) fn begin_put(
        &mut self,
        facts: Facts<'_>,
        request: &PutRequest,
        member: String,
        reply: Reply<PutView>,
        out: &mut Out,
    ) {
        let checked = self.check_put(facts, request, out);
        match checked.and_then(|checked| self.puts.begins(&member).map(|()| checked).map_err(Into::into)) {
            Err(error) => answer(reply, Err(error), out),
            Ok((code, size, stripes)) => {
                let (name, bytes, replace) = (request.name.clone(), request.bytes, request.replace);
                let write = FileWrite::BeginPut { name, bytes, code: code.spec().clone(), size, replace };
                let begun = Begun { member, code, bytes, size, stripes, reply };
                out.store(Write::Files(write), PutThen::Begun(begun));
            }
        }
    }

    /// Checks that a put can be carried out. Returns its code, its block size and its number of stripes.
    fn check_put(
        &mut self,
        facts: Facts<'_>,
        request: &PutRequest,
        out: &mut Out,
    ) -> Result<(Arc<dyn Code>, BlockSize, u64), RequestError> {
        facts.check_not_behind()?;
        facts.storing.check_storage()?;
        let spec: CodeSpec = request.code.as_ref().unwrap_or(&facts.base.settings.code).parse()?;
        let code = facts.stripes.codes.get(&spec)?;
        let block_bytes = request.block_bytes.unwrap_or(facts.base.settings.block_bytes);
        let size = layout::checked(&*code, block_bytes, request.chunk_bytes).map_err(|bad| match bad {
            BadSize::Block(BadBytes { unit, below, above }) => {
                LayoutError::BlockBytes { asked: block_bytes, unit, below, above }
            }
            BadSize::Chunk(BadBytes { unit, below, above }) => {
                let asked = request.chunk_bytes.unwrap_or_default();
                LayoutError::ChunkBytes { asked, unit, below, above }
            }
        })?;
        let stripes = layout::stripe_count(&*code, request.bytes, size);
        let most = max_stripes(&*code);
        if stripes > most {
            let block_bytes = request.bytes.div_ceil(most * code.data_blocks() as u64).next_power_of_two();
            return Err(FileError::TooManyStripes { stripes, most, block_bytes }.into());
        }
        if stripes > 0 {
            let first = layout::extent(&*code, request.bytes, size, 0).size;
            self.place(facts, &*code, first.block_bytes, out)?;
        }
        Ok((code, size, stripes))
    }

    pub(crate) fn commit_put(&mut self, facts: Facts<'_>, put: PutId, reply: Reply<FileView>, out: &mut Out) {
        if let Err(error) = self.check_commit(facts, put) {
            return answer(reply, Err(error), out);
        }
        self.puts.ending.insert(put);
        out.store(Write::Files(FileWrite::CommitPut(put)), PutThen::Committed { put, reply });
    }

    fn check_commit(&self, facts: Facts<'_>, put: PutId) -> Result<(), RequestError> {
        if self.jobs_of(put).next().is_some() || self.puts.is_busy(put) {
            return Err(FileError::PutBusy(put).into());
        }
        facts.check_not_behind()?;
        check_readable(facts, put)?;
        Ok(facts.storing.check_storage()?)
    }

    /// Starts to store a stripe of a put by having the catalog allocate it.
    pub(crate) fn put_stripe(
        &mut self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
        put: PutId,
        position: u32,
        out: &mut Out,
    ) -> Result<(), RequestError> {
        facts.check_not_behind()?;
        facts.storing.check_storage()?;
        let record = facts.stripes.picture.files().put(put)?.clone();
        if self.puts.ending.contains(&put) {
            return Err(PutError::NoSuchPut(put).into());
        }
        let code = facts.stripes.codes.get(&record.code)?;
        let nodes = self.allocation(facts, &record, &*code, position, out)?;
        let size = layout::extent(&*code, record.bytes, record.size(), position.into()).size;
        self.puts.adopt(put, client);
        self.puts.allocating.insert((put, position), nodes.clone());
        if let Some(Requests { opening, .. }) = self.clients.get_mut(&client) {
            opening.insert(tag);
        }
        let write = FileWrite::Allocate { put, position, size, nodes };
        out.store(Write::Files(write), PutThen::Allocated { client, tag, put, position });
        Ok(())
    }

    /// Chooses the nodes of a stripe of a put.
    fn allocation(
        &mut self,
        facts: Facts<'_>,
        put: &PutRecord,
        code: &dyn Code,
        position: u32,
        out: &mut Out,
    ) -> Result<Vec<NodeId>, RequestError> {
        let stripes = layout::stripe_count(code, put.bytes, put.size());
        if u64::from(position) >= stripes {
            let error = store_api::PutError::NoSuchPosition { put: put.id, position, stripes };
            return Err(error.into());
        }
        // Two concurrent writes of the same stripe would mix their blocks.
        let same = |owner: &Owner| match owner {
            Owner::Put { put: other, position: at, .. } => *other == put.id && *at == position,
            _ => false,
        };
        let allocating = self.puts.allocating.contains_key(&(put.id, position));
        if allocating || self.running.values().any(|running| same(&running.owner)) {
            return Err(FileError::StripeBusy { put: put.id, position }.into());
        }
        let size = layout::extent(code, put.bytes, put.size(), position.into()).size;
        self.place(facts, code, size.block_bytes, out)
    }

    /// Chooses the nodes of a new stripe.
    pub(crate) fn place(
        &mut self,
        facts: Facts<'_>,
        code: &dyn Code,
        block_bytes: u64,
        out: &mut Out,
    ) -> Result<Vec<NodeId>, RequestError> {
        let candidates = self.candidates(facts, block_bytes);
        let (usable, needed) = (candidates.len(), code.blocks());
        spread(candidates, [], needed, &mut out.rng).ok_or_else(|| {
            let awaited = unregistered(facts.nodes, facts.base);
            match awaited.is_empty() {
                false => RequestError::Settling { awaited },
                true => RequestError::from(FileError::TooFewHelpers {
                    code: code.spec().to_string(),
                    needed,
                    usable,
                    block_bytes,
                    omitted: Box::new(self.omitted(facts, block_bytes, None, &[])),
                }),
            }
        })
    }
}

impl Jobs {
    /// Returns live helpers with room for a block in addition to the blocks that running jobs will store on
    /// them.
    pub(crate) fn candidates(&self, facts: Facts<'_>, block_bytes: u64) -> Vec<Candidate> {
        let roomy = self.takers(facts).filter(|&(_, bytes)| bytes >= block_bytes).map(|(node, _)| node);
        let domains = |node| Domains::of(&facts.nodes.topology, node);
        roomy.map(|node| Candidate { node, domains: domains(node), used: self.used(facts, node) }).collect()
    }

    /// Returns the helpers that accept new blocks, with the free bytes of each.
    pub(crate) fn takers<'a>(&'a self, facts: Facts<'a>) -> impl Iterator<Item = (NodeId, u64)> + 'a {
        let takers = facts.nodes.live_helpers().filter(move |&node| facts.accepts(node) == Accepts::All);
        takers.map(move |node| (node, self.room_on(facts, node)))
    }

    pub(crate) fn has_room(&self, facts: Facts<'_>, node: NodeId, block_bytes: u64) -> bool {
        self.room_on(facts, node) >= block_bytes
    }

    /// Returns the free bytes of a helper, minus the blocks that running jobs will store on it.
    fn room_on(&self, facts: Facts<'_>, node: NodeId) -> u64 {
        let coming = self.running.values().filter(|running| running.is_target(node));
        let reserved: u64 = coming.map(|running| running.job.stripe().block_bytes()).sum();
        let free = facts.nodes.topology.get(node).map_or(0, |view| view.free_bytes);
        free.saturating_sub(reserved)
    }
}

/// Returns the helpers in mend.toml that may still register, because the coordinator has just started. A helper
/// that has registered since then and is down again is not one of them.
fn unregistered(nodes: &Nodes, base: &Base) -> Vec<String> {
    let Some(helpers) = base.settings.helpers.as_ref().filter(|_| base.now < SETTLE_LIMIT) else {
        return Vec::new();
    };
    let seen = nodes.live_helpers().chain(nodes.registry.gone());
    let seen: BTreeSet<String> = seen.map(|node| nodes.name(node)).collect();
    sorted(helpers.difference(&seen).cloned())
}

impl OpenPuts {
    /// Whether a stripe of the put is being allocated.
    fn is_busy(&self, put: PutId) -> bool {
        self.allocating.range((put, 0)..=(put, u32::MAX)).next().is_some()
    }
}

/// Checks that no stripe of a put has become unreadable since it was stored.
fn check_readable(facts: Facts<'_>, put: PutId) -> Result<(), RequestError> {
    let (picture, name) = (&facts.stripes.picture, &facts.stripes.picture.files().put(put)?.name_of_put);
    let down: BTreeSet<NodeId> =
        facts.nodes.registry.ids().filter(|&node| !facts.nodes.is_connected(node)).collect();
    let mut suspects = picture.pending_on(&down);
    suspects.extend(picture.rotten_pending());
    let found_bad =
        facts.stripes.unrecorded.all_bad().filter_map(|(block, _)| picture.find_block(block).ok());
    let found_bad = found_bad.filter_map(|(stripe, _)| picture.stripe(&stripe).ok());
    let suspects = suspects.into_iter().map(|slot| picture.stripe_in(slot)).chain(found_bad);
    let mut of_put = suspects.filter(|stripe| stripe.file.as_ref().is_some_and(|part| part.put == *name));
    match of_put.find(|stripe| !facts.is_readable(stripe)) {
        Some(StripeRecord { id: stripe, .. }) => {
            let down = sorted(down.into_iter().map(|node| facts.nodes.name(node)));
            Err(FileError::Unreadable { stripe, down }.into())
        }
        None => Ok(()),
    }
}

fn put_view(put: PutId, code: &dyn Code, bytes: u64, size: BlockSize, stripes: u64) -> PutView {
    let stripe = |position| {
        let extent = layout::extent(code, bytes, size, position);
        PutStripe {
            position,
            file_offset: extent.file_offset,
            data_bytes: extent.data_bytes,
            block_bytes: extent.size.block_bytes,
        }
    };
    PutView {
        put: put.0,
        code: code.spec().to_string(),
        blocks: code.blocks(),
        data_blocks: code.data_blocks(),
        sub_blocks: code.sub_blocks(),
        stripes: (0..stripes).map(stripe).collect(),
    }
}

pub(crate) fn file_view(file: &FileRecord) -> FileView {
    FileView {
        name: file.name.clone(),
        bytes: file.bytes,
        code: file.code.to_string(),
        block_bytes: file.block_bytes,
        chunk_bytes: file.chunk_bytes,
        stripes: file.stripes.len() as u64,
        created_unix_ms: file.created_unix_ms,
    }
}
