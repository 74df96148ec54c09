//! What each request gets (BEP 3, 7, 23, 24, 31, 48).

use crate::world::{ANNOUNCE, HASH, World, contains};

const SEEDER: &str =
    "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-000000000000&port=7000&left=0";

#[test]
fn a_peer_gets_the_others_of_its_family() {
    let mut world = World::new("");
    let first = world.get("198.51.100.1", SEEDER);
    assert!(first.starts_with(b"d8:completei1e11:external ip4:\xC6\x33\x64\x01"), "{first:?}");
    assert!(contains(&first, b"5:peers0:e"));
    let second = world.get("198.51.100.2", ANNOUNCE);
    assert!(contains(&second, b"10:incompletei1e") && contains(&second, b"8:intervali"));
    assert!(second.ends_with(b"5:peers6:\xC6\x33\x64\x01\x1B\x58e"), "{second:?}");
    let list = world.get("198.51.100.3", &format!("{ANNOUNCE}&compact=0"));
    assert!(contains(&list, b"d2:ip12:198.51.100.14:porti7000ee"), "{list:?}");
    // An IPv4-mapped address is IPv4.
    let mapped = world.get("::ffff:198.51.100.2", ANNOUNCE);
    assert!(contains(&mapped, b"5:peers12:"));
    world.get("2001:4860::1", SEEDER);
    let v6 = world.get("2001:4860::2", ANNOUNCE);
    assert!(contains(&v6, b"5:peers0:6:peers618:\x20\x01\x48\x60"), "{v6:?}");
    assert!(contains(&v6, b"8:completei2e"), "counts are of both families: {v6:?}");
    world.check();
}

#[test]
fn a_stop_removes_the_peer_and_gets_no_peers() {
    let mut world = World::new("");
    world.get("198.51.100.1", SEEDER);
    let stop = world.get("198.51.100.1", &format!("{SEEDER}&event=stopped"));
    assert!(stop.starts_with(b"d8:completei0e") && contains(&stop, b"5:peers0:e"));
    assert!(contains(&world.get("198.51.100.2", ANNOUNCE), b"8:completei0e"));
}

#[test]
fn a_scrape_has_the_counts_of_each_hash_once_and_sorted() {
    let mut world = World::new("");
    world.get("198.51.100.1", SEEDER);
    let other = "b".repeat(20);
    let query = format!("info_hash={other}&info_hash={HASH}&info_hash={other}");
    let body = world.get("198.51.100.2", &format!("/scrape?{query}"));
    let counts = |seeders| format!("d8:completei{seeders}e10:downloadedi0e10:incompletei0ee");
    let expected = format!("d5:filesd20:{HASH}{}20:{other}{}ee", counts(1), counts(0));
    assert_eq!(String::from_utf8_lossy(&body), expected);
    assert_eq!(world.metrics.incoming.v4.scrapes.get(), 1);
    for target in ["/scrape", "/scrape?info_hash=short"] {
        assert!(world.get("198.51.100.2", target).starts_with(b"d14:failure reason"), "{target}");
    }
    assert_eq!((world.refused("no_hash"), world.refused("info_hash")), (1, 1));
    world.check();
}

#[test]
fn invalid_and_forbidden_announces_are_failures_with_their_reason() {
    let denied = "ff".repeat(20);
    let mut world =
        World::new(&format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{denied}\"]\n"));
    let id = "peer_id=-XX0001-000000000000";
    let failures = [
        (format!("/announce?{id}&port=1"), "info_hash"),
        (format!("/announce?info_hash={HASH}&info_hash={HASH}&{id}&port=9"), "info_hashes"),
        (format!("/announce?info_hash={HASH}&port=9"), "peer_id"),
        (format!("/announce?info_hash={HASH}&{id}&port=x"), "port_value"),
        (format!("/announce?info_hash={HASH}&{id}&port=0"), "port"),
        (format!("/announce?info_hash={}&{id}&port=9", "%FF".repeat(20)), "forbidden"),
    ];
    for (target, reason) in failures {
        let body = world.get("198.51.100.1", &target);
        assert!(body.starts_with(b"d14:failure reason"), "{target}: {body:?}");
        assert_eq!(world.refused(reason), 1, "{reason}");
    }
    assert_eq!(world.metrics.incoming.v4.announces.get(), 0);
    world.check();
}

#[test]
fn pages_and_paths() {
    let mut world = World::new("");
    let (page, ended) = world.exchange("GET / HTTP/1.1\r\nHost: t.example:6969\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html") && !ended);
    let urls = ["http://t.example:6969", "https://t.example", "udp://t.example:6969"];
    assert!(page.contains(&urls.map(|url| format!("{url}/announce\n")).concat()), "{page}");
    assert!(world.exchange("GET /health HTTP/1.1\r\n\r\n").0.ends_with("\r\n\r\nok\n"));
    for target in ["/x", "/announces/x", "/favicon.ico"] {
        let (reply, ended) = world.exchange(&format!("GET {target} HTTP/1.1\r\n\r\n"));
        assert!(reply.starts_with("HTTP/1.1 404 ") && !ended, "{reply}");
    }
    assert_eq!((world.counters().answered.get(), world.refused("path")), (2, 3));
    world.check();
}
