//! `/lists`: the access list in force, if the operator publishes it.

use axum::extract::State;
use axum::response::Response;

use crate::api::Problem;
use crate::list_text::list_text;
use crate::state::SharedState;
use crate::view::InForce;

/// The access list in force: a comment with its meaning, then one info hash per line.
#[cfg_attr(test, utoipa::path(get, path = "/lists", responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
    (status = 404, description = "The list is not published (admin.publish_lists)"),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn lists(State(state): SharedState) -> Result<Response, Problem> {
    let InForce { settings, lists, .. } = state.serving()?.in_force();
    if !settings.admin.publish_lists {
        return Err(Problem::not_found(
            "this tracker does not publish its list: its operator may set \
             admin.publish_lists = true",
        ));
    }
    Ok(list_text(lists.access, false))
}
