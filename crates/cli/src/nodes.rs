//! Implements `mend node …` and `mend rebalance`.

use std::path::Path;
use std::time::Duration;

use client::{Client, NodeView, RebalanceRequest, RebalanceView, SafetyView, SettingsRequest};
use cluster::{Cluster, Name, RemoveHelperError};
use serde_json::json;

use crate::answer::Answer;
use crate::args::{NodeAction, RebalanceArgs};
use crate::failure::{Exit, Failure};
use crate::format::{count, date, disk_rate, shown, size, table};
use crate::recoveries;
use crate::repairs::{self, Detail};

/// The maximum number of moves to list.
const MOVES_LISTED: usize = 20;

/// Implements `mend node …`, except `add`, which needs no coordinator.
pub async fn node(
    client: &Client,
    cluster: &Cluster,
    action: NodeAction,
    detail: Detail,
) -> Result<Answer, Failure> {
    match action {
        NodeAction::List => list(client).await,
        NodeAction::Whole(action) => recoveries::node(client, &action, detail).await,
        NodeAction::Add(_) => unreachable!("this does not ask the coordinator"),
        NodeAction::Remove { node } => remove(client, cluster, &node).await,
        NodeAction::Maintenance { node, time: Some(time), .. } => maintain(client, &node, time).await,
        NodeAction::Maintenance { node, .. } => {
            let view = client.end_maintenance(node.as_str()).await?;
            Ok(Answer::new(format!("{node} is no longer in maintenance"), &view))
        }
        NodeAction::OkToStop { args, leave } => {
            Ok(safety(client.ok_to_stop(&texts(&args.nodes), leave).await?))
        }
        NodeAction::SafeToRemove(args) => Ok(safety(client.safe_to_remove(&texts(&args.nodes)).await?)),
        NodeAction::Replace { old, new, no_wait } => {
            let view = client.replace_node(old.as_str(), new.as_str()).await?;
            repairs::await_unless(client, view, no_wait, detail).await
        }
        NodeAction::RepairAfter { after } => repair_after(client, after).await,
    }
}

fn texts(names: &[Name]) -> Vec<String> {
    names.iter().map(|name| name.as_str().to_owned()).collect()
}

async fn list(client: &Client) -> Result<Answer, Failure> {
    let nodes = client.nodes().await?;
    let text = match nodes.iter().any(|node| node.serves.is_some()) {
        true => table(
            [
                "name",
                "helper",
                "server",
                "address",
                "rack",
                ">blocks",
                ">free",
                ">tasks",
                ">in memory",
                ">clients read",
            ],
            nodes.iter().map(|node| {
                let [name, state, rest @ ..] = row(node);
                let [address, rack, blocks, free, tasks, hot, load] = rest;
                [name, state, server(node), address, rack, blocks, free, tasks, hot, load]
            }),
        ),
        false => table(
            ["name", "state", "address", "rack", ">blocks", ">free", ">tasks", ">in memory", ">clients read"],
            nodes.iter().map(row),
        ),
    };
    Ok(Answer::new(text, &nodes))
}

/// Formats the state of the storage system's own process on a node.
fn server(node: &NodeView) -> String {
    match node.serves {
        Some(true) => "serves",
        Some(false) => "DOWN",
        None => "-",
    }
    .to_owned()
}

fn row(node: &NodeView) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let up_or_down = match (node.has_helper, node.up) {
        (_, true) => "up",
        (true, false) => "DOWN",
        (false, false) => "none",
    };
    let state = match node.maintenance_until_unix_ms {
        Some(until) => format!("{up_or_down}, maintenance until {}", date(until)),
        None if node.up && node.leaving => "leaving".to_owned(),
        None => up_or_down.to_owned(),
    };
    [
        node.name.clone(),
        state,
        or_dash(node.address.clone()),
        or_dash(node.rack.clone()),
        node.blocks.to_string(),
        or_dash(node.free_bytes.map(size)),
        or_dash(node.load.tasks.map(|tasks| tasks.to_string())),
        or_dash(node.load.hot_blocks.map(|hot| (hot + node.load.very_hot_blocks.unwrap_or(0)).to_string())),
        or_dash(node.load.user_bytes_per_s.map(disk_rate)),
    ]
}

