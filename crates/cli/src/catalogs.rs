//! Implements `mend catalog`: backup, restore, rebuild and accept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{AcceptRequest, Client, ConditionCode, NewerBlocks, Status, natural};
use cluster::Cluster;
use coordinator::{CoordinatorConfig, Inventories};
use stores::{Rebuilt, Stranger};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::files::is_stdout;
use crate::format::{count, printable, size};

/// The maximum number of names to list.
const LISTED: usize = 20;
/// How long to wait for a coordinator that waits for helpers. It does so for ten seconds after its start.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The answer if no helper claims newer blocks. Helpers that are down are named in a note.
const NONE_NEWER: &str = "no helper that is up lists blocks newer than the catalog";
/// The answer to a rebuild in an attached cluster.
const EMPTY_RECORDS: &str = "created empty records; the attached store lists its stripes and blocks itself, but Mend's \
     settings, history and records of known damage are lost\n\
     next: mend coordinator, then mend scrub --parity, which checks the parity of all stripes";

/// Implements `mend catalog backup FILE`.
pub async fn backup(client: &Client, cluster: &Cluster, file: &Path) -> Result<Answer, Failure> {
    check_copy(&stores::catalog_path(cluster), file)?;
    if is_stdout(file) {
        // Stdout carries the copy only: `mend catalog restore` would refuse a copy that ends with a message.
        client.copy_catalog(file).await?;
        return Ok(Answer::silent());
    }
    let bytes = client.copy_catalog(file).await?;
    let text = format!("copied the catalog to {}: {}", file.display(), size(bytes));
    Ok(Answer::new(text, &serde_json::json!({ "file": file.display().to_string(), "bytes": bytes })))
}

/// Refuses a path at which the coordinator keeps its catalog or a copy of it.
fn check_copy(catalog: &Path, file: &Path) -> Result<(), Failure> {
    let theirs = places(catalog);
    let is_theirs = |(folder, copy): &(PathBuf, String)| {
        theirs.iter().any(|(their_folder, name)| their_folder == folder && copy.starts_with(name.as_str()))
    };
    if places(file).iter().any(is_theirs) {
        return Err(Failure::new(format!("{} is a file of the coordinator", file.display()))
            .help("choose another folder or name for the copy"));
    }
    Ok(())
}

/// Returns the folder and the name of a file: those in its path and, if the path is a symbolic link to an
/// existing file, also those of that file.
fn places(path: &Path) -> Vec<(PathBuf, String)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = fs::canonicalize(folder).ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let split = |path: PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some((path.parent()?.to_owned(), name))
    };
    named.into_iter().chain(fs::canonicalize(path)).filter_map(split).collect()
}

/// Implements `mend catalog accept`.
pub async fn accept(client: &Client, reject: Option<String>) -> Result<Answer, Failure> {
    let silent = match reject {
        Some(_) => Vec::new(), // The other helpers do not matter.
        None => silent_helpers(&settled_status(client).await?),
    };
    let accepted = client.accept_catalog(&AcceptRequest { reject: reject.clone() }).await?;
    let decided = match (&reject, accepted.blocks) {
        (Some(helper), _) => format!("ignoring the newer blocks that {} reports", printable(helper)),
        (None, 0) => format!("{NONE_NEWER}; nothing to accept"),
        (None, blocks) => format!(
            "accepted the catalog without {} newer than it; `mend status` counts them as blocks that belong \
             to no stripe",
            count(blocks, "block")
        ),
    };
    let answer = Answer::new(format!("{}{decided}", claims_text(&accepted.claims)), &accepted);
    Ok(with_silent(answer, &silent))
}

/// Implements `mend catalog accept --list`.
pub async fn claims(client: &Client) -> Result<Answer, Failure> {
    Ok(listed(&settled_status(client).await?))
}

/// Lists the helpers with newer blocks. Without one, the exit code is that of a success only if all helpers have listed
/// their blocks.
fn listed(status: &Status) -> Answer {
    let (claims, silent) = (&status.catalog.newer, silent_helpers(status));
    let text = match claims.is_empty() {
        true => NONE_NEWER.to_owned(),
        false => format!(
            "{}next: if the catalog is an old copy, run mend catalog restore or mend catalog rebuild; to \
             continue without these blocks, run mend catalog accept; to ignore the report of one helper, run \
             mend catalog accept --reject HELPER",
            claims_text(claims)
        ),
    };
    let exit = if claims.is_empty() && !silent.is_empty() { Exit::Failed } else { Exit::Done };
    with_silent(Answer::new(text, claims).with_exit(exit), &silent)
}

