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
        (name = "admin", description = "With the token of http.token_file, as `Authorization: Bearer TOKEN`"),
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
    use super::*;

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
