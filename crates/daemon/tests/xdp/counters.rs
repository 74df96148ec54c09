//! Replies and refusals of the program are in the counters of the daemon, each datagram once.

use std::collections::BTreeMap;

use crate::harness::{Daemon, connect, eventually, leecher, random_hash, run, transaction};
use crate::link::{XDP, client, client_of, frames, launch, with_program_of_clients};
use crate::sandbox::CLIENTS;

/// The sums of these series.
fn sums(daemon: &Daemon) -> BTreeMap<&'static str, u64> {
    let metrics = daemon.metrics();
    let sum = |name| (name, metrics.sum(&format!("onrush_{name}_total"), &[]) as u64);
    BTreeMap::from(
        ["received_datagrams", "requests", "refused_requests", "replies", "sent_datagrams"]
            .map(sum),
    )
}

/// Connects, announces and scrapes of both families, and forged connection ids.
#[test]
fn the_program_answers_connects_refuses_forged_ids_and_every_datagram_is_counted_once() {
    with_program_of_clients(|hosts| {
        let daemon = launch("", XDP).serve();
        assert!(daemon.log().iter().any(|line| line.contains("answered by the program")));
        let mut clients = [client(hosts, 0), client(hosts, 1)];
        const CONNECTS: u64 = 50;
        const FORGED: u64 = 20;
        for client in &mut clients {
            for _ in 0..CONNECTS {
                client.connect();
            }
            // Two announces and a scrape, with the id that the program has issued.
            client.check_swarm();
            for number in 0..FORGED {
                let announce = leecher(random_hash(), 4_001);
                client.send(&announce.bytes(client.id ^ 1 << (8 + number), transaction()));
            }
            client.send(b"no request");
        }
        let (redirected, refused) = (2 * 3, 2 * (FORGED + 1));
        let all = 2 * CONNECTS + redirected + refused;
        let answered = 2 * CONNECTS + redirected;
        let expected = BTreeMap::from([
            ("received_datagrams", all),
            ("requests", answered),
            ("refused_requests", refused),
            ("replies", answered),
            ("sent_datagrams", answered),
        ]);
        eventually("all are counted once", || sums(&daemon) == expected);
        let by_verdict = ["answered", "refused", "redirected", "passed", "checksum", "martian"];
        let by_verdict = by_verdict.map(|verdict| frames(&daemon, verdict));
        assert_eq!(by_verdict, [2 * CONNECTS, refused, redirected, 0, 0, 0]);
        let metrics = daemon.metrics();
        let forged = ["reason=\"connection_id\"", "worker=\"xdp-tracker\""];
        let forged = metrics.sum("onrush_refused_requests_total", &forged);
        assert_eq!(forged as u64, 2 * FORGED);
        assert!(clients.iter().all(|client| !client.has_datagram()));
        // The totals of the last line have all of it.
        let totals = [format!("{all} in"), format!("{refused} refused")];
        daemon.stop().has_line("stopped: ", &totals.each_ref().map(String::as_str));
    });
}

/// As a user without capabilities: maps are changed by their descriptors.
#[test]
fn an_address_is_served_in_the_driver_as_long_as_the_interface_has_it() {
    with_program_of_clients(|hosts| {
        let daemon = launch("user = \"nobody\"\n", XDP).serve();
        assert_eq!(daemon.status("CapEff"), "0000000000000000");
        client(hosts, 0).connect();
        run("ip address add 10.9.0.7/24 dev tracker");
        let mut later = client_of(hosts, 0, "10.9.0.7");
        eventually("the program answers there, too", || {
            later.connect();
            frames(&daemon, "answered") > 1
        });
        run("ip address del 10.9.0.7/24 dev tracker");
        eventually("frames to it are the kernel's", || {
            let before = frames(&daemon, "answered");
            (0..9).for_each(|_| later.send(&connect(1)));
            client(hosts, 0).connect();
            eventually("they are counted", || frames(&daemon, "answered") > before);
            frames(&daemon, "answered") == before + 1
        });
    });
}

/// A block of the configuration by a reload, and one that is made while the daemon runs.
#[test]
fn blocked_sources_are_refused_in_the_driver_and_counted_at_their_block() {
    with_program_of_clients(|hosts| {
        const KEYS: &str = "state_dir = \"HOME/state\"\n";
        let daemon = launch(KEYS, XDP).serve();
        let mut of_blocked = client(hosts, 0);
        of_blocked.connect();
        let refused = || frames(&daemon, "refused");
        let open = format!("listen = [\":6969\"]\n{KEYS}{XDP}");
        daemon.configure(&format!("{open}[access]\nblocked = [\"{}\"]\n", CLIENTS[0]));
        daemon.local_output(&["reload"]);
        of_blocked.assert_blocked(refused);
        client(hosts, 1).connect();
        daemon.configure(&open);
        daemon.local_output(&["reload"]);
        of_blocked.connect();
        daemon.local_output(&["block", CLIENTS[0], "--for", "1h", "--reason", "a flood"]);
        of_blocked.send(&connect(1));
        of_blocked.assert_blocked(refused);
        eventually("both are counted at the block", || {
            let blocks = daemon.local_output(&["--json", "blocks"]);
            let blocks: serde_json::Value = serde_json::from_str(&blocks).unwrap();
            blocks["blocks"][0]["refused"] == 2
        });
        daemon.local_output(&["unblock", CLIENTS[0]]);
        of_blocked.connect();
    });
}
