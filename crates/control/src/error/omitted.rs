//! Why helpers cannot receive blocks, and how they can again.

use std::fmt;

/// Helpers that placement excludes, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    pub(crate) down: Vec<String>,
    /// Helpers that are not connected and are in maintenance.
    pub(crate) maintained: Vec<String>,
    /// Helpers whose servers the store reports as out of service.
    pub(crate) out_of_service: Vec<String>,
    pub(crate) leaving: Vec<String>,
    /// Helpers that cannot write to their disks.
    pub(crate) unwritable: Vec<String>,
    pub(crate) full: Vec<String>,
    /// Helpers that returned without most of their blocks.
    pub(crate) hollow: Vec<String>,
}

impl Omitted {
    /// Returns the reasons for excluding helpers. If no helper is excluded, each already has a block of the
    /// stripe.
    pub(crate) fn why(&self) -> String {
        match *self == Self::default() {
            true => "each helper holds a block of the stripe already".to_owned(),
            false => self.to_string(),
        }
    }

    /// Like [`why`](Self::why), for the case that only named helpers may receive blocks.
    pub(crate) fn why_of_named(&self) -> String {
        match *self == Self::default() {
            true => "each of these helpers holds a block of the stripe already".to_owned(),
            false => self.to_string(),
        }
    }

    fn groups(&self) -> [(&'static str, &[String]); 7] {
        [
            ("down", &self.down),
            ("down for maintenance", &self.maintained),
            ("out of service", &self.out_of_service),
            ("being emptied", &self.leaving),
            ("unable to write", &self.unwritable),
            ("full", &self.full),
            ("returned without most of its blocks", &self.hollow),
        ]
    }

    /// Returns the steps that let helpers accept blocks again, one per reason.
    pub(crate) fn remedy(&self) -> String {
        self.remedy_or("add a helper (mend node add)")
    }

    /// Returns the steps that let helpers accept blocks again, one per reason, followed by the step `last`.
    pub(crate) fn remedy_or(&self, last: &str) -> String {
        let mut steps = Vec::new();
        let absent = [&self.down[..], &self.maintained].concat();
        if !absent.is_empty() {
            steps.push(format!("start {} (mend helper NAME)", absent.join(", ")));
        }
        if !self.out_of_service.is_empty() {
            steps.push(format!("restart the servers of {}", self.out_of_service.join(", ")));
        }
        steps.extend(
            self.leaving
                .iter()
                .map(|name| format!("stop the drain of {name} (mend node drain {name} --stop)")),
        );
        if !self.unwritable.is_empty() {
            steps.push(format!("make the disks of {} writable", self.unwritable.join(", ")));
        }
        if !self.full.is_empty() {
            steps.push(format!("free space on {}", self.full.join(", ")));
        }
        if !self.hollow.is_empty() {
            let hollow = self.hollow.join(", ");
            steps.push(format!("mount the disk of {hollow} (if it is a new one: mend repair --all)"));
        }
        steps.push(last.to_owned());
        match steps.pop() {
            Some(last) if !steps.is_empty() => format!("{}, or {last}", steps.join(", ")),
            last => last.unwrap_or_default(),
        }
    }
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.groups().into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = named.map(|(why, names)| format!("{why}: {}", names.join(", "))).collect();
        match parts.is_empty() {
            true => f.write_str("there are no other helpers"),
            false => f.write_str(&parts.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_listed_with_its_remedy() {
        assert_eq!(Omitted::default().to_string(), "there are no other helpers");
        assert_eq!(Omitted::default().remedy(), "add a helper (mend node add)");
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let omitted = Omitted {
            down: names(&["h1"]),
            maintained: names(&["h2"]),
            leaving: names(&["h3", "h4"]),
            full: names(&["h5"]),
            ..Omitted::default()
        };
        assert_eq!(
            omitted.to_string(),
            "down: h1; down for maintenance: h2; being emptied: h3, h4; full: h5"
        );
        assert_eq!(
            omitted.remedy(),
            "start h1, h2 (mend helper NAME), stop the drain of h3 (mend node drain h3 --stop), stop the \
             drain of h4 (mend node drain h4 --stop), free space on h5, or add a helper (mend node add)"
        );
    }
}
