//! Implements `mend raid fsck`: the stripes of files with the DataNodes of their blocks.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cluster::Cluster;
use hdfs_raid::{Block, Crowding, Exclusion, Inspector, NodeIndex, Policies, State, StripeHealth, Unit};
use serde_json::{Value, json};
use stores::RaidNameNode;
use stores::raid::Covered;

use super::findings::{Findings, Verdict};
use super::status::{health_facts, note, parity_reason, unit_facts};
use super::{address, policies_or_none};
use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::{count, printable};

#[derive(Debug, Args)]
pub struct RaidFsckArgs {
    /// Folders or files of HDFS
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// A TOML file with policies and additional codecs
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// Implements `mend raid fsck`. `is_detailed` prints all blocks of all stripes.
pub async fn fsck(cluster: &Cluster, args: &RaidFsckArgs, is_detailed: bool) -> Result<Answer, Failure> {
    let policies = policies_or_none(args.policy.as_deref())?;
    let (namenode, covered) = (RaidNameNode::of(cluster)?, Covered::of(cluster)?);
    let mut all = Vec::new();
    for path in &args.paths {
        all.push(Findings::of(&namenode, path, &policies, covered.clone()).await?);
    }
    Ok(answer(&all, &policies, is_detailed))
}

fn answer(all: &[Findings], policies: &Policies, is_detailed: bool) -> Answer {
    let verdict = all.iter().map(Findings::verdict).max().unwrap_or(Verdict::Healthy);
    let exit = match verdict {
        Verdict::Healthy => Exit::Done,
        Verdict::Doubtful => Exit::Failed,
        Verdict::Degraded | Verdict::Unreadable => Exit::Data,
    };
    let (mut texts, mut paths) = (String::new(), Vec::new());
    for findings in all {
        let files = examined(findings, policies);
        texts += &text(findings, &files, is_detailed);
        paths.push(facts(findings, &files));
    }
    Answer::new(texts, &json!({ "verdict": name(verdict), "paths": paths })).with_exit(exit)
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "healthy",
        Verdict::Doubtful => "doubtful",
        Verdict::Degraded => "degraded",
        Verdict::Unreadable => "unreadable",
    }
}

/// A file or folder with its stripes.
struct Examined<'a> {
    findings: &'a Findings,
    unit: &'a Unit,
    stripes: Vec<StripeHealth<'a>>,
    /// The blocks without an intact replica and valid parity, although the parity of a changed folder may protect them:
    /// their files and positions.
    lost: Vec<(&'a str, usize, &'a Block)>,
}

/// Returns all files except parity, which is a part of the stripes of its source.
fn examined<'a>(findings: &'a Findings, policies: &'a Policies) -> Vec<Examined<'a>> {
    let inspector = Inspector::new(&findings.listing, policies);
    let units = findings.survey.units.iter();
    let units = units.filter(|unit| !matches!(unit.state, State::Excluded(Exclusion::Parity(_))));
    let examined = units.map(|unit| {
        let (stripes, lost) = (inspector.stripes(unit), lost(&inspector, unit));
        Examined { findings, unit, stripes, lost }
    });
    examined.collect()
}

fn lost<'a>(inspector: &Inspector<'a>, unit: &Unit) -> Vec<(&'a str, usize, &'a Block)> {
    if unit.health.unprotected + unit.health.still_protected == 0 {
        return Vec::new();
    }
    let files = unit.files.iter().filter_map(|path| inspector.file(path));
    let blocks = files
        .flat_map(|file| file.blocks.iter().enumerate().map(|(at, block)| (file.path.as_str(), at, block)));
    blocks.filter(|(_, _, block)| block.replicas.is_empty()).collect()
}

