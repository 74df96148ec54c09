"""One libtorrent session with one torrent, controlled by lines on standard input.

    peer_libtorrent.py ADDRESS PORT TORRENT DIRECTORY

Commands: `reannounce`, `scrape`, `skip` (deselects every piece: a partial seed, BEP 21), `stop` (announces `stopped`,
then exits), which the end of the input implies. Prints a line for each event of a state, a tracker or a connection, and
the progress every five seconds. DHT, LSD, UPnP and NAT-PMP are off, and uTP, as its congestion control yields to the
delays of a busy host.
"""

import select
import signal
import sys
import time

import libtorrent

CATEGORIES = libtorrent.alert.category_t
EVENTS = (
    CATEGORIES.tracker_notification
    | CATEGORIES.status_notification
    | CATEGORIES.error_notification
    | CATEGORIES.connect_notification
)
# Between two lines of the progress, seconds.
PROGRESS = 5
# Deadline of the reply to `stopped`, seconds.
STOP = 60


def main():
    address, port, torrent, directory = sys.argv[1:]
    bracketed = f"[{address}]" if ":" in address else address
    session = libtorrent.session(
        {
            "listen_interfaces": f"{bracketed}:{port}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_incoming_utp": False,
            "enable_outgoing_utp": False,
            "validate_https_trackers": True,
            # WebTorrent: all peers are on one network.
            "webtorrent_stun_server": "",
            "alert_mask": EVENTS,
            "min_announce_interval": 1,
            "stop_tracker_timeout": STOP,
            # All peers of the test share a network.
            "allow_multiple_connections_per_ip": True,
        }
    )
    parameters = libtorrent.add_torrent_params()
    parameters.ti = info = libtorrent.torrent_info(torrent)
    parameters.save_path = directory
    handle = session.add_torrent(parameters)
    handle.resume()
    print("libtorrent", libtorrent.__version__, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(stop(session, handle)))
    next_progress = time.monotonic() + PROGRESS
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0.1)
        if readable:
            command = sys.stdin.readline().strip()
            if command == "reannounce":
                handle.force_reannounce(0, -1, libtorrent.reannounce_flags_t.ignore_min_interval)
            elif command == "scrape":
                handle.scrape_tracker(-1)
            elif command == "skip":
                handle.prioritize_pieces([0] * info.num_pieces())
            else:
                return stop(session, handle)
        report(session)
        if time.monotonic() >= next_progress:
            next_progress += PROGRESS
            now = handle.status()
            print(f"{now.state} {now.progress:.1%} peers {now.num_peers} down {now.download_rate} B/s", flush=True)


def report(session):
    """Prints the events since the last call; returns their names."""
    names = []
    for alert in session.pop_alerts():
        names.append(type(alert).__name__)
        print(type(alert).__name__, alert.message(), flush=True)
    return names


def stop(session, handle):
    """Announces `stopped` and waits for the reply."""
    handle.unset_flags(libtorrent.torrent_flags.auto_managed)
    report(session)
    handle.pause()
    deadline = time.monotonic() + STOP
    while time.monotonic() < deadline:
        session.wait_for_alert(100)
        if {"tracker_reply_alert", "tracker_error_alert"} & set(report(session)):
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
