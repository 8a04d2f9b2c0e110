//! Failures between Mend and a cluster, and the advice in their errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use seaweedfs::{
    AskError, Event, Lock, MasterClient, Security, SecurityError, ServerAddress, VolumeName, VolumeServer,
    Watch,
};

use testbed::eventually;

use crate::world::World;

fn address(text: &str) -> ServerAddress {
    text.parse().expect("an address")
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

pub fn a_restarted_master_has_forgotten_the_lock(world: &mut World) {
    let (master, list_often) = (world.master.clone(), Duration::from_secs(1));
    let lock = world.runtime.block_on(Lock::take(&master, "mend", "")).expect("nobody has it");
    let mut watch = world.runtime.block_on(async { Watch::start(master.clone(), list_often) });
    world.restart_master();
    let lost = world.runtime.block_on(lock.lost());
    assert!(matches!(lost, AskError::Unreachable { .. } | AskError::TimedOut { .. }), "{lost}");
    lock.check().expect_err("it is lost");
    // The watch reports that it was disconnected, and then lists all shards again.
    let watched = async {
        let mut was_blind = false;
        loop {
            match watch.next().await {
                Event::Blind(_) => was_blind = true,
                Event::Listed(listing, ..) if was_blind && listing.shard_count() == 28 => return,
                Event::Listed(..) => {}
            }
        }
    };
    let limit = Duration::from_secs(180);
    world.runtime.block_on(async { tokio::time::timeout(limit, watched).await }).expect("it sees again");
    drop(lock);
    let again = eventually("the lock", || world.runtime.block_on(Lock::take(&master, "mend", "")).ok());
    world.runtime.block_on(again.release());
    world.assert_whole();
}

pub fn permission_errors_are_reported(world: &mut World) {
    let folder = world.weed.root.join("guarded");
    fs::create_dir(&folder).expect("made");
    let arguments =
        ["volume", "-ip=10.79.3.1", "-port=8080", "-master=10.79.0.1:9333", "-max=1", "-whiteList=10.99.0.1"];
    let mut arguments = strings(&arguments);
    arguments.push(format!("-dir={}", folder.display()));
    let guarded = world.weed.start("guarded", &world.weed.root, &arguments);
    let connect =
        || world.runtime.block_on(VolumeServer::connect(&address("10.79.3.1:8080"), &Security::plain()));
    let server = eventually("the server", || connect().ok());
    let volume = VolumeName::new("pictures", 1).expect("a name");
    let refused = world.runtime.block_on(server.unmount(&volume, &[1])).expect_err("not allowed");
    assert!(matches!(&refused, AskError::NotAllowed { .. }), "{refused}");
    assert!(refused.to_string().contains("-whiteList"), "{refused}");
    drop(guarded);
    let gone = eventually("its end", || connect().err());
    assert!(matches!(gone, AskError::Unreachable { .. }), "{gone}");
    eventually("the master to know", || (world.list().servers.len() == 6).then_some(()));
    // Mounting a shard that does not exist is refused.
    let missing =
        world.runtime.block_on(world.server(0).mount(&VolumeName::new("x", 77).expect("a name"), &[0]));
    assert!(matches!(missing, Err(AskError::Refused { .. })), "{missing:?}");
}

/// Creates a CA and one certificate for all servers and clients. The certificate names no host, as is usual
/// for SeaweedFS.
fn certificates(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).expect("made");
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("a CA");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["seaweed.test".to_owned()]).expect("a name");
    let certificate = certificate.signed_by(&key, &authority).expect("signed");
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("written");
    write("ca.crt", authority.pem());
    write("all.crt", certificate.pem());
    write("all.key", key.serialize_pem());
    let at = folder.display();
    let parts = ["master", "volume", "client"]
        .map(|part| format!("[grpc.{part}]\ncert = \"{at}/all.crt\"\nkey = \"{at}/all.key\"\n"));
    write("security.toml", format!("[grpc]\nca = \"{at}/ca.crt\"\n{}", parts.concat()));
    folder.join("security.toml")
}