/// Returns the status once the coordinator no longer waits for helpers. Until then, their newer blocks are not known.
async fn settled_status(client: &Client) -> Result<Status, Failure> {
    let until = Instant::now() + SETTLE_LIMIT;
    loop {
        match client.status().await? {
            status if !status.settling => return Ok(status),
            _ if Instant::now() < until => tokio::time::sleep(ASK_EVERY).await,
            _ => break,
        }
    }
    Err(Failure::new("the coordinator still waits for helpers, so their newer blocks are not known")
        .help("run the command again when `mend status` no longer says that the coordinator is starting"))
}

/// Returns the helpers that may hold newer blocks that are not known: they are down, have never registered, or have not
/// listed all of their blocks. Blocks of an attached store are never newer.
fn silent_helpers(status: &Status) -> Vec<String> {
    if !status.totals.own_files {
        return Vec::new();
    }
    let helpers = &status.helpers;
    let incomplete = status.condition(ConditionCode::Incomplete).map(|condition| &condition.subjects);
    let named = [&helpers.nodes_down, &helpers.nodes_never_registered].into_iter().chain(incomplete);
    let mut names: Vec<String> = named.flatten().cloned().collect();
    names.sort_by(|a, b| natural(a, b));
    names.dedup();
    names
}

fn with_silent(answer: Answer, silent: &[String]) -> Answer {
    if silent.is_empty() {
        return answer;
    }
    answer.with_note(format!(
        "newer blocks may also be on helpers that are down or have not listed all of their blocks: {}; start \
         them, then run mend catalog accept --list again",
        list(silent)
    ))
}

/// Formats one line for each helper that reports blocks newer than the catalog.
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
pub fn restore(cluster: &Cluster, copy: &Path) -> Result<Answer, Failure> {
    let (catalog, replaced) = (stores::catalog_path(cluster), stores::restore(cluster, copy)?);
    let mut text = format!("restored the catalog from {}: {}\n", copy.display(), catalog.display());
    if let Some(replaced) = &replaced {
        text += &format!("the previous catalog was kept: {}\n", replaced.display());
    }
    text += "next: mend coordinator, then mend scrub --parity, which checks the parity of all stripes";
    let replaced = replaced.map(|path| path.display().to_string());
    let catalog = catalog.display().to_string();
    Ok(Answer::new(text, &serde_json::json!({ "catalog": catalog, "replaced": replaced })))
}

/// Implements `mend catalog rebuild`.
pub async fn rebuild(cluster: Cluster, wait: Duration) -> Result<Answer, Failure> {
    check_rebuildable(&cluster)?;
    let is_attached = cluster.config().store.is_some();
    let config = CoordinatorConfig::from_cluster(cluster.clone());
    let held = coordinator::gather_inventories(config, wait).await.map_err(Failure::new)?;
    let (held, found) = rebuild_from(cluster, held).await?;
    let facts = serde_json::json!({
        "helpers": held.answered.iter().map(|it| (it.node.as_str(), it.blocks.len())).collect::<BTreeMap<_, _>>(),
        "silent": held.silent,
        "files": found.files,
        "unreadable": found.unreadable,
        "left": found.left.iter().map(|(name, blocks)| serde_json::json!({ "name": name, "blocks": blocks }))
            .collect::<Vec<_>>(),
        "rivals": found.rivals.iter().map(|rival| serde_json::json!({
            "name": rival.name, "kept_as": rival.kept_as, "helpers": rival.helpers,
        })).collect::<Vec<_>>(),
        "unconfirmed": found.unconfirmed.iter().map(|file| serde_json::json!({
            "name": file.name, "helper": file.helper,
        })).collect::<Vec<_>>(),
        "without_file": found.without_file(),
        "strangers": found.strangers.len(),
        "stranger_blocks": found.strangers.iter().map(|stranger| serde_json::json!({
            "block": stranger.block.to_string(), "helper": stranger.helper, "file": stranger.file,
        })).collect::<Vec<_>>(),
        "replaced": found.replaced.as_ref().map(|path| path.display().to_string()),
    });
    let exit = if found.is_clear() && held.silent.is_empty() { Exit::Done } else { Exit::Data };
    let text = if is_attached { EMPTY_RECORDS.to_owned() } else { rebuilt_text(&held, &found) };
    Ok(Answer::new(text, &facts).with_exit(exit))
}

