//! Files and puts.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::Value;
use store_api::PutId;
use utoipa::IntoParams;
use views::{ErrorBody, FileLayout, FileView, PutRequest, PutView};

use super::asking::{Answer, Asking, Body, number};
use control::Command;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FilesQuery {
    /// Only files whose names begin with this.
    #[serde(default)]
    prefix: String,
}

/// The files, by name.
#[utoipa::path(get, path = "/v1/files", params(FilesQuery), responses((status = 200, description = "The files", body = [FileView])))]
pub(super) async fn files(
    State(core): State<Asking>,
    Query(query): Query<FilesQuery>,
) -> Answer<Vec<FileView>> {
    core.ask(|reply| Command::Files(query.prefix, reply)).await
}

/// A file with its layout: where each of its bytes is.
#[utoipa::path(
    get,
    path = "/v1/files/{name}",
    params(("name" = String, Path, description = "The file's name, percent-encoded, `/` included")),
    responses((status = 200, description = "The file and where its bytes are", body = FileLayout), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn file(State(core): State<Asking>, Path(name): Path<String>) -> Answer<FileLayout> {
    core.ask(|reply| Command::File(name, reply)).await
}

/// Removes a file and its blocks.
#[utoipa::path(
    delete,
    path = "/v1/files/{name}",
    params(("name" = String, Path, description = "The file's name, percent-encoded, `/` included")),
    responses((status = 200, description = "The file", body = FileView), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn remove_file(State(core): State<Asking>, Path(name): Path<String>) -> Answer<FileView> {
    core.ask(|reply| Command::RemoveFile(name, reply)).await
}

/// Begins a put. Its stripes are then stored over a control connection.
#[utoipa::path(
    post,
    path = "/v1/puts",
    request_body = PutRequest,
    responses(
        (status = 200, description = "The put, and how the file is cut", body = PutView),
        (status = 400, description = "The request can never be carried out", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 503, description = "Too few helpers are up", body = ErrorBody)
    )
)]
pub(super) async fn begin_put(
    State(core): State<Asking>,
    Body(request): Body<PutRequest>,
) -> Answer<PutView> {
    core.ask(|reply| Command::BeginPut(request, reply)).await
}

/// Makes a put's file visible, all at once.
#[utoipa::path(
    post,
    path = "/v1/puts/{put}/commit",
    params(("put" = u64, Path, description = "The put's number")),
    responses(
        (status = 200, description = "The file", body = FileView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "A stripe is not stored, or the name is taken", body = ErrorBody)
    )
)]
pub(super) async fn commit_put(State(core): State<Asking>, Path(put): Path<String>) -> Answer<FileView> {
    let put = PutId(number(&put)?);
    core.ask(|reply| Command::CommitPut(put, reply)).await
}

/// Gives a put up and removes what was stored of it.
#[utoipa::path(
    delete,
    path = "/v1/puts/{put}",
    params(("put" = u64, Path, description = "The put's number")),
    responses((status = 200, description = "Nothing to say", body = Value), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn abort_put(State(core): State<Asking>, Path(put): Path<String>) -> Answer<Value> {
    let put = PutId(number(&put)?);
    core.ask(|reply| Command::AbortPut(put, reply)).await
}