pub fn a_cluster_with_tls(world: &mut World) {
    let toml = certificates(&world.weed.root.join("tls"));
    let folder = toml.parent().expect("a folder").to_owned();
    fs::create_dir(folder.join("volume")).expect("made");
    let master = strings(&["master", "-ip=10.79.3.2", "-port=9333", "-mdir=.", "-peers=none"]);
    let master = world.weed.start("master", &folder, &master);
    let volume = strings(&[
        "volume",
        "-ip=10.79.3.2",
        "-port=8080",
        "-master=10.79.3.2:9333",
        "-dir=volume",
        "-max=1",
    ]);
    let volume = world.weed.start("volume", &folder, &volume);
    let at = address("10.79.3.2:9333");
    let leader = |security: &Security| {
        world.runtime.block_on(MasterClient::new(vec![at.clone()], security.clone()).leader())
    };
    let right = Security::of_toml(&toml).expect("its own");
    eventually("a leader", || leader(&right).ok());
    let client = MasterClient::new(vec![at.clone()], right.clone());
    eventually("the volume server", || {
        world.runtime.block_on(client.list()).is_ok_and(|listing| listing.servers.len() == 1).then_some(())
    });
    let lock = world.runtime.block_on(Lock::take(&client, "mend", "")).expect("over TLS as well");
    world.runtime.block_on(lock.release());
    let server =
        world.runtime.block_on(VolumeServer::connect(&address("10.79.3.2:8080"), &right)).expect("connects");
    world.runtime.block_on(server.status()).expect("answers");

    let plain = leader(&Security::plain()).expect_err("it wants TLS");
    assert!(matches!(plain, AskError::TlsNeeded { .. }), "{plain}");
    let other = Security::of_toml(&certificates(&world.weed.root.join("other"))).expect("whole");
    let foreign = leader(&other).expect_err("another CA");
    assert!(matches!(foreign, AskError::Tls { .. }), "{foreign}");
    // The client trusts the server's CA, but the server does not trust the client's CA.
    fs::copy(folder.join("ca.crt"), world.weed.root.join("other/ca.crt")).expect("copied");
    let half = Security::of_toml(&world.weed.root.join("other/security.toml")).expect("whole");
    let refused = leader(&half).expect_err("our certificate is of another CA");
    assert!(matches!(refused, AskError::Tls { .. }), "{refused:?}");
    let unsecured =
        world.runtime.block_on(MasterClient::new(vec![address("10.79.0.1:9333")], right).leader());
    assert!(matches!(unsecured, Err(AskError::Tls { .. })), "{unsecured:?}");
    drop((volume, master));

    let silent = fs::write(&toml, "[grpc]\nca = \"\"\n[jwt.signing]\nkey = \"x\"\n")
        .map(|()| Security::of_toml(&toml));
    assert!(silent.expect("written").is_ok(), "without certificates it is in the clear, as for SeaweedFS");
    fs::write(&toml, "[grpc]\nca = \"ca.crt\"\n[grpc.client]\ncert = \"all.crt\"\n").expect("written");
    let incomplete = Security::of_toml(&toml).expect_err("no key");
    assert!(matches!(incomplete, SecurityError::Incomplete { missing: "`key`", .. }), "{incomplete}");
}

pub fn the_leader_is_found(world: &mut World) {
    let hosts = ["10.79.2.1", "10.79.2.2", "10.79.2.3"];
    let peers: Vec<_> = hosts.iter().map(|host| format!("{host}:9333")).collect();
    let start = |host: &&str| {
        let folder = world.weed.root.join(host);
        fs::create_dir_all(&folder).expect("made");
        let arguments = strings(&[
            "master",
            &format!("-ip={host}"),
            "-port=9333",
            "-mdir=.",
            &format!("-peers={}", peers.join(",")),
        ]);
        world.weed.start("master", &folder, &arguments)
    };
    let mut masters: Vec<_> = hosts.iter().map(start).collect();
    let by = |host: &str| {
        let client = MasterClient::new(vec![address(&format!("{host}:9333"))], Security::plain());
        world.runtime.block_on(client.leader())
    };
    let leader = eventually("an agreement", || {
        let named: Vec<_> = hosts.iter().filter_map(|host| by(host).ok()).collect();
        (named.len() == 3 && named.iter().all(|leader| leader.http() == named[0].http()))
            .then(|| named[0].clone())
    });
    let all = MasterClient::new(peers.iter().map(|peer| address(peer)).collect(), Security::plain());
    world.runtime.block_on(all.list()).expect("the leader answers");
    let lock = world.runtime.block_on(Lock::take(&all, "mend", "")).expect("the leader gives it");
    // The leader dies. The client finds the newly elected leader, which does not know the lock.
    let at = hosts.iter().position(|host| *host == leader.host()).expect("one of them");
    masters.remove(at);
    world.runtime.block_on(lock.lost());
    lock.check().expect_err("it is lost");
    let next = eventually("another leader", || {
        world.runtime.block_on(all.list()).ok()?;
        world.runtime.block_on(all.leader()).ok()
    });
    assert_ne!(next.http(), leader.http());
}
