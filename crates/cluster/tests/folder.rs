//! Tests the cluster folder on a real disk: creating, opening and extending it, and the error cases.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cluster::{
    AddHelperError, Cluster, ConfigError, HelperConfig, IdentityError, InitError, InitOptions, IssueError,
    NewCluster, OpenError, Role,
};
use tempfile::TempDir;

fn small() -> InitOptions {
    InitOptions { helpers: 2, ..InitOptions::default() }
}

fn init() -> (TempDir, Cluster) {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Cluster::init(&scratch.path().join("demo"), &small()).unwrap();
    (scratch, cluster)
}

fn helper(name: &str, listen: &str) -> HelperConfig {
    HelperConfig::new(name.parse().unwrap(), listen.parse().unwrap())
}

fn role(name: &str) -> Role {
    Role::Helper(name.parse().unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn entries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_created_folder_can_be_opened() {
    let (_scratch, made) = init();
    let opened = Cluster::open(made.folder()).unwrap();
    assert_eq!(opened.config(), made.config());
    let config = opened.config();
    assert_eq!(config.defaults.code, "rs-14-10");
    assert_eq!(config.defaults.block_bytes.to_string(), "64MiB");
    assert_eq!(config.coordinator.api.to_string(), "127.0.0.1:7400");
    let helpers: Vec<_> = config.helpers.iter().map(|h| format!("{} {}", h.name, h.listen)).collect();
    assert_eq!(helpers, ["h1 127.0.0.1:7410", "h2 127.0.0.1:7411"]);
    assert_eq!(opened.blocks_folder(&config.helpers[0]), made.folder().join("helpers/h1/blocks"));
    for role in [Role::Coordinator, Role::default_client(), role("h1"), role("h2")] {
        assert_eq!(*opened.identity(&role).unwrap().role(), role);
    }
    assert_eq!(entries(made.folder()), ["ca", "client", "coordinator", "helpers", "mend.toml"]);
}

#[test]
fn keys_are_private() {
    let (_scratch, cluster) = init();
    assert_eq!(mode(&cluster.folder().join("ca")), 0o700);
    assert_eq!(mode(&cluster.folder().join("ca/ca.key")), 0o600);
    for role in [Role::Coordinator, Role::default_client(), role("h1")] {
        assert_eq!(mode(&cluster.key(&role)), 0o600);
        assert_eq!(mode(&cluster.certificate(&role)), 0o644);
    }
}

#[test]
fn two_clusters_have_two_ids() {
    assert_ne!(init().1.config().cluster_id, init().1.config().cluster_id);
}

#[test]
fn init_takes_an_empty_folder_and_leaves_a_used_one_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Cluster::init(scratch.path(), &small()).unwrap();
    let before = fs::read_to_string(cluster.config_path()).unwrap();
    assert!(matches!(Cluster::init(scratch.path(), &small()), Err(InitError::AlreadyCluster { .. })));
    assert_eq!(fs::read_to_string(cluster.config_path()).unwrap(), before);

    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("thesis.tex"), "precious").unwrap();
    assert!(matches!(Cluster::init(other.path(), &small()), Err(InitError::NotEmpty { .. })));
    let file = other.path().join("thesis.tex");
    assert!(matches!(Cluster::init(&file, &small()), Err(InitError::NotEmpty { .. })));
    assert_eq!(entries(other.path()), ["thesis.tex"]);
}

#[test]
fn init_that_fails_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("demo");
    let init = |options: InitOptions| Cluster::init(&folder, &options).unwrap_err();

    let error = init(InitOptions { first_helper_port: 65_535, ..small() });
    assert!(matches!(error, InitError::PortsExhausted { helpers: 2, first_port: 65_535 }), "{error}");
    let error = init(InitOptions { control_port: 7411, ..small() }).to_string();
    assert!(error.contains("127.0.0.1:7411"), "{error}");
    let error = init(InitOptions { code: String::new(), ..small() }).to_string();
    assert!(error.contains("code = \"\""), "{error}");
    let error = init(InitOptions { listen_host: "0.0.0.0".parse().unwrap(), ..small() }).to_string();
    assert!(error.contains("advertise"), "{error}");
    assert_eq!(entries(scratch.path()), Vec::<String>::new());
    let error = Cluster::init_with(&folder, &small(), |cluster| {
        fs::write(cluster.folder().join("coordinator/catalog.redb"), "half").unwrap();
        Err(InitError::Random)
    });
    assert!(matches!(error, Err(InitError::Random)), "{error:?}");
    assert_eq!(entries(scratch.path()), Vec::<String>::new());
}

#[test]
fn files_that_init_is_told_to_add_appear_with_the_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("demo");
    let add = |cluster: &Cluster| {
        assert!(!folder.exists());
        fs::write(cluster.folder().join("more"), "more").unwrap();
        Ok::<(), InitError>(())
    };
    let cluster = Cluster::init_with(&folder, &small(), add).unwrap();
    assert_eq!(cluster.folder(), folder);
    assert_eq!(fs::read_to_string(folder.join("more")).unwrap(), "more");
    assert_eq!(entries(scratch.path()), ["demo"]);
}

