//! Requests that the API refuses: those that cannot be read, and those with an expired certificate.

use std::sync::Arc;

use tokio_rustls::rustls::HandshakeKind;
use tokio_rustls::rustls::client::Resumption;

use super::*;

/// The longest time that the coordinator takes to close a connection.
const LIMIT: Duration = Duration::from_secs(10);

fn ann() -> Role {
    Role::Client("ann".parse().unwrap())
}

#[tokio::test]
async fn requests_that_cannot_be_read_get_the_next_step() {
    let running = running().await;
    for (method, path, body, expected) in [
        ("GET", "/v1/history?most=some", "", "query"),
        ("GET", "/v1/files/%ff", "", "path"),
        ("GET", "/v1/repairs/first", "", "`first` is not a number"),
        ("POST", "/v1/puts", "{", "body"),
    ] {
        let (status, answer) = running.http(&Role::default_client(), method, path, body).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(expected), "{path}: {answer}");
        assert!(answer["next_step"].as_str().unwrap().contains("mend openapi"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn open_connections_end_with_the_certificate() {
    let running = running().await;
    running.cluster.issue_for(&ann(), Some(Duration::from_secs(3))).unwrap();
    let mut events = running.ask(&ann(), "GET", "/v1/events", "").await;
    let hello = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
    let (mut session, answer) = running.say_hello(&ann(), &hello).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
    let pong = control::encode(&FromNode::Pong { free_bytes: 0, tasks: 0, write_problem: None });
    let session_ends = async {
        // A client that answers pings stays connected otherwise.
        while session.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
            if session.write_all(&pong).await.is_err() || session.flush().await.is_err() {
                break;
            }
        }
    };
    timeout(LIMIT, session_ends).await.expect("the session ends");
    let mut told = Vec::new();
    let _ = timeout(LIMIT, events.read_to_end(&mut told)).await.expect("the stream ends");
    assert!(told.starts_with(b"HTTP/1.1 200"), "it was open before");
}

/// A resumed session shows the certificate of its first handshake, which TLS does not verify again.
#[tokio::test]
async fn an_expired_certificate_cannot_be_used_by_resumption() {
    let running = running().await;
    running.cluster.issue_for(&ann(), Some(Duration::from_secs(3))).unwrap();
    let mut tls = (*running.identity(&ann()).client_config()).clone();
    tls.resumption = Resumption::in_memory_sessions(8);
    let connector = TlsConnector::from(Arc::new(tls));
    let ask = async || {
        let socket = TcpStream::connect(running.handle.api_addr).await.unwrap();
        let mut stream = connector.connect(Role::Coordinator.server_name(), socket).await.unwrap();
        let request = b"GET /v1/files HTTP/1.1\r\nhost: coordinator.mend\r\nconnection: close\r\n\r\n";
        let mut answer = Vec::new();
        // The coordinator may close the connection before it has read the request.
        if stream.write_all(request).await.is_ok() && stream.flush().await.is_ok() {
            let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("it ends");
        }
        (stream.get_ref().1.handshake_kind(), answer)
    };
    let (_, answer) = ask().await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (kind, answer) = ask().await;
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}
