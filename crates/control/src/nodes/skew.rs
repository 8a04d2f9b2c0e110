//! Helpers that were refused because their program has another version.

use std::collections::BTreeMap;
use std::time::Duration;

/// A refused helper tries again every few seconds. If it has not tried for this long, it is forgotten.
const KEPT: Duration = Duration::from_secs(600);

/// The refused helpers: when each last tried to register, and why it was refused.
#[derive(Debug, Default)]
pub(crate) struct Skewed(BTreeMap<String, (Duration, String)>);

impl Skewed {
    /// Records the version check of a helper that tries to register.
    pub(crate) fn note(&mut self, helper: &str, checked: Result<(), String>, now: Duration) {
        match checked {
            Ok(()) => self.0.remove(helper),
            Err(why) => self.0.insert(helper.to_owned(), (now, why)),
        };
    }

    /// Returns the name of each helper that was refused lately, with the reason as a sentence.
    pub(crate) fn texts(&self, now: Duration) -> Vec<(String, String)> {
        let recent = self.0.iter().filter(|(_, (at, _))| now < *at + KEPT);
        recent
            .map(|(helper, (_, why))| (helper.clone(), format!("{helper} cannot register: {why}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_helper_is_named_until_it_has_the_right_version() {
        let mut skewed = Skewed::default();
        skewed.note("h1", Err("version 3".to_owned()), Duration::ZERO);
        let now = Duration::from_secs(60);
        assert_eq!(skewed.texts(now), [("h1".to_owned(), "h1 cannot register: version 3".to_owned())]);
        assert_eq!(skewed.texts(now + KEPT), []);
        skewed.note("h1", Ok(()), now);
        assert_eq!(skewed.texts(now), []);
    }
}
