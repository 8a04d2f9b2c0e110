//! Loads and verifies a member's certificate and key, and provides them as rustls configurations. After a
//! renewal, configurations that were already handed out present the new certificate as well.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SignatureScheme};

use crate::durable::{self, FileError};
use crate::expiry::{Distrust, expiry, is_expired, is_not_yet_valid};
use crate::pair::Pair;
use crate::{Role, peer_role};

/// The identity of this process: its role, and the TLS configurations that prove the role to other members.
///
/// [`load`](Self::load) checks everything that a handshake depends on, so the getters cannot fail.
#[derive(Clone)]
pub struct Identity {
    role: Role,
    files: Arc<Files>,
    current: Arc<Current>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    edge_server: Arc<ServerConfig>,
    edge_client: Arc<ClientConfig>,
}

/// The reason why an identity could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate or key is missing.
    #[error(
        "{} is missing; copy this member's folder from where `mend init` ran, or issue a new certificate there",
        path.display()
    )]
    Missing {
        /// The missing file.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not valid PEM of the expected kind.
    #[error("{} is damaged ({reason}); issue a new certificate", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The decoder's message.
        reason: String,
    },
    /// The key does not match the certificate, or its kind is unsupported.
    #[error("{} does not match {} ({source}); issue a new certificate", key.display(), certificate.display())]
    KeyMismatch {
        /// The key.
        key: PathBuf,
        /// The certificate.
        certificate: PathBuf,
        /// The rustls error.
        source: rustls::Error,
    },
    /// The certificate was issued by another authority, has expired, or is not valid yet.
    #[error(
        "{} is not accepted by {} ({source}): {}",
        certificate.display(),
        authority.display(),
        cause_and_remedy(.source)
    )]
    NotAccepted {
        /// The certificate.
        certificate: PathBuf,
        /// The authority's certificate.
        authority: PathBuf,
        /// The rustls error.
        source: rustls::Error,
    },
    /// The certificate belongs to another role.
    #[error("{} is the certificate of {found}, not of {expected}; copy the right member's folder", certificate.display())]
    WrongRole {
        /// The certificate.
        certificate: PathBuf,
        /// The expected role.
        expected: Role,
        /// The certificate's role.
        found: Role,
    },
}

impl IdentityError {
    /// Whether the only problem is that the certificate has expired.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::NotAccepted { source, .. } if is_expired(source))
    }

    /// Whether the only problem is that the certificate is not valid yet by the clock of this machine.
    pub fn is_not_yet_valid(&self) -> bool {
        matches!(self, Self::NotAccepted { source, .. } if is_not_yet_valid(source))
    }
}

/// Returns why a certificate is not accepted, and the operator's next step.
fn cause_and_remedy(error: &rustls::Error) -> &'static str {
    if is_not_yet_valid(error) {
        return "it is not valid yet: check this machine's clock";
    }
    match is_expired(error) {
        true => "it has expired: check this machine's clock; if it is right, issue a new certificate",
        false => "it belongs to another cluster; issue a new certificate",
    }
}

/// The files of an identity.
#[derive(Debug)]
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// The certificate to present in new handshakes; replaced after a renewal.
#[derive(Debug)]
struct Current(RwLock<Presented>);

#[derive(Clone, Debug)]
struct Presented {
    key: Arc<CertifiedKey>,
    pem: Vec<u8>,
    expires: SystemTime,
}

