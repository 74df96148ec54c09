//! Authorization of the admin API: by the user at the control socket, or by the token.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Problem;
use crate::caller::Caller;
use crate::state::SharedState;

/// Middleware: passes requests of trusted callers, and those that carry the token (RFC 6750,
/// section 2.1).
pub(super) async fn authorize(
    State(state): SharedState,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.extensions().get::<Caller>().is_some_and(|caller| caller.is_trusted()) {
        return Ok(next.run(request).await);
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (status, error) = match state.is_token(given.map_or("", |(_, token)| token.trim())) {
        Some(true) => return Ok(next.run(request).await),
        Some(false) if given.is_some() => {
            (StatusCode::UNAUTHORIZED, "this is not the token of admin.token_file".to_owned())
        }
        Some(false) => (
            StatusCode::UNAUTHORIZED,
            "send the token of admin.token_file: `Authorization: Bearer TOKEN`".to_owned(),
        ),
        None => (
            StatusCode::FORBIDDEN,
            format!(
                "the admin API needs a token, and none is set: {}; for other clients write a token \
                 into a file, set admin.token_file and reload",
                state.socket()
            ),
        ),
    };
    Err(Problem::new(status, error))
}
