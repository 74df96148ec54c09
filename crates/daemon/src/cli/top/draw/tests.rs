//! Views drawn into cells.

use super::*;
use onrush_control::api::stats::{Class, IncomingStats, Software};

/// A tracker with two workers after `seconds` of constant load.
fn reading(seconds: u64) -> Stats {
    let mut stats = Stats {
        version: "1.2.3".into(),
        pid: 7,
        uptime: 1000.0 + seconds as f64,
        stage: "serving".into(),
        addresses: vec!["0.0.0.0:6969".into()],
        placement: "colocated".into(),
        ..Stats::default()
    };
    let family = |connects: u64, peers: u64| FamilyStats {
        incoming: IncomingStats {
            connects: connects * seconds,
            announces: 10 * connects * seconds,
            scrapes: 3 * seconds,
            ..IncomingStats::default()
        },
        refused: [("connection_id".to_owned(), 40 * seconds), ("short".to_owned(), 5)].into(),
        peers,
        seeders: peers / 4,
        leechers: peers - peers / 4,
        ..FamilyStats::default()
    };
    stats.families.ipv4 = family(1_000, 2_000_000);
    stats.families.ipv6 = family(200, 400);
    stats.totals.traffic = family(1_200, 2_000_400);
    stats.totals.worker.sent = 13_000 * seconds;
    stats.totals.worker.sent_bytes = 1_000_000 * seconds;
    stats.totals.shard.swarms = 54_321;
    stats.memory.resident = 150_000_000;
    stats.memory.limit = Some(1_000_000_000);
    stats.cpu.seconds = 0.5 * seconds as f64;
    stats.limits.peers = 2_100_000;
    stats.overload.interval = 1800;
    stats.overload.connect_share = 1.0;
    stats.turns.classes = vec![Class::default()];
    stats.clients.software = vec![Software { name: "qBittorrent".into(), ipv4: 3, ipv6: 1 }];
    let worker = |number: u64| WorkerStats {
        name: format!("worker-{number}"),
        socket_side: true,
        swarm_side: true,
        datagrams: 6_600 * seconds,
        busy_seconds: 0.25 * (number + 1) as f64 * seconds as f64,
        lane_room: 64,
        ..WorkerStats::default()
    };
    stats.workers = (0..2).map(worker).collect();
    stats
}

/// The view after readings one second apart.
fn after(readings: impl IntoIterator<Item = Stats>) -> View {
    let mut view = View::new("http://127.0.0.1:6970");
    readings.into_iter().for_each(|stats| view.take(Ok(stats)));
    view
}

/// Asserts that the row that starts with `begin` contains all `parts`.
#[track_caller]
fn shows(rows: &[String], begin: &str, parts: &[&str]) {
    let row = rows.iter().find(|row| row.starts_with(begin));
    let row = row.unwrap_or_else(|| panic!("no row begins with {begin}: {rows:#?}"));
    parts.iter().for_each(|part| assert!(row.contains(part), "no {part:?} in {row:?}"));
}

#[test]
fn the_view_fits_80_columns() {
    let view = after([1, 2, 4].map(reading));
    let all = lines(&view, 80, rows(&view));
    shows(&all, "onrush 1.2.3", &["0.0.0.0:6969", "colocated", "http://127.0.0.1:6970"]);
    shows(&all, "serving for 16 min", &["no worker is stalled", "no overload", "1800 s"]);
    shows(
        &all,
        "IPv4",
        &[" 1,000 ", " 10,000 ", " 3 ", " 40 ", "2,000,000", "500,000", "1,500,000"],
    );
    shows(&all, "IPv6", &[" 200 ", " 2,000 ", " 400 ", " 100 ", " 300"]);
    shows(&all, "both", &[" 1,200 ", " 12,000 ", "2,000,400"]);
    shows(&all, "requests", &["13,203/s", "max 13,203/s"]);
    assert!(all.iter().any(|row| row.starts_with("██")), "no curve: {all:#?}");
    shows(&all, "replies", &["13,000/s", "out 8.0 Mbit/s"]);
    shows(&all, "dropped", &["0/s", "unsent 0/s"]);
    shows(&all, "refused", &["connection_id 40/s 160 total", "short 0/s 5 total"]);
    shows(&all, "swarms", &["54,321"]);
    shows(&all, "clients", &["qBittorrent 100.0 %"]);
    shows(&all, "memory", &["██░░", " 15 %", "150.0 MB of 1000.0 MB"]);
    shows(&all, "peers", &[" 95 %", "2,000,400 of 2,100,000"]);
    shows(&all, "CPU", &["50 % of a vCPU"]);
    shows(&all, "worker-0", &["████░░░░░░░░░░░░  25 %", " 6,600 ", "0/64"]);
    shows(&all, "worker-1", &["████████░░░░░░░░  50 %"]);
    assert_eq!(all.iter().filter(|row| row.starts_with("worker-")).count(), 2);
}

#[test]
fn the_first_reading_has_no_rates() {
    let all = lines(&after([reading(5)]), 100, 30);
    shows(&all, "IPv4", &[" - ", "2,000,000"]);
    shows(&all, "requests", &["-/s"]);
}

#[test]
fn stalls_drops_and_overload_are_highlighted() {
    let mut ill = reading(2);
    ill.workers[1].still_for = 7.0;
    ill.workers[0].counts.kernel_drops = 90;
    ill.totals.worker.kernel_drops = 90;
    ill.overload.step = 3;
    ill.overload.connect_share = 0.25;
    let view = after([reading(1), ill]);
    let all = lines(&view, 120, rows(&view));
    shows(
        &all,
        "serving",
        &["worker-1 stalled for 7 s", "overload step 3 of 8", "connects of 25 %"],
    );
    shows(&all, "dropped", &["90/s"]);
    let mut cells = Buffer::empty(Rect::new(0, 0, 120, rows(&view)));
    draw(&view, cells.area, &mut cells);
    let red = |row: &str| {
        let y = all.iter().position(|text| text.starts_with(row)).unwrap();
        (0..120).any(|x| cells[(x, y as u16)].fg == Color::Red)
    };
    assert!(red("serving") && red("dropped") && red("worker-0") && red("worker-1"));
    assert!(!red("replies") && !red("swarms"));
}

#[test]
fn the_last_reading_stays_while_the_tracker_does_not_answer() {
    let mut view = after([1, 2].map(reading));
    view.take(Err("http://127.0.0.1:6970 cannot be reached: refused\n  is it running?".into()));
    let all = lines(&view, 120, 30);
    assert!(all[1].contains("cannot be reached: refused   is it running?"), "{all:#?}");
    shows(&all, "requests", &["13,203/s"]);
    view.take(Ok(reading(3)));
    shows(&lines(&view, 120, 30), "serving", &[]);

    let mut nothing = View::new("http://127.0.0.1:1");
    assert!(lines(&nothing, 80, 3)[1].contains("waiting"));
    nothing.take(Err("no".into()));
    assert_eq!(lines(&nothing, 80, 3)[1], "no");
}

#[test]
fn the_view_fits_any_terminal_size() {
    let view = after([1, 2, 3].map(reading));
    for (columns, height) in [(1, 1), (10, 4), (80, 6), (80, 23), (300, 100)] {
        lines(&view, columns, height);
    }
    // One row for two workers: it says that there are two.
    let short = lines(&view, 80, rows(&view) - 1);
    shows(&short, "and 2 more", &[]);
}
