//! Expiry times of members' certificates, as last presented. The status shows warnings about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use cluster::{RENEW_WITHIN, Role};

/// After this time, the expired certificate of a client, plug-in or monitor is taken for one that nobody uses any more.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// The number of certificates of one member that are remembered.
const REMEMBERED: usize = 16;

/// The expiry time of each member's certificate.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    expire: BTreeMap<String, (Role, SystemTime)>,
    /// The expiry times of the certificates that each member has ever shown. A member may use several at once.
    shown: BTreeMap<String, BTreeSet<SystemTime>>,
}

impl Certificates {
    /// Notes the certificate that a member has shown. Returns whether it is a new one. The first certificates of the
    /// coordinator, of helpers and of `client admin` are not new, because every cluster has them.
    pub(crate) fn note(&mut self, role: Role, expires: SystemTime) -> bool {
        let member = role.to_string();
        let shown = self.shown.entry(member.clone()).or_default();
        let is_expected = shown.is_empty() && (is_daemon(&role) || role == Role::default_client());
        let is_new = shown.insert(expires) && !is_expected;
        if shown.len() > REMEMBERED {
            shown.pop_first();
        }
        self.expire.insert(member, (role, expires));
        is_new
    }

    pub(crate) fn forget(&mut self, role: &Role) {
        self.expire.remove(&role.to_string());
        self.shown.remove(&role.to_string());
    }

    /// Returns when the certificates of the coordinator and of helpers expire, each with its member. Other members
    /// have one entry per role, such as `clients`: the first of their certificates in use to expire.
    pub(crate) fn expiries(&self, now: SystemTime) -> BTreeMap<String, SystemTime> {
        let mut expiries: BTreeMap<String, SystemTime> = BTreeMap::new();
        let used =
            self.expire.values().filter(|(role, expires)| is_daemon(role) || *expires + UNUSED_AFTER > now);
        for (role, expires) in used {
            let member = match role {
                Role::Coordinator | Role::Helper(_) => role.to_string(),
                Role::Client(_) => "clients".to_owned(),
                Role::Operator(_) => "operators".to_owned(),
                Role::Admin(_) => "admins".to_owned(),
                Role::Plugin(_) => "plugins".to_owned(),
                Role::Monitor(_) => "monitors".to_owned(),
            };
            expiries.entry(member).and_modify(|first| *first = (*first).min(*expires)).or_insert(*expires);
        }
        expiries
    }

    /// Returns a warning for each certificate that has expired or will expire soon, by the role in it.
    pub(crate) fn warnings(&self, now: SystemTime) -> BTreeMap<String, Warning> {
        let mut warnings = BTreeMap::new();
        for (role, expires) in self.expire.values() {
            let when = match expires.duration_since(now) {
                Ok(left) if left >= RENEW_WITHIN => continue,
                Ok(left) => format!("expires in {}", days(left)),
                Err(past) if past.duration() > UNUSED_AFTER && !is_daemon(role) => continue,
                Err(past) => format!("expired {} ago", days(past.duration())),
            };
            let text = format!(
                "the certificate of {role} {when}: run `mend renew` on the machine with ca.key, then copy \
                 the new files to the machine of {role}"
            );
            let has_expired = *expires <= now;
            warnings.insert(
                role.to_string(),
                Warning { text, has_expired, stops: has_expired && is_daemon(role) },
            );
        }
        warnings
    }
}

/// A certificate that has expired or will expire soon.
#[derive(Debug)]
pub(crate) struct Warning {
    pub text: String,
    pub has_expired: bool,
    /// Whether the coordinator or a helper cannot connect any more.
    pub stops: bool,
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
        assert!(told.len() == 1 && coordinator.text.contains("coordinator expired 2 days ago"), "{told:?}");
        assert!(coordinator.has_expired && coordinator.stops);
        let told = certificates.warnings(now + 3 * day);
        let helper_told = &told[&helper.to_string()];
        assert!(helper_told.text.contains("helper h1 expires in 28 days") && !helper_told.has_expired);
        certificates.note(helper, now + 300 * day);
        certificates.forget(&Role::Coordinator);
        assert!(certificates.warnings(now + 3 * day).is_empty());
        certificates.note(Role::default_client(), now);
        assert_eq!(certificates.warnings(now + 30 * day).len(), 1);
        assert!(certificates.warnings(now + 31 * day).is_empty(), "nobody uses it any more");
    }

    #[test]
    fn the_first_certificate_in_use_to_expire_counts_for_each_role() {
        let at = |days: u64| UNIX_EPOCH + Duration::from_secs(days * 86_400);
        let client = |name: &str| Role::Client(name.parse().unwrap());
        let mut certificates = Certificates::default();
        certificates.note(client("ann"), at(300));
        certificates.note(client("bob"), at(200));
        certificates.note(client("carl"), at(50));
        certificates.note(Role::Helper("h1".parse().unwrap()), at(90));
        let expected = BTreeMap::from([("clients".to_owned(), at(200)), ("helper h1".to_owned(), at(90))]);
        assert_eq!(certificates.expiries(at(100)), expected, "nobody uses the certificate of carl any more");
    }

    #[test]
    fn a_member_that_alternates_between_certificates_has_two_new_ones() {
        let at = |days: u64| UNIX_EPOCH + Duration::from_secs(days * 86_400);
        let operator = Role::Operator("olga".parse().unwrap());
        let mut certificates = Certificates::default();
        let new = [1, 2, 1, 2, 1].map(|days| certificates.note(operator.clone(), at(days)));
        assert_eq!(new, [true, true, false, false, false]);
        let new = [1, 2, 1].map(|days| certificates.note(Role::Coordinator, at(days)));
        assert_eq!(new, [false, true, false]);
    }
}
