//! Expiry times of members' certificates, as last presented. The status shows warnings about them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use cluster::{RENEW_WITHIN, Role};

/// After this time, the expired certificate of a client, plug-in or monitor is taken for one that nobody uses any more.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// The expiry time of each member's certificate.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    expire: BTreeMap<String, (Role, SystemTime)>,
}

impl Certificates {
    /// Notes the certificate that a member has shown. Returns whether it replaces another one.
    pub(crate) fn note(&mut self, role: Role, expires: SystemTime) -> bool {
        let before = self.expire.insert(role.to_string(), (role, expires));
        before.is_some_and(|(_, before)| before != expires)
    }

    pub(crate) fn forget(&mut self, role: &Role) {
        self.expire.remove(&role.to_string());
    }

    /// Returns when the certificates of the coordinator and of helpers expire, each with its member.
    pub(crate) fn expiries(&self) -> Vec<(String, SystemTime)> {
        let daemons = self.expire.iter().filter(|(_, (role, _))| is_daemon(role));
        daemons.map(|(member, (_, expires))| (member.clone(), *expires)).collect()
    }

    /// Returns one sentence for each certificate that has expired or will expire soon, by the role in it.
    pub(crate) fn warnings(&self, now: SystemTime) -> BTreeMap<String, String> {
        let mut warnings = BTreeMap::new();
        for (role, expires) in self.expire.values() {
            let when = match expires.duration_since(now) {
                Ok(left) if left >= RENEW_WITHIN => continue,
                Ok(left) => format!("expires in {}", days(left)),
                Err(past) if past.duration() > UNUSED_AFTER && !is_daemon(role) => continue,
                Err(past) => format!("expired {} ago", days(past.duration())),
            };
            let warning = format!(
                "the certificate of {role} {when}: run `mend renew` on the machine with ca.key, then copy \
                 the new files to the machine of {role}"
            );
            warnings.insert(role.to_string(), warning);
        }
        warnings
    }
}

fn is_daemon(role: &Role) -> bool {
    matches!(role, Role::Coordinator | Role::Helper(_))
}

fn days(time: Duration) -> String {
    match time.as_secs() / 86_400 {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn certificates_that_expire_within_30_days_are_reported_until_renewed() {
        let day = Duration::from_secs(86_400);
        let now = UNIX_EPOCH + 20_000 * day;
        let helper = Role::Helper("h1".parse().unwrap());
        let mut certificates = Certificates::default();
        certificates.note(helper.clone(), now + 31 * day);
        certificates.note(Role::Coordinator, now - 2 * day);
        let told = certificates.warnings(now);
        let coordinator = &told[&Role::Coordinator.to_string()];
        assert!(told.len() == 1 && coordinator.contains("coordinator expired 2 days ago"), "{told:?}");
        let told = certificates.warnings(now + 3 * day);
        assert!(told[&helper.to_string()].contains("helper h1 expires in 28 days"), "{told:?}");
        certificates.note(helper, now + 300 * day);
        certificates.forget(&Role::Coordinator);
        assert!(certificates.warnings(now + 3 * day).is_empty());
        certificates.note(Role::default_client(), now);
        assert_eq!(certificates.warnings(now + 30 * day).len(), 1);
        assert!(certificates.warnings(now + 31 * day).is_empty(), "nobody uses it any more");
    }
}
