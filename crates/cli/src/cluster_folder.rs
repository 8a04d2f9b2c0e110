//! Verbs that work on the cluster folder: `init`, `node add`, `issue`, `renew`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cluster::{Cluster, Config, HelperConfig, InitOptions, IssueError, Name, RepairAfter, Role};

use crate::answer::Answer;
use crate::args::{AddNodeArgs, InitArgs, IssueArgs, RenewArgs, RoleKind};
use crate::failure::{Exit, Failure};
use crate::format::{count, lasting};

/// Implements `mend init`.
pub fn init(folder: Option<PathBuf>, args: &InitArgs) -> Result<Answer, Failure> {
    let folder = args.dir.clone().or(folder).unwrap_or_else(|| "mend-cluster".into());
    let options = InitOptions {
        repair_after: RepairAfter::default(),
        helpers: args.helpers,
        listen_host: args.listen,
        advertise: args.advertise.clone(),
        api_port: args.coordinator_port,
        control_port: args.coordinator_port + 1,
        first_helper_port: args.base_port,
        code: args.code.to_string(),
        block_bytes: args.block_size,
        scheme: args.scheme.to_string(),
        data_tls: args.data_tls,
    };
    let create = |cluster: &Cluster| stores::create(cluster).map_err(Failure::from);
    let cluster = Cluster::init_with(&folder, &options, create)?;
    let facts = serde_json::json!({
        "folder": cluster.folder().display().to_string(),
        "cluster_id": cluster.config().cluster_id,
        "code": options.code,
        "block_bytes": options.block_bytes.bytes(),
        "scheme": options.scheme,
        "data_tls": cluster.config().encrypts_data_edges(),
        "api": cluster.config().coordinator.dial_api(),
        "helpers": cluster.config().helpers.iter().map(|helper| helper.name.as_str()).collect::<Vec<_>>(),
    });
    Ok(Answer::new(init_text(&cluster, args), &facts))
}

fn init_text(cluster: &Cluster, args: &InitArgs) -> String {
    let folder = cluster.folder().display();
    let mut text = format!(
        "created a cluster of {} helpers in {folder}: {}, blocks of {}\n",
        args.helpers, args.code, args.block_size
    );
    text += &format!("data edges: {}\n", edges_text(cluster.config()));
    let needed = args.code.blocks();
    if usize::from(args.helpers) < needed {
        text += &format!(
            "note: {} needs {needed} helpers; add more with `mend node add`, or store files with a smaller \
             --code\n",
            args.code
        );
    }
    text += &format!("next: export MEND_CLUSTER={folder}\n      mend coordinator &\n");
    match args.helpers {
        0 => text += "      mend node add NAME --listen IP:PORT",
        helpers => text += &format!("      for i in $(seq {helpers}); do mend helper h$i & done"),
    }
    text
}

/// Describes whether data edges are encrypted, and why.
fn edges_text(config: &Config) -> &'static str {
    match (config.data_tls, config.encrypts_data_edges()) {
        (Some(true), _) => "encrypted (data_tls = true in mend.toml)",
        (Some(false), _) => "not encrypted (data_tls = false in mend.toml)",
        (None, true) => {
            "encrypted, because helpers listen on addresses other than loopback (data_tls = false in \
             mend.toml turns encryption off)"
        }
        (None, false) => {
            "not encrypted, because all helpers listen on loopback (data_tls = true in mend.toml turns \
             encryption on)"
        }
    }
}

/// Implements `mend node add`.
pub fn add_helper(mut cluster: Cluster, args: AddNodeArgs) -> Result<Answer, Failure> {
    let mut helper = HelperConfig::new(args.name.clone(), args.listen);
    helper.advertise = args.advertise;
    helper.blocks = args.blocks;
    helper.rack = args.rack;
    helper.bandwidth = args.bandwidth;
    cluster.add_helper(helper)?;
    let name = args.name;
    let store = cluster.config().store.as_ref().map(|store| store.kind.as_str());
    let next = next_steps(&name, cluster.folder(), store);
    let text = format!("added helper {name} to {}\nnext: {next}", cluster.config_path().display());
    Ok(Answer::new(text, &serde_json::json!({ "helper": name, "listen": args.listen })))
}

