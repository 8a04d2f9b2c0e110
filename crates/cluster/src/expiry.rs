//! Expiry of certificates.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Mend warns of each certificate that expires within this time.
pub const RENEW_WITHIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Returns the expiry time of a certificate; `None` if the certificate cannot be parsed.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether a handshake failed because our certificate or the peer's has expired.
pub fn is_certificate_expired(error: &io::Error) -> bool {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert == AlertDescription::CertificateExpired,
        Some(error) => is_expired(error),
        // Some libraries keep only the text of an alert.
        None => {
            let alert = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
            error.get_ref().is_some_and(|cause| cause.to_string() == alert.to_string())
        }
    }
}

/// Whether the rustls error means an expired certificate.
pub(crate) fn is_expired(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        )
    )
}
