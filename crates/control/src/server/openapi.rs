//! The OpenAPI description of all routes, generated from their handlers.

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{health, lists, observation};
use crate::{admin, page};

/// The OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "onrush",
        description = "Control and observation of an onrush tracker. Every error response is JSON \
                       with an `error` that names the remedy."
    ),
    paths(
        page::page,
        health::health,
        health::ready,
        observation::metrics,
        observation::stats,
        openapi,
        lists::lists,
        admin::reload::reload,
        admin::export::export,
        admin::upgrade::upgrade,
        admin::list::state,
        admin::list::entry,
        admin::list::add,
        admin::list::remove,
        admin::swarm::swarm,
        admin::top::top,
    ),
    tags(
        (name = "observation", description = "Public: no token required"),
        (name = "admin", description = "Requires the token of admin.token_file, as \
                                        `Authorization: Bearer TOKEN`"),
    ),
    modifiers(&Bearer)
)]
pub struct Document;

impl Document {
    /// The document as the text of `docs/openapi.json`.
    pub fn text() -> String {
        let mut text = Self::openapi().to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Adds the bearer token of the admin API to the document.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        if let Some(components) = document.components.as_mut() {
            let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
            components.add_security_scheme("token", scheme);
        }
    }
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "observation", responses(
    (status = 200, description = "OpenAPI 3.1"),
))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::Token;
    use crate::server::routes;
    use crate::state::ServerState;
    use onrush_config::settings::AdminSettings;

    const TOKEN: &str = "of-the-tests-0123456789";

    /// Methods that a document can describe; GET implies HEAD.
    const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "patch", "trace"];

    /// All routes of a tracker that is starting: each one answers and changes nothing.
    fn router() -> axum::Router {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        let settings = AdminSettings {
            listen: None,
            token_file: Some(file.clone()),
            publish_lists: false,
            connections: 4,
            max_body: 1024,
            timeout: Duration::from_secs(10),
        };
        let token = Token::load(Some(&file)).unwrap();
        routes::router(Arc::new(ServerState::new(token, &settings)), &settings)
    }

    /// Whether the router has a handler for this method at this path.
    async fn accepts(router: &axum::Router, method: &str, path: &str) -> bool {
        let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
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

    /// `ONRUSH_BLESS=1 cargo test -p onrush-control` writes the file.
    #[test]
    fn docs_openapi_json_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("ONRUSH_BLESS").is_some() {
            std::fs::write(path, Document::text()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == Document::text(), "docs/openapi.json is old: ONRUSH_BLESS=1 writes it");
    }
}