#[test]
fn a_new_cluster_appears_when_it_is_finished_or_not_at_all() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("demo");
    let begin = || {
        let mut new = NewCluster::begin(&folder, &small()).unwrap();
        new.unfinished().add_helper(helper("more", "127.0.0.1:7499")).unwrap();
        assert!(new.folder() == folder && !folder.exists());
        new
    };
    drop(begin());
    assert_eq!(entries(scratch.path()), Vec::<String>::new());
    let cluster = begin().finish().unwrap();
    assert_eq!((cluster.folder(), cluster.config().helpers.len()), (&*folder, 3));
    assert_eq!(Cluster::open(&folder).unwrap().config(), cluster.config());
    assert_eq!(entries(scratch.path()), ["demo"]);
}

#[test]
fn init_on_every_interface_advertises_a_host() {
    let scratch = tempfile::tempdir().unwrap();
    let options = InitOptions {
        listen_host: "::".parse().unwrap(),
        advertise: Some("node1".parse().unwrap()),
        ..small()
    };
    let cluster = Cluster::init(&scratch.path().join("demo"), &options).unwrap();
    assert_eq!(cluster.config().coordinator.dial_control().to_string(), "node1:7401");
    assert_eq!(cluster.config().helpers[1].dial_address().to_string(), "node1:7411");
}

#[test]
fn opening_says_what_is_wrong_and_what_to_do() {
    let (scratch, cluster) = init();
    let absent = Cluster::open(&scratch.path().join("absent")).unwrap_err();
    assert!(
        matches!(absent, OpenError::NoFolder { .. }) && absent.to_string().contains("mend init"),
        "{absent}"
    );
    let other = Cluster::open(scratch.path()).unwrap_err();
    assert!(
        matches!(other, OpenError::NotACluster { .. }) && other.to_string().contains("mend init"),
        "{other}"
    );

    let text = fs::read_to_string(cluster.config_path()).unwrap();
    fs::write(cluster.config_path(), text.replace("scheme =", "shceme =")).unwrap();
    let error = Cluster::open(cluster.folder()).unwrap_err();
    let line = 1 + text.lines().position(|line| line.starts_with("scheme")).unwrap();
    assert!(
        matches!(&error, OpenError::Config(ConfigError { line: found, .. }) if *found == line),
        "{error}"
    );
    let shown = error.to_string();
    assert!(shown.contains("mend.toml") && shown.contains("`shceme`"), "{shown}");

    fs::write(cluster.config_path(), [0xff, 0xfe]).unwrap();
    assert!(matches!(Cluster::open(cluster.folder()), Err(OpenError::File(_))));
    fs::write(cluster.config_path(), text).unwrap();
    fs::remove_file(cluster.authority_certificate()).unwrap();
    assert!(matches!(Cluster::open(cluster.folder()), Err(OpenError::NoAuthority { .. })));
}

#[test]
fn a_member_needs_only_its_own_folder() {
    let (scratch, cluster) = init();
    let machine = scratch.path().join("machine");
    for path in ["mend.toml", "ca/ca.pem", "helpers/h1/cert.pem", "helpers/h1/key.pem"] {
        fs::create_dir_all(machine.join(path).parent().unwrap()).unwrap();
        fs::copy(cluster.folder().join(path), machine.join(path)).unwrap();
    }
    let mut there = Cluster::open(&machine).unwrap();
    assert_eq!(*there.identity(&role("h1")).unwrap().role(), role("h1"));
    let missing = there.identity(&role("h2")).unwrap_err();
    assert!(matches!(missing, IdentityError::Missing { .. }), "{missing}");
    let refused = there.add_helper(helper("h3", "127.0.0.1:7500")).unwrap_err();
    assert!(matches!(refused, AddHelperError::Issue(IssueError::NoAuthorityKey { .. })), "{refused}");
    assert_eq!(Cluster::open(&machine).unwrap().config(), cluster.config());
}

#[test]
fn identities_that_would_fail_a_handshake_fail_to_load() {
    let (_scratch, cluster) = init();
    let (_other_scratch, other) = init();
    let (h1, h2) = (role("h1"), role("h2"));

    fs::copy(other.key(&h1), cluster.key(&h1)).unwrap();
    let error = cluster.identity(&h1).unwrap_err();
    assert!(matches!(error, IdentityError::KeyMismatch { .. }), "{error}");

    fs::copy(other.certificate(&h1), cluster.certificate(&h1)).unwrap();
    let error = cluster.identity(&h1).unwrap_err();
    assert!(matches!(error, IdentityError::NotAccepted { .. }), "{error}");

    fs::copy(cluster.certificate(&h2), cluster.certificate(&h1)).unwrap();
    fs::copy(cluster.key(&h2), cluster.key(&h1)).unwrap();
    let error = cluster.identity(&h1).unwrap_err();
    assert!(error.to_string().contains("is the certificate of helper h2, not of helper h1"), "{error}");

    for broken in ["", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
        fs::write(cluster.certificate(&h2), broken).unwrap();
        let error = cluster.identity(&h2).unwrap_err();
        assert!(matches!(error, IdentityError::Damaged { .. }), "{error}");
    }
}

