//! Dispatches the command line to the verbs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Client, ClientOptions};
use cluster::{Cluster, Name, Role};
use repair::Caps;

use crate::answer::Answer;
use crate::args::{AttachTo, CatalogAction, Cli, Format, HelperArgs, NodeAction, Verb};
use crate::cluster_search::nearest_folder;
use crate::failure::Failure;
use crate::files::is_stdout;
use crate::interrupt::interrupted;
use crate::network::BenchAction;
use crate::raid::{Direction, Encoder, RaidAction};
use crate::repairs::Detail;
use crate::{
    blocks, catalogs, cluster_folder, compare, daemons, files, history, network, nodes, plans, raid,
    recoveries, repairs, scrubs, simulate, status, watching,
};

/// How long to keep dialling an unreachable coordinator, which may be starting.
const STARTING_LIMIT: Duration = Duration::from_secs(4);
/// How long to wait for the cleanup of an interrupted put or get.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// The note after a change that the coordinator could not record.
const UNRECORDED: &str = "this is in effect, but not recorded, because the coordinator's catalog cannot be written or its \
    disk is slow: a restart of the coordinator may undo it\nnext: see mend status; after a restart of the coordinator, \
    check the state and run the command again";

/// Whether stdout carries the bytes of a file. Errors must not be printed there then.
pub fn fills_stdout(verb: &Verb) -> bool {
    match verb {
        Verb::Get(args) => args.out.as_deref().is_some_and(|out| out == Path::new("-") || is_stdout(out)),
        Verb::Catalog(CatalogAction::Backup { file }) => is_stdout(file),
        _ => false,
    }
}

/// Runs the command line.
pub async fn run(cli: Cli) -> Result<Answer, Failure> {
    let (folder, member) = (cli.cluster, cli.member);
    let detail = Detail { stripes: cli.verbose > 0, timeline: false, json: cli.output == Format::Json };
    match cli.verb {
        Verb::Init(args) => cluster_folder::init(folder, &args),
        Verb::Attach(AttachTo { kind, args }) => {
            let attached = stores::attach(kind, folder, &args).await?;
            Ok(Answer::new(attached.text, &attached.facts))
        }
        Verb::Coordinator(args) => daemons::coordinator(open(folder)?, args.dry_run).await,
        Verb::Helper(HelperArgs { name }) => daemons::helper(&open(folder)?, &name).await,
        Verb::Node(NodeAction::Add(args)) => cluster_folder::add_helper(open(folder)?, args),
        Verb::Issue(args) => cluster_folder::issue(&open(folder)?, &args),
        Verb::Renew(args) => cluster_folder::renew(&open(folder)?, &args),
        Verb::Catalog(CatalogAction::Restore { file }) => catalogs::restore(&open(folder)?, &file),
        Verb::Catalog(CatalogAction::Rebuild { wait }) => catalogs::rebuild(open(folder)?, wait).await,
        Verb::Raid(RaidAction::Plan(args)) => raid::plan(&open(folder)?, &args, detail.stripes).await,
        Verb::Raid(RaidAction::Encode(args)) => {
            let cluster = open(folder)?;
            let client = client_of(&cluster, member.clone());
            let encoder = Encoder::of(&cluster, &args.encoder, || user(&cluster, member))?;
            raid::steps(&cluster, &args.steps, (Direction::Encode, encoder), client, detail.stripes).await
        }
        Verb::Raid(RaidAction::Undo(args)) => {
            let cluster = open(folder)?;
            let client = client_of(&cluster, member);
            raid::steps(&cluster, &args, (Direction::Undo, Encoder::Jvm), client, detail.stripes).await
        }
        Verb::Raid(RaidAction::Status(args)) => raid::status(&open(folder)?, &args, detail.stripes).await,
        Verb::Raid(RaidAction::Fsck(args)) => raid::fsck(&open(folder)?, &args, detail.stripes).await,
        Verb::Sim(action) => simulate::simulate(&action),
        Verb::Openapi => Ok(openapi()),
        Verb::Version => Ok(version()),
        verb => {
            let cluster = open(folder)?;
            let role = user(&cluster, member)?;
            ask(&cluster, &role, verb, detail).await
        }
    }
}

/// Returns a client of the coordinator; `None` if the user has no usable certificate.
fn client_of(cluster: &Cluster, name: Option<Name>) -> Option<Client> {
    Client::connect(cluster, &user(cluster, name).ok()?).ok()
}

/// Returns the role of the user who runs the command.
fn user(cluster: &Cluster, name: Option<Name>) -> Result<Role, Failure> {
    let Some(name) = name else { return Ok(Role::default_client()) };
    match &cluster.users_named(&name)[..] {
        [] => Ok(Role::Client(name)), // The error will name its folder.
        [role] => Ok(role.clone()),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Failure::new(format!("--as {name} can mean {}", several.join(" and ")))
                .help("give them different names with `mend issue`"))
        }
    }
}

/// Returns the client options for a verb.
fn options(verb: &Verb) -> ClientOptions {
    // A monitoring check must answer at once.
    let patience = if verb.is_check() { Duration::ZERO } else { STARTING_LIMIT };
    let Some(place) = verb.place() else { return ClientOptions { patience, ..ClientOptions::default() } };
    let rate = place.limit_rate.map(|rate| rate.bytes_per_second() as u64);
    let caps = Caps { up: rate, down: rate, ..Caps::default() };
    ClientOptions { caps, rack: place.rack.clone(), patience, ..ClientOptions::default() }
}