impl Current {
    fn get(&self) -> Presented {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().key)
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get().key)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Identity {
    /// Loads an identity from three PEM files: the trusted authorities, the member's certificate, and its
    /// key.
    ///
    /// All certificates in `authority` are trusted. This allows replacing an authority without downtime: the
    /// file lists the old and the new authority during the transition.
    ///
    /// # Errors
    /// If a file is missing or damaged, the key does not match, or the certificate has expired, belongs to
    /// another authority or does not state a role.
    pub fn load(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let roots = Arc::new(load_roots(authority)?);
        let pem = read(certificate)?;
        let chain = certificates_in(certificate, &pem)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());

        let accepts_peers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| damaged(authority, error))?;
        accepts_peers.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).map_err(|source| {
            IdentityError::NotAccepted {
                certificate: certificate.to_owned(),
                authority: authority.to_owned(),
                source,
            }
        })?;
        let role = peer_role(&chain)
            .ok_or_else(|| damaged(certificate, "it does not name a coordinator, helper or client"))?;

        let mismatch = |source| IdentityError::KeyMismatch {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
            source,
        };
        let accepts_servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| damaged(authority, error))?;
        let expires = expiry(&chain[0]).ok_or_else(|| damaged(certificate, "it has no date"))?;
        let certified = Pair { certificate, key }.load(&chain, &provider)?;
        let presented = Presented { key: Arc::new(certified), pem, expires };
        let current = Arc::new(Current(RwLock::new(presented)));
        let server = |provider: &Arc<CryptoProvider>| {
            server_config(provider, accepts_peers.clone(), current.clone()).map_err(mismatch)
        };
        let client = |provider: &Arc<CryptoProvider>| {
            client_config(provider, accepts_servers.clone(), current.clone()).map_err(mismatch)
        };
        let edges = Arc::new(edge_provider());
        let files = Files {
            authority: authority.to_owned(),
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        Ok(Self {
            role,
            files: Arc::new(files),
            current: current.clone(),
            server: Arc::new(server(&provider)?),
            // Resumption is off, because a resumed session would keep presenting the old certificate after a
            // renewal.
            client: Arc::new(without_resumption(client(&provider)?)),
            edge_server: Arc::new(without_tickets(server(&edges)?)),
            edge_client: Arc::new(without_resumption(client(&edges)?)),
        })
    }

    /// Like [`load`](Self::load), but rejects a certificate of any other role than `expected`.
    pub(crate) fn load_as(
        expected: &Role,
        authority: &Path,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, IdentityError> {
        let identity = Self::load(authority, certificate, key)?;
        if identity.role == *expected {
            return Ok(identity);
        }
        Err(IdentityError::WrongRole {
            certificate: certificate.to_owned(),
            expected: expected.clone(),
            found: identity.role,
        })
    }

    /// Reloads the certificate and key, and applies them to all configurations handed out. Returns whether
    /// they have changed. The trusted authorities stay as loaded.
    ///
    /// # Errors
    /// As [`load`](Self::load); the identity is then unchanged. If the files are being copied from another
    /// machine, the certificate and the key may briefly not match; this is an error too.
    pub fn refresh(&self) -> Result<bool, IdentityError> {
        let Files { authority, certificate, key } = &*self.files;
        if read(certificate)? == self.current.get().pem {
            return Ok(false);
        }
        let renewed = Self::load_as(&self.role, authority, certificate, key)?;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = renewed.current.get();
        Ok(true)
    }

    /// Returns the expiry time of the certificate.
    pub fn expires(&self) -> SystemTime {
        self.current.get().expires
    }

    /// Returns the reason why one side rejected the other's certificate in a handshake with this error.
    pub fn distrust(&self, error: &io::Error) -> Distrust {
        Distrust::of(error, self.expires(), SystemTime::now())
    }

    /// Returns the role of this process.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Returns the TLS configuration for accepting connections. It requires a certificate of this cluster
    /// from the peer.
    ///
    /// The handshake accepts any member; check [`peer_role`] before acting on the peer's requests.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// Returns the TLS configuration for dialling. It presents our certificate, and requires that the peer's
    /// certificate is of this cluster and contains the dialled server name, which [`Role::server_name`]
    /// returns.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// Like [`server_config`](Self::server_config), for data edges. Every session starts with a full
    /// handshake, after which the server sends nothing unsolicited.
    pub fn edge_server_config(&self) -> Arc<ServerConfig> {
        self.edge_server.clone()
    }

    /// Like [`client_config`](Self::client_config), for data edges: without session resumption.
    pub fn edge_client_config(&self) -> Arc<ClientConfig> {
        self.edge_client.clone()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configurations are omitted, because they hold the private key.
        f.debug_struct("Identity").field("role", &self.role).finish_non_exhaustive()
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    accepts: Arc<dyn ClientCertVerifier>,
    presented: Arc<Current>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(accepts);
    Ok(builder.with_cert_resolver(presented))
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    accepts: Arc<WebPkiServerVerifier>,
    presented: Arc<Current>,
) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(accepts);
    Ok(builder.with_client_cert_resolver(presented))
}

/// Returns a provider that prefers AES-128, which matches the strength of the P-256 keys in the certificates
/// and needs less CPU than AES-256.
fn edge_provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// Disables session tickets, which would arrive unsolicited on an idle connection and stay there unread.
fn without_tickets(mut config: ServerConfig) -> ServerConfig {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config
}

fn without_resumption(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

fn load_roots(authority: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in load_certificates(authority)? {
        roots.add(certificate).map_err(|error| damaged(authority, error))?;
    }
    Ok(roots)
}

/// Loads one or more certificates from a PEM file.
fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    certificates_in(path, &read(path)?)
}

pub(crate) fn certificates_in(
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| damaged(path, e))?;
    if certificates.is_empty() { Err(damaged(path, "it contains no certificate")) } else { Ok(certificates) }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    match durable::read(path) {
        Ok(text) => Ok(text.into_bytes()),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
            Err(IdentityError::Missing { path: path.to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn damaged(path: &Path, reason: impl fmt::Display) -> IdentityError {
    IdentityError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

/// Whether a handshake failed because one side rejected the other's certificate. Other failures, such as a
/// broken connection or a peer that is shutting down, may be transient.
///
/// With TLS 1.3, the accepting side checks the certificate after the dialling side's handshake is complete.
/// The errors of the first read or write are therefore relevant, too.
pub fn is_certificate_refused(error: &io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError
                | Alert::CertificateRequired
        ),
        _ => false,
    }
}