#[test]
fn an_interrupted_replacement_of_a_certificate_is_undone_or_completed() {
    let (_scratch, cluster) = init();
    let h1 = role("h1");
    let (key, new_key) = (cluster.key(&h1), cluster.role_folder(&h1).join("key.new.pem"));
    let old = fs::read(&key).unwrap();

    fs::copy(cluster.key(&role("h2")), &new_key).unwrap(); // The certificate was not replaced yet.
    cluster.identity(&h1).unwrap();
    assert!(!cluster.finish_issue(&h1).unwrap() && !new_key.exists());

    cluster.issue(&h1).unwrap();
    assert!(!new_key.exists());
    fs::rename(&key, &new_key).unwrap(); // The key was not replaced yet.
    fs::write(&key, old).unwrap();
    cluster.identity(&h1).unwrap();
    assert!(cluster.finish_issue(&h1).unwrap() && !new_key.exists());
    cluster.identity(&h1).unwrap();
    assert!(!cluster.finish_issue(&h1).unwrap());
}

#[test]
fn a_helper_is_added_and_comments_stay() {
    let (_scratch, mut cluster) = init();
    let text = fs::read_to_string(cluster.config_path()).unwrap();
    fs::write(cluster.config_path(), format!("{text}# h2 is the one with the loud fan\n")).unwrap();

    let mut h3 = helper("h3", "127.0.0.1:7500");
    h3.rack = Some("r1".to_owned());
    h3.bandwidth = Some("2.5gbit".parse().unwrap());
    h3.blocks = Some("/srv/h3".into());
    cluster.add_helper(h3.clone()).unwrap();

    let opened = Cluster::open(cluster.folder()).unwrap();
    assert_eq!(opened.config(), cluster.config());
    assert_eq!(opened.config().helper(&h3.name), Some(&h3));
    assert_eq!(opened.blocks_folder(&h3), Path::new("/srv/h3"));
    assert_eq!(*opened.identity(&role("h3")).unwrap().role(), role("h3"));
    let text = fs::read_to_string(cluster.config_path()).unwrap();
    assert!(text.contains("loud fan") && text.contains("# Identifies this cluster"), "{text}");
    assert_eq!(mode(&cluster.config_path()), 0o644);
}

#[test]
fn a_helper_that_cannot_be_added_changes_nothing() {
    let (_scratch, mut cluster) = init();
    let before = fs::read_to_string(cluster.config_path()).unwrap();
    let taken = cluster.add_helper(helper("h1", "127.0.0.1:7500")).unwrap_err();
    assert!(matches!(taken, AddHelperError::NameTaken { .. }), "{taken}");
    let clash = cluster.add_helper(helper("h3", "127.0.0.1:7410")).unwrap_err();
    assert!(clash.to_string().contains("already the address of [[helper]] number 1"), "{clash}");
    let unreachable = cluster.add_helper(helper("h3", "0.0.0.0:7500")).unwrap_err();
    assert!(matches!(unreachable, AddHelperError::Config(_)), "{unreachable}");
    assert_eq!(fs::read_to_string(cluster.config_path()).unwrap(), before);
    assert_eq!(entries(&cluster.folder().join("helpers")), ["h1", "h2"]);
}

#[test]
fn helpers_added_at_once_are_all_kept() {
    let (_scratch, cluster) = init();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let mut cluster = cluster.clone();
            scope.spawn(move || {
                cluster.add_helper(helper(&format!("x{i}"), &format!("127.0.0.1:{}", 7500 + i))).unwrap();
            });
        }
    });
    assert_eq!(Cluster::open(cluster.folder()).unwrap().config().helpers.len(), 6);
}

#[test]
fn certificates_are_issued_anew_and_clients_added() {
    let (_scratch, cluster) = init();
    let before = fs::read(cluster.certificate(&role("h1"))).unwrap();
    cluster.issue(&role("h1")).unwrap();
    assert_ne!(fs::read(cluster.certificate(&role("h1"))).unwrap(), before);
    cluster.identity(&role("h1")).unwrap();

    let alice = Role::Client("alice".parse().unwrap());
    cluster.issue(&alice).unwrap();
    assert_eq!(*cluster.identity(&alice).unwrap().role(), alice);
    assert_eq!(mode(&cluster.key(&alice)), 0o600);
}

#[test]
fn a_key_of_another_authority_issues_nothing() {
    let (_scratch, cluster) = init();
    let (_other_scratch, other) = init();
    let key = |cluster: &Cluster| cluster.folder().join("ca/ca.key");
    fs::copy(key(&other), key(&cluster)).unwrap();
    let error = cluster.issue(&role("h1")).unwrap_err();
    assert!(matches!(error, IssueError::OtherAuthorityKey { .. }), "{error}");
    fs::write(key(&cluster), "scribble").unwrap();
    let error = cluster.issue(&role("h1")).unwrap_err();
    assert!(matches!(error, IssueError::Damaged { .. }), "{error}");
    cluster.identity(&role("h1")).unwrap();
}
