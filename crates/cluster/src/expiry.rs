//! Validity periods of certificates.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::CLOCK_SKEW;

/// Mend warns of each certificate that expires within this time.
pub const RENEW_WITHIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Returns the expiry time of a certificate; `None` if the certificate cannot be parsed.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Returns the period for which a certificate was issued; `None` if the certificate cannot be parsed. The period
/// begins later than the certificate's validity, which leaves room for slow clocks.
pub(crate) fn lifetime(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
    let period = Duration::from_secs(u64::try_from(seconds).ok()?);
    // A certificate that another tool has issued may be shorter.
    Some(period.checked_sub(CLOCK_SKEW).filter(|rest| !rest.is_zero()).unwrap_or(period))
}

/// Why one side of a handshake rejected the other's certificate. The text is a predicate about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Our certificate has expired.
    #[error("does not accept our certificate, which has expired")]
    Expired,
    /// Our certificate is valid by the clock of this machine, but not by the peer's clock.
    #[error(
        "does not accept our certificate, which is valid by this machine's clock, but has expired or is not \
         valid yet by the clock there"
    )]
    ClocksDiffer,
    /// The peer's certificate has expired by the clock of this machine.
    #[error("has a certificate that has expired by this machine's clock")]
    PeerExpired,
    /// The peer's certificate is not valid yet by the clock of this machine.
    #[error("has a certificate that is not valid yet by this machine's clock")]
    PeerNotYetValid,
    /// The time is not the reason. The peer may belong to another cluster.
    #[error("is not the coordinator of this cluster, or does not accept our certificate")]
    Stranger,
}

impl Distrust {
    /// Finds the reason in the error of a handshake with the coordinator. Our certificate expires at
    /// `expires`.
    pub(crate) fn of(error: &io::Error, expires: SystemTime, now: SystemTime) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            _ if is_ours_rejected(error) => {
                if expires <= now {
                    Self::Expired
                } else {
                    Self::ClocksDiffer
                }
            }
            Some(error) if is_expired(error) => Self::PeerExpired,
            Some(error) if is_not_yet_valid(error) => Self::PeerNotYetValid,
            _ => Self::Stranger,
        }
    }

    /// Returns the operator's next step, if the time is the reason.
    pub fn next_step(self) -> Option<&'static str> {
        match self {
            Self::Expired => Some("run `mend renew` on the machine with ca.key"),
            Self::ClocksDiffer => Some("set the clocks of both machines, for example by NTP"),
            Self::PeerExpired => Some(
                "check this machine's clock; if it is right, run `mend renew` on the machine with ca.key",
            ),
            Self::PeerNotYetValid => Some("check this machine's clock"),
            Self::Stranger => None,
        }
    }
}

/// Whether the peer rejected our certificate because of its dates. The alert is the same for an expired
/// certificate and for one that is not valid yet.
fn is_ours_rejected(error: &io::Error) -> bool {
    let alert = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
    // Some libraries keep only the text of an alert.
    error.get_ref().is_some_and(|cause| cause.to_string() == alert.to_string())
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
    fn a_wrong_clock_is_not_taken_for_an_expired_certificate() {
        let [before, expires, after] = [1, 2, 3].map(|days| UNIX_EPOCH + Duration::from_secs(days * 86_400));
        let handshake = |error: CertificateError| io::Error::other(rustls::Error::InvalidCertificate(error));
        let of = |error: CertificateError| Distrust::of(&handshake(error), expires, before);
        let times = [1, 2].map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        let context = CertificateError::NotValidYetContext { time: times[0], not_before: times[1] };
        assert_eq!(of(context), Distrust::PeerNotYetValid);
        assert_eq!(of(CertificateError::NotValidYet), Distrust::PeerNotYetValid);
        assert_eq!(of(CertificateError::Expired), Distrust::PeerExpired);
        assert_eq!(of(CertificateError::UnknownIssuer), Distrust::Stranger);
        assert_eq!(Distrust::of(&io::ErrorKind::UnexpectedEof.into(), expires, after), Distrust::Stranger);

        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
        for rejected in [io::Error::other(alert.to_string()), io::Error::other(alert)] {
            assert_eq!(Distrust::of(&rejected, expires, before), Distrust::ClocksDiffer);
            assert_eq!(Distrust::of(&rejected, expires, after), Distrust::Expired);
        }
    }
}
