//! Implements `mend catalog`: backup, restore, rebuild and accept.

use std::path::Path;
use std::time::Duration;

use client::{AcceptRequest, Client, NewerBlocks};
use cluster::Cluster;
use coordinator::{CoordinatorConfig, RebuiltCatalog};

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::{count, printable, size};

/// The maximum number of names to list.
const LISTED: usize = 20;

/// Implements `mend catalog backup FILE`.
pub async fn backup(client: &Client, file: &Path) -> Result<Answer, Failure> {
    let bytes = client.copy_catalog(file).await?;
    let text = format!("copied the catalog to {}: {}", file.display(), size(bytes));
    Ok(Answer::new(text, &serde_json::json!({ "file": file, "bytes": bytes })))
}

/// Implements `mend catalog accept`.
pub async fn accept(client: &Client, reject: Option<String>) -> Result<Answer, Failure> {
    let accepted = client.accept_catalog(&AcceptRequest { reject: reject.clone() }).await?;
    let decided = match (&reject, accepted.blocks) {
        (Some(helper), _) => format!("rejected the newer blocks that {} reports", printable(helper)),
        (None, 0) => "no helper holds blocks newer than the catalog; nothing to accept".to_owned(),
        (None, blocks) => format!(
            "accepted the catalog without {} newer than it; `mend status` lists them as blocks that belong to no stripe",
            count(blocks, "block")
        ),
    };
    Ok(Answer::new(format!("{}{decided}", claims_text(&accepted.claims)), &accepted))
}

/// Implements `mend catalog accept --list`.
pub async fn claims(client: &Client) -> Result<Answer, Failure> {
    let claims = client.status().await?.newer;
    let text = match claims.is_empty() {
        true => "no helper holds blocks newer than the catalog".to_owned(),
        false => format!(
            "{}next: mend catalog restore or rebuild if the catalog is an old one; mend catalog accept if nothing is missed; \
             mend catalog accept --reject HELPER if a helper is not to be believed",
            claims_text(&claims)
        ),
    };
    Ok(Answer::new(text, &claims))
}

/// One line for each helper that reports newer blocks.
fn claims_text(claims: &[NewerBlocks]) -> String {
    let line = |claim: &NewerBlocks| {
        let more = if claim.blocks > claim.first.len() as u64 { ", …" } else { "" };
        let others =
            if claim.confirmed { "confirmed by other helpers" } else { "not confirmed by other helpers" };
        let (blocks, first) = (count(claim.blocks, "block"), claim.first.join(", "));
        format!("{} reports {blocks}: {}{more}; {others}\n", printable(&claim.node), printable(&first))
    };
    claims.iter().map(line).collect()
}

/// Implements `mend catalog restore FILE`.
pub fn restore(cluster: Cluster, copy: &Path) -> Result<Answer, Failure> {
    let config = CoordinatorConfig::from_cluster(cluster);
    let replaced = coordinator::restore_catalog(&config, copy)?;
    let mut text = format!("restored the catalog from {}: {}\n", copy.display(), config.catalog.display());
    if let Some(replaced) = &replaced {
        text += &format!("the previous catalog was kept: {}\n", replaced.display());
    }
    text +=
        "next: mend coordinator, then mend scrub --parity, which compares the parity of all stripes at once";
    Ok(Answer::new(text, &serde_json::json!({ "catalog": config.catalog, "replaced": replaced })))
}

/// Implements `mend catalog rebuild`.
pub async fn rebuild(cluster: Cluster, wait: Duration) -> Result<Answer, Failure> {
    let config = CoordinatorConfig::from_cluster(cluster);
    let rebuilt = coordinator::rebuild_catalog(config, wait).await.map_err(Failure::new)?;
    let found = &rebuilt.found;
    let facts = serde_json::json!({
        "helpers": rebuilt.answered,
        "silent": rebuilt.silent,
        "files": found.files,
        "unreadable": found.unreadable,
        "left": found.left.iter().map(|(name, blocks)| serde_json::json!({ "name": name, "blocks": blocks }))
            .collect::<Vec<_>>(),
        "rivals": found.rivals.iter().map(|rival| serde_json::json!({
            "name": rival.name, "kept_as": rival.kept_as, "helpers": rival.helpers,
        })).collect::<Vec<_>>(),
        "strangers": found.strangers,
        "replaced": found.replaced,
    });
    let is_clear = found.unreadable.is_empty() && found.rivals.is_empty();
    let exit = if is_clear { Exit::Done } else { Exit::Data };
    Ok(Answer::new(rebuilt_text(&rebuilt), &facts).with_exit(exit))
}

fn rebuilt_text(rebuilt: &RebuiltCatalog) -> String {
    let found = &rebuilt.found;
    let mut text = format!(
        "rebuilt the catalog from {}: {}\n",
        count(rebuilt.answered.len() as u64, "helper"),
        count(found.files.len() as u64, "file")
    );
    if !rebuilt.silent.is_empty() {
        let silent: Vec<&str> = rebuilt.silent.iter().map(String::as_str).collect();
        text +=
            &format!("did not answer: {}; their blocks are added when they register\n", silent.join(", "));
    }
    if !found.unreadable.is_empty() {
        text += &format!("unreadable until more helpers are up: {}\n", list(&found.unreadable));
    }
    for rival in found.rivals.iter().take(LISTED) {
        text += &format!(
            "another put claims the name {}, and too few helpers hold it (on {}): kept apart as {}; compare them with mend \
             get, then mend rm the wrong one\n",
            printable(&rival.name),
            rival.helpers.join(", "),
            printable(&rival.kept_as)
        );
    }
    if found.rivals.len() > LISTED {
        text += &format!("and {} more; see --output json\n", found.rivals.len() - LISTED);
    }
    let left: Vec<String> = found
        .left
        .iter()
        .map(|(name, blocks)| format!("{name} ({})", count(*blocks as u64, "block")))
        .collect();
    if !left.is_empty() {
        text += &format!("skipped older or unfinished puts, and kept their blocks: {}\n", list(&left));
    }
    if found.strangers > 0 {
        text += &format!(
            "{} found that belong to no stripe of this cluster\n",
            count(found.strangers as u64, "block")
        );
    }
    if let Some(replaced) = &found.replaced {
        text += &format!("the previous catalog was kept: {}\n", replaced.display());
    }
    text += "empty files have no blocks and were not recovered\n";
    text +=
        "next: mend coordinator, then mend scrub --parity, which compares the parity of all stripes at once";
    text
}

fn list(names: &[String]) -> String {
    match names.get(..LISTED) {
        Some(first) if names.len() > LISTED => format!("{}, …", first.join(", ")),
        _ => names.join(", "),
    }
}
