//! chihaya, whose Go runtime uses as many threads as it has vCPUs.

use std::path::Path;

use super::{Contender, Launch, Setup, USUAL, output};
use crate::certificate::{CERTIFICATE, KEY};
use crate::mix::Protocol;

/// chihaya.
pub const CHIHAYA: Contender = Contender {
    name: "chihaya",
    keyword: "chihaya",
    remedy: "scripts/bench-peers --only chihaya (go install by name; fails where the Go proxy \
             lacks the module)",
    settings: "storage in memory, no hooks, it has no number of workers; over UDP at most 30 \
               peers, as aquatic's bencher (crates/bencher) sets it; over HTTP as in the appendix \
               of the comparison of 2022, with keep-alive as the load has it",
    protocols: &[Protocol::Udp, Protocol::Http, Protocol::Https],
    version,
    launch: |found, _, setup| {
        let (config, file) = (config(setup), ["--config", "chihaya.yaml"]);
        Launch::configured(&found.program, setup.directory, file, &config)
    },
    ..USUAL
};

fn version(program: &Path) -> Option<String> {
    let text = output(Path::new("go"), &["version", "-m", program.to_str()?])?;
    let module = text.lines().find_map(|line| line.trim().strip_prefix("mod"))?;
    module.split_whitespace().nth(1).map(Into::into)
}

fn config(setup: &Setup) -> String {
    format!(
        "chihaya:\n  announce_interval: 30m\n  min_announce_interval: 15m\n  \
         metrics_addr: \"127.0.0.1:0\"\n{}  storage:\n    name: memory\n    config:\n      \
         gc_interval: 10m\n      peer_lifetime: 31m\n      shard_count: 1024\n      \
         prometheus_reporting_interval: 10m\n",
        if setup.protocol == Protocol::Udp { udp(setup) } else { http(setup) }
    )
}

fn udp(setup: &Setup) -> String {
    format!(
        "  udp:\n    addr: \"{}\"\n    private_key: \"a key of a benchmark\"\n    \
         max_clock_skew: 10s\n    max_numwant: 30\n    default_numwant: 30\n    \
         max_scrape_infohashes: 70\n",
        setup.address
    )
}

fn http(setup: &Setup) -> String {
    let file = |name| setup.directory.join(name).display().to_string();
    let address = match setup.protocol {
        Protocol::Https => format!(
            "https_addr: \"{}\"\n    tls_cert_path: \"{}\"\n    tls_key_path: \"{}\"",
            setup.address,
            file(CERTIFICATE),
            file(KEY)
        ),
        _ => format!("addr: \"{}\"", setup.address),
    };
    format!(
        "  http:\n    {address}\n    read_timeout: 5s\n    write_timeout: 5s\n    \
         enable_keepalive: {}\n    idle_timeout: 30s\n    enable_request_timing: false\n    \
         announce_routes:\n      - /announce\n    scrape_routes:\n      - /scrape\n    \
         allow_ip_spoofing: false\n    max_numwant: 100\n    default_numwant: 50\n    \
         max_scrape_infohashes: 50\n",
        setup.keeps_alive
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::setup;
    use crate::mix::Mix;

    #[test]
    fn the_configuration_has_the_address_and_no_hooks() {
        let of = |mix| config(&setup(Path::new("/tmp/x"), mix));
        let text = of(Mix::Spread);
        assert!(text.contains("  udp:\n    addr: \"127.0.0.1:7000\"\n"), "{text}");
        assert!(!text.contains("hooks") && !text.contains("http:"), "{text}");
        let text = of(Mix::Https);
        let tls = "  http:\n    https_addr: \"127.0.0.1:7000\"\n    \
                   tls_cert_path: \"/tmp/x/certificate.pem\"\n    \
                   tls_key_path: \"/tmp/x/key.pem\"\n";
        assert!(text.contains(tls) && text.contains("enable_keepalive: false\n"), "{text}");
        assert!(!text.contains("udp:"), "{text}");
        let text = of(Mix::HttpKeepAlive);
        assert!(text.contains("    addr: \"127.0.0.1:7000\"\n"), "{text}");
        assert!(text.contains("enable_keepalive: true\n"), "{text}");
    }
}
