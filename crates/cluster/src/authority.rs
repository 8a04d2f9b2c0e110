//! The cluster's certificate authority: issues the certificates of members.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use webpki::EndEntityCert;

use crate::durable::{self, FileError, PRIVATE, PUBLIC};
use crate::pair::Pair;
use crate::{ClusterId, Role};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The lifetime of the authority's certificate: twenty years, longer than the disks will last. Once it has
/// expired, every connection and so every repair fails.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(20 * 365);
/// The default lifetime of a member's certificate: ten years, because certificates are not renewed
/// automatically (`docs/guides/keys.md`).
const CERTIFICATE_LIFETIME: Duration = DAY.saturating_mul(10 * 365);
/// How far the clock of another machine may lag behind the issuing machine's clock when a certificate is
/// issued.
pub(crate) const CLOCK_SKEW: Duration = DAY;

/// The reason why a certificate could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// This copy of the cluster folder has no `ca.key`.
    #[error(
        "{} is missing, so this machine cannot issue certificates; run this where `mend init` ran, or \
         restore ca.key from its backup",
        key.display()
    )]
    NoAuthorityKey {
        /// The expected path of the key.
        key: PathBuf,
    },
    /// `ca.key` and `ca.pem` belong to different authorities.
    #[error("{} is not the key of {}; restore both from one backup", key.display(), certificate.display())]
    OtherAuthorityKey {
        /// The key.
        key: PathBuf,
        /// The certificate that the key does not match.
        certificate: PathBuf,
    },
    /// A file of the authority is not PEM of the expected kind.
    #[error("{} is damaged ({reason}); restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The decoder's message.
        reason: String,
    },
    /// The certificate could not be created; only a failing random source or signer causes this.
    #[error("cannot create a certificate for {role}: {source}")]
    Make {
        /// The role that the certificate was for.
        role: Role,
        /// The certificate library's error.
        source: rcgen::Error,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A certificate authority that can sign.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority and writes its certificate and key.
    pub(crate) fn create(
        cluster_id: ClusterId,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, AuthorityError> {
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = authority_params(cluster_id);
        durable::replace(certificate, params.self_signed(&key_pair)?.pem().as_bytes(), PUBLIC)?;
        durable::replace(key, key_pair.serialize_pem().as_bytes(), PRIVATE)?;
        Ok(Self { issuer: Issuer::new(params, key_pair) })
    }

    /// Loads the authority of a cluster folder. If `ca.pem` holds several certificates, the first one signs.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, IssueError> {
        let damaged = |path: &Path, reason: String| IssueError::Damaged { path: path.to_owned(), reason };
        if !key.exists() {
            return Err(IssueError::NoAuthorityKey { key: key.to_owned() });
        }
        let key_pair =
            KeyPair::from_pem(&durable::read(key)?).map_err(|error| damaged(key, error.to_string()))?;
        let der = CertificateDer::from_pem_slice(durable::read(certificate)?.as_bytes())
            .map_err(|error| damaged(certificate, error.to_string()))?;
        let parsed =
            EndEntityCert::try_from(&der).map_err(|error| damaged(certificate, error.to_string()))?;
        if parsed.subject_public_key_info().as_ref() != key_pair.subject_public_key_info() {
            return Err(IssueError::OtherAuthorityKey {
                key: key.to_owned(),
                certificate: certificate.to_owned(),
            });
        }
        let issuer = Issuer::from_ca_cert_der(&der, key_pair)
            .map_err(|error| damaged(certificate, error.to_string()))?;
        Ok(Self { issuer })
    }

    /// Creates a key and a certificate for `role` and writes them, replacing existing ones.
    pub(crate) fn issue(
        &self,
        role: &Role,
        lifetime: Option<Duration>,
        files: Pair<'_>,
    ) -> Result<(), IssueError> {
        let (certificate_pem, key_pem) = self
            .make(role, lifetime.unwrap_or(CERTIFICATE_LIFETIME))
            .map_err(|source| IssueError::Make { role: role.clone(), source })?;
        Ok(files.replace(&certificate_pem, &key_pem)?)
    }

    fn make(&self, role: &Role, lifetime: Duration) -> Result<(String, String), rcgen::Error> {
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = role_params(role, lifetime)?.signed_by(&key_pair, &self.issuer)?;
        Ok((certificate.pem(), key_pair.serialize_pem()))
    }
}

/// The reason why a new authority could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error(transparent)]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

fn authority_params(cluster_id: ClusterId) -> CertificateParams {
    let mut params = params_for(format!("Mend cluster {cluster_id}"), AUTHORITY_LIFETIME);
    // Path length 0: the authority may sign members' certificates, but no further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn role_params(role: &Role, lifetime: Duration) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params_for(role.to_string(), lifetime);
    params.subject_alt_names = vec![rcgen::SanType::DnsName(role.dns_name().try_into()?)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A helper is both a TLS client and a TLS server: it dials the coordinator, and other helpers dial it.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params_for(common_name: String, lifetime: Duration) -> CertificateParams {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SKEW);
    params.not_after = date_time_ymd(1970, 1, 1) + now + lifetime;
    params
}
