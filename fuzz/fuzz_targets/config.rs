//! Arbitrary text as a configuration file gives settings or problems; neither parsing nor
//! formatting the problems panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_config::{Flags, Host, Settings};

fuzz_target!(|text: &str| {
    let host = Host { vcpus: vec![0, 1], ..Host::default() };
    if let Err(problems) = Settings::parse("fuzz.toml", text, &Flags::default(), &host) {
        assert!(problems.total() > 0);
        let shown = problems.to_string();
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
});
