//! The documents that are generated from this crate are current.

use std::fs;

/// `ONRUSH_BLESS=1 cargo test -p onrush-control` writes them. A difference that removes or renames
/// a series breaks the dashboards and alerts of operators.
#[test]
fn generated_documents_are_current() {
    for (path, text) in [
        ("docs/METRICS.md", crate::metrics::tests::reference::markdown()),
        ("docs/openapi.json", crate::server::openapi::tests::text()),
    ] {
        let file = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ONRUSH_BLESS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == text, "{path} is out of date: ONRUSH_BLESS=1 writes it");
    }
}