fn text(findings: &Findings, files: &[Examined<'_>], is_detailed: bool) -> String {
    let mut text: String = files.iter().map(|file| unit_text(file, is_detailed)).collect();
    text += &findings.limits_text(is_detailed);
    let _ = writeln!(
        text,
        "{} is {}: {}",
        printable(&findings.listing.root),
        name(findings.verdict()),
        findings.summary()
    );
    text
}

fn unit_text(examined: &Examined<'_>, is_detailed: bool) -> String {
    let Examined { findings, unit, stripes, lost } = examined;
    let note = note(findings, unit);
    let mut text = format!("{}: {}", printable(&unit.path), unit.state.name());
    if !note.is_empty() {
        let _ = write!(text, " ({})", printable(&note));
    }
    text.push('\n');
    if let Some(protection) = &unit.protection {
        let (path, state) = (&protection.path, protection.state.name());
        let codec = unit.codec.as_deref().unwrap_or_default();
        let why = parity_reason(&protection.state).map_or(String::new(), |why| format!(" ({why})"));
        let parity = format!("parity of codec {codec}: {path}, {state}{why}");
        let _ = writeln!(text, "  {}", printable(&parity));
    }
    let is_whole = is_detailed || unit.path == findings.listing.root;
    for stripe in stripes {
        let is_troubled = stripe.missing > 0 || stripe.crowding.is_some();
        text += &stripe_text(examined, stripe, is_whole || is_troubled);
    }
    for (path, at, block) in lost {
        let _ = writeln!(text, "  block {at} of {} {}", printable(path), block_text(findings, block));
    }
    text
}

fn stripe_text(examined: &Examined<'_>, stripe: &StripeHealth<'_>, is_whole: bool) -> String {
    let blocks = count(stripe.blocks.len() as u64, "block");
    let state = match (stripe.missing, stripe.is_decodable) {
        (0, _) => "all intact".to_owned(),
        (missing, true) => format!("{missing} missing, which can be rebuilt"),
        (missing, false) => format!("{missing} missing, which is more than Mend can rebuild"),
    };
    let crowding = stripe.crowding.map_or(String::new(), |crowding| format!("; {}", crowding_text(crowding)));
    let mut text = format!("  stripe {}: {blocks}, {state}{crowding}\n", stripe.stripe);
    if is_whole {
        for (at, block) in stripe.blocks.iter().enumerate() {
            let place = block_place(examined.unit, stripe, at);
            let _ = writeln!(text, "    {place} {}", block_text(examined.findings, block));
        }
    }
    text
}

fn crowding_text(crowding: Crowding) -> &'static str {
    match crowding {
        Crowding::DataNode => "two blocks on a DataNode",
        Crowding::Rack => "too many blocks in a rack",
    }
}

fn block_place(unit: &Unit, stripe: &StripeHealth<'_>, at: usize) -> String {
    match stripe.members.get(at) {
        Some(member) if unit.files.len() == 1 => format!("block {}", member.block),
        Some(member) => format!("block {} of {}", member.block, printable(&unit.files[member.file])),
        None => format!("parity block {}", at - stripe.members.len()),
    }
}

fn addresses(findings: &Findings, nodes: &[NodeIndex]) -> Vec<String> {
    nodes.iter().map(|&node| address(&findings.listing, node).to_owned()).collect()
}

/// Returns the DataNodes with corrupt replicas of a block that has no intact one.
fn corrupt(findings: &Findings, block: &Block) -> Vec<String> {
    let nodes = findings.listing.corrupt.get(&block.number).map_or(&[][..], Vec::as_slice);
    addresses(findings, nodes)
}

fn block_text(findings: &Findings, block: &Block) -> String {
    let corrupt = corrupt(findings, block);
    let place = match (block.replicas.is_empty(), corrupt.is_empty()) {
        (false, _) => addresses(findings, &block.replicas).join(", "),
        (true, true) => "MISSING".to_owned(),
        (true, false) => format!("CORRUPT on {}", corrupt.join(", ")),
    };
    format!("blk_{}_{}, {} bytes: {place}", block.number, block.stamp, block.bytes)
}