/// Returns the next steps after a helper was added. If the cluster is attached to a store of this kind, the coordinator
/// reads the helpers' servers only at its start.
fn next_steps(name: &Name, folder: &Path, store: Option<&str>) -> String {
    let start = format!(
        "mend helper {name} &\n      (on another machine: copy mend.toml, ca/ca.pem and helpers/{name} of {} there \
         first)",
        folder.display()
    );
    match store {
        None => start,
        Some(kind) => format!(
            "add the keys of its {kind} server to the section of {name} (docs/reference/configuration.md), and \
             restart the coordinator\n      {start}"
        ),
    }
}

/// Implements `mend issue`.
pub fn issue(cluster: &Cluster, args: &IssueArgs) -> Result<Answer, Failure> {
    let name = || args.name.clone().ok_or_else(|| Failure::new("the member's name is missing"));
    let role = match args.role {
        RoleKind::Coordinator => Role::Coordinator,
        RoleKind::Client => Role::Client(name()?),
        RoleKind::Operator => Role::Operator(name()?),
        RoleKind::Admin => Role::Admin(name()?),
        RoleKind::Plugin => Role::Plugin(name()?),
        RoleKind::Monitor => Role::Monitor(name()?),
        RoleKind::Helper => {
            let name = name()?;
            if cluster.config().helper(&name).is_none() {
                return Err(Failure::new(format!("there is no helper {name}"))
                    .help(format!("add it with `mend node add {name} --listen IP:PORT`")));
            }
            Role::Helper(name)
        }
    };
    cluster.issue_for(&role, args.valid_for)?;
    let certificate = cluster.certificate(&role);
    let mut text = format!("created a certificate for {role}: {}", certificate.display());
    if let Role::Client(name) | Role::Operator(name) | Role::Admin(name) = &role {
        text += &format!("\nnext: mend --as {name} status, or export MEND_AS={name}");
    }
    if let Role::Monitor(_) = &role {
        text += "\nnext: let Prometheus scrape /metrics of the API with it (docs/reference/metrics.md)";
    }
    let certificate = certificate.display().to_string();
    Ok(Answer::new(text, &serde_json::json!({ "role": role.to_string(), "certificate": certificate })))
}

/// Implements `mend renew`.
pub fn renew(cluster: &Cluster, args: &RenewArgs) -> Result<Answer, Failure> {
    let until = SystemTime::now() + args.within;
    let (mut renewed, mut failed) = (Vec::new(), Vec::new());
    for role in cluster.members() {
        match renew_member(cluster, &role, until, args.valid_for) {
            Ok(true) => renewed.push((role.to_string(), cluster.role_folder(&role))),
            Ok(false) => {}
            Err(error) => failed.push((role.to_string(), error)),
        }
    }
    if renewed.is_empty()
        && let [(_, error)] | [(_, error @ IssueError::NoAuthorityKey { .. }), ..] = &failed[..]
    {
        return Err(Failure::new(error)); // Without ca.key, all fail alike.
    }
    let mut text = match renewed.len() as u64 {
        0 if !failed.is_empty() => "created no certificate".to_owned(),
        0 => format!("no certificate expires within {}", lasting(args.within)),
        number => format!("created {}:", count(number, "new certificate")),
    };
    for (role, folder) in &renewed {
        text += &format!("\n{role}: {}", folder.display());
    }
    if !renewed.is_empty() {
        text += "\nnext: copy cert.pem and key.pem of each member to the member's machine; daemons load new \
                 certificates without a restart";
    }
    for (role, error) in &failed {
        text += &format!("\nFAILED for {role}: {error}");
    }
    let roles: Vec<&String> = renewed.iter().map(|(role, _)| role).collect();
    let failures: Vec<_> = failed.iter().map(|(role, error)| failed_member(role, error)).collect();
    let exit = if failed.is_empty() { Exit::Done } else { Exit::Failed };
    Ok(Answer::new(text, &serde_json::json!({ "renewed": roles, "failed": failures })).with_exit(exit))
}

