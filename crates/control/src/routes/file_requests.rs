//! Requests about files and puts.

use repair::StripeId;
use serde_json::Value;
use store_api::PutId;
use store_api::{Answer, FileWrite, StoreError, Write};
use views::{FileLayout, FileView};

use crate::commands::FileCommand;
use crate::control::{Control, facts};
use crate::effect::Reply;
use crate::error::{FileError, RequestError};
use crate::jobs::continuation::PutThen;
use crate::jobs::puts::file_view;
use crate::out::answer;
use crate::storing::then::Then;

impl FileCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::List(prefix, reply) => {
                let files = control.stripes.picture.files().with_prefix(&prefix).map(file_view).collect();
                control.out.answer(reply, Ok(files));
            }
            Self::Layout(name, reply) => answer(reply, open_file(control, &name), &mut control.out),
            Self::Remove(name, reply) => remove_file(control, name, reply),
            Self::BeginPut(request, member, reply) => {
                control.jobs.begin_put(facts!(control), &request, member, reply, &mut control.out);
            }
            Self::CommitPut(put, reply) => {
                control.jobs.commit_put(facts!(control), put, reply, &mut control.out);
            }
            Self::AbortPut(put, reply) => control.abort_put(put, Some(reply)),
        }
    }
}

/// Returns the layout of a file, and gives the client a lease on it.
fn open_file(control: &mut Control, name: &str) -> Result<FileLayout, RequestError> {
    let first = control.stripes.picture.files().get(name).and_then(|file| file.stripes.first()).cloned();
    if let Some(record) = first.and_then(|first| control.stripes.stripe_record(&first).ok()) {
        control.stripes.readers.renew(&control.base, &record);
    }
    control.answers().file_layout(name)
}

fn remove_file(control: &mut Control, name: String, reply: Reply<FileView>) {
    match stripes_to_remove(control, &name) {
        Err(error) => answer(reply, Err::<FileView, _>(error), &mut control.out),
        Ok(stripes) => {
            // Suspends the stripes, so no repair of them starts during the write.
            stripes.iter().for_each(|stripe| control.repairs.scheduler.hold(stripe));
            let then = Then::FileRemoved { stripes, reply };
            control.out.store(Write::Files(FileWrite::RemoveFile(name)), then);
        }
    }
}

/// Returns the stripes of a file, if the file can be removed now.
fn stripes_to_remove(control: &Control, name: &str) -> Result<Vec<StripeId>, RequestError> {
    control.facts().check_not_behind()?;
    control.storing.check_storage()?;
    let file = control.stripes.picture.files().get(name);
    Ok(file.ok_or_else(|| FileError::NoSuchFile(name.to_owned()))?.stripes.clone())
}

/// Handles the result of the removal of a file. After a failure, its stripes can be repaired again.
pub(super) fn file_removed(
    control: &mut Control,
    stripes: &[StripeId],
    reply: Reply<FileView>,
    result: Result<Answer, StoreError>,
) {
    stripes.iter().for_each(|stripe| control.repairs.scheduler.let_go(stripe));
    match result {
        Ok(Answer::File(file)) => {
            file.stripes.iter().for_each(|stripe| control.repairs.scheduler.drop_stripe(stripe));
            control.poll_repairs();
            control.drain_jobs();
            control.out.answer(reply, Ok(file_view(&file)));
        }
        Ok(other) => unreachable!("expected the removed file, got {other:?}"),
        Err(error) => control.out.answer(reply, Err(error.into())),
    }
}

impl Control {
    pub(super) fn abort_put(&mut self, put: PutId, reply: Option<Reply<Value>>) {
        for job in self.jobs.jobs_of(put).collect::<Vec<_>>() {
            self.jobs.cancel_job(job);
        }
        self.drain_jobs();
        // Only recorded blocks can be removed. A job that is left still waits for a helper to commit another block.
        for job in self.jobs.jobs_of(put).collect::<Vec<_>>() {
            self.jobs.record_put(facts!(self), job, &mut self.out);
        }
        if self.jobs.puts.ending.insert(put) {
            self.out.store(Write::Files(FileWrite::AbortPut(put)), PutThen::Aborted { put, reply });
        } else if let Some(reply) = reply {
            self.out.answer(reply, Err(FileError::PutBusy(put).into()));
        }
    }

    /// Aborts puts that no client continues.
    pub(crate) fn abort_puts(&mut self, puts: &[PutId]) {
        for &put in puts {
            tracing::info!(%put, "aborting an unfinished put");
            self.abort_put(put, None);
        }
    }
}
