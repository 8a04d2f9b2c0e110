//! Mutual TLS as configured by SeaweedFS's `security.toml`.
//!
//! Like SeaweedFS's own clients, Mend checks only that a certificate was signed by the cluster's CA, and
//! ignores the host names in it. A stricter check would reject working clusters.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use toml_edit::DocumentMut;

/// How to connect to the cluster's servers: in plain text, or with TLS certificates.
#[derive(Clone, Debug, Default)]
pub struct Security(Option<Arc<ClientConfig>>);

/// Why a `security.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not valid TOML.
    #[error("{path}: {why}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The problem, with its line.
        why: String,
    },
    /// The file names only some of the required files.
    #[error("{path}: TLS needs `ca` in [grpc], and `cert` and `key` in [grpc.client]; {missing} is missing")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing entry.
        missing: &'static str,
    },
    /// A certificate or key cannot be used.
    #[error("{path}: {why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

/// The certificate files that `security.toml` names.
struct Named {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Security {
    /// Returns the setting for plain text without TLS.
    pub fn plain() -> Self {
        Self(None)
    }

    /// Reads the sections `[grpc]` and `[grpc.client]` of a `security.toml`. Relative paths in the file start
    /// at the file's folder. If the file names no certificates, connections are in plain text, as in
    /// SeaweedFS.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub fn of_toml(path: &Path) -> Result<Self, SecurityError> {
        let text = read(path)?;
        let text = String::from_utf8_lossy(&text);
        let file: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| SecurityError::Toml {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        named(path, &file)?
            .map_or_else(|| Ok(Self::plain()), |named| config(&named).map(|tls| Self(Some(tls))))
    }

    /// Returns the TLS configuration; `None` for plain text.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.0.as_ref()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, SecurityError> {
    fs::read(path).map_err(|source| SecurityError::Io { path: path.to_owned(), source })
}

fn named(path: &Path, file: &DocumentMut) -> Result<Option<Named>, SecurityError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let grpc = file.get("grpc");
    let client = grpc.and_then(|grpc| grpc.get("client"));
    let value = |section: Option<&toml_edit::Item>, key: &str| {
        let text = section?.get(key)?.as_str()?;
        (!text.is_empty()).then(|| folder.join(text))
    };
    // A certificate that is only for clients (`client_cert`) takes precedence over the common one (`cert`).
    let own = (value(client, "client_cert"), value(client, "client_key"));
    let (cert, key) = match own {
        (Some(cert), Some(key)) => (Some(cert), Some(key)),
        _ => (value(client, "cert"), value(client, "key")),
    };
    let incomplete = |missing| SecurityError::Incomplete { path: path.to_owned(), missing };
    match (value(grpc, "ca"), cert, key) {
        (None, None, None) => Ok(None),
        (ca, cert, key) => Ok(Some(Named {
            ca: ca.ok_or_else(|| incomplete("`ca`"))?,
            cert: cert.ok_or_else(|| incomplete("`cert`"))?,
            key: key.ok_or_else(|| incomplete("`key`"))?,
        })),
    }
}

fn config(named: &Named) -> Result<Arc<ClientConfig>, SecurityError> {
    let provider = Arc::new(ring::default_provider());
    let bad = |path: &Path, why: String| SecurityError::Pem { path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&named.ca)? {
        roots.add(certificate).map_err(|error| bad(&named.ca, error.to_string()))?;
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let inner = inner.map_err(|error| bad(&named.ca, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&named.key)?);
    let key = key.map_err(|error| bad(&named.key, error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| bad(&named.cert, error.to_string()))?;
    let mut tls = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OfThisCa(inner)))
        .with_client_auth_cert(certificates(&named.cert)?, key)
        .map_err(|error| bad(&named.cert, error.to_string()))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(tls))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let bad = |why: String| SecurityError::Pem { path: path.to_owned(), why };
    let found = found.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() { Err(bad("it contains no certificate".to_owned())) } else { Ok(found) }
}

/// Accepts every certificate that the cluster's CA has signed, whatever host name it contains.
#[derive(Debug)]
struct OfThisCa(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfThisCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // The verifier checks the name last, so a wrong name is the only problem left.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
