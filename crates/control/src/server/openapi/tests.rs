//! Generates the OpenAPI document from the handlers, and compares it with the routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use crate::api::Problem;
use crate::caller::Caller;
use crate::server::{observation, routes};
use crate::state::ServerState;
use crate::{TOKEN_KEY, Token};
use crate::{admin, page};
use onrush_config::Settings;

/// The OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "onrush",
        description = "Control and observation of an onrush tracker. Every error response is \
                       JSON with an `error` that names the remedy."
    ),
    paths(
        page::page,
        page::icon,
        observation::health,
        observation::ready,
        observation::metrics,
        observation::stats,
        observation::history,
        super::openapi,
        observation::lists,
        admin::actions::reload,
        admin::actions::export,
        admin::actions::snapshot,
        admin::actions::upgrade,
        admin::config::config,
        admin::config::differences,
        admin::config::log_level,
        admin::list::state,
        admin::list::entry,
        admin::list::export,
        admin::check::check,
        admin::list::add,
        admin::list::remove,
        admin::list::changes,
        admin::list::reset,
        admin::blocks::list,
        admin::blocks::block,
        admin::blocks::unblock,
        admin::swarms::swarm,
        admin::swarms::top,
        admin::sources::top,
    ),
    components(schemas(Problem)),
    tags(
        (name = "observation", description = "Public: no token required"),
        (name = "admin", description = "Requires the token of admin.token_file, as \
                                        `Authorization: Bearer TOKEN`; at the control socket \
                                        neither root nor the tracker's user need it"),
    ),
    modifiers(&Shared)
)]
struct Document;

/// Adds what many paths share: their tag, the token and its errors, the body of errors.
struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        if let Some(components) = document.components.as_mut() {
            let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
            components.add_security_scheme("token", scheme);
        }
        for (path, item) in &mut document.paths.paths {
            for change in [&mut item.post, &mut item.delete].into_iter().flatten() {
                complete_change(change);
            }
            let operations = [&mut item.get, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                complete(operation, path.starts_with(admin::API));
            }
        }
    }
}

fn complete(operation: &mut Operation, requires_token: bool) {
    let tag = if requires_token { "admin" } else { "observation" };
    operation.tags = Some(vec![tag.to_owned()]);
    let responses = &mut operation.responses.responses;
    let misdirected = "The request is for a host that is neither an address, localhost nor in \
                       admin.hosts";
    responses.insert("421".into(), Response::new(misdirected).into());
    if requires_token {
        operation.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
        responses.insert("401".into(), Response::new("Missing or wrong token").into());
        let off = "The admin API is off for clients without a token";
        responses.insert("403".into(), Response::new(off).into());
        // Where the handler says nothing more precise.
        let unavailable =
            Response::new("The tracker does not serve, or a thread accepts no more requests");
        responses.entry("503".into()).or_insert(unavailable.into());
    }
    for (status, response) in responses {
        if let RefOr::T(response) = response
            && status.as_str() >= "400"
            && response.content.is_empty()
        {
            let problem = Content::new(Some(Ref::from_schema_name("Problem")));
            response.content.insert("application/json".to_owned(), problem.into());
        }
    }
}

/// Adds the errors of requests to the main thread, where the handler says nothing more precise.
fn complete_change(operation: &mut Operation) {
    let responses = &mut operation.responses.responses;
    let mut add = |status: &str, description: &str| {
        let response = Response::new(description);
        responses.entry(status.to_owned()).or_insert(response.into());
    };
    add("504", "The main thread did not answer in time");
    if operation.request_body.is_some() {
        add("413", "The body is longer than admin.max_body");
    }
}

/// The document as the text of `docs/openapi.json`: indented down to the parts of a method and of a
/// schema, which have a line each.
pub(crate) fn text() -> String {
    const DEEPEST: usize = 4;
    let mut text = String::new();
    for line in Document::openapi().to_pretty_json().unwrap().lines() {
        let inner = line.trim_start();
        let depth = (line.len() - inner.len()) / 2;
        let closes = inner.starts_with(['}', ']']);
        if depth > DEEPEST || (depth == DEEPEST && closes) {
            text += inner;
        } else {
            text = text + "\n" + line;
        }
    }
    text.trim_start().to_owned() + "\n"
}

const TOKEN: &str = "of-the-tests-0123456789";

/// Methods that a document can describe; GET implies HEAD.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "patch", "trace"];

/// All routes of a tracker that is starting: each one answers and changes nothing.
fn router() -> axum::Router {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let settings = Settings::for_test("").admin;
    let token = Token::load(TOKEN_KEY, Some(&file)).unwrap();
    routes::router(Arc::new(ServerState::new(token, &settings)), &settings)
}

/// Whether the router has a handler for this method at this path.
async fn accepts(router: &axum::Router, method: &str, path: &str) -> bool {
    let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
    let request = request.header("Host", "localhost");
    let request = request.extension(Caller::Address(([127, 0, 0, 1], 1).into()));
    let request = request.header("Authorization", format!("Bearer {TOKEN}"));
    let service = TowerToHyperService::new(router.clone());
    let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let nothing = String::from_utf8_lossy(&body).contains("there is nothing at this path");
    assert_eq!(nothing, nothing && status == StatusCode::NOT_FOUND, "{status} {path}");
    assert!(status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN, "{path}");
    !nothing && status != StatusCode::METHOD_NOT_ALLOWED
}

#[test]
fn the_document_describes_exactly_the_routes() {
    let document = serde_json::to_value(Document::openapi()).unwrap();
    let described = document["paths"].as_object().unwrap();
    let admin = admin::routes().into_iter().map(|(path, _)| format!("{}{path}", admin::API));
    let public = routes::public_routes().into_iter().map(|(path, _)| path.to_owned());
    let routed: BTreeSet<String> = public.chain(admin).collect();
    assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), routed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let router = router();
    let accepts = |method: &str, path: &str| runtime.block_on(accepts(&router, method, path));
    for (path, item) in described {
        let example = path.replace("{info_hash}", &"0".repeat(40));
        for method in METHODS {
            let is_described = item.get(method).is_some();
            assert_eq!(accepts(method, &example), is_described, "{method} {path}");
        }
    }
    assert!(!accepts("get", "/nothing") && !accepts("get", "/api/v1/nothing"));
}
