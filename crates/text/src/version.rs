//! Version and build of the program.

use std::sync::LazyLock;

/// The package's version, followed by the commit that `ONRUSH_COMMIT` names at build time
/// (`ONRUSH_COMMIT=$(git describe --always --dirty) cargo build`): `0.1.0 (30029cd)`; otherwise
/// `0.1.0 (unknown build)`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| format(env!("CARGO_PKG_VERSION"), option_env!("ONRUSH_COMMIT")));
    &TEXT
}

fn format(version: &str, commit: Option<&str>) -> String {
    let commit =
        commit.filter(|commit| !["", "unknown"].contains(commit)).unwrap_or("unknown build");
    format!("{version} ({commit})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_follows_the_version_and_its_absence_is_named() {
        assert_eq!(format("0.1.0", Some("30029cd-dirty")), "0.1.0 (30029cd-dirty)");
        for none in [None, Some(""), Some("unknown")] {
            assert_eq!(format("0.1.0", none), "0.1.0 (unknown build)");
        }
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
