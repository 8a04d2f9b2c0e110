//! Requests about scrubs.

use crate::commands::ScrubCommand;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::{Out, answer};
use crate::scrub::state::Scrubs;

impl Scrubs {
    pub(crate) fn carry_out(&mut self, facts: Facts<'_>, jobs: &Jobs, command: ScrubCommand, out: &mut Out) {
        match command {
            ScrubCommand::Start(parity, reply) => {
                let started = self.start_scrub(facts, jobs, parity, out);
                answer(reply, started, out);
            }
            ScrubCommand::Stop(scrub, reply) => {
                let stopped = self.stop_scrub(facts, scrub, out);
                answer(reply, stopped, out);
            }
            ScrubCommand::State(scrub, reply) => answer(reply, self.scrub_state(scrub), out),
        }
    }
}
