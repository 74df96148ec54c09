//! Network namespaces for tests, with the user as root: a test starts its own program again through
//! `unshare` (util-linux) and configures the namespace with `ip` (iproute2).

use std::process::Command;

/// Set in the inner process.
const INSIDE: &str = "ONRUSH_TEST_INSIDE_NAMESPACE";

/// Runs `test` in a namespace: this process starts itself again with only the test of this name.
pub(crate) fn in_a_namespace(name: &str, test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let this = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(this)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("`unshare` of util-linux is needed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

/// Runs `ip` of iproute2.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("`ip` of iproute2 is needed").success(), "ip {arguments}");
}
