//! `mend compare`: reads of one block as if it was lost, by every scheme, beside a plain read.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Memory, MemorySink, PlanRequestView, ReadRequest, StripeView};
use codes::{BlockIndex, CodeSpec};
use repair::{Scheme, StripeId};
use serde::Serialize;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::CompareArgs;
use crate::blocks::found;
use crate::failure::{Exit, Failure};
use crate::format::{size, table, time};
use crate::plans::PlanCost;
use crate::progress::Bar;

/// What one scheme did.
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

/// A block that is read again and again.
struct Subject {
    client: Client,
    stripe: StripeView,
    index: BlockIndex,
    sub_blocks: u16,
    repeat: u16,
    slice_bytes: Option<u32>,
}

/// What reads of one kind took and gave.
struct Reading {
    median: Duration,
    bytes: Vec<u8>,
    replanned: Vec<String>,
}

/// `mend compare`
pub async fn compare(client: &Client, args: &CompareArgs) -> Result<Answer, Failure> {
    let subject = subject(client, args).await?;
    let schemes = if args.scheme.is_empty() { measured() } else { args.scheme.clone() };
    let reads = (1 + schemes.len() as u64) * u64::from(args.repeat);
    let bar = Bar::new("compare", reads * subject.stripe.block_bytes);
    let plain = subject.read(Scheme::Auto, false, &bar).await?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for scheme in schemes {
        match subject.measure(scheme, &plain, &bar).await {
            Ok(row) => rows.push(row),
            Err(failure) => refused.push((scheme, failure)),
        }
    }
    drop(bar);
    let bytes = subject.stripe.block_bytes;
    let mut text = head(&subject, args.repeat) + &measured_table(&plain, bytes, &rows);
    for (scheme, failure) in refused {
        text += &format!("{scheme}: {}\n", failure.message());
    }
    let exit = if rows.iter().all(|row| row.bytes_agree) { Exit::Done } else { Exit::Data };
    let facts = serde_json::json!({
        "block": args.block, "block_bytes": bytes, "code": subject.stripe.code, "repeat": args.repeat,
        "plain_ms": plain.median.as_secs_f64() * 1e3, "schemes": rows,
    });
    Ok(Answer::new(text, &facts).with_exit(exit))
}

/// All that rebuild; `auto` is one of them, and migration reads what must be there.
fn measured() -> Vec<Scheme> {
    Scheme::ALL.into_iter().filter(|scheme| !matches!(scheme, Scheme::Auto | Scheme::Migration)).collect()
}

async fn subject(client: &Client, args: &CompareArgs) -> Result<Subject, Failure> {
    let place = found(client.block(&args.block).await)?.ok_or_else(|| {
        Failure::new(format!("there is no block `{}`", args.block))
            .help("see a file's stripes and blocks with `mend stat FILE`")
    })?;
    let code: CodeSpec = place.stripe.code.parse().map_err(Failure::new)?;
    Ok(Subject {
        client: client.clone(),
        stripe: place.stripe,
        index: BlockIndex(place.index),
        sub_blocks: code.sub_blocks() as u16,
        repeat: args.repeat,
        slice_bytes: args.slice_size,
    })
}

impl Subject {
    async fn measure(&self, scheme: Scheme, plain: &Reading, bar: &Bar) -> Result<Row, Failure> {
        let request = PlanRequestView {
            stripe: self.stripe.stripe.clone(),
            blocks: vec![self.index.0],
            scheme: Some(scheme.to_string()),
            slice_bytes: self.slice_bytes,
            lost: vec![self.index.0],
            requestor: Some("client".to_owned()),
        };
        let cost = PlanCost::of(&self.client.plan(&request).await?)?;
        let read = self.read(scheme, true, bar).await?;
        Ok(Row {
            scheme: scheme.to_string(),
            time: read.median,
            ratio: read.median.as_secs_f64() / plain.median.as_secs_f64(),
            into_requestor_bytes: cost.into_requestors(),
            busiest_node_bytes: cost.through_busiest(),
            timeslots: cost.timeslots,
            bytes_agree: read.bytes == plain.bytes,
            replanned: read.replanned,
        })
    }

    /// Reads the block as often as asked for.
    async fn read(&self, scheme: Scheme, as_if_lost: bool, bar: &Bar) -> Result<Reading, Failure> {
        let progress = bar.progress();
        let (mut times, mut bytes, mut replanned) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.repeat {
            // One block in memory, and the plain one to compare with.
            drop(std::mem::take(&mut bytes));
            let memory = Memory::new(0, self.stripe.block_bytes as usize);
            let start = Instant::now();
            let sink = Arc::new(MemorySink(memory.clone()));
            let ended = self.client.read(self.request(scheme, as_if_lost), sink).await?;
            times.push(start.elapsed());
            bytes = memory.take();
            replanned.extend(ended.replanned);
            progress(self.stripe.block_bytes);
        }
        times.sort_unstable();
        Ok(Reading { median: times[times.len() / 2], bytes, replanned })
    }

    fn request(&self, scheme: Scheme, as_if_lost: bool) -> ReadRequest {
        ReadRequest {
            stripe: StripeId(self.stripe.stripe.clone()),
            blocks: vec![self.index],
            sub_blocks: None,
            window: 0..self.stripe.block_bytes / u64::from(self.sub_blocks),
            scheme,
            slice_bytes: self.slice_bytes,
            pretend_lost: if as_if_lost { vec![self.index] } else { Vec::new() },
        }
    }
}

fn head(subject: &Subject, repeat: u16) -> String {
    let index = usize::from(subject.index.0);
    let block = subject.stripe.blocks.get(index);
    let name = block.map(|block| block.block.as_str()).unwrap_or_default();
    let state = block.map(|block| block.state.as_str()).unwrap_or_default();
    let note = if state == "healthy" { "" } else { "; it is not there, so the plain read is degraded too" };
    let of = if repeat == 1 { String::new() } else { format!(", median of {repeat}") };
    format!("block {name} of {}, {}{of}{note}\n", subject.stripe.code, size(subject.stripe.block_bytes))
}

fn measured_table(plain: &Reading, block_bytes: u64, rows: &[Row]) -> String {
    let plain_row = [
        "plain read".to_owned(),
        time(plain.median),
        "1.00".to_owned(),
        size(block_bytes),
        size(block_bytes),
        "1.000".to_owned(),
        String::new(),
    ];
    let rows = rows.iter().map(|row| {
        let agree = if row.bytes_agree { "same" } else { "DIFFER" };
        let note = if row.replanned.is_empty() { String::new() } else { ", planned anew".to_owned() };
        [
            row.scheme.clone(),
            time(row.time),
            format!("{:.2}", row.ratio),
            size(row.into_requestor_bytes),
            size(row.busiest_node_bytes),
            format!("{:.3}", row.timeslots),
            format!("{agree}{note}"),
        ]
    });
    let headings =
        ["scheme", ">time", ">to plain", ">into requestor", ">busiest node", ">timeslots", "bytes"];
    table(headings, std::iter::once(plain_row).chain(rows))
}

fn as_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}
