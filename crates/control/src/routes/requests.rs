//! Requests of the API, by topic. Each topic has its own file.

use serde_json::Value;
use views::{Condition, FileWorkReport, MuteRequest, SettingsRequest, SettingsView};

use crate::answers::conditions::{concerns, loud};
use crate::answers::nodes::settings_view;
use crate::commands::{ClusterCommand, Command};
use crate::conditions;
use crate::control::{Control, facts};
use crate::error::ConditionError;
use crate::error::RequestError;
use crate::history;
use crate::out::answer;
use crate::storing::then::Then;

impl Control {
    pub(crate) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Cluster(command) => command.carry_out(self),
            Command::File(command) => command.carry_out(self),
            Command::Stripe(command) => command.carry_out(self),
            Command::Repair(command) => command.carry_out(self),
            Command::Node(command) => command.carry_out(self),
            Command::Network(command) => command.carry_out(self),
            Command::Scrub(command) => {
                self.scrub.carry_out(facts!(self), &self.jobs, command, &mut self.out);
            }
            Command::Catalog(command) => command.carry_out(self),
        }
    }
}

impl ClusterCommand {
    fn carry_out(self, control: &mut Control) {
        match self {
            Self::Status(reply) => {
                refresh_status(control);
                answer(reply, control.answers().status(), &mut control.out);
            }
            Self::History(since, most, reply) => {
                control.out.answer(reply, Ok(control.history.history(since, most)));
            }
            Self::HistoryPage(after, since, most, reply) => {
                control.out.answer(reply, Ok(control.history.page(after, since, most)));
            }
            Self::NoteFileWork(report, member, reply) => {
                answer(reply, note_file_work(control, report, &member), &mut control.out);
            }
            Self::Audit(since, most, reply) => {
                control.out.answer(reply, Ok(control.audit.entries(since, most)));
            }
            Self::NoteAudit(request, reply) => {
                let (unix_ms, then) = (control.base.unix_ms, Then::Audited(reply));
                control.audit.note(*request, unix_ms, then, &mut control.out);
            }
            Self::Settings(reply) => {
                let view = settings_view(control.facts());
                control.out.answer(reply, Ok(view));
            }
            Self::ChangeSettings(request, reply) => {
                answer(reply, change_settings(control, &request), &mut control.out);
            }
            Self::Mute(code, request, reply) => {
                answer(reply, mute(control, &code, Some(request)), &mut control.out);
            }
            Self::Metrics(reply) => {
                refresh_status(control);
                answer(reply, control.answers().metrics(), &mut control.out);
            }
            Self::Unmute(code, reply) => answer(reply, mute(control, &code, None), &mut control.out),
        }
    }
}

fn note_file_work(
    control: &mut Control,
    report: FileWorkReport,
    member: &str,
) -> Result<Value, RequestError> {
    control.storing.check_storage()?;
    control.out.note(history::reported(report, member));
    Ok(Value::Null)
}

fn change_settings(control: &mut Control, request: &SettingsRequest) -> Result<SettingsView, RequestError> {
    control.storing.check_storage()?;
    control.nodes.change_settings(&control.base, request, &mut control.out)?;
    Ok(settings_view(control.facts()))
}

/// Mutes a condition, or ends its mute if there is no request.
fn mute(control: &mut Control, code: &str, request: Option<MuteRequest>) -> Result<Condition, RequestError> {
    control.storing.check_storage()?;
    refresh_status(control);
    let found = control.answers().findings()?;
    let (finding, unix_ms) = (conditions::named(code, &found)?, control.base.unix_ms);
    match request {
        Some(request) => {
            let concerns = concerns(control.answers(), finding);
            control.conditions.mute(finding, concerns, request, unix_ms, &mut control.out);
        }
        None if control.answers().condition(finding).muted => {
            control.conditions.unmute(finding, unix_ms, &mut control.out);
        }
        None => return Err(ConditionError::NotMuted(finding.code).into()),
    }
    Ok(control.answers().condition(finding))
}

/// Remembers at intervals which conditions have begun and ended.
pub(crate) fn note_conditions(control: &mut Control) {
    if !control.conditions.is_due(control.base.now) {
        return;
    }
    refresh_status(control);
    let is_partial = control.answers().is_partial();
    match control.answers().findings() {
        Ok(found) => {
            let loud = loud(control.answers(), &found);
            control.conditions.note(&found, &loud, is_partial, control.base.unix_ms, &mut control.out);
            if !is_partial {
                let is_lost =
                    control.stripes.picture.kinds().any(|kind| kind.stripes > 0 && !kind.lost.is_empty());
                control.conditions.note_loss(is_lost, control.base.unix_ms, &mut control.out);
            }
            control.scrub.note_unscrubbed(facts!(control), &mut control.out);
        }
        Err(error) => tracing::error!(%error, "cannot determine the conditions"),
    }
}

/// Repeats each check that the status shows, if the last result of the check is too old.
fn refresh_status(control: &mut Control) {
    let now = control.base.now;
    control.repairs.nodes.look_for_room(facts!(control), &control.jobs);
    if control.nodes.settled && control.repairs.fullness.is_due(now) {
        let advice = control.answers().find_spare();
        control.repairs.fullness.set(advice, now);
    }
}
