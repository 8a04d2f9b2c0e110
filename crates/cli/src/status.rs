//! `mend status` and `mend helpers`.

use client::{Client, JobKind, NodeView, RepairView, ScrubView, Status};

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::{count, date, printable, size, table};

/// `mend status`
pub async fn status(client: &Client) -> Result<Answer, Failure> {
    let status = client.status().await?;
    let exit = match () {
        () if status.stripes.unreadable > 0 => Exit::Data,
        () if !status.newer.is_empty() => Exit::Failed, // It says STOPPED.
        () => Exit::Done,
    };
    Ok(Answer::new(status_text(&status), &status).with_exit(exit))
}

/// The coordinator's own first line, which answers the question, and what it rests on.
fn status_text(status: &Status) -> String {
    let mut text = format!("{}\n", printable(&status.summary));
    if status.settling {
        text += "the coordinator has just started and still waits for helpers\n";
    }
    text += &format!("{} of {}\n", count(status.files, "file"), size(status.file_bytes));
    text += &redundancy_text(status);
    if status.stripes.blocks_lost > 0 {
        text += &format!(
            "{} not there: {}\n",
            count(status.stripes.blocks_lost, "block"),
            size(status.stripes.bytes_lost)
        );
    }
    if !status.nodes_down.is_empty() {
        text += &format!("helpers down: {}\n", status.nodes_down.join(", "));
    }
    for job in status.jobs.iter().filter(|job| job.kind != JobKind::Repair) {
        text += &format!(
            "{} of stripe {}: {}, {}\n",
            job.kind,
            job.stripe,
            job.scheme,
            job.phase.name().replace('-', " ")
        );
    }
    status.repairs.iter().for_each(|repair| text += &repair_line(repair));
    status.last_scrub.iter().for_each(|scrub| text += &scrub_line(scrub));
    if !status.orphans.is_empty() {
        text += &format!(
            "{} that no stripe knows; see --output json\n",
            count(status.orphans.len() as u64, "block")
        );
    }
    for lost in &status.lost_lately {
        text += &format!(
            "{} found bad on {}: {} ({})\n",
            lost.block,
            lost.node,
            printable(&lost.problem),
            date(lost.at_unix_ms)
        );
    }
    text
}

fn redundancy_text(status: &Status) -> String {
    let stripes = &status.stripes;
    if stripes.stripes == 0 {
        return String::new();
    }
    let row =
        |survives: String, number: u64, degraded: u64| [survives, number.to_string(), degraded.to_string()];
    let unreadable = (stripes.unreadable > 0)
        .then(|| row("UNREADABLE".to_owned(), stripes.unreadable, stripes.unreadable));
    let classes =
        stripes.redundancy.iter().map(|class| row(class.survives.to_string(), class.stripes, class.degraded));
    let mut text = table([">can lose", ">stripes", ">degraded"], unreadable.into_iter().chain(classes));
    if !stripes.unreadable_stripes.is_empty() {
        text += &format!("unreadable stripes: {}\n", stripes.unreadable_stripes.join(", "));
    }
    text
}

fn repair_line(repair: &RepairView) -> String {
    format!(
        "repair {} ({}): {}, {} of {} stripes, {} of {}\n",
        repair.repair,
        repair.target,
        repair.state,
        repair.stripes_done,
        repair.stripes,
        size(repair.bytes_rebuilt),
        size(repair.bytes)
    )
}

fn scrub_line(scrub: &ScrubView) -> String {
    let found = match scrub.findings.len() as u64 {
        0 => "nothing wrong".to_owned(),
        bad => format!("{} bad", count(bad, "block")),
    };
    let when = scrub.ended_unix_ms.map_or_else(|| "running".to_owned(), date);
    format!("last scrub ({when}): {} of {} checked, {found}\n", scrub.checked, count(scrub.blocks, "block"))
}

/// `mend helpers`
pub async fn helpers(client: &Client) -> Result<Answer, Failure> {
    let mut nodes = client.nodes().await?;
    nodes.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name))); // h2 before h10
    let text =
        table(["name", "state", "address", "rack", ">blocks", ">free", ">tasks"], nodes.iter().map(row));
    Ok(Answer::new(text, &nodes))
}

fn row(node: &NodeView) -> [String; 7] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        node.name.clone(),
        if node.up { "up" } else { "DOWN" }.to_owned(),
        or_dash(node.address.clone()),
        or_dash(node.rack.clone()),
        node.blocks.to_string(),
        or_dash(node.free_bytes.map(size)),
        or_dash(node.tasks.map(|tasks| tasks.to_string())),
    ]
}
