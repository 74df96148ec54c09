"""One libtorrent session with one torrent, controlled by lines on standard input.

    peer_libtorrent.py ADDRESS PORT TORRENT DIRECTORY

Commands: `reannounce`, `scrape`, `skip` (deselects every piece: a partial seed, BEP 21), `stop` (announces `stopped`,
then exits), which the end of the input implies. Prints a line for each state and tracker event. DHT, LSD, UPnP and
NAT-PMP are off.
"""

import select
import signal
import sys
import time

import libtorrent


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
            "alert_mask": libtorrent.alert.category_t.all_categories,
            "min_announce_interval": 1,
            "stop_tracker_timeout": 5,
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


def report(session):
    """Prints the events since the last call; returns their names."""
    names = []
    for alert in session.pop_alerts():
        names.append(type(alert).__name__)
        if alert.category() & (
            libtorrent.alert.category_t.tracker_notification
            | libtorrent.alert.category_t.status_notification
            | libtorrent.alert.category_t.error_notification
        ):
            print(type(alert).__name__, alert.message(), flush=True)
    return names


def stop(session, handle):
    """Announces `stopped` and waits up to five seconds for the reply."""
    handle.unset_flags(libtorrent.torrent_flags.auto_managed)
    report(session)
    handle.pause()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        session.wait_for_alert(100)
        if {"tracker_reply_alert", "tracker_error_alert"} & set(report(session)):
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