/// Runs a verb that needs the coordinator.
async fn ask(cluster: &Cluster, role: &Role, verb: Verb, detail: Detail) -> Result<Answer, Failure> {
    let client = Client::connect_with(cluster, role, options(&verb))?;
    let scheme = &cluster.config().defaults.scheme;
    let if_interrupted = effect_of_interrupt(&verb);
    let asked = async {
        match verb {
            Verb::Node(action) => nodes::node(&client, cluster, action, detail).await,
            Verb::Rebalance(args) => nodes::rebalance(&client, &args, detail).await,
            Verb::History(args) => history::history(&client, &args).await,
            Verb::Audit(args) => history::audit(&client, &args).await,
            Verb::Wait(args) => history::wait(&client, &args).await,
            Verb::Put(args) => files::put(&client, args).await,
            Verb::Get(args) => files::get(&client, args, scheme).await,
            Verb::Ls(args) => files::ls(&client, &args).await,
            Verb::Rm(args) => files::rm(&client, &args).await,
            Verb::Stat(args) => blocks::stat(&client, &args.target).await,
            Verb::Status(args) => status::status(&client, &args).await,
            Verb::Mute(args) => status::mute(&client, &args).await,
            Verb::Unmute(args) => status::unmute(&client, args.code).await,
            Verb::Repair(args) => repairs::repair(&client, &args, detail).await,
            Verb::Watch(args) => watching::watch(&client, &args, detail).await,
            Verb::Timeline(args) => repairs::timeline(&client, args).await,
            Verb::Pause(args) => recoveries::pause(&client, args.repair, true).await,
            Verb::Resume(args) => recoveries::pause(&client, args.repair, false).await,
            Verb::Bench(BenchAction::Links(args)) => network::bench_links(&client, &args).await,
            Verb::Topology => network::topology(&client).await,
            Verb::Caps(args) => recoveries::caps(&client, &args).await,
            Verb::Cancel(args) => repairs::cancel(&client, args.repair).await,
            Verb::Plan(args) => plans::plan(&client, &args).await,
            Verb::Compare(args) => compare::compare(&client, &args).await,
            Verb::Scrub(args) => scrubs::scrub(&client, &args).await,
            Verb::Catalog(CatalogAction::Backup { file }) => catalogs::backup(&client, cluster, &file).await,
            Verb::Catalog(CatalogAction::Accept { list: true, .. }) => catalogs::claims(&client).await,
            Verb::Catalog(CatalogAction::Accept { reject, .. }) => catalogs::accept(&client, reject).await,
            Verb::Init(_)
            | Verb::Attach(_)
            | Verb::Coordinator(_)
            | Verb::Helper(_)
            | Verb::Issue(_)
            | Verb::Renew(_)
            | Verb::Catalog(_)
            | Verb::Lab(_)
            | Verb::Raid(_)
            | Verb::Sim(_)
            | Verb::Openapi
            | Verb::Version => unreachable!("these do not ask the coordinator"),
        }
    };
    let result = tokio::select! {
        result = asked => result,
        () = interrupted() => Err(Failure::interrupted(if_interrupted)),
    };
    // Roll back an interrupted put before exiting.
    let _ = tokio::time::timeout(SETTLE_LIMIT, client.settle()).await;
    match client.take_unrecorded() {
        true => result.map(|answer| answer.with_note(UNRECORDED)),
        false => result,
    }
}

/// Returns what happens to the work of a verb that the user interrupts.
fn effect_of_interrupt(verb: &Verb) -> &'static str {
    match verb {
        Verb::Put(_) => {
            "what was not complete is discarded, but a put that was just ending may be stored: check with \
             mend ls"
        }
        Verb::Get(_) | Verb::Catalog(CatalogAction::Backup { .. }) => {
            "a file that was not complete is discarded"
        }
        Verb::Rm(_) => "some of the files may be removed: check with mend ls",
        Verb::Repair(_) | Verb::Watch(_) | Verb::Rebalance(_) => {
            "repairs continue; mend cancel NUMBER ends one"
        }
        Verb::Scrub(_) => "a running scrub continues; mend scrub --stop ends it",
        Verb::Bench(_) => "a running measurement continues; mend bench links --stop ends it",
        Verb::Ls(_)
        | Verb::Stat(_)
        | Verb::Status(_)
        | Verb::History(_)
        | Verb::Audit(_)
        | Verb::Wait(_)
        | Verb::Timeline(_)
        | Verb::Topology
        | Verb::Plan(_)
        | Verb::Compare(_) => "nothing was changed",
        _ => "the coordinator may have carried out the request; repairs continue",
    }
}

fn open(folder: Option<PathBuf>) -> Result<Cluster, Failure> {
    let folder = folder.map_or_else(nearest_folder, Ok)?;
    let cluster = Cluster::open(&folder)?;
    stores::check(&cluster)?;
    Ok(cluster)
}

fn openapi() -> Answer {
    let text = coordinator::openapi();
    let document: serde_json::Value = serde_json::from_str(&text).expect("an OpenAPI document is JSON");
    Answer::new(text, &document)
}

fn version() -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    Answer::new(format!("mend {version}"), &serde_json::json!({ "version": version }))
}
