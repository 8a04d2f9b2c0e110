//! Charges all answers of the API that no handler has charged, such as errors, documents and metrics, when they leave the
//! API. So no route can forget it.

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serving::Caller;

use super::answers::{self, Account, NoRoom};
use super::asking::{ApiError, Asking};

/// Marks an answer that was charged while it was made, or whose length is not known: a stream, which charges its pieces
/// or has only a small one in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charged;

/// Charges an answer to the caller, if no handler has done so.
pub(super) async fn charge_rest(
    State(core): State<Asking>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let answer = next.run(request).await;
    // A caller without a role is refused with a short answer.
    let Some(member) = &caller.role else { return answer };
    match charged(answer, core.account(member)).await {
        Ok(answer) => answer,
        // The answer was to a read, or an error: nothing was changed.
        Err(no_room) => ApiError::from(no_room).into_response(),
    }
}

async fn charged(answer: Response, account: Account) -> Result<Response, NoRoom> {
    if answer.extensions().get::<Charged>().is_some() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("the answer is in memory");
    Ok(Response::from_parts(head, Body::from(answers::charge(body, Some(account))?)))
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::http::StatusCode;

    use super::*;
    use crate::api::answers::Answers;
    use crate::api::asking::{Kind, failure};

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn answers_that_no_handler_has_charged_are_charged() {
        let answers = Answers::within(8 * MIB, 4 * MIB);
        let member = cluster::Role::Client("ann".parse().unwrap());
        let account = || answers.account(&member, Kind::Read);
        let text = || "x".repeat(3 * MIB);
        let document = charged(text().into_response(), account()).await.unwrap();
        let error = failure(StatusCode::NOT_FOUND, text(), String::new());
        assert_eq!(charged(error, account()).await.unwrap_err(), NoRoom::Member);
        let short = failure(StatusCode::NOT_FOUND, "there is no file".to_owned(), String::new());
        assert_eq!(charged(short, account()).await.unwrap().status(), StatusCode::NOT_FOUND);
        let by_handler = (Extension(Charged), text()).into_response();
        let by_handler = charged(by_handler, account()).await.unwrap();
        drop(document);
        let error = failure(StatusCode::NOT_FOUND, text(), String::new());
        let error = charged(error, account()).await.unwrap();
        assert_eq!(error.status(), StatusCode::NOT_FOUND);
        for (answer, length) in
            [(by_handler, 3 * MIB), (error, 3 * MIB + r#"{"error":"","next_step":""}"#.len())]
        {
            assert_eq!(to_bytes(answer.into_body(), usize::MAX).await.unwrap().len(), length);
        }
    }
}
