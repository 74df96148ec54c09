//! aquatic_udp with mio and, if built with it, io_uring.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::{Contender, Found, Launch, Setup, USUAL, Variant, output, version_by_cargo};
use crate::cpus::Assignment;
use crate::mix::Protocol;

const URING: &str = "io_uring";
const WORKERS: &str = "socket workers";

/// aquatic_udp from crates.io.
pub const AQUATIC: Contender = Contender {
    name: "aquatic_udp",
    keyword: "aquatic",
    remedy: "scripts/bench-peers --only aquatic",
    // aquatic's own bencher (protocols/udp.rs of its bencher crate) takes the default configuration
    // with socket_workers, a loopback address and max_response_peers = 30, which is the default
    // since 0.9.0.
    settings: "the defaults with socket_workers for the cores, max_response_peers = 30, as \
               aquatic's own bencher (crates/bencher) sets it; io_uring by use_io_uring of a \
               build with --features io-uring; built by cargo install without flags for this \
               processor, as ours is",
    protocols: &[Protocol::Udp, Protocol::Veth],
    receive_buffer: Some(8_000_000),
    version: |program| version_by_cargo(program, "aquatic_udp"),
    variants,
    launch: |found, variant, setup| {
        let defaults = defaults(&found.program).context("aquatic_udp -p prints nothing")?;
        let config = config(&defaults, variant, setup)?;
        Launch::configured(&found.program, setup.directory, ["-c", "aquatic.toml"], &config)
    },
    missing_variant: |found| missing_variant(&defaults(&found.program).unwrap_or_default()),
    ..USUAL
};

/// The default configuration, which shows the features of the build.
pub(super) fn defaults(program: &Path) -> Option<String> {
    output(program, &["-p"])
}

fn variants(found: &Found, seats: &Assignment, _: Protocol) -> Vec<Variant> {
    let mut variants = Vec::new();
    for kind in kinds(&defaults(&found.program).unwrap_or_default()) {
        let workers = seats.tracker.len();
        variants.push(Variant::new("aquatic_udp", Some(kind), &[(WORKERS, workers)]));
    }
    variants
}

fn kinds(defaults: &str) -> &'static [&'static str] {
    if defaults.contains("use_io_uring") { &["mio", URING] } else { &["mio"] }
}

fn missing_variant(defaults: &str) -> Option<String> {
    (!kinds(defaults).contains(&URING)).then(|| {
        format!(
            "absent: aquatic_udp ({URING}): this build has mio only; where it builds (it needs a \
             recent kernel's headers), scripts/bench-peers --only aquatic builds it with \
             --features io-uring"
        )
    })
}

/// The default configuration with the settings of this case.
fn config(defaults: &str, variant: &Variant, setup: &Setup) -> anyhow::Result<String> {
    let mut text = defaults.to_owned();
    let workers = variant.count(WORKERS).unwrap_or(1);
    set(&mut text, "socket_workers", &workers.to_string())?;
    set(&mut text, "address", &format!("\"{}\"", setup.address))?;
    set(&mut text, "max_response_peers", "30")?;
    let uring = variant.kind.as_deref() == Some(URING);
    // A build without the feature lacks the key and would run mio.
    if uring || text.contains("use_io_uring") {
        set(&mut text, "use_io_uring", if uring { "true" } else { "false" })?;
    }
    Ok(text)
}

/// Sets the first `key = ` at the start of a line.
pub(crate) fn set(text: &mut String, key: &str, value: &str) -> anyhow::Result<()> {
    let mut found = false;
    let start = format!("{key} = ");
    let lines = text.lines().map(|line| match line.starts_with(&start) && !found {
        true => {
            found = true;
            format!("{start}{value}\n")
        }
        false => format!("{line}\n"),
    });
    let changed: String = lines.collect();
    if !found {
        bail!("the program's default configuration has no {key}: another version than expected");
    }
    *text = changed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::setup;
    use crate::mix::Mix;

    const DEFAULTS: &str = "socket_workers = 1\n[network]\n# Bind\naddress = \"0.0.0.0:3000\"\n\
        use_io_uring = true\n[protocol]\nmax_response_peers = 30\n";

    #[test]
    fn settings_are_changed_in_the_defaults() {
        let setup = setup(Path::new("/tmp"), Mix::Spread);
        let variant = Variant::new("aquatic_udp", Some("mio"), &[(WORKERS, 4)]);
        let text = config(DEFAULTS, &variant, &setup).unwrap();
        assert!(text.starts_with("socket_workers = 4\n[network]\n# Bind\n"), "{text}");
        assert!(text.contains("\naddress = \"127.0.0.1:7000\"\nuse_io_uring = false\n"), "{text}");
        let uring = Variant::new("aquatic_udp", Some(URING), &[(WORKERS, 4)]);
        let text = config(DEFAULTS, &uring, &setup).unwrap();
        assert!(text.contains("use_io_uring = true\n"), "{text}");
        let without = DEFAULTS.replace("use_io_uring = true\n", "");
        assert!(config(&without, &variant, &setup).is_ok());
        let error = config(&without, &uring, &setup).unwrap_err();
        assert!(error.to_string().contains("use_io_uring"), "{error}");
        let error = config("nothing = 1\n", &variant, &setup).unwrap_err();
        assert!(error.to_string().contains("socket_workers"), "{error}");
    }

    #[test]
    fn a_build_without_io_uring_has_mio_only() {
        assert_eq!(kinds(DEFAULTS), ["mio", "io_uring"]);
        assert_eq!(kinds("socket_workers = 1"), ["mio"]);
        assert_eq!(missing_variant(DEFAULTS), None);
        assert!(
            missing_variant("socket_workers = 1")
                .unwrap()
                .starts_with("absent: aquatic_udp (io_uring)")
        );
    }
}
