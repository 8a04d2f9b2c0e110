//! Runs `mend` as a client, to completion or until it is killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::cluster::{Cluster, pid};

/// The time after which a verb counts as hanging.
pub const HANG: Duration = Duration::from_secs(120);

/// A fault that hits a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Spared,
    Killed { after: Duration },
    Stopped { after: Duration, pause: Duration },
}

/// The outcome of a client.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` if the client was killed or hung.
    pub code: Option<i32>,
    pub killed: bool,
    pub hung: bool,
    pub took: Duration,
    /// The file that holds the standard output.
    pub out: PathBuf,
    pub err: String,
}

impl Ran {
    pub fn out_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.out).unwrap_or_default()).into_owned()
    }

    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.out_text()).ok()
    }

    /// Describes the outcome in a few words.
    pub fn words(&self) -> String {
        let code = match self.code {
            Some(code) => format!("exit {code}"),
            None if self.hung => "HUNG".to_owned(),
            None => "killed".to_owned(),
        };
        let err = self.err.trim().replace('\n', " | ");
        format!("{code} after {} ms {err}", self.took.as_millis())
    }
}

/// Runs `mend` and writes its output to `<label>.out` and `<label>.err`.
pub fn run(cluster: &Cluster, label: &str, arguments: &[&str], fate: Fate) -> Ran {
    let out = cluster.path("operations").join(format!("{label}.out"));
    let err = out.with_extension("err");
    let mut command = cluster.command(arguments);
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    let ended = wait(&mut child, start, fate);
    let code = ended.and_then(|status| status.code());
    let killed = ended.is_some() && code.is_none();
    let err = String::from_utf8_lossy(&std::fs::read(err).unwrap_or_default()).into_owned();
    Ran { code, killed, hung: ended.is_none(), took: start.elapsed(), out, err }
}

/// Waits for a client to exit and subjects it to `fate`. Returns `None` if the client hangs.
fn wait(child: &mut Child, start: Instant, mut fate: Fate) -> Option<ExitStatus> {
    let mut resume = None;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        match fate {
            Fate::Killed { after } if start.elapsed() >= after => {
                let _ = child.kill(); // The client may have just ended.
                fate = Fate::Spared;
            }
            Fate::Stopped { after, pause } if start.elapsed() >= after => {
                let _ = kill_process(pid(child), Signal::STOP);
                resume = Some(Instant::now() + pause);
                fate = Fate::Spared;
            }
            _ => {}
        }
        if resume.is_some_and(|at| Instant::now() >= at) {
            let _ = kill_process(pid(child), Signal::CONT);
            resume = None;
        }
        if start.elapsed() > HANG {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(3));
    }
}
