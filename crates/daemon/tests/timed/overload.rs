//! Overload: losses of busy workers lengthen the announce interval, and the kernel drops datagrams
//! that are no valid request. The flood has to be faster than the tracker for some seconds. What
//! follows from a load, also of requests refused as busy, is in the unit tests of `src/overload`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::harness::messages::{FILTER_ON, OVERLOAD};
use crate::harness::{
    Client, Daemon, Launch, connect, eventually, in_own_network, leecher, meanwhile, random_hash,
};

/// The totals' count of datagrams that the filter has dropped.
const FILTERED: &str = "shed in the kernel ";
/// Sources that flood the tracker.
const SOURCES: u8 = 64;
/// Sources that connect once the flood is over.
const NEW: u8 = 200;
/// Time after which a request without a reply is repeated.
const AGAIN: Duration = Duration::from_secs(1);

#[test]
fn a_flood_lengthens_the_interval_and_is_filtered() {
    let config = "listen = [\"127.0.0.1:0\"]\n\
                  [announce]\ninterval_jitter_percent = 0\n\
                  [overload]\ndrop_share = 1\nlongest_interval = 3600\n\
                  [log]\ntotals_every = 1\n";
    // Losses of other tests are not in the counts of this network.
    in_own_network(&[], || {
        let mut daemon = Launch::new(&["--workers", "1"]).admin().config(config).serve();
        let tracker = daemon.address();
        let client = daemon.client();
        client.repeat_after(AGAIN);
        let peer = leecher(random_hash(), 4_001);
        assert_eq!(client.announce(&peer).interval, 1800);
        let interval = meanwhile((0..3).map(|part| flood(tracker, part)), || {
            daemon.line(FILTER_ON);
            daemon.line(FILTERED);
            client.announce(&peer).interval
        });
        assert!(interval > 1800);
        assert!(daemon.log().iter().any(|line| line.contains(OVERLOAD)));
        assert_reported(&daemon, interval);
        // Also while the filter is still on.
        for number in 1..=NEW {
            let mut new = Client::at(Ipv4Addr::new(127, 0, 10, number).into(), tracker);
            // The receive buffer may still be full of the flood.
            new.repeat_after(AGAIN);
            new.connect();
        }
    });
}

/// Asserts that the metrics show the interval, the overload step and the losses.
fn assert_reported(daemon: &Daemon, interval: u32) {
    // A step reaches the workers at slightly different times.
    eventually("the advertised interval is reported", || {
        let advertised = daemon.metrics().sum("onrush_announce_interval_seconds", &[]);
        (f64::from(interval)..=3600.0).contains(&advertised)
    });
    let shown = daemon.metrics();
    let step = shown.sum("onrush_overload_step", &[]);
    assert!((1.0..=8.0).contains(&step), "overload step {step}");
    assert!(shown.sum("onrush_kernel_shed_datagrams_total", &[]) > 0.0);
    assert!(shown.sum("onrush_kernel_dropped_datagrams_total", &[]) > 0.0);
    assert_eq!(shown.sum("onrush_checksum_errors_total", &[]), 0.0);
}

/// Each call sends connects, and as many announces with connection ids of which the filter drops
/// half, from many sources, faster than the worker can reply. The sockets accept no replies: what
/// full buffers of other sockets lose counts as losses, as far as drops at the tracker's may be.
fn flood(tracker: SocketAddr, part: u8) -> impl FnMut() + Send {
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let connected = |n| {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 1 + part, n), 0)).unwrap();
        socket.connect(elsewhere).unwrap();
        socket
    };
    let sockets: Vec<UdpSocket> = (1..=SOURCES).map(connected).collect();
    let announce = leecher(random_hash(), 4_001);
    let packets: Vec<Vec<u8>> = (0..4).flat_map(|id| [connect(1), announce.bytes(id, 1)]).collect();
    move || {
        for (socket, bytes) in sockets.iter().zip(packets.iter().cycle()) {
            // Datagrams that a full buffer of the device refuses are sent in the next round.
            let _ = socket.send_to(bytes, tracker);
        }
    }
}
