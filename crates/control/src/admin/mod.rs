//! The admin API, `/api/v1`: for who has the token of `admin.token_file`.

pub mod export;
pub mod list;
pub mod reload;
pub mod swarm;
pub mod top;
pub mod upgrade;

mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::problem::Problem;
use super::routes::Route;
use super::shared::Shared;
use crate::source::Source;

/// How long a reload or an export may take: with lists or swarms of millions it is seconds.
pub(super) const AT_LENGTH: Duration = Duration::from_secs(120);

/// Its routes, all of them behind the token, below [`API`](super::routes::API).
pub(super) fn routes() -> Vec<Route> {
    vec![
        ("/reload", post(reload::reload)),
        ("/export", post(export::export)),
        ("/upgrade", post(upgrade::upgrade)),
        ("/list", get(list::state).post(list::add).delete(list::remove)),
        ("/list/{info_hash}", get(list::entry)),
        ("/swarm/{info_hash}", get(swarm::swarm)),
        ("/swarms/top", get(top::top)),
    ]
}

/// Lets those pass who have the token.
pub(super) async fn authorized(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match shared.knows(given.map_or("", |(_, token)| token.trim())) {
        Some(true) => next.run(request).await,
        Some(false) => {
            let why = match given {
                Some(_) => "this is not the token of admin.token_file",
                None => "send the token of admin.token_file: `Authorization: Bearer TOKEN`",
            };
            Problem::new(StatusCode::UNAUTHORIZED, why).into_response()
        }
        None => Problem::new(
            StatusCode::FORBIDDEN,
            "the admin API is switched off: name a file with a token as admin.token_file, and reload",
        )
        .into_response(),
    }
}

/// The tracker, once it serves.
fn serving(shared: &Shared) -> Result<&Source, Problem> {
    shared.source().ok_or_else(|| Problem::not_serving(shared.stage.get().name()))
}
