//! Version and build of the program.

use std::sync::LazyLock;

/// The package's version, followed by the commit if `ONRUSH_COMMIT` was set at build time
/// (`ONRUSH_COMMIT=$(git describe --always --dirty) cargo build`): `0.1.0 (30029cd)`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| format(env!("CARGO_PKG_VERSION"), option_env!("ONRUSH_COMMIT")));
    &TEXT
}

fn format(version: &str, commit: Option<&str>) -> String {
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_follows_the_version_where_it_is_known() {
        assert_eq!(format("0.1.0", Some("30029cd-dirty")), "0.1.0 (30029cd-dirty)");
        assert_eq!(
            (format("0.1.0", None), format("0.1.0", Some(""))),
            ("0.1.0".into(), "0.1.0".into())
        );
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