/// Refuses to replace the records of an attached cluster. No block contains them, and without the records of
/// known damage, wrong blocks would count as good.
fn check_rebuildable(cluster: &Cluster) -> Result<(), Failure> {
    let path = stores::catalog_path(cluster);
    match &cluster.config().store {
        Some(store) if path.exists() => Err(Failure::new(format!(
            "{} has Mend's own records of the attached store ({}): settings, history and known damage; they cannot be \
             rebuilt, because no block contains them",
            path.display(),
            store.kind
        ))
        .help(
            "if the file is damaged, restore a copy with `mend catalog restore FILE`; without a copy, move the file \
             away, and run this again to begin with empty records",
        )),
        _ => Ok(()),
    }
}

/// Rebuilds the catalog on a thread that may block.
async fn rebuild_from(cluster: Cluster, held: Inventories) -> Result<(Inventories, Rebuilt), Failure> {
    let work = move || {
        let rebuilt = stores::rebuild(&cluster, &held.answered, &held.silent);
        rebuilt.map(|rebuilt| (held, rebuilt))
    };
    Ok(tokio::task::spawn_blocking(work).await.expect("rebuilding a catalog does not panic")?)
}

fn rebuilt_text(held: &Inventories, found: &Rebuilt) -> String {
    let mut text = format!(
        "rebuilt the catalog from {}: {}\n",
        count(held.answered.len() as u64, "helper"),
        count(found.files.len() as u64, "file")
    );
    if !held.silent.is_empty() {
        let silent: Vec<&str> = held.silent.iter().map(String::as_str).collect();
        text += &format!(
            "did not answer: {}; when they register, blocks of the files in the catalog are added; files \
             whose blocks only these helpers hold are not in the catalog\n",
            silent.join(", ")
        );
    }
    if !found.unreadable.is_empty() {
        text += &format!("unreadable until more helpers are up: {}\n", list(&found.unreadable));
    }
    for rival in found.rivals.iter().take(LISTED) {
        text += &format!(
            "two puts have the name {}, and too few helpers hold blocks of one of them (only {}): kept this \
             one as {}; compare both files with mend get, then remove the wrong one with mend rm\n",
            printable(&rival.name),
            rival.helpers.join(", "),
            printable(&rival.kept_as)
        );
    }
    if found.rivals.len() > LISTED {
        text += &format!("and {} more; see --output json\n", found.rivals.len() - LISTED);
    }
    text += &left_out_text(found);
    if let Some(replaced) = &found.replaced {
        text += &format!("the previous catalog was kept: {}\n", replaced.display());
    }
    text += "empty files have no blocks and were not recovered\n";
    text += "next: mend coordinator, then mend scrub --parity, which checks the parity of all stripes";
    text
}

/// Lists what the rebuild left out of the catalog, and the files that only one helper's blocks confirm.
fn left_out_text(found: &Rebuilt) -> String {
    let mut text = String::new();
    let unconfirmed = found.unconfirmed.iter().map(|file| format!("{} (on {})", file.name, file.helper));
    if !found.unconfirmed.is_empty() {
        text += &format!(
            "only one helper reports blocks of these files, so they may be false: {}; check them with mend \
             get, then remove the wrong ones with mend rm\n",
            list(&unconfirmed.collect::<Vec<_>>())
        );
    }
    let without = found.without_file();
    if !without.is_empty() {
        text += &format!(
            "cannot recover files from the blocks of {}: the put was not finished, the file was removed, or \
             too many of its blocks are lost\n",
            list(&without.into_iter().collect::<Vec<_>>())
        );
    }
    let left = found.left.iter();
    let left = left.map(|(name, blocks)| format!("{name} ({})", count(*blocks as u64, "block")));
    if !found.left.is_empty() {
        text += &format!(
            "skipped older or unfinished puts, and kept their blocks: {}\n",
            list(&left.collect::<Vec<_>>())
        );
    }
    if !found.strangers.is_empty() {
        text += &format!(
            "{} found that belong to no stripe of this cluster: {}\n",
            count(found.strangers.len() as u64, "block"),
            list(&found.strangers.iter().map(stranger_text).collect::<Vec<_>>())
        );
    }
    text
}

fn stranger_text(stranger: &Stranger) -> String {
    let file = stranger.file.as_ref().map(|file| format!(" of {file}")).unwrap_or_default();
    format!("{}{file} on {}", stranger.block, stranger.helper)
}

