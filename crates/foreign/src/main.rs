//! Compares Mend's codes with the encoders of the systems whose blocks Mend repairs.
//!
//! Each encoder gets random data, and its parity must equal Mend's byte for byte. Every single loss is
//! repaired from the encoder's blocks, with three orders of preference for the blocks to read. Larger losses
//! are repaired too: all of them, or a sample if there are too many. As a control, both the comparison and a
//! repair must detect a flipped bit. `scripts/foreign` installs the encoders, `foreign/` contains the
//! drivers, and `make test-foreign` runs everything.

#![forbid(unsafe_code)]

mod cases;
mod ceph;
mod driver;
mod relays;
mod stripe;

use std::path::PathBuf;
use std::process::ExitCode;

use cases::{Case, Encoder};
use stripe::{Stripe, Trials};

/// One line of the printed table: all cases of one family of an encoder.
struct Line {
    encoder: &'static str,
    family: String,
    sizes: Vec<(usize, usize)>,
    refused: usize,
    trials: Trials,
    failures: Vec<String>,
}

impl Line {
    fn new(encoder: &'static str, family: String) -> Self {
        Self {
            encoder,
            family,
            sizes: Vec::new(),
            refused: 0,
            trials: Trials::default(),
            failures: Vec::new(),
        }
    }

    /// Runs a case. If the encoder rejects the parameters, Mend must reject them too, and vice versa.
    fn run(&mut self, case: &Case, encoder: &mut dyn Encoder, seed: u64) {
        let encoded = encoder.encode(case, &mut fastrand::Rng::with_seed(seed));
        match (case.spec.parse::<codes::CodeSpec>(), encoded) {
            (Err(_), Err(_)) => self.refused += 1,
            (Ok(spec), Ok(encoded)) => {
                self.sizes.push((case.k, case.m));
                match Stripe::new(&spec, encoded).and_then(|stripe| stripe.check(seed)) {
                    Ok(trials) => self.trials += trials,
                    Err(failure) => self.fail(case, failure),
                }
            }
            (Err(error), Ok(_)) => self.fail(case, format!("Mend refuses it: {error}")),
            (Ok(_), Err(error)) => self.fail(case, format!("the encoder refuses it: {error}")),
        }
    }

    fn fail(&mut self, case: &Case, failure: String) {
        self.failures.push(format!("{} ({},{}) as {}: {failure}", self.encoder, case.k, case.m, case.spec));
    }

    fn cells(&self) -> [String; 7] {
        let range = |of: fn(&(usize, usize)) -> usize| {
            let (least, most) = (self.sizes.iter().map(of).min(), self.sizes.iter().map(of).max());
            match (least, most) {
                (Some(least), Some(most)) if least != most => format!("{least}–{most}"),
                (Some(least), _) => least.to_string(),
                _ => "none".into(),
            }
        };
        [
            self.encoder.into(),
            self.family.clone(),
            format!("{}: k {}, m {}", self.sizes.len(), range(|size| size.0), range(|size| size.1)),
            self.refused.to_string(),
            self.trials.repairs.to_string(),
            format!("{} of {}", self.trials.flips_found, self.trials.flips),
            if self.failures.is_empty() { "equal".into() } else { format!("{} DIFFER", self.failures.len()) },
        ]
    }
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: foreign FOLDER, where scripts/foreign has installed the encoders");
        return ExitCode::from(2);
    };
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("{}: {error}; run scripts/foreign {} first", folder.display(), folder.display());
            return ExitCode::from(2);
        }
    };
    let mut lines: Vec<Line> = Vec::new();
    for mut group in cases::groups(&folder) {
        for (case, seed) in group.cases.iter().zip(1..) {
            if lines.last().is_none_or(|line| (line.encoder, &line.family) != (case.encoder, &case.family)) {
                lines.push(Line::new(case.encoder, case.family.clone()));
            }
            lines.last_mut().expect("just pushed").run(case, &mut *group.encoder, seed);
        }
    }
    print(&lines)
}

fn print(lines: &[Line]) -> ExitCode {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "encoder",
        "Mend",
        "sizes",
        "refused by both",
        "repairs",
        "flipped bits found",
        "bytes",
    ]);
    table.add_rows(lines.iter().map(Line::cells));
    println!("{table}");
    let repairs: usize = lines.iter().map(|line| line.trials.repairs).sum();
    let sizes: usize = lines.iter().map(|line| line.sizes.len()).sum();
    println!("{} encoders, {sizes} codes, {repairs} repairs", lines.len());
    let failures: Vec<&String> = lines.iter().flat_map(|line| &line.failures).collect();
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    match failures.is_empty() && !lines.iter().any(|line| line.sizes.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