fn facts(findings: &Findings, files: &[Examined<'_>]) -> Value {
    let files: Vec<Value> = files.iter().map(file_facts).collect();
    json!({
        "path": findings.listing.root,
        "verdict": name(findings.verdict()),
        "summary": findings.summary(),
        "files": files,
        "stripes": health_facts(&findings.survey.health()),
        "limits": findings.limits(),
    })
}

fn file_facts(examined: &Examined<'_>) -> Value {
    let mut facts = unit_facts(examined.unit);
    let lost_block = |&(path, at, block): &(&str, usize, &Block)| {
        let mut facts = block_facts(examined.findings, block);
        facts["file"] = json!(path);
        facts["position"] = json!(at);
        facts
    };
    let stripes = examined.stripes.iter().map(|stripe| stripe_facts(examined, stripe));
    facts["is_outside_of_paths"] = json!(examined.findings.is_outside(examined.unit));
    facts["stripes"] = stripes.collect();
    facts["lost_blocks"] = examined.lost.iter().map(lost_block).collect();
    facts
}

fn stripe_facts(examined: &Examined<'_>, stripe: &StripeHealth<'_>) -> Value {
    let block = |(at, block): (usize, &&Block)| {
        let member = stripe.members.get(at);
        let mut facts = block_facts(examined.findings, block);
        facts["file"] = json!(member.map(|member| &examined.unit.files[member.file]));
        facts["position"] = json!(member.map(|member| member.block));
        facts
    };
    json!({
        "stripe": stripe.stripe,
        "missing_blocks": stripe.missing,
        "decodable": stripe.is_decodable,
        "misplaced": stripe.crowding.map(crowding_text),
        "blocks": stripe.blocks.iter().enumerate().map(block).collect::<Vec<_>>(),
    })
}

fn block_facts(findings: &Findings, block: &Block) -> Value {
    json!({
        "block": block.number,
        "stamp": block.stamp,
        "bytes": block.bytes,
        "datanodes": addresses(findings, &block.replicas),
        "corrupt_on": corrupt(findings, block),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raid::doubles::{changed_folder, encoded};

    fn checked(listing: hdfs_raid::Listing) -> (String, Answer) {
        let policies = Policies::none();
        let findings = [Findings::judged(listing, &policies, Covered::new(&["/data"]))];
        let files = examined(&findings[0], &policies);
        (text(&findings[0], &files, true), answer(&findings, &policies, true))
    }

    #[test]
    fn blocks_are_listed_with_their_datanodes() {
        let (text, answer) = checked(encoded(0));
        for expected in [
            "/data/f: raided\n  parity of codec xor: /raid/data/f, unproven",
            "  stripe 0: 3 blocks, all intact\n    block 0 blk_0_1, 1048576 bytes: 10.0.0.0:9866\n",
            "    parity block 0 blk_0_1, 1048576 bytes: 10.0.0.2:9866\n",
            "/ is healthy: 1 encoded file, all healthy\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(answer.exit(), Exit::Done);
        let file = &answer.facts()["paths"][0]["files"][0];
        assert_eq!(file["stripes"][0]["blocks"][1]["datanodes"], json!(["10.0.0.1:9866"]));
        assert_eq!(file["parity"]["state"], "unproven");
    }

    #[test]
    fn names_of_others_begin_no_line() {
        let mut listing = encoded(0);
        listing.snapshots = vec!["/\n/ is healthy".to_owned()];
        let (text, _) = checked(listing);
        assert!(text.contains(r"snapshots of /\n/ is healthy are"), "{text}");
    }

    #[test]
    fn missing_and_corrupt_blocks_are_told_apart() {
        let mut listing = encoded(2);
        listing.corrupt.insert(1, vec![NodeIndex(1)]);
        let (text, answer) = checked(listing);
        for expected in [
            "  stripe 0: 3 blocks, 2 missing, which is more than Mend can rebuild\n",
            "    block 0 blk_0_1, 1048576 bytes: MISSING\n",
            "    block 1 blk_1_1, 1048576 bytes: CORRUPT on 10.0.0.1:9866\n",
            "/ is unreadable: 1 encoded file: 1 unrecoverable stripe\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(answer.exit(), Exit::Data);
        let (text, answer) = checked(encoded(1));
        assert!(text.contains("1 missing, which can be rebuilt"), "{text}");
        assert_eq!((answer.exit(), &answer.facts()["verdict"]), (Exit::Data, &json!("degraded")));
    }

    #[test]
    fn a_file_that_the_coordinator_does_not_repair_is_not_healthy() {
        let mut listing = encoded(0);
        listing.files[0].path = "/other/f".to_owned();
        listing.files[1].path = "/raid/other/f".to_owned();
        let (text, answer) = checked(listing);
        assert!(text.contains("/other/f: raided (outside of `paths` in [store.namenode]"), "{text}");
        assert_eq!((answer.exit(), &answer.facts()["verdict"]), (Exit::Failed, &json!("doubtful")));
    }

    /// For example, parity stays behind if a client without Mend's file system class renames the file.
    #[test]
    fn one_replica_without_parity_is_not_healthy() {
        let mut listing = encoded(0);
        listing.files.truncate(1);
        listing.files[0].replication = 1;
        let (text, answer) = checked(listing);
        assert!(text.contains("1 file with one replica and no valid parity"), "{text}");
        assert_eq!(answer.exit(), Exit::Failed);
    }

    #[test]
    fn a_listing_that_may_lack_files_is_not_healthy() {
        let mut listing = encoded(0);
        let renaming = hdfs_raid::Renaming { from: "/b".to_owned(), to: "/a".to_owned() };
        listing.gaps.renamed.push(renaming);
        let (text, answer) = checked(listing);
        assert!(text.contains("1 path renamed meanwhile"), "{text}");
        assert_eq!(answer.exit(), Exit::Failed);
        let mut listing = encoded(0);
        listing.gaps.unwatched = Some("no such call".to_owned());
        assert_eq!(checked(listing).1.exit(), Exit::Failed);
    }

    /// HDFS has no replica of the block, and Mend rebuilds it from the stripe's other blocks.
    #[test]
    fn a_lost_block_of_a_changed_folder_is_degraded() {
        let (text, answer) = checked(changed_folder(1));
        for expected in [
            "/data: stale-parity (the folder was changed after its parity was made: 1 blocks",
            "; lost blocks that the parity protects: 1)\n",
            "  block 0 of /data/b blk_1_1, 1048576 bytes: MISSING\n",
            "/ is degraded: 0 encoded files: 1 lost block that the parity of a changed folder protects, ",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!((answer.exit(), &answer.facts()["verdict"]), (Exit::Data, &json!("degraded")));
        let file = &answer.facts()["paths"][0]["files"][0];
        assert_eq!(file["lost_blocks"][0]["file"], "/data/b");
        assert_eq!(file["health"]["lost_blocks_of_changed_folders"], 1);
        assert_eq!(checked(changed_folder(0)).1.exit(), Exit::Failed);
    }

    #[test]
    fn lost_blocks_without_valid_parity_are_listed() {
        let mut listing = encoded(1);
        listing.files[0].modified_ms = 9;
        let (text, answer) = checked(listing);
        let lost = "/data/f: unreadable (missing blocks without valid parity: 1)\n";
        assert!(text.contains(lost), "{text}");
        assert!(text.contains("  block 0 of /data/f blk_0_1, 1048576 bytes: MISSING\n"), "{text}");
        assert_eq!(answer.facts()["paths"][0]["files"][0]["lost_blocks"][0]["file"], "/data/f");
        let mut stale = encoded(0);
        stale.files[0].modified_ms = 9;
        assert_eq!(checked(stale).1.exit(), Exit::Failed);
    }
}
