//! Version and commit of this build.

use std::sync::LazyLock;

/// The package's version and, where the build had it in `ONRUSH_COMMIT` (`ONRUSH_COMMIT=$(git
/// describe --always --dirty) cargo build`), the commit: `0.1.0 (30029cd)`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| of(env!("CARGO_PKG_VERSION"), option_env!("ONRUSH_COMMIT")));
    &TEXT
}

fn of(version: &str, commit: Option<&str>) -> String {
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_the_commit_where_it_is_known() {
        assert_eq!(of("0.1.0", Some("30029cd-dirty")), "0.1.0 (30029cd-dirty)");
        assert_eq!((of("0.1.0", None), of("0.1.0", Some(""))), ("0.1.0".into(), "0.1.0".into()));
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
