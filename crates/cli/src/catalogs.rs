//! `mend catalog`: copies of the catalog, and what to do when it is lost or old.

use std::path::Path;
use std::time::Duration;

use client::Client;
use cluster::Cluster;
use coordinator::{CoordinatorConfig, RebuiltCatalog};

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::count;

/// Names that are listed.
const LISTED: usize = 20;

/// `mend catalog backup FILE`
pub async fn backup(client: &Client, file: &Path) -> Result<Answer, Failure> {
    let bytes = client.copy_catalog(file).await?;
    let text = format!("copied the catalog to {}: {bytes} bytes", file.display());
    Ok(Answer::new(text, &serde_json::json!({ "file": file, "bytes": bytes })))
}

/// `mend catalog accept`
pub async fn accept(client: &Client) -> Result<Answer, Failure> {
    let accepted = client.accept_catalog().await?;
    let text = match accepted.blocks {
        0 => "no helper holds blocks that are newer than the catalog: nothing to decide".to_owned(),
        blocks => format!(
            "going on without {} newer than the catalog; `mend status` lists them as blocks that no stripe knows",
            count(blocks, "block")
        ),
    };
    Ok(Answer::new(text, &accepted))
}

/// `mend catalog restore FILE`
pub fn restore(cluster: Cluster, copy: &Path) -> Result<Answer, Failure> {
    let config = CoordinatorConfig::from_cluster(cluster);
    let replaced = coordinator::restore_catalog(&config, copy)?;
    let mut text = format!("{} is the catalog now: {}\n", copy.display(), config.catalog.display());
    if let Some(replaced) = &replaced {
        text += &format!("the one before is kept: {}\n", replaced.display());
    }
    text += "next: mend coordinator, then mend status";
    Ok(Answer::new(text, &serde_json::json!({ "catalog": config.catalog, "replaced": replaced })))
}

/// `mend catalog rebuild`
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
        "strangers": found.strangers,
        "replaced": found.replaced,
    });
    let exit = if found.unreadable.is_empty() { Exit::Done } else { Exit::Data };
    Ok(Answer::new(rebuilt_text(&rebuilt), &facts).with_exit(exit))
}

fn rebuilt_text(rebuilt: &RebuiltCatalog) -> String {
    let found = &rebuilt.found;
    let mut text = format!(
        "made the catalog anew from {}: {}\n",
        count(rebuilt.answered.len() as u64, "helper"),
        count(found.files.len() as u64, "file")
    );
    if !rebuilt.silent.is_empty() {
        let silent: Vec<&str> = rebuilt.silent.iter().map(String::as_str).collect();
        text +=
            &format!("did not answer: {}; what they hold is found when they register\n", silent.join(", "));
    }
    if !found.unreadable.is_empty() {
        text += &format!("cannot be read until more helpers are back: {}\n", list(&found.unreadable));
    }
    let left: Vec<String> = found
        .left
        .iter()
        .map(|(name, blocks)| format!("{name} ({})", count(*blocks as u64, "block")))
        .collect();
    if !left.is_empty() {
        text += &format!(
            "no files were made of older or unfinished puts, whose blocks stay where they are: {}\n",
            list(&left)
        );
    }
    if found.strangers > 0 {
        text += &format!("{} fit into no stripe of this cluster\n", count(found.strangers as u64, "block"));
    }
    if let Some(replaced) = &found.replaced {
        text += &format!("the catalog before is kept: {}\n", replaced.display());
    }
    text +=
        "files of 0 bytes have no blocks and are not among them\nnext: mend coordinator, then mend status";
    text
}

fn list(names: &[String]) -> String {
    match names.get(..LISTED) {
        Some(first) if names.len() > LISTED => format!("{}, …", first.join(", ")),
        _ => names.join(", "),
    }
}
