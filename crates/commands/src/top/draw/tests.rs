//! Views drawn into cells.

use ratatui::crossterm::event::KeyCode as Key;

use super::*;
use onrush_control::api::stats::{IncomingStats, Software, WorkerStats};
use onrush_control::client::ClientError;
use onrush_tracker::metrics::LOSSES;

/// The widest count: from ten million on they are in millions.
const WIDEST: u64 = 9_999_999;
/// A number of ten digits.
const TEN_DIGITS: u64 = 9_876_543_210;

/// A tracker with two workers after `seconds` of constant load.
fn reading(seconds: u64) -> Stats {
    reading_of(2, seconds)
}

/// A tracker with this many workers, of which the last are busiest.
fn reading_of(workers: u64, seconds: u64) -> Stats {
    let mut stats = Stats {
        version: "1.2.3".into(),
        pid: 7,
        uptime: 1000.0 + seconds as f64,
        stage: "serving".into(),
        addresses: vec!["udp://0.0.0.0:6969".into()],
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
    stats.clients.software = vec![Software { name: "qBittorrent".into(), ipv4: 3, ipv6: 1 }];
    let worker = |number: u64| WorkerStats {
        name: format!("worker-{number}"),
        socket_side: true,
        swarm_side: true,
        datagrams: 6_600 * seconds,
        busy_seconds: 0.5 * (number + 1) as f64 / workers as f64 * seconds as f64,
        lane_capacity: 64,
        ..WorkerStats::default()
    };
    stats.workers = (0..workers).map(worker).collect();
    stats
}

/// The view after readings one second apart.
fn after(readings: impl IntoIterator<Item = Stats>) -> View {
    let mut view = View::new("http://127.0.0.1:6970");
    readings.into_iter().for_each(|stats| view.take(Ok(stats)));
    view
}

/// The view on a terminal of this size. Keys then move by what it shows.
fn screen(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
    let mut cells = Buffer::empty(Rect::new(0, 0, columns, rows));
    view.scroll = draw(view, cells.area, &mut cells);
    text(&cells)
}

/// The names of the workers that are shown.
fn shown_workers(rows: &[String]) -> Vec<&str> {
    rows.iter().filter(|row| row.starts_with("worker-")).map(|row| first_word(row)).collect()
}

fn first_word(row: &str) -> &str {
    row.split(' ').next().unwrap_or_default()
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
    let all = lines(&view, 80);
    shows(&all, "onrush 1.2.3", &["udp://0.0.0.0:6969", "colocated", "http://127.0.0.1:6970"]);
    shows(&all, "serving for 16 min 44 s", &["no worker is stalled", "no overload", "1800 s"]);
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
    shows(&all, "lost", &["none"]);
    shows(&all, "refused", &["connection_id 40/s 160 total", "short 0/s 5 total"]);
    shows(&all, "swarms", &["54,321"]);
    shows(&all, "clients", &["qBittorrent 100.0 %"]);
    shows(&all, "memory", &["██░░", " 15 %", "143 MiB of 954 MiB"]);
    shows(&all, "peers", &[" 95 %", "2,000,400 of 2,100,000"]);
    shows(&all, "CPU", &["50 % of a vCPU"]);
    shows(&all, "worker-0", &["███░░░░░░░  25 %", " 6,600 ", "0/64"]);
    shows(&all, "worker-1", &["█████░░░░░  50 %"]);
    assert_eq!(shown_workers(&all).len(), 2);
    assert!(!all.iter().any(|row| row.contains('…')), "something is cut: {all:#?}");
}

#[test]
fn the_first_reading_has_no_rates() {
    let all = lines(&after([reading(5)]), 100);
    shows(&all, "IPv4", &[" - ", "2,000,000"]);
    shows(&all, "requests", &["-/s"]);
}

#[test]
fn stalls_drops_and_overload_are_highlighted() {
    let mut ill = reading(2);
    ill.workers[1].stalled_seconds = 7.0;
    ill.workers[0].lost = 90;
    ill.totals.lost = [("kernel_drops".to_owned(), 90)].into();
    ill.totals.shard.refused_full = 3;
    ill.overload.step = 3;
    ill.log_level = "off".to_owned();
    let view = after([reading(1), ill]);
    let all = lines(&view, 120);
    let parts = ["worker-1 stalled for 7 s", "the log is off", "overload step 3 of 8"];
    shows(&all, "serving", &parts);
    shows(&all, "lost", &["kernel drops 90/s 90 total"]);
    shows(&all, "peers", &["not stored 3/s"]);
    let mut cells = Buffer::empty(Rect::new(0, 0, 120, all.len() as u16 + 1));
    draw(&view, cells.area, &mut cells);
    let drawn = text(&cells);
    let red = |row: &str| {
        let y = drawn.iter().position(|text| text.starts_with(row)).unwrap();
        (0..120).any(|x| cells[(x, y as u16)].fg == Color::Red)
    };
    assert!(red("serving") && red("lost") && red("peers"));
    assert!(red("worker-0") && red("worker-1"));
    assert!(!red("replies") && !red("swarms"));
}

#[test]
fn http_has_a_row_where_it_is_served() {
    let with_http = |seconds: u64| {
        let mut stats = reading(seconds);
        let mut http =
            HttpStats { closed: [("full".into(), 3 * seconds)].into(), ..HttpStats::default() };
        (http.counts.requests, http.counts.answered) = (500 * seconds, 400 * seconds);
        (http.counts.http_sent_bytes, http.counts.open) = (125_000 * seconds, 12);
        stats.totals.http = Some(http.clone());
        stats.limits.http_connections = Some(16_384);
        let (name, http) = ("web-0".into(), Some(http));
        stats.workers.push(WorkerStats { name, http, ..WorkerStats::default() });
        stats
    };
    let all = lines(&after([1, 2].map(with_http)), 120);
    shows(&all, "HTTP", &["500/s", "connections 12 of 16,384", "refused as full 3/s 6 total"]);
    shows(&all, "replies", &["13,400/s", "out 9.0 Mbit/s"]);
    shows(&all, "web-0", &[" 500 ", " 400 "]);
    assert!(!all.iter().any(|row| row.contains("WebRTC")), "{all:#?}");
    let all = lines(&after([1, 2].map(reading)), 120);
    assert!(!all.iter().any(|row| row.contains("HTTP")), "{all:#?}");
}

#[test]
fn webrtc_peers_have_rows_of_their_own() {
    let with_webrtc = |seconds: u64| {
        let mut stats = reading(seconds);
        let counts = &mut stats.totals.http.insert(HttpStats::default()).counts;
        (counts.webrtc_swarms, counts.ws_open, counts.wss_open) = (4, 7, 8);
        (counts.webrtc_seeders, counts.webrtc_leechers) = (5, 6);
        (counts.webrtc_offers, counts.webrtc_offers_dropped) = (90 * seconds, 10 * seconds);
        (counts.webrtc_answers, counts.webrtc_answers_dropped) = (80 * seconds, 20 * seconds);
        stats
    };
    let all = lines(&after([1, 2].map(with_webrtc)), 80);
    shows(&all, "WebRTC", &["swarms 4", "seeders 5", "leechers 6", "ws 7", "wss 8"]);
    shows(&all, "offers", &["90/s  dropped 10/s", "answers 80/s  dropped 20/s"]);
    shows(&all, "both", &["2,000,400"]);
}

#[test]
fn every_loss_is_named_the_most_frequent_first() {
    let mut ill = reading(2);
    let keys = LOSSES.iter().map(|loss| loss.key.to_owned());
    ill.totals.lost = keys.zip(1..).collect();
    let all = lines(&after([reading(1), ill]), 300);
    let mut named: Vec<_> = LOSSES
        .iter()
        .zip(1..)
        .map(|(loss, count)| format!("{} {count}/s {count} total", loss.label))
        .collect();
    named.reverse();
    shows(&all, "lost", &[&named.join("   ")]);
}

#[test]
fn many_stalled_workers_are_counted() {
    let mut ill = reading_of(48, 2);
    ill.workers.iter_mut().for_each(|worker| worker.stalled_seconds = 9.0);
    let all = screen(&mut after([ill]), 80, 24);
    let words = all[1..4].join(" ");
    for part in ["worker-0 stalled for 9 s", "worker-2 stalled", "and 45 more", "interval 1800 s"] {
        assert!(words.contains(part), "no {part:?}: {all:#?}");
    }
    assert!(all.iter().any(|row| row.starts_with("CPU")), "{all:#?}");
}

#[test]
fn the_last_reading_stays_while_the_tracker_does_not_answer() {
    let mut view = after([1, 2].map(reading));
    view.take(Err("http://127.0.0.1:6970 cannot be reached: refused\n  is it running?".into()));
    let all = lines(&view, 120);
    assert_eq!(
        all[1..3],
        ["http://127.0.0.1:6970 cannot be reached: refused", "is it running?"],
        "{all:#?}"
    );
    shows(&all, "requests", &["13,203/s"]);
    view.take(Ok(reading(3)));
    shows(&lines(&view, 120), "serving", &[]);

    let mut nothing = View::new("http://127.0.0.1:1");
    assert!(screen(&mut nothing, 80, 3)[1].contains("waiting"));
    nothing.take(Err("no".into()));
    assert_eq!(screen(&mut nothing, 80, 3)[1], "no");
}

/// The remedy is the end of the message.
#[test]
fn an_error_is_wrapped_until_its_remedy() {
    let url = "http://[2001:db8:1234:5678:9abc:def0:1234:5678]:6970/behind/a/proxy";
    let cause = "Connection refused (os error 111)";
    let error = ClientError::Unreachable { url: url.into(), cause: cause.into() }.to_string();
    for readings in [vec![], vec![reading_of(48, 1), reading_of(48, 2)]] {
        let mut view = after(readings);
        view.take(Err(error.clone()));
        for columns in [40, 80] {
            let words = screen(&mut view, columns, 24)[1..8].join(" ");
            for part in ["control.sock?", "--config FILE"] {
                assert!(words.contains(part), "no {part} in {columns} columns: {words}");
            }
        }
    }
    let mut view = after([reading(1)]);
    view.take(Err("many words ".repeat(100)));
    let all = screen(&mut view, 80, 24);
    assert!(all.contains(&"…".into()), "an endless message is cut: {all:#?}");
    shows(&all, "both", &[]);
}

#[test]
fn a_screen_of_80_by_24_has_every_figure_of_48_workers() {
    let mut view = after([1, 2].map(|seconds| reading_of(48, seconds)));
    let all = screen(&mut view, 80, 24);
    for begin in [
        "onrush", "serving", "IPv4", "IPv6", "both", "requests", "replies", "lost", "refused",
        "swarms", "clients", "memory", "peers", "CPU", "worker ",
    ] {
        shows(&all, begin, &[]);
    }
    assert_eq!(
        shown_workers(&all),
        ["worker-0", "worker-1", "worker-2", "worker-3", "worker-4", "worker-5"]
    );
    shows(&all, "q quit", &["? help", "s sort", "PgDn scroll", "workers 1 to 6 of 48"]);
    assert!(all[23].starts_with("q quit"), "the last row has the keys: {all:#?}");
    // A larger terminal shows the chart, empty rows and more workers.
    assert_eq!(shown_workers(&screen(&mut view, 80, 72)).len(), 48);
}

#[test]
fn keys_scroll_the_workers_within_their_number() {
    let mut view = after([1, 2].map(|seconds| reading_of(48, seconds)));
    screen(&mut view, 80, 24);
    let page = view.scroll.page;
    assert_eq!(page, 6);
    for (key, first) in [
        (Key::Up, 0),
        (Key::Down, 1),
        (Key::PageDown, 1 + page),
        (Key::Up, page),
        (Key::End, 48 - page),
        (Key::Down, 48 - page),
        (Key::PageUp, 48 - 2 * page),
        (Key::Home, 0),
        (Key::PageUp, 0),
    ] {
        assert!(view.press(key).is_continue());
        let all = screen(&mut view, 80, 24);
        let workers = shown_workers(&all);
        assert_eq!(workers.len(), page);
        assert_eq!(workers[0], format!("worker-{first}"), "after {key:?}");
        shows(&all, "q quit", &[&format!("workers {} to {} of 48", first + 1, first + page)]);
    }
}

#[test]
fn workers_are_sorted_by_load_and_back() {
    let mut view = after([1, 2].map(|seconds| reading_of(48, seconds)));
    screen(&mut view, 80, 24);
    assert!(view.press(Key::Down).is_continue() && view.press(Key::Char('s')).is_continue());
    let all = screen(&mut view, 80, 24);
    assert_eq!(shown_workers(&all)[..3], ["worker-47", "worker-46", "worker-45"], "from the top");
    shows(&all, "q quit", &["sort by name"]);
    assert!(view.press(Key::Char('s')).is_continue());
    let all = screen(&mut view, 80, 24);
    assert_eq!(shown_workers(&all)[..2], ["worker-0", "worker-1"]);
    shows(&all, "q quit", &["sort by load"]);
}

#[test]
fn the_help_explains_keys_and_figures_on_80_by_24() {
    let mut view = after([1, 2].map(reading));
    let before = screen(&mut view, 80, 24);
    assert!(view.press(Key::Char('?')).is_continue());
    let all = screen(&mut view, 80, 24);
    for begin in ["  q, Esc", "  PgUp", "  s ", "  lost", "  lane", "  overload", "any key"] {
        shows(&all, begin, &[]);
    }
    assert!(cut(&all).is_empty(), "{all:#?}");
    assert!(view.press(Key::Char('q')).is_continue());
    assert_eq!(screen(&mut view, 80, 24), before);
}

/// The rows that end with the sign of a cut.
fn cut(rows: &[String]) -> Vec<&String> {
    rows.iter().filter(|row| row.ends_with('…')).collect()
}

/// Every number of the view as large as this, in totals and as a rate.
fn reading_with(number: u64, seconds: u64) -> Stats {
    let mut stats = reading_of(48, seconds);
    let all = number * seconds;
    let family = FamilyStats {
        incoming: IncomingStats {
            connects: all,
            announces: all,
            scrapes: all,
            bytes: all * 1_000,
            ..IncomingStats::default()
        },
        refused: [("connection_id".to_owned(), all)].into(),
        peers: number,
        seeders: number,
        leechers: number,
        ..FamilyStats::default()
    };
    stats.families.ipv4 = family.clone();
    stats.families.ipv6 = family.clone();
    stats.totals.traffic = family;
    stats.totals.worker.sent = all;
    stats.totals.worker.sent_bytes = all * 1_000;
    stats.totals.lost = [("kernel_drops".to_owned(), all)].into();
    stats.totals.shard.swarms = number;
    stats.totals.shard.idle_swarms = number;
    stats.totals.shard.completed = all;
    stats.totals.shard.expired = all;
    stats.totals.shard.refused_full = all;
    stats.limits.peers = number;
    for worker in &mut stats.workers {
        worker.datagrams = all;
        worker.counts.sent = all;
        worker.lost = all;
        (worker.lane_waiting, worker.lane_capacity) = (1024, 1024);
        worker.peers = number;
    }
    stats
}

#[test]
fn figures_of_large_hosts_do_not_run_together() {
    for (number, shown) in [(WIDEST, "9,999,999"), (TEN_DIGITS, "9876.5 M")] {
        let mut view = after([1, 2].map(|seconds| reading_with(number, seconds)));
        let all = screen(&mut view, 80, 24);
        for (begin, cells) in [("both", 7), ("lost", 1), ("swarms", 4), ("peers", 3)] {
            let row = all.iter().find(|row| row.starts_with(begin)).unwrap();
            assert_eq!(alone(row, shown), cells, "{row:?}");
        }
        assert!(cut(&all).is_empty(), "{all:#?}");
        for row in all.iter().filter(|row| row.starts_with("worker-")) {
            assert_eq!((alone(row, shown), alone(row, "1024/1024")), (4, 1), "{row:?}");
        }
    }
}

/// How often a row has this text as a figure, without another one beside it.
fn alone(row: &str, figure: &str) -> usize {
    let is_alone = |at: usize| {
        let before = row[..at].chars().next_back();
        let after = row[at + figure.len()..].chars().next();
        before.is_none_or(|before| " (".contains(before))
            && after.is_none_or(|after| " /)".contains(after))
    };
    row.match_indices(figure).filter(|(at, _)| is_alone(*at)).count()
}

#[test]
fn what_is_cut_has_a_sign() {
    let mut many = reading_with(WIDEST, 2);
    many.addresses = (0..9).map(|number| format!("udp://192.0.2.{number}:6969")).collect();
    many.totals.traffic.refused = ["connection_id", "not_listed", "port", "short", "source"]
        .map(|reason| (reason.to_owned(), WIDEST))
        .into();
    many.clients.software = (0..9)
        .map(|number| Software { name: format!("client number {number}"), ipv4: 1, ipv6: 1 })
        .collect();
    let mut view = after([reading(1), many]);
    let all = screen(&mut view, 80, 24);
    for begin in ["onrush", "refused", "clients"] {
        let row = all.iter().find(|row| row.starts_with(begin)).unwrap();
        assert!(row.ends_with('…') && row.chars().count() == 80, "{row:?}");
    }
    assert_eq!(cut(&all).len(), 3, "{all:#?}");
    // Rows without room are counted.
    let short = screen(&mut view, 80, 8);
    assert!(short[6].starts_with('…') && short[6].contains("9 more"), "{short:#?}");
    shows(&short, "q quit", &["no room for 48 workers"]);
}

#[test]
fn the_view_fits_any_terminal_size() {
    let mut view = after([1, 2, 3].map(reading));
    for help in [false, true] {
        view.help = help;
        for columns in [0, 1, 10, 80, 300] {
            for rows in (0..30).chain([100]) {
                assert_eq!(screen(&mut view, columns, rows).len(), usize::from(rows));
            }
        }
    }
}
