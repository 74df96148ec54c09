//! The description of all routes (OpenAPI), made from the routes themselves.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{admin, lists, page, routes};

/// The document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "onrush",
        description = "Control and observation of an onrush tracker. Every answer that is no is JSON with an \
                       `error` that says what would be right."
    ),
    paths(
        page::page,
        routes::health,
        routes::ready,
        routes::metrics,
        routes::stats,
        routes::openapi,
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
        (name = "observation", description = "For everybody who can reach the address"),
        (name = "admin", description = "With the token of admin.token_file, as `Authorization: Bearer TOKEN`"),
    ),
    modifiers(&Bearer)
)]
pub struct Document;

impl Document {
    /// The document as a file.
    pub fn text() -> String {
        let mut text = Self::openapi().to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The token of the admin API.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        if let Some(components) = document.components.as_mut() {
            let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
            components.add_security_scheme("token", scheme);
        }
    }
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
    use crate::shared::Shared;
    use onrush_config::settings::AdminSettings;

    const TOKEN: &str = "of-the-tests-0123456789";

    /// Methods that a document can describe; HEAD comes with GET.
    const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "patch", "trace"];

    /// All routes, of a tracker that does not serve: whatever is there answers, and does nothing.
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
        routes::router(Arc::new(Shared::new(token, &settings)), &settings)
    }

    /// Whether the router has something for this method at this path.
    async fn takes(router: &axum::Router, method: &str, path: &str) -> bool {
        let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
        let request = request.header("Authorization", format!("Bearer {TOKEN}"));
        let service = TowerToHyperService::new(router.clone());
        let answer = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let nothing = String::from_utf8_lossy(&body).contains("there is nothing at this path");
        assert_eq!(nothing, nothing && status == StatusCode::NOT_FOUND, "{status} {path}");
        assert!(status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN, "{path}");
        !nothing && status != StatusCode::METHOD_NOT_ALLOWED
    }

    #[test]
    fn the_document_has_every_route_and_every_route_is_there() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let described = document["paths"].as_object().unwrap();
        let admin = admin::routes().into_iter().map(|(path, _)| format!("{}{path}", routes::API));
        let open = routes::open().into_iter().map(|(path, _)| path.to_owned());
        let routed: BTreeSet<String> = open.chain(admin).collect();
        assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), routed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let router = router();
        let takes = |method: &str, path: &str| runtime.block_on(takes(&router, method, path));
        for (path, item) in described {
            let real = path.replace("{info_hash}", &"0".repeat(40));
            for method in METHODS {
                let is_described = item.get(method).is_some();
                assert_eq!(takes(method, &real), is_described, "{method} {path}");
            }
        }
        assert!(!takes("get", "/nothing") && !takes("get", "/api/v1/nothing"));
    }

    /// `ONRUSH_BLESS=1 cargo test` writes it.
    #[test]
    fn the_file_in_docs_is_what_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("ONRUSH_BLESS").is_some() {
            std::fs::write(path, Document::text()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == Document::text(), "docs/openapi.json is old: ONRUSH_BLESS=1 writes it");
    }
}
