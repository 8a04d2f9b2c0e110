//! Looks up blocks and stripes by name, and implements `mend stat`.

use client::{BlockState, BlockView, Client, ClientError, FileLayout, StripeView};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::format::{block_size, count, date, printable, shown, size, table};

/// The block or stripe that a name on the command line refers to.
pub enum Target {
    /// A block: its index and its stripe.
    Block(u16, StripeView),
    /// A stripe.
    Stripe(StripeView),
}

/// Looks up a block or stripe by name.
pub async fn find(client: &Client, name: &str) -> Result<Target, Failure> {
    look_up(client, name).await?.ok_or_else(|| {
        Failure::new(format!("there is no block or stripe `{}`", printable(name)))
            .help("see a file's stripes and blocks with `mend stat FILE`")
    })
}

/// Like [`find`], but returns `None` if there is no such block or stripe.
async fn look_up(client: &Client, name: &str) -> Result<Option<Target>, Failure> {
    match found(client.block(name).await)? {
        Some(place) => Ok(Some(Target::Block(place.index, place.stripe))),
        None => Ok(found(client.stripe(name).await)?.map(Target::Stripe)),
    }
}

/// Turns a not-found error into `None`.
pub fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, Failure> {
    match result {
        Ok(thing) => Ok(Some(thing)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Implements `mend stat`.
pub async fn stat(client: &Client, name: &str) -> Result<Answer, Failure> {
    if let Some(file) = found(client.file(name).await)? {
        return Ok(Answer::of(&file, file_text));
    }
    match look_up(client, name).await? {
        Some(Target::Stripe(stripe)) => Ok(Answer::of(&stripe, stripe_text)),
        Some(Target::Block(index, stripe)) => {
            let text = shown(&stripe, |stripe| {
                let block = stripe.blocks.iter().find(|block| block.index == index);
                let line = block.map(|block| block_text(block, stripe)).unwrap_or_default();
                format!("{line}{}", stripe_text(stripe))
            });
            Ok(Answer::new(text, &serde_json::json!({ "index": index, "stripe": &stripe })))
        }
        None => Err(Failure::new(format!("there is no file, block or stripe `{}`", printable(name)))
            .help("list the files with `mend ls`")),
    }
}

fn file_text(layout: &FileLayout) -> String {
    let file = &layout.file;
    let mut text = format!(
        "file {}: {} ({} bytes) in {} of {}, put {}\n",
        file.name,
        size(file.bytes),
        file.bytes,
        count(file.stripes, "stripe"),
        file.code,
        date(file.created_unix_ms)
    );
    if layout.layout.is_empty() {
        return text;
    }
    let rows = layout.layout.iter().map(|stripe| {
        [
            stripe.stripe.stripe.clone(),
            stripe.file_offset.to_string(),
            stripe.data_bytes.to_string(),
            block_size(stripe.stripe.block_bytes, stripe.stripe.chunk_bytes),
            health(&stripe.stripe),
            lost(&stripe.stripe),
        ]
    });
    text += &table(["stripe", ">from byte", ">bytes", ">block", "health", "unavailable blocks"], rows);
    text
}

fn stripe_text(stripe: &StripeView) -> String {
    let head = format!(
        "stripe {}: {}, blocks of {}, {}\n",
        stripe.stripe,
        stripe.code,
        block_size(stripe.block_bytes, stripe.chunk_bytes),
        health(stripe)
    );
    let rows = stripe.blocks.iter().map(|block| {
        let digest = block.digest.clone().unwrap_or_default();
        [
            block.block.clone(),
            format!("b{}", block.index),
            block.node.clone().unwrap_or_else(|| "-".to_owned()),
            block.state.to_string(),
            digest,
        ]
    });
    head + &table(["block", "index", "helper", "state", "digest"], rows)
}

fn block_text(block: &BlockView, stripe: &StripeView) -> String {
    format!(
        "block {}: b{} of stripe {}, {}, {}{}\n",
        block.block,
        block.index,
        stripe.stripe,
        size(block.bytes),
        block.state,
        on_holder(block)
    )
}

fn health(stripe: &StripeView) -> String {
    match (stripe.readable, stripe.survives) {
        (false, _) => "UNREADABLE".to_owned(),
        (true, 0) => "cannot lose another block".to_owned(),
        (true, survives) if stripe.helpers < survives => {
            let helpers = count(stripe.helpers.into(), "helper");
            format!("can lose {}, but only {helpers}", count(survives.into(), "more block"))
        }
        (true, survives) => format!("can lose {}", count(survives.into(), "more block")),
    }
}

fn lost(stripe: &StripeView) -> String {
    let lost = stripe.blocks.iter().filter(|block| block.state != BlockState::Healthy);
    lost.map(|block| format!("{} ({}{})", block.block, block.state, on_holder(block)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Formats the helper that holds a block, such as ` on h1`; returns an empty string if no helper holds it.
fn on_holder(block: &BlockView) -> String {
    block.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"))
}