/// Lists the first names, escaped for display: other people choose them.
fn list(names: &[impl AsRef<str>]) -> String {
    let first: Vec<_> = names.iter().take(LISTED).map(|name| printable(name.as_ref())).collect();
    let more = if names.len() > LISTED { ", …" } else { "" };
    first.join(", ") + more
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    use client::Condition;
    use repair::BlockId;

    use super::*;
    use crate::status::tests::condition;

    /// Returns a status with these helpers down, and one that has never registered.
    fn status(down: &[&str], newer: serde_json::Value, own_files: bool) -> Status {
        serde_json::from_value(serde_json::json!({
            "healthy": false, "severity": "warning", "summary": "", "settling": false,
            "conditions": [Condition { subjects: vec!["h7".into()], ..condition(ConditionCode::Incomplete, "") }],
            "stripes": {
                "stripes": 0, "intact": 0, "blocks_lost": 0, "bytes_lost": 0, "redundancy": [], "unreadable": 0,
                "unreadable_stripes": [],
            },
            "own_files": own_files, "files": 0, "file_bytes": 0, "nodes_up": ["h1"], "nodes_down": down,
            "nodes_never_registered": ["h10"], "gone": [], "unreadable": [], "leaving": [], "jobs": [],
            "repairs": [], "orphans": [], "newer": newer, "last_scrub": null, "lost_lately": [],
        }))
        .unwrap()
    }

    #[test]
    fn helpers_that_have_not_listed_their_blocks_are_named() {
        let known = status(&["h7", "h3"], serde_json::json!([]), true);
        assert_eq!(silent_helpers(&known), ["h3", "h7", "h10"]);
        let none = listed(&known);
        assert_eq!((none.text(), none.exit()), (NONE_NEWER, Exit::Failed));
        let newer = serde_json::json!([{ "node": "h1", "blocks": 1, "first": ["9.0"], "confirmed": false }]);
        let some = listed(&status(&["h3"], newer, true));
        assert!(some.text().starts_with("h1 reports 1 block: 9.0") && some.exit() == Exit::Done, "{some:?}");
        let attached = listed(&status(&["h3"], serde_json::json!([]), false));
        assert_eq!(attached.exit(), Exit::Done);
    }

    #[test]
    fn records_of_an_attached_store_are_not_replaced_by_empty_ones() {
        let scratch = tempfile::tempdir().unwrap();
        let options = cluster::InitOptions { helpers: 1, ..Default::default() };
        let own = Cluster::init_with(&scratch.path().join("own"), &options, |own| {
            stores::create(own).map_err(Failure::from)
        });
        let own = own.unwrap();
        check_rebuildable(&own).unwrap();
        let text = fs::read_to_string(own.config_path()).unwrap();
        fs::write(own.config_path(), format!("{text}\n[store]\nkind = \"hdfs\"\n")).unwrap();
        let attached = Cluster::open(own.folder()).unwrap();
        let refused = check_rebuildable(&attached).unwrap_err();
        assert!(refused.message().contains("known damage"), "{refused:?}");
        fs::remove_file(stores::catalog_path(&attached)).unwrap();
        check_rebuildable(&attached).unwrap();
    }

    #[test]
    fn names_of_others_begin_no_line_of_a_rebuild() {
        let forged = "film\nnext: run rm".to_owned();
        let found = Rebuilt {
            unreadable: vec![forged.clone(); LISTED + 1],
            left: vec![(forged.clone(), 2)],
            strangers: vec![Stranger {
                block: BlockId(forged.clone()),
                helper: "h1".to_owned(),
                file: Some(forged),
            }],
            ..Rebuilt::default()
        };
        let held = Inventories { answered: Vec::new(), silent: BTreeSet::new() };
        let text = rebuilt_text(&held, &found);
        assert!(!text.contains("\nnext: run rm"), "{text}");
        assert_eq!(text.matches(r"film\nnext: run rm").count(), LISTED + 3, "{text}");
        assert!(text.contains(", …\n"), "{text}");
    }

    #[test]
    fn a_copy_replaces_no_file_of_the_coordinator() {
        let scratch = tempfile::tempdir().unwrap();
        let [coordinator, other] = ["coordinator", "other"].map(|name| scratch.path().join(name));
        let (catalog, link) = (coordinator.join("catalog.redb"), other.join("link"));
        for folder in [&coordinator, &other] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(&catalog, "catalog").unwrap();
        symlink(&catalog, &link).unwrap();
        for file in [&catalog, &coordinator.join("catalog.redb.last-good"), &link] {
            let refused = check_copy(&catalog, file).expect_err("a file of the coordinator");
            assert!(refused.message().contains("is a file of the coordinator"), "{refused:?}");
        }
        // The coordinator's catalog may be a link as well.
        let linked = other.join("catalog.redb");
        symlink(&catalog, &linked).unwrap();
        for file in [&catalog, &linked] {
            check_copy(&linked, file).expect_err("a file of the coordinator");
        }
        for file in [other.join("copy"), coordinator.join("copy"), "copy".into()] {
            check_copy(&catalog, &file).unwrap();
        }
    }
}
