//! Arbitrary text as a configuration file gives settings or problems: no panic; a problem has a
//! line of the text and is shown without control characters; settings give workers and rules.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_config::{Flags, Host, Settings};
use onrush_tracker::access::Lists;

fuzz_target!(|text: &str| {
    let host = Host { vcpus: vec![0, 1], ..Host::default() };
    match Settings::parse("fuzz.toml", text, &Flags::default(), &host) {
        Ok((settings, _)) => {
            let workers = settings.workers();
            let rules = settings.rules(&Lists::open());
            assert!(workers.placement.workers() > 0);
            assert!(workers.batches_in_flight >= workers.placement.shards());
            assert!(rules.announce.peer_lifetime >= rules.announce.interval);
            assert!(rules.shard.max_peers > 0 && rules.max_hashes > 0);
        }
        Err(problems) => {
            assert!(problems.total() > 0);
            let shown = problems.to_string();
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
            // A number after the name of the file is a line of the text.
            let lines = text.lines().count().max(1) + 1;
            for place in shown.split("fuzz.toml:").skip(1) {
                let line: String = place.chars().take_while(char::is_ascii_digit).collect();
                if let Ok(line) = line.parse::<usize>() {
                    assert!((1..=lines).contains(&line), "line {line} of {lines}: {shown}");
                }
            }
        }
    }
});
