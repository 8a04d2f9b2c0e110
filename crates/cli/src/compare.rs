//! Implements `mend compare`: times degraded reads of one block with every scheme against a direct read.

use std::sync::Arc;
use std::time::Duration;

use client::{BlockState, Client, FileLayout, Memory, MemorySink, PlanRequestView, ReadRequest, StripeView};
use codes::{BlockIndex, CodeSpec};
use repair::{Scheme, StripeId};
use serde::Serialize;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::CompareArgs;
use crate::blocks::{Target, find, found};
use crate::failure::{Exit, Failure};
use crate::format::{printable, size, table, time};
use crate::plans::cost;
use crate::progress::Bar;

/// The measurements of one scheme.
#[derive(Debug, Serialize)]
struct Row {
    scheme: String,
    #[serde(rename = "time_ms", serialize_with = "as_ms")]
    time: Duration,
    ratio: f64,
    into_requestor_bytes: u64,
    busiest_node_bytes: u64,
    timeslots: f64,
    bytes_agree: bool,
    replanned: Vec<String>,
}

/// The block to measure, and the settings of the measurement.
struct Subject {
    client: Client,
    stripe: StripeView,
    /// The block that degraded reads treat as lost.
    index: BlockIndex,
    /// The healthy block to read directly: the block at `index`, or another one if that block is lost.
    plain: BlockIndex,
    sub_blocks: u16,
    repeat: u16,
    slice_bytes: Option<u32>,
}

/// The result of repeated reads with one scheme.
struct Reading {
    median: Duration,
    bytes: Vec<u8>,
    replanned: Vec<String>,
}

/// Implements `mend compare`.
pub async fn compare(client: &Client, args: &CompareArgs) -> Result<Answer, Failure> {
    let subject = subject(client, args).await?;
    let schemes = if args.scheme.is_empty() { measured() } else { args.scheme.clone() };
    let reads = (1 + schemes.len() as u64) * u64::from(args.repeat);
    let bar = Bar::new("compare", reads * subject.stripe.block_bytes);
    let plain = subject.read_plain(&bar).await?;
    let mut reference = subject.is_there().then(|| plain.bytes.clone());
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for scheme in schemes {
        match subject.measure(scheme, plain.median, &mut reference, &bar).await {
            Ok(row) => rows.push(row),
            Err(failure) => refused.push((scheme, failure)),
        }
    }
    drop(bar);
    if rows.is_empty()
        && let Some((_, failure)) = refused.pop()
    {
        return Err(failure); // Every scheme failed: report the last error.
    }
    let mut text = subject.head() + &measured_table(plain.median, subject.stripe.block_bytes, &rows);
    for (scheme, failure) in &refused {
        text += &format!("{scheme}: {}\n", printable(failure.message()));
    }
    let exit = if rows.iter().all(|row| row.bytes_agree) { Exit::Done } else { Exit::Data };
    Ok(Answer::new(text, &subject.facts(plain.median, &rows, &refused)).with_exit(exit))
}

/// Returns every scheme that rebuilds a block. Leaves out `auto`, which would repeat one of the others, and
/// migration, which copies the block itself.
fn measured() -> Vec<Scheme> {
    Scheme::ALL.into_iter().filter(|scheme| !matches!(scheme, Scheme::Auto | Scheme::Migration)).collect()
}

async fn subject(client: &Client, args: &CompareArgs) -> Result<Subject, Failure> {
    let (stripe, index) = chosen(client, &args.target).await?;
    let code: CodeSpec = stripe.code.parse().map_err(Failure::new)?;
    let is_there = |index: u16| {
        stripe.blocks.iter().any(|block| block.index == index && block.state == BlockState::Healthy)
    };
    let plain =
        if is_there(index) { Some(index) } else { (0..code.blocks() as u16).find(|&other| is_there(other)) };
    let plain = plain.ok_or_else(|| {
        Failure::new(format!("stripe {} has no healthy block", printable(&stripe.stripe))).exit(Exit::Data)
    })?;
    Ok(Subject {
        client: client.clone(),
        stripe,
        index: BlockIndex(index),
        plain: BlockIndex(plain),
        sub_blocks: code.sub_blocks() as u16,
        repeat: args.repeat,
        slice_bytes: args.slice_size,
    })
}

