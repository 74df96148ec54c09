//! aquatic_http and aquatic_ws.

use anyhow::Context as _;

use super::aquatic::{defaults, set};
use super::{Contender, Found, Launch, Setup, USUAL, Variant, version_by_cargo};
use crate::certificate::{CERTIFICATE, KEY};
use crate::mix::Protocol;

const SOCKET: &str = "socket workers";
const SWARM: &str = "swarm workers";

/// aquatic_http from crates.io.
pub const HTTP: Contender = Contender {
    name: "aquatic_http",
    keyword: "aquatic-http",
    remedy: "scripts/bench-peers --only aquatic_http",
    settings: "as the comparison of 2022 sets it: the defaults with TLS, keep_alive as the load \
               has it, cleaning intervals of 600 s, socket_workers for the cores and one swarm \
               worker; built by cargo install without flags for this processor, as ours is",
    protocols: &[Protocol::Http, Protocol::Https],
    version: |program| version_by_cargo(program, "aquatic_http"),
    ..COMMON
};

/// aquatic_ws from crates.io.
pub const WS: Contender = Contender {
    name: "aquatic_ws",
    keyword: "aquatic-ws",
    remedy: "scripts/bench-peers --only aquatic_ws",
    settings: "the defaults with TLS, cleaning intervals of 600 s, socket_workers for the cores \
               and, as its configuration recommends, one swarm worker up to 7 cores, else two; \
               built by cargo install without flags for this processor, as ours is",
    protocols: &[Protocol::Ws, Protocol::Wss],
    version: |program| version_by_cargo(program, "aquatic_ws"),
    ..COMMON
};

const COMMON: Contender = Contender {
    variants: |found, seats, protocol| {
        let cores = seats.tracker.len();
        let swarm = if protocol.is_webtorrent() && cores > 7 { 2 } else { 1 };
        vec![Variant::new(found.contender.name, None, &[(SOCKET, cores), (SWARM, swarm)])]
    },
    launch: |found, variant, setup| {
        let config = config(found, variant, setup)?;
        Launch::configured(&found.program, setup.directory, ["-c", "aquatic.toml"], &config)
    },
    ..USUAL
};

fn config(found: &Found, variant: &Variant, setup: &Setup) -> anyhow::Result<String> {
    let mut text = defaults(&found.program)
        .with_context(|| format!("{} -p prints nothing", found.contender.name))?;
    let quoted = |name: &str| format!("\"{}\"", setup.directory.join(name).display());
    let count = |name| variant.count(name).unwrap_or(1).to_string();
    let mut settings = vec![
        ("socket_workers", count(SOCKET)),
        ("swarm_workers", count(SWARM)),
        ("address", format!("\"{}\"", setup.address)),
        ("torrent_cleaning_interval", "600".into()),
        ("connection_cleaning_interval", "600".into()),
    ];
    if setup.protocol.in_tls().is_some() {
        settings.push(("enable_tls", "true".into()));
        settings.push(("tls_certificate_path", quoted(CERTIFICATE)));
        settings.push(("tls_private_key_path", quoted(KEY)));
    }
    if !setup.protocol.is_webtorrent() {
        settings.push(("keep_alive", setup.keeps_alive.to_string()));
    }
    for (key, value) in settings {
        set(&mut text, key, &value)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::contender::tests::{installed, script, setup};
    use crate::cpus::Assignment;
    use crate::mix::Mix;

    /// The keys of version 0.9.0 that are set.
    const DEFAULTS: &str = "socket_workers = 1\nswarm_workers = 1\n[network]\n\
        address = \"0.0.0.0:3000\"\nenable_tls = false\ntls_certificate_path = \"\"\n\
        tls_private_key_path = \"\"\nkeep_alive = true\n[cleaning]\n\
        torrent_cleaning_interval = 30\nconnection_cleaning_interval = 60\n";

    #[test]
    fn settings_are_those_of_the_load() {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), "aquatic_http", &format!("printf '{DEFAULTS}'"));
        let cpus: Vec<_> = (0..9).collect();
        let seats = Assignment::new(&cpus, 8, 1).unwrap();
        let of = |contender, mix: Mix| {
            let found = Found { program: program.clone(), ..installed(contender) };
            let setup = setup(directory.path(), mix);
            let variant = &found.variants(&seats, mix.protocol())[0];
            let launches = found.launch(variant, &setup).unwrap();
            fs::read_to_string(&launches[0].0.arguments[1]).unwrap()
        };
        let text = of(&HTTP, Mix::Https);
        let path = directory.path().display();
        for line in [
            "socket_workers = 8\nswarm_workers = 1\n",
            "address = \"127.0.0.1:7000\"\nenable_tls = true\n",
            &format!("tls_certificate_path = \"{path}/certificate.pem\"\n"),
            &format!("tls_private_key_path = \"{path}/key.pem\"\nkeep_alive = false\n"),
            "torrent_cleaning_interval = 600\nconnection_cleaning_interval = 600\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let plain = of(&HTTP, Mix::HttpKeepAlive);
        assert!(plain.contains("enable_tls = false\n") && plain.contains("keep_alive = true\n"));
        let text = of(&WS, Mix::Wss);
        assert!(text.contains("swarm_workers = 2\n") && text.contains("enable_tls = true\n"));
    }
}
