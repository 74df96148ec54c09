//! A flood of one network beside honest clients.

use std::net::{Ipv4Addr, UdpSocket};

use crate::harness::{Client, Daemon, connect, meanwhile};

/// Honest clients, all over the loopback network, and flooders in [`NETWORK`].
const HONEST: u32 = 20_000;
const FLOODERS: u32 = 200;
pub(crate) const NETWORK: &str = "127.9.9.0/24";
/// Clients whose replies are awaited: each worker has some of them.
const PACED: u32 = 8;
/// Honest requests between two requests whose replies are awaited, each from another client, so
/// that the receive buffer of no worker overflows. Each is accompanied by one of the flood.
pub(crate) const BURST: u32 = 8;

/// Runs `test` while honest clients connect and flooders send `datagram`s.
pub(crate) fn during_a_flood<T>(daemon: &Daemon, datagram: &[u8], test: impl FnOnce() -> T) -> T {
    let tracker = daemon.address();
    let at = |ip: u32| UdpSocket::bind((Ipv4Addr::from(ip), 0)).unwrap();
    let flooders: Vec<_> = (0..FLOODERS).map(|n| at(0x7F09_0900 + n)).collect();
    let connect = connect(7);
    let mut paced: Vec<_> = (0..PACED).map(|_| Client::new(tracker)).collect();
    let mut number = 0;
    let send = || {
        at(0x7F10_0000 + number % HONEST * 677).send_to(&connect, tracker).unwrap();
        let flooder = &flooders[(number % FLOODERS) as usize];
        flooder.send_to(datagram, tracker).unwrap();
        if number % BURST == BURST - 1 {
            paced[(number / BURST % PACED) as usize].connect();
        }
        number += 1;
    };
    meanwhile([send], test)
}