/// Renews a member's certificate if it expires before `until`, for `valid_for` or for as long as it was issued for.
/// Otherwise completes a renewal that was interrupted. Returns whether the member's files have changed.
fn renew_member(
    cluster: &Cluster,
    role: &Role,
    until: SystemTime,
    valid_for: Option<Duration>,
) -> Result<bool, IssueError> {
    match cluster.expires(role).is_none_or(|expires| expires < until) {
        true => cluster.issue_for(role, valid_for.or_else(|| cluster.lifetime(role))).map(|()| true),
        false => Ok(cluster.finish_issue(role)?),
    }
}

fn failed_member(role: &str, error: &IssueError) -> serde_json::Value {
    serde_json::json!({ "member": role, "error": error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_renewed_keeps_none_of_the_others_back() {
        let scratch = tempfile::tempdir().unwrap();
        let options = InitOptions { helpers: 2, ..InitOptions::default() };
        let cluster = Cluster::init(&scratch.path().join("demo"), &options).unwrap();
        let key = cluster.key(&Role::Coordinator);
        fs::remove_file(&key).unwrap();
        fs::create_dir(&key).unwrap(); // A file cannot replace a folder.
        let args = RenewArgs { within: Duration::from_secs(20 * 365 * 24 * 3600), valid_for: None };
        let answer = renew(&cluster, &args).unwrap();
        let number = |list: &serde_json::Value| list.as_array().unwrap().len();
        assert_eq!(number(&answer.facts()["renewed"]), 3, "{answer:?}");
        assert_eq!(answer.facts()["failed"][0]["member"], "coordinator", "{answer:?}");
        assert_eq!(answer.exit(), Exit::Failed);
        // Without the authority's key, nothing is renewed, and there is one error.
        fs::remove_file(cluster.folder().join("ca/ca.key")).unwrap();
        assert!(renew(&cluster, &args).unwrap_err().message().contains("ca.key"));
    }

    #[test]
    fn a_helper_beside_a_server_of_a_store_needs_a_restart_of_the_coordinator() {
        let next = |store| next_steps(&"h7".parse().unwrap(), Path::new("/demo"), store);
        assert!(next(None).starts_with("mend helper h7 &\n") && !next(None).contains("restart"));
        let beside = next(Some("hdfs"));
        assert!(
            beside.contains("keys of its hdfs server") && beside.contains("restart the coordinator"),
            "{beside}"
        );
        assert!(beside.ends_with(&next(None)), "{beside}");
    }

    #[test]
    fn a_renewed_certificate_is_valid_for_as_long_as_the_former_one() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let guest = Role::Client("guest".parse().unwrap());
        cluster.issue_for(&guest, Some(10 * DAY)).unwrap();
        let renewed = |within, valid_for| {
            let answer = renew(&cluster, &RenewArgs { within, valid_for }).unwrap();
            (answer.facts()["renewed"].clone(), cluster.lifetime(&guest).unwrap())
        };
        let (before, ten_years) = (cluster.expires(&guest), cluster.lifetime(&Role::Coordinator));
        assert_eq!(ten_years, Some(3650 * DAY));
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(renewed(30 * DAY, None), (serde_json::json!(["client guest"]), 10 * DAY));
        assert!(cluster.expires(&guest) > before);
        assert_eq!(renewed(30 * DAY, Some(90 * DAY)).1, 90 * DAY);
        assert_eq!(renewed(30 * DAY, None), (serde_json::json!([]), 90 * DAY));
        renewed(4000 * DAY, None);
        assert_eq!(
            (cluster.lifetime(&guest), cluster.lifetime(&Role::Coordinator)),
            (Some(90 * DAY), ten_years)
        );
    }

    #[test]
    fn a_renewal_that_was_interrupted_is_completed_by_the_next() {
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let key = cluster.key(&Role::Coordinator);
        let old = fs::read(&key).unwrap();
        cluster.issue(&Role::Coordinator).unwrap();
        fs::rename(&key, key.with_file_name("key.new.pem")).unwrap();
        fs::write(&key, &old).unwrap();
        let args = RenewArgs { within: Duration::ZERO, valid_for: None };
        assert_eq!(renew(&cluster, &args).unwrap().facts()["renewed"], serde_json::json!(["coordinator"]));
        assert!(fs::read(&key).unwrap() != old);
        assert_eq!(renew(&cluster, &args).unwrap().facts()["renewed"], serde_json::json!([]));
    }
}
