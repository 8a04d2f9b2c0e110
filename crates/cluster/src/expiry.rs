//! Validity periods of certificates.

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

/// Whether a handshake failed because the peer's certificate is not valid yet by the clock of this machine.
///
/// A peer whose clock is slow rejects our certificate with an alert that does not distinguish this from an
/// expired certificate, see [`is_certificate_expired`].
pub fn is_certificate_not_yet_valid(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    cause.is_some_and(is_not_yet_valid)
}

/// Whether the rustls error means a certificate that is not valid yet.
pub(crate) fn is_not_yet_valid(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
        )
    )
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

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_slow_clock_is_not_taken_for_an_expired_certificate() {
        let handshake = |error: CertificateError| io::Error::other(rustls::Error::InvalidCertificate(error));
        let (early, late) = (handshake(CertificateError::NotValidYet), handshake(CertificateError::Expired));
        assert!(is_certificate_not_yet_valid(&early) && !is_certificate_expired(&early));
        assert!(is_certificate_expired(&late) && !is_certificate_not_yet_valid(&late));
        let times = [1, 2].map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        let context = CertificateError::NotValidYetContext { time: times[0], not_before: times[1] };
        assert!(is_certificate_not_yet_valid(&handshake(context)));
        assert!(!is_certificate_not_yet_valid(&handshake(CertificateError::UnknownIssuer)));
        assert!(!is_certificate_not_yet_valid(&io::ErrorKind::UnexpectedEof.into()));
    }
}
