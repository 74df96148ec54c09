//! aquatic_udp with mio and, if built with it, io_uring.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::{Capacity, Contender, Found, Launch, Setup, Variant, output, version_by_cargo};

/// aquatic_udp from crates.io.
#[derive(Debug)]
pub struct Aquatic;

const URING: &str = "io_uring";
const WORKERS: &str = "socket workers";

impl Contender for Aquatic {
    fn name(&self) -> &'static str {
        "aquatic_udp"
    }

    fn keyword(&self) -> &'static str {
        "aquatic"
    }

    fn program(&self) -> &'static str {
        "aquatic_udp"
    }

    fn remedy(&self) -> &'static str {
        "scripts/bench-peers --only aquatic"
    }

    // aquatic's own bencher (protocols/udp.rs of its bencher crate) takes the default configuration
    // with socket_workers, a loopback address and max_response_peers = 30, which is the default
    // since 0.9.0.
    fn settings(&self) -> &'static str {
        "the defaults with socket_workers for the cores, max_response_peers = 30, as aquatic's own \
         bencher (crates/bencher) sets it; io_uring by use_io_uring of a build with --features \
         io-uring; built by cargo install without flags for this processor, as ours is"
    }

    fn receive_buffer(&self) -> Option<u64> {
        Some(8_000_000)
    }

    fn version(&self, program: &Path) -> Option<String> {
        version_by_cargo(program, "aquatic_udp")
    }

    fn variants(&self, found: &Found, capacity: Capacity) -> Vec<Variant> {
        // The printed configuration shows the features of the build.
        let defaults = output(&found.program, &["-p"]).unwrap_or_default();
        kinds(&defaults)
            .iter()
            .flat_map(|kind| {
                let of = |n| Variant::new("aquatic_udp", Some(kind), &[(WORKERS, n)]);
                capacity.workers().into_iter().map(of)
            })
            .collect()
    }

    fn missing_variant(&self, found: &Found) -> Option<String> {
        missing_variant(&output(&found.program, &["-p"]).unwrap_or_default())
    }

    fn launch(&self, found: &Found, variant: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
        let defaults = output(&found.program, &["-p"]).context("aquatic_udp -p prints nothing")?;
        let file = setup.directory.join("aquatic.toml");
        fs::write(&file, config(&defaults, variant, setup)?)?;
        let arguments = vec!["-c".into(), file.display().to_string()];
        Ok(Launch {
            program: found.program.clone(),
            arguments,
            environment: Vec::new(),
            unprivileged: false,
        })
    }
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

    const DEFAULTS: &str = "socket_workers = 1\n[network]\n# Bind\naddress = \"0.0.0.0:3000\"\n\
        use_io_uring = true\n[protocol]\nmax_response_peers = 30\n";

    #[test]
    fn settings_are_changed_in_the_defaults() {
        let setup = Setup {
            directory: Path::new("/tmp"),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
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
