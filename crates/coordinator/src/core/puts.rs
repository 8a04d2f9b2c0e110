//! Puts: begun and committed over the API, their stripes stored over a client's control connection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::{JobRequest, NodeId, Scheme, Stripe, StripeBlock, Verify, Wanted};
use stores::CatalogError;
use stores::dir::{FileRecord, PutId, PutRecord};

use super::jobs::Owner;
use super::requests::policy;
use super::{Core, log_error};
use crate::error::RequestError;
use crate::layout;
use crate::placement::{Candidate, spread};
use views::{FileView, PutRequest, PutStripe, PutView};

/// A put whose connection ended has this long to be committed or taken up by another one.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);
/// A put of which nothing was stored yet has this long.
const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// More stripes are not listed in one answer; choose larger blocks.
const MAX_STRIPES: u64 = 1 << 20;

/// Puts that were begun.
#[derive(Default)]
pub(super) struct OpenPuts {
    puts: BTreeMap<PutId, OpenPut>,
}

struct OpenPut {
    /// The clients that store its stripes.
    clients: BTreeSet<NodeId>,
    /// Aborted then, unless somebody takes it up.
    until: Option<Duration>,
}

impl Core {
    /// Whoever was putting when the coordinator went down has seen an error.
    pub(super) fn abort_left_puts(&mut self) -> Result<(), CatalogError> {
        for put in self.catalog.puts()? {
            tracing::info!(put = %put.id, name = put.name, "aborting a put that was not finished");
            if let Err(RequestError::Catalog(error)) = self.catalog.abort_put(put.id).map_err(Into::into) {
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn begin_put(&mut self, request: &PutRequest) -> Result<PutView, RequestError> {
        self.check_not_behind()?;
        let spec: CodeSpec = request.code.as_ref().unwrap_or(&self.settings.code).parse()?;
        let code = self.codes.get(&spec)?;
        let block_bytes = request.block_bytes.unwrap_or(self.settings.block_bytes);
        layout::check_block_bytes(&*code, block_bytes).map_err(|bad| RequestError::BlockBytes {
            asked: block_bytes,
            unit: bad.unit,
            below: bad.below,
            above: bad.above,
        })?;
        let stripes = layout::stripe_count(&*code, request.bytes, block_bytes);
        if stripes > MAX_STRIPES {
            let text = format!("{stripes} stripes are more than {MAX_STRIPES}: choose larger blocks");
            return Err(RequestError::Malformed(text));
        }
        if stripes > 0 {
            let first = layout::extent(&*code, request.bytes, block_bytes, 0).block_bytes;
            self.place(&*code, first)?;
        }
        let put = self.catalog.begin_put(&request.name, request.bytes, spec, block_bytes, request.replace)?;
        let until = Some(self.now + IDLE_LIMIT);
        self.puts.puts.insert(put, OpenPut { clients: BTreeSet::new(), until });
        Ok(put_view(put, &*code, request.bytes, block_bytes, stripes))
    }

    pub(super) fn commit_put(&mut self, put: PutId) -> Result<FileView, RequestError> {
        if self.jobs_of(put).next().is_some() {
            return Err(RequestError::PutBusy(put));
        }
        self.check_not_behind()?;
        let file = self.catalog.commit_put(put)?;
        self.puts.puts.remove(&put);
        self.remove_everywhere(); // A file that it replaced.
        Ok(file_view(&file))
    }

    pub(super) fn abort_put(&mut self, put: PutId) -> Result<(), RequestError> {
        for job in self.jobs_of(put).collect::<Vec<_>>() {
            self.cancel_job(job);
        }
        self.drain_jobs();
        self.puts.puts.remove(&put);
        self.catalog.abort_put(put)?;
        self.remove_everywhere();
        Ok(())
    }

    fn jobs_of(&self, put: PutId) -> impl Iterator<Item = repair::JobId> + '_ {
        let of_put = move |owner: &Owner| matches!(owner, Owner::Put { put: other, .. } if *other == put);
        self.jobs.iter().filter(move |(_, running)| of_put(&running.owner)).map(|(&job, _)| job)
    }

    /// A client has gone: what it put is aborted soon, unless it is committed or taken up.
    pub(super) fn orphan_puts(&mut self, client: NodeId) {
        for put in self.puts.puts.values_mut() {
            if put.clients.remove(&client) && put.clients.is_empty() {
                put.until = Some(self.now + ORPHAN_LIMIT);
            }
        }
    }

    pub(super) fn abort_idle_puts(&mut self) {
        let now = self.now;
        let idle = self.puts.puts.iter().filter(|(_, put)| put.until.is_some_and(|until| until <= now));
        for put in idle.map(|(&put, _)| put).collect::<Vec<_>>() {
            tracing::info!(%put, "aborting a put that nobody goes on with");
            if let Err(error) = self.abort_put(put) {
                tracing::error!(%put, %error, "cannot abort a put");
            }
        }
    }

    /// Stores a stripe of a put from the client's data.
    pub(super) fn put_stripe(
        &mut self,
        client: NodeId,
        tag: u64,
        put: PutId,
        position: u32,
    ) -> Result<(), RequestError> {
        self.check_not_behind()?;
        let record = self.catalog.put(put)?;
        let code = self.codes.get(&record.code)?;
        let nodes = self.allocation(&record, &*code, position)?;
        let block_bytes =
            layout::extent(&*code, record.bytes, record.block_bytes, position.into()).block_bytes;
        let allocated = self.catalog.allocate_stripe(put, position, block_bytes, &nodes)?;
        let data_blocks = code.data_blocks();
        let holder = |index: usize| (index < data_blocks).then_some(client);
        let blocks = allocated.blocks.iter().enumerate().map(|(index, block)| StripeBlock {
            id: block.id.clone(),
            bytes: block.bytes,
            holder: holder(index),
            digest: None,
        });
        let (id, blocks, label) = (allocated.id.clone(), blocks.collect(), self.catalog.label(&allocated));
        let stripe = Stripe { id, blocks, code, block_bytes, label };
        let wanted = (0..).map(BlockIndex).zip(&nodes);
        let request = JobRequest {
            job: self.catalog.next_job_id()?,
            window: 0..stripe.sub_block_bytes(),
            stripe,
            wanted: wanted.map(|(block, &requestor)| Wanted { block, requestor }).collect(),
            sub_blocks: None,
            // Everything starts at the client, so there is nothing to choose from.
            policy: policy(Scheme::Conventional, None),
            verify: Verify::default(),
            publish: true,
            tag: Some(tag),
        };
        self.adopt_put(put, client);
        self.start_request(client, tag, Owner::Put { client, tag, put, position }, request);
        Ok(())
    }

    fn adopt_put(&mut self, put: PutId, client: NodeId) {
        if let Some(open) = self.puts.puts.get_mut(&put) {
            open.clients.insert(client);
            open.until = None;
        }
    }

    /// Chooses the nodes of a stripe of a put.
    fn allocation(
        &mut self,
        put: &PutRecord,
        code: &dyn Code,
        position: u32,
    ) -> Result<Vec<NodeId>, RequestError> {
        let stripes = layout::stripe_count(code, put.bytes, put.block_bytes);
        if u64::from(position) >= stripes {
            let error = stores::dir::PutError::NoSuchPosition { put: put.id, position, stripes };
            return Err(error.into());
        }
        // The same stripe twice at once would mix two stores of it.
        let same = |owner: &Owner| match owner {
            Owner::Put { put: other, position: at, .. } => *other == put.id && *at == position,
            _ => false,
        };
        if self.jobs.values().any(|running| same(&running.owner)) {
            return Err(RequestError::StripeBusy { put: put.id, position });
        }
        let block_bytes = layout::extent(code, put.bytes, put.block_bytes, position.into()).block_bytes;
        self.place(code, block_bytes)
    }

    /// Chooses nodes for a new stripe.
    fn place(&mut self, code: &dyn Code, block_bytes: u64) -> Result<Vec<NodeId>, RequestError> {
        let candidates = self.candidates(block_bytes);
        let (usable, needed) = (candidates.len(), code.blocks());
        spread(candidates, BTreeMap::new(), needed, &mut self.rng).ok_or_else(|| {
            RequestError::TooFewHelpers {
                code: code.spec().to_string(),
                needed,
                usable,
                block_bytes,
                full: self.full_helpers(block_bytes),
                down: self.down_helpers(),
            }
        })
    }

    /// Live helpers with room for a block, beside what is on its way to them.
    pub(super) fn candidates(&self, block_bytes: u64) -> Vec<Candidate> {
        let roomy = self.live_helpers().filter(|&node| self.has_room(node, block_bytes));
        let rack = |node| self.topology.get(node).and_then(|view| view.rack.clone());
        roomy.map(|node| Candidate { node, rack: rack(node), used: self.used(node) }).collect()
    }

    fn has_room(&self, node: NodeId, block_bytes: u64) -> bool {
        let coming = self.jobs.values().filter(|running| running.targets.contains(&node));
        let reserved: u64 = coming.map(|running| running.job.stripe().block_bytes).sum();
        let free = self.topology.get(node).map_or(0, |view| view.free_bytes);
        free >= block_bytes.saturating_add(reserved)
    }

    fn full_helpers(&self, block_bytes: u64) -> Vec<String> {
        let full = self.live_helpers().filter(|&node| !self.has_room(node, block_bytes));
        full.map(|node| self.name(node)).collect()
    }

    pub(super) fn file_views(&self, prefix: &str) -> Result<Vec<FileView>, RequestError> {
        Ok(self.catalog.files(prefix)?.iter().map(file_view).collect())
    }

    pub(super) fn remove_file(&mut self, name: &str) -> Result<FileView, RequestError> {
        self.check_not_behind()?;
        let removed = self.catalog.remove_file(name)?;
        let file = removed.ok_or_else(|| RequestError::NoSuchFile(name.to_owned()))?;
        self.drop_repairs_of(&file.stripes);
        self.remove_everywhere();
        Ok(file_view(&file))
    }

    /// Number of files, and their bytes.
    pub(super) fn files_in_all(&self) -> (u64, u64) {
        let files = log_error(self.catalog.files("")).unwrap_or_default();
        (files.len() as u64, files.iter().map(|file| file.bytes).sum())
    }
}

fn put_view(put: PutId, code: &dyn Code, bytes: u64, block_bytes: u64, stripes: u64) -> PutView {
    let stripe = |position| {
        let extent = layout::extent(code, bytes, block_bytes, position);
        PutStripe {
            position,
            file_offset: extent.file_offset,
            data_bytes: extent.data_bytes,
            block_bytes: extent.block_bytes,
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

pub(super) fn file_view(file: &FileRecord) -> FileView {
    FileView {
        name: file.name.clone(),
        bytes: file.bytes,
        code: file.code.to_string(),
        block_bytes: file.block_bytes,
        stripes: file.stripes.len() as u64,
        created_unix_ms: file.created_unix_ms,
    }
}