/// Picks the block whose degraded reads are measured, and returns its stripe and its index. A degraded read
/// of a healthy block treats the block as lost, which is possible only if the stripe can lose another block.
/// So if the target is a file or a stripe, a block that is already lost is preferred.
async fn chosen(client: &Client, target: &str) -> Result<(StripeView, u16), Failure> {
    let stripe = match found(client.file(target).await)? {
        Some(file) => stripe_of(target, file)?,
        None => match find(client, target).await? {
            Target::Block(index, stripe) => {
                check_spare(&stripe, index)?;
                return Ok((stripe, index));
            }
            Target::Stripe(stripe) => stripe,
        },
    };
    let index = lost_block(&stripe).unwrap_or(0);
    Ok((stripe, index))
}

/// Picks a readable stripe of the file, preferably one with a lost block.
fn stripe_of(name: &str, file: FileLayout) -> Result<StripeView, Failure> {
    let mut stripes: Vec<StripeView> = file.layout.into_iter().map(|stripe| stripe.stripe).collect();
    stripes.retain(|stripe| stripe.readable);
    let at = stripes.iter().position(|stripe| lost_block(stripe).is_some()).unwrap_or(0);
    if stripes.is_empty() {
        return Err(Failure::new(format!(
            "`{}` has no stripe that can be read, so there is nothing to compare",
            printable(name)
        )));
    }
    Ok(stripes.swap_remove(at))
}

fn lost_block(stripe: &StripeView) -> Option<u16> {
    stripe.blocks.iter().find(|block| block.state != BlockState::Healthy).map(|block| block.index)
}

fn check_spare(stripe: &StripeView, index: u16) -> Result<(), Failure> {
    match lost_block(stripe) {
        Some(lost)
            if stripe.survives == 0
                && stripe.blocks.iter().any(|b| b.index == index && b.state == BlockState::Healthy) =>
        {
            let lost = stripe.blocks.iter().find(|block| block.index == lost);
            let name = printable(lost.map(|block| block.block.as_str()).unwrap_or_default());
            let text = format!(
                "stripe {} cannot lose another block, so b{index} cannot be treated as lost",
                printable(&stripe.stripe)
            );
            Err(Failure::new(text).help(format!("measure a lost block instead: mend compare {name}")))
        }
        _ => Ok(()),
    }
}

impl Subject {
    fn is_there(&self) -> bool {
        self.plain == self.index
    }

    /// Measures one scheme, and compares the bytes read with `reference`. If `reference` is `None`, the bytes
    /// read are stored in it.
    async fn measure(
        &self,
        scheme: Scheme,
        plain: Duration,
        reference: &mut Option<Vec<u8>>,
        bar: &Bar,
    ) -> Result<Row, Failure> {
        let request = PlanRequestView {
            stripe: self.stripe.stripe.clone(),
            blocks: vec![self.index.0],
            scheme: Some(scheme.to_string()),
            slice_bytes: self.slice_bytes,
            lost: vec![self.index.0],
            requestor: Some("client".to_owned()),
        };
        let cost = cost(&self.client.plan(&request).await?)?;
        let read = self.read(self.request(scheme, self.index, true), bar).await?;
        Ok(Row {
            scheme: scheme.to_string(),
            time: read.median,
            ratio: read.median.as_secs_f64() / plain.as_secs_f64(),
            into_requestor_bytes: cost.requestors_receive(),
            busiest_node_bytes: cost.through_busiest(),
            timeslots: cost.timeslots,
            bytes_agree: *reference.get_or_insert_with(|| read.bytes.clone()) == read.bytes,
            replanned: read.replanned,
        })
    }

    async fn read_plain(&self, bar: &Bar) -> Result<Reading, Failure> {
        self.read(self.request(Scheme::Auto, self.plain, false), bar).await
    }

