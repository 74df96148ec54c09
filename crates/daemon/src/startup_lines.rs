//! The first lines of the log: addresses, workers, limits, and how to use and stop the tracker.

use std::net::SocketAddr;

use onrush::Tracker;
use onrush_config::Settings;
use onrush_text::version::version;
use onrush_tracker::running::Addresses;

/// The lines that describe a tracker that has just started.
pub(super) fn lines(settings: &Settings, tracker: &Tracker) -> Vec<String> {
    let addresses = tracker.running.addresses();
    let steered = tracker.steering.as_ref().is_some_and(|s| s.addresses().next().is_some());
    let steering =
        if steered { "; the kernel steers announces to their shard's worker" } else { "" };
    let by = settings.sockets_passed.names();
    let by = by.map_or_else(String::new, |kinds| format!(" ({kinds} sockets by systemd)"));
    let mut lines = vec![
        format!("onrush {} serves {}{by}", version(), addresses.urls().join(" and ")),
        format!("workers: {}{steering}", settings.workers_line()),
        format!("announces: {}", settings.announce_line()),
        format!("limits: {}; state: {}", settings.limits_line(), settings.state_line()),
    ];
    lines.extend(tracker.xdp.as_ref().map(|program| program.line(settings)));
    lines.extend(tracker.admin.announcement.clone());
    let url = |scheme: &str, addresses: &[SocketAddr]| {
        addresses.first().map(|it| format!("{scheme}://<this host>:{}/announce", it.port()))
    };
    let Addresses { udp, http, https } = addresses;
    let urls = [url("udp", udp), url("http", http), url("https", https)];
    let urls: Vec<String> = urls.into_iter().flatten().collect();
    lines.push(format!(
        "ready: add {} to a torrent; stop with Ctrl-C or SIGTERM",
        urls.join(" or ")
    ));
    lines
}
