//! Tests real handshakes over loopback: members are accepted, their roles are identified, and other peers are
//! rejected.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use cluster::{Cluster, Identity, InitOptions, Role, peer_role};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn init() -> (TempDir, Cluster) {
    let scratch = tempfile::tempdir().unwrap();
    let options = InitOptions { helpers: 2, ..InitOptions::default() };
    let cluster = Cluster::init(&scratch.path().join("demo"), &options).unwrap();
    (scratch, cluster)
}

fn helper(name: &str) -> Role {
    Role::Helper(name.parse().unwrap())
}

/// The role of the peer as seen by the accepting and by the dialling side, after each has sent a byte.
type Met = (io::Result<Option<Role>>, io::Result<Option<Role>>);

/// Lets `server` accept one connection from `dialler`. The server must prove the role `wanted`. Returns each
/// side's result.
async fn meet(server: &Identity, dialler: ClientConfig, wanted: &Role) -> Met {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(server.server_config());
    let accepts = async {
        let mut stream = acceptor.accept(listener.accept().await?.0).await?;
        // With TLS 1.3, the dialler notices that its certificate was rejected only when it reads after the
        // handshake, so send a byte each way.
        stream.write_u8(1).await?;
        stream.read_u8().await?;
        Ok(role_of(stream.get_ref().1.peer_certificates()))
    };
    let dials = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream =
            TlsConnector::from(std::sync::Arc::new(dialler)).connect(wanted.server_name(), stream).await?;
        stream.write_u8(2).await?;
        stream.read_u8().await?;
        Ok(role_of(stream.get_ref().1.peer_certificates()))
    };
    let both = async { tokio::join!(accepts, dials) };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("a handshake ends")
}

fn role_of(certificates: Option<&[CertificateDer<'_>]>) -> Option<Role> {
    peer_role(certificates.unwrap_or_default())
}

fn dialling(identity: &Identity) -> ClientConfig {
    (*identity.client_config()).clone()
}

#[track_caller]
fn assert_turned_away((accepted, dialled): Met) {
    assert!(accepted.is_err(), "accepted {accepted:?}");
    assert!(dialled.is_err(), "dialled {dialled:?}");
}

#[tokio::test]
async fn members_of_one_cluster_know_each_other() {
    let (_scratch, cluster) = init();
    let identity = |role: &Role| cluster.identity(role).unwrap();
    for (server, dialler) in [
        (Role::Coordinator, helper("h1")),
        (Role::Coordinator, Role::default_client()),
        (helper("h1"), helper("h2")),
        (helper("h2"), Role::Coordinator),
    ] {
        let (accepted, dialled) = meet(&identity(&server), dialling(&identity(&dialler)), &server).await;
        assert_eq!(accepted.unwrap(), Some(dialler));
        assert_eq!(dialled.unwrap(), Some(server));
    }
}

#[tokio::test]
async fn data_edges_shake_hands_in_full_each_time_and_send_nothing_unasked() {
    let (_scratch, cluster) = init();
    let (h1, h2) = (cluster.identity(&helper("h1")).unwrap(), cluster.identity(&helper("h2")).unwrap());
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(h1.edge_server_config());
        let accepts = async { acceptor.accept(listener.accept().await.unwrap().0).await.unwrap() };
        let dials = async {
            let stream = TcpStream::connect(address).await.unwrap();
            TlsConnector::from(h2.edge_client_config())
                .connect(helper("h1").server_name(), stream)
                .await
                .unwrap()
        };
        let both = async { tokio::join!(accepts, dials) };
        let (accepted, dialled) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        let session = dialled.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
        let suite = session.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert!(!accepted.get_ref().1.wants_write(), "no tickets");
        assert_eq!(role_of(accepted.get_ref().1.peer_certificates()), Some(helper("h2")));
    }
}

#[tokio::test]
async fn a_helper_of_another_cluster_is_turned_away() {
    let (_scratch, cluster) = init();
    let (_other_scratch, other) = init();
    let coordinator = cluster.identity(&Role::Coordinator).unwrap();
    let stranger = other.identity(&helper("h1")).unwrap();
    assert_turned_away(meet(&coordinator, dialling(&stranger), &Role::Coordinator).await);
}

#[tokio::test]
async fn a_stranger_who_trusts_the_server_is_turned_away_by_it() {
    let (_scratch, cluster) = init();
    let (_other_scratch, other) = init();
    let coordinator = cluster.identity(&Role::Coordinator).unwrap();
    // The stranger holds a certificate of its own cluster, and this cluster's ca.pem, which is public.
    let mut both = fs::read(other.authority_certificate()).unwrap();
    both.extend(fs::read(cluster.authority_certificate()).unwrap());
    fs::write(other.authority_certificate(), both).unwrap();
    let stranger = other.identity(&helper("h1")).unwrap();
    let (accepted, dialled) = meet(&coordinator, dialling(&stranger), &Role::Coordinator).await;
    let error = accepted.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer") || error.contains("certificate"), "{error}");
    assert!(dialled.is_err());
}

#[tokio::test]
async fn a_helper_cannot_pass_for_the_coordinator_nor_for_another_helper() {
    let (_scratch, cluster) = init();
    let h1 = cluster.identity(&helper("h1")).unwrap();
    let h2 = cluster.identity(&helper("h2")).unwrap();
    assert_turned_away(meet(&h1, dialling(&h2), &Role::Coordinator).await);
    assert_turned_away(meet(&h1, dialling(&h2), &helper("h2")).await);
    assert_turned_away(meet(&h1, dialling(&h2), &Role::default_client()).await);
}

#[tokio::test]
async fn a_dialler_without_a_certificate_is_turned_away() {
    let (_scratch, cluster) = init();
    let coordinator = cluster.identity(&Role::Coordinator).unwrap();
    let nobody = trusting(&cluster.authority_certificate());
    assert_turned_away(meet(&coordinator, nobody, &Role::Coordinator).await);
}

#[tokio::test]
async fn one_authority_replaces_another_while_both_are_trusted() {
    let (_scratch, old) = init();
    let (_new_scratch, new) = init();
    // This is the intermediate state of the procedure in docs/guides/keys.md: every ca.pem holds both
    // authorities.
    let read = |cluster: &Cluster| fs::read_to_string(cluster.authority_certificate()).unwrap();
    let both = format!("{}{}", read(&new), read(&old));
    for cluster in [&old, &new] {
        fs::write(cluster.authority_certificate(), &both).unwrap();
    }
    let coordinator = new.identity(&Role::Coordinator).unwrap();
    let helper_identity = old.identity(&helper("h1")).unwrap();
    let (accepted, dialled) = meet(&coordinator, dialling(&helper_identity), &Role::Coordinator).await;
    assert_eq!((accepted.unwrap(), dialled.unwrap()), (Some(helper("h1")), Some(Role::Coordinator)));
}

fn trusting(authority: &Path) -> ClientConfig {
    use rustls::pki_types::pem::PemObject;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    builder.unwrap().with_root_certificates(roots).with_no_client_auth()
}