/// Removes a helper from the coordinator, then from mend.toml. If the coordinator refuses, mend.toml stays as
/// it was.
async fn remove(client: &Client, cluster: &Cluster, node: &Name) -> Result<Answer, Failure> {
    let mut cluster = cluster.clone();
    let view = match client.remove_node(node.as_str()).await {
        Err(error) if error.is_not_found() && cluster.remove_helper(node)? => {
            let path = cluster.config_path();
            let text = format!(
                "removed {node} from {}: it had never registered; its folder and certificate were kept",
                path.display()
            );
            return Ok(Answer::new(text, &json!({ "name": node.as_str(), "registered": false })));
        }
        answer => answer?,
    };
    let path = cluster.config_path();
    let listed = cluster.remove_helper(node).map_err(|error| only_in_config(node, &path, &error))?;
    let text = match listed {
        true => format!("removed {node}, also from {}; its folder and certificate were kept", path.display()),
        false => format!("removed {node}"),
    };
    Ok(Answer::new(text, &view))
}

/// Returns the failure of a removal that the coordinator has carried out, and that `mend.toml` has not.
fn only_in_config(node: &Name, path: &Path, error: &RemoveHelperError) -> Failure {
    Failure::new(format!(
        "the coordinator has removed {node}, but {} still lists it: {error}",
        path.display()
    ))
    .help(format!("run `mend node remove {node}` again when the file can be written"))
}

async fn maintain(client: &Client, node: &Name, time: Duration) -> Result<Answer, Failure> {
    let view = client.maintain(node.as_str(), time.as_millis() as u64).await?;
    let until = view.maintenance_until_unix_ms.map(date).unwrap_or_default();
    let text =
        format!("{node} is in maintenance until {until}: its blocks are not rebuilt elsewhere before then");
    Ok(Answer::new(text, &view))
}

fn safety(view: SafetyView) -> Answer {
    Answer::of(&view, safety_text).with_exit(if view.safe { Exit::Done } else { Exit::Failed })
}

fn safety_text(view: &SafetyView) -> String {
    let mut text = format!("{}\n", view.text);
    if !view.unreadable_stripes.is_empty() {
        text += &format!("stripes: {}\n", view.unreadable_stripes.join(", "));
    }
    view.next_step.iter().for_each(|next| text += &format!("next: {next}\n"));
    text
}

async fn repair_after(client: &Client, after: Option<String>) -> Result<Answer, Failure> {
    let view = match after {
        None => client.settings().await?,
        after => client.change_settings(&SettingsRequest { repair_after: after }).await?,
    };
    let text = match view.repair_after.as_str() {
        "never" => "a lost helper's blocks are rebuilt only on request".to_owned(),
        after => format!("a helper may be down for {after} before its blocks are rebuilt elsewhere"),
    };
    let text = format!("{text} (mend.toml: {})", view.configured_repair_after);
    Ok(Answer::new(text, &view))
}

/// Implements `mend rebalance`.
pub async fn rebalance(client: &Client, args: &RebalanceArgs, detail: Detail) -> Result<Answer, Failure> {
    let view = client.rebalance(RebalanceRequest { dry_run: args.dry_run }).await?;
    let text = shown(&view, |view| rebalance_text(view, args.dry_run));
    match view.repair {
        Some(repair) => {
            let repair = client.await_progress(repair, 0, Duration::ZERO).await?;
            let answer = repairs::await_unless(client, repair, args.no_wait, detail).await?;
            Ok(answer.after(&text, &json!({ "moves": view.moves, "nodes": view.nodes })))
        }
        None => Ok(Answer::new(text, &view)),
    }
}

fn rebalance_text(view: &RebalanceView, dry_run: bool) -> String {
    if view.moves.is_empty() {
        return "all helpers are equally full: nothing to move\n".to_owned();
    }
    let mut text = format!("{} ({}) to move\n", count(view.moves.len() as u64, "block"), size(view.bytes));
    let changed = view.nodes.iter().filter(|node| node.blocks != node.blocks_after);
    let row =
        |node: &client::NodeFill| [node.node.clone(), node.blocks.to_string(), node.blocks_after.to_string()];
    text += &table(["name", ">blocks", ">after"], changed.map(row));
    if dry_run {
        for moved in view.moves.iter().take(MOVES_LISTED) {
            text += &format!("{} from {} to {}\n", moved.block, moved.from, moved.to);
        }
        if view.moves.len() > MOVES_LISTED {
            let more = (view.moves.len() - MOVES_LISTED) as u64;
            text += &format!("and {} more; --output json lists them\n", count(more, "block"));
        }
        text += "dry run: nothing was moved; `mend rebalance` without --dry-run moves them\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_begin_no_line() {
        let forged = "a\nnext: run rm_5".to_owned();
        let answer = safety(SafetyView {
            text: format!("NO  {forged}"),
            unreadable_stripes: vec![forged.clone()],
            next_step: Some(forged),
            ..SafetyView::default()
        });
        let expected = "NO  a\\nnext: run rm_5\nstripes: a\\nnext: run rm_5\nnext: a\\nnext: run rm_5\n";
        assert_eq!(answer.text(), expected);
    }
}