    /// Reads the block `repeat` times.
    async fn read(&self, request: ReadRequest, bar: &Bar) -> Result<Reading, Failure> {
        let progress = bar.progress();
        let (mut times, mut bytes, mut replanned) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.repeat {
            // Free the previous result first, so that memory holds two blocks at most: the one being read and
            // the reference.
            drop(std::mem::take(&mut bytes));
            let memory = Memory::new(0, self.stripe.block_bytes as usize);
            let start = Instant::now();
            let sink = Arc::new(MemorySink(memory.clone()));
            let ended = self.client.read(request.clone(), sink).await?;
            times.push(start.elapsed());
            bytes = memory.take();
            replanned.extend(ended.replanned);
            progress(self.stripe.block_bytes);
        }
        times.sort_unstable();
        Ok(Reading { median: times[times.len() / 2], bytes, replanned })
    }

    fn request(&self, scheme: Scheme, block: BlockIndex, as_if_lost: bool) -> ReadRequest {
        ReadRequest {
            stripe: StripeId(self.stripe.stripe.clone()),
            blocks: vec![block],
            sub_blocks: None,
            window: 0..self.stripe.block_bytes / u64::from(self.sub_blocks),
            scheme,
            slice_bytes: self.slice_bytes,
            pacing: None,
            verify: false,
            pretend_lost: if as_if_lost { vec![block] } else { Vec::new() },
            expected: Vec::new(),
        }
    }

    fn name_of(&self, index: BlockIndex) -> &str {
        let block = self.stripe.blocks.iter().find(|block| block.index == index.0);
        block.map(|block| block.block.as_str()).unwrap_or_default()
    }

    fn head(&self) -> String {
        let (name, size) = (self.name_of(self.index), size(self.stripe.block_bytes));
        let median = if self.repeat == 1 { String::new() } else { format!(", median of {}", self.repeat) };
        let how = match self.is_there() {
            true => "read as if lost".to_owned(),
            false => format!("lost (the direct read is of {})", self.name_of(self.plain)),
        };
        let line = format!("block {name} of {}, {size}, {how}{median}", self.stripe.code);
        format!("{}\n", printable(&line))
    }

    fn facts(&self, plain: Duration, rows: &[Row], refused: &[(Scheme, Failure)]) -> serde_json::Value {
        let refused: Vec<_> = refused
            .iter()
            .map(|(scheme, failure)| {
                serde_json::json!({ "scheme": scheme.to_string(), "error": failure.message() })
            })
            .collect();
        serde_json::json!({
            "block": self.name_of(self.index),
            "plain_block": self.name_of(self.plain),
            "block_bytes": self.stripe.block_bytes,
            "code": self.stripe.code,
            "repeat": self.repeat,
            "plain_ms": plain.as_secs_f64() * 1e3,
            "schemes": rows,
            "refused": refused,
        })
    }
}

fn measured_table(plain: Duration, block_bytes: u64, rows: &[Row]) -> String {
    let plain_row = [
        "direct read".to_owned(),
        time(plain),
        "1.00".to_owned(),
        size(block_bytes),
        size(block_bytes),
        "1.000".to_owned(),
        String::new(),
    ];
    let headings =
        ["scheme", ">time", ">to direct", ">into requestor", ">busiest node", ">timeslots", "bytes"];
    table(headings, std::iter::once(plain_row).chain(rows.iter().map(Row::cells)))
}

impl Row {
    fn cells(&self) -> [String; 7] {
        let agree = if self.bytes_agree { "same" } else { "DIFFER" };
        let note = if self.replanned.is_empty() { "" } else { ", replanned" };
        [
            self.scheme.clone(),
            time(self.time),
            format!("{:.2}", self.ratio),
            size(self.into_requestor_bytes),
            size(self.busiest_node_bytes),
            format!("{:.3}", self.timeslots),
            format!("{agree}{note}"),
        ]
    }
}

fn as_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}
