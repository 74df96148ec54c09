//! Every check, by its findings on made-up hosts.

use std::time::Duration;

use onrush_config::{Host, Settings};
use onrush_tracker::limits::Placement;

use super::Severity::{self, Note, Problem};
use super::facts::{Card, Conntrack, Governor, Record, Records, StateDisk, Udp};
use super::{Facts, Finding, checks};
use crate::ports::{Holder, Process};

/// The finding of this name on a host of four vCPUs without files, after `change`.
fn finding(name: &str, change: impl FnOnce(&mut Facts)) -> Option<Finding> {
    let directory = tempfile::tempdir().unwrap();
    let host = Host { vcpus: vec![0, 1, 2, 3], memory: Some(2_000_000_000), ..Host::default() };
    let settings = Settings::for_test("[limits]\npeers = 20_000_000\n");
    let mut facts = Facts::gather(directory.path(), &settings, &host, true);
    change(&mut facts);
    checks(&facts).into_iter().find(|finding| finding.name == name)
}

/// Asserts the severity of a finding, and that its sentence or a remedy contains `part`.
#[track_caller]
fn finds(name: &str, severity: Severity, part: &str, change: impl FnOnce(&mut Facts)) {
    let finding = finding(name, change).unwrap_or_else(|| panic!("no finding {name}"));
    assert_eq!(finding.severity, severity, "{finding:?}");
    let Finding { what, fix, keep, .. } = finding;
    let text = [Some(what), fix, keep].map(Option::unwrap_or_default).join("\n");
    assert!(text.contains(part), "no {part:?} in {text}");
}

#[test]
fn buffers_below_the_settings_are_a_problem_with_the_sysctl_that_fixes_it() {
    let small = |facts: &mut Facts| facts.rmem_max = Some(212_992);
    finds("rmem_max", Problem, "4194304 bytes, and net.core.rmem_max allows 212992", small);
    finds("rmem_max", Problem, "sysctl -w net.core.rmem_max=4194304", small);
    finds("rmem_max", Problem, "/etc/sysctl.d/", small);
    finds("wmem_max", Severity::Ok, "1048576", |facts| facts.wmem_max = Some(1_048_576));
    finds("wmem_max", Problem, "bursts of replies", |facts| facts.wmem_max = Some(1_048_575));
    finds("early_demux", Note, "udp_early_demux=0", |facts| facts.early_demux = Some(true));
    finds("early_demux", Severity::Ok, "", |facts| facts.early_demux = Some(false));
}

#[test]
fn a_short_backlog_is_a_problem_once_it_has_dropped() {
    for (backlog, drops, severity) in
        [(1000, 0, Note), (1000, 3, Problem), (16_384, 0, Severity::Ok), (16_384, 3, Severity::Ok)]
    {
        finds("backlog", severity, &backlog.to_string(), |facts| {
            (facts.backlog, facts.backlog_drops) = (Some(backlog), Some(drops));
        });
    }
}

#[test]
fn more_than_rare_drops_are_a_note() {
    for (received, receive_drops, send_drops, severity) in [
        (1_000_000, 0, 0, Severity::Ok),
        (1_000_000, 50, 50, Severity::Ok),
        (1_000_000, 60, 41, Note),
        (5, 0, 1, Note),
    ] {
        let udp = Udp { received, receive_drops, send_drops };
        finds("drops", severity, "", |facts| facts.udp = Some(udp));
    }
}

fn held(port: u16, processes: &[(u32, &str)]) -> Holder {
    let process = |&(id, name): &(u32, &str)| {
        let unit = Some(format!("{name}.service"));
        Process { id, name: name.into(), unit }
    };
    let processes = processes.iter().map(process).collect();
    Holder { address: ([0, 0, 0, 0], port).into(), user: 9, processes }
}

#[test]
fn a_port_held_by_another_process_is_a_problem_that_names_the_service() {
    let held = |severity, part: &str, processes: &[(u32, &str)]| {
        let holders = vec![held(80, &[]), held(6969, processes)];
        finds("port", severity, part, |facts| facts.holders = holders);
    };
    finds("port", Severity::Ok, "6969 is free", |_| {});
    held(Severity::Ok, "served by onrush (process 7, onrush.service)", &[(7, "onrush")]);
    held(Problem, "opentracker (process 7, opentracker.service)", &[(7, "opentracker")]);
    held(Problem, "`systemctl status 7`", &[(7, "opentracker")]);
    held(Note, "ss -ulpn", &[]);
}

/// A file of the package's name would replace it (sysctl.d(5)).
#[test]
fn permanent_sysctls_have_a_file_of_their_own() {
    let keep = |name: &str, change: fn(&mut Facts)| finding(name, change).unwrap().keep.unwrap();
    for keep in [
        keep("rmem_max", |facts| facts.rmem_max = Some(1)),
        keep("early_demux", |facts| facts.early_demux = Some(true)),
        keep("rfs", |facts| facts.flow_entries = Some(1)),
        keep("backlog", |facts| facts.backlog = Some(1)),
    ] {
        assert!(keep.contains("/etc/sysctl.d/61-onrush-local.conf"), "{keep}");
    }
}

#[test]
fn an_unsynchronised_clock_matters_to_hosts_that_share_a_key() {
    assert_eq!(finding("time", |_| {}), None, "the kernel does not say");
    let error = |millis| Some(Duration::from_millis(millis));
    finds("time", Severity::Ok, "12 ms", |facts| facts.clock_error = error(12));
    finds("time", Note, "systemd-timesyncd", |facts| facts.clock_error = error(16_000));
    finds("time", Problem, "connection.key_file", |facts| {
        facts.clock_error = error(16_000);
        facts.settings.connection.key_file = Some("/etc/onrush/connection.key".into());
    });
}

#[test]
fn the_disk_has_room_for_two_snapshots() {
    let disk = |free, snapshot| {
        move |facts: &mut Facts| {
            facts.settings.limits.peers = 1_000_000;
            let directory = "/var/lib/onrush".into();
            facts.state_disk = Some(StateDisk { directory, free, snapshot });
        }
    };
    finds("disk", Severity::Ok, "/var/lib/onrush", disk(48_000_000, 0));
    finds("disk", Severity::Ok, "", disk(28_000_000, 20_000_000));
    finds("disk", Note, "limits.peers take about 45.8 MiB", disk(47_999_999, 0));
    finds("disk", Problem, "will fail", disk(19_000_000, 20_000_000));
    assert_eq!(finding("disk", |_| {}), None, "there is no state directory");
}

#[test]
fn records_of_the_name_are_compared_with_the_addresses() {
    let with = |listen: &str, found: Result<Vec<(&str, bool)>, &str>| {
        let settings = Settings::for_test(&format!("listen = [{listen}]"));
        let record = |(address, is_local): (&str, bool)| Record {
            address: address.parse().unwrap(),
            is_local,
        };
        let found = found.map(|found| found.into_iter().map(record).collect());
        let found = found.map_err(str::to_owned);
        let records = Records { name: "t.example".into(), found };
        move |facts: &mut Facts| (facts.settings, facts.records) = (settings, Some(records))
    };
    let (v4, v6) = ("198.51.100.7", "2001:db8::7");
    finds("dns", Problem, "does not resolve: why", with("':6969'", Err("why")));
    finds("dns", Problem, "dig AAAA t.example", with("':6969'", Ok(vec![])));
    finds("dns", Severity::Ok, v4, with("':6969'", Ok(vec![(v4, true)])));
    finds("dns", Severity::Ok, v6, with("'[2001:db8::7]:6969'", Ok(vec![(v6, true)])));
    finds("dns", Note, "no address of this host", with("':6969'", Ok(vec![(v4, false)])));
    let only_v4 = with("'0.0.0.0:6969'", Ok(vec![(v6, true)]));
    finds("dns", Problem, "does not listen over IPv6", only_v4);
    let elsewhere = with("'127.0.0.1:6969'", Ok(vec![(v4, true)]));
    finds("dns", Problem, "add 198.51.100.7 to `listen`", elsewhere);
    assert_eq!(finding("dns", |_| {}), None, "no name was given");
}

#[test]
fn names_are_looked_up_on_this_host() {
    let found = Records::look_up("127.0.0.1").found;
    let address = "127.0.0.1".parse().unwrap();
    assert_eq!(found, Ok(vec![Record { address, is_local: true }]));
    // RFC 5737
    assert!(!Records::look_up("192.0.2.7").found.unwrap()[0].is_local);
}

#[track_caller]
fn governed(severity: Severity, part: &str, governors: &[(&str, &str, Option<&str>)]) {
    let of = |&(name, driver, preference): &(&str, &str, Option<&str>)| Governor {
        name: name.into(),
        driver: driver.into(),
        preference: preference.map(str::to_owned),
    };
    finds("governor", severity, part, |facts| facts.governors = governors.iter().map(of).collect());
}

#[test]
fn the_slowest_governor_counts() {
    assert_eq!(finding("governor", |_| {}), None, "a virtual machine has no governor");
    let [performance, powersave, schedutil] =
        ["performance", "powersave", "schedutil"].map(|name| (name, "acpi-cpufreq", None));
    governed(Severity::Ok, "full frequency", &[performance, performance]);
    governed(Problem, "\"powersave\"", &[performance, powersave]);
    governed(Problem, "\"powersave\"", &[powersave, performance, schedutil]);
    governed(Note, "\"schedutil\"", &[schedutil]);
}

#[test]
fn powersave_is_not_a_problem_if_the_hardware_chooses_frequencies() {
    for driver in ["intel_pstate", "amd-pstate-epp"] {
        for good in ["performance", "balance_performance", "default"] {
            governed(Severity::Ok, driver, &[("powersave", driver, Some(good))]);
        }
        let slow = ("powersave", driver, Some("balance_power"));
        governed(Note, "prefers \"balance_power\"", &[slow]);
        governed(Note, "", &[("powersave", driver, None)]);
    }
    // Passive mode: the lowest frequency.
    governed(Problem, "", &[("powersave", "intel_cpufreq", Some("performance"))]);
    governed(Severity::Ok, "", &[("performance", "intel_pstate", Some("power"))]);
}

#[test]
fn a_slow_clock_and_a_quota_below_the_vcpus_are_problems() {
    finds("clock", Severity::Ok, "tsc", |facts| facts.clock = Some("tsc".into()));
    finds("clock", Problem, "hpet", |facts| facts.clock = Some("hpet".into()));
    finds("quota", Severity::Ok, "4 usable", |facts| facts.quota = None);
    finds("quota", Severity::Ok, "4 usable", |facts| facts.quota = Some(4_000));
    finds("quota", Problem, "AllowedCPUs=0-1 ", |facts| facts.quota = Some(2_000));
    finds("quota", Problem, "3.5 of 4 vCPUs", |facts| facts.quota = Some(3_500));
    finds("quota", Problem, "AllowedCPUs=0 ", |facts| facts.quota = Some(200));
}

#[track_caller]
fn carded(severity: Severity, part: &str, card: (u64, u64, &[&[usize]]), vcpus: u64) {
    let (queues, rps_queues, interrupts) = card;
    let interrupts = interrupts.iter().map(|cpus| cpus.to_vec()).collect();
    let card = Card { name: "eth0".into(), queues, rps_queues, interrupts };
    finds("cards", severity, part, |facts| (facts.cards, facts.vcpus) = (vec![card], vcpus));
}

#[test]
fn interrupts_that_all_reach_one_vcpu_are_a_problem() {
    carded(Problem, "vCPU 0 ", (4, 0, &[&[0], &[0], &[0], &[0]]), 4);
    carded(Severity::Ok, "4 queues", (4, 0, &[&[0], &[1]]), 4);
    carded(Severity::Ok, "4 queues", (4, 0, &[&[0, 1], &[0, 1]]), 4);
    carded(Severity::Ok, "", (1, 0, &[&[0], &[0]]), 1);
    carded(Note, "has one queue", (1, 0, &[&[0], &[0]]), 4);
}

#[test]
fn queues_and_rps_are_weighed_against_each_other() {
    carded(Note, "RPS moves the packets of 4", (4, 4, &[]), 4);
    carded(Note, "echo f >", (1, 0, &[]), 4);
    carded(Note, "echo ffffffff >", (1, 0, &[]), 32);
    carded(Note, "echo ff,ffffffff >", (1, 0, &[]), 40);
    carded(Note, "echo ffffffff,ffffffff >", (1, 0, &[]), 64);
    carded(Severity::Ok, "1 queues", (1, 1, &[]), 4);
}

#[test]
fn rfs_is_to_be_off() {
    let on = |facts: &mut Facts| facts.flow_entries = Some(32_768);
    finds("rfs", Note, "= 32768", on);
    finds("rfs", Note, "sysctl -w net.core.rps_sock_flow_entries=0", on);
    finds("rfs", Severity::Ok, "off", |facts| facts.flow_entries = Some(0));
    assert_eq!(finding("rfs", |_| {}), None, "the kernel has no RFS");
}

#[test]
fn more_peers_than_memory_are_a_problem_with_a_number_that_fits() {
    finds("memory", Severity::Ok, "1.19 GiB", |_| {});
    let many = |facts: &mut Facts| facts.settings.limits.peers = 100_000_000;
    finds("memory", Problem, "5.96 GiB, and the process may use 1.86 GiB", many);
    finds("memory", Problem, "limits.peers = 15625000 ", many);
}

#[test]
fn swap_and_huge_pages_are_notes() {
    finds("swap", Severity::Ok, "off", |facts| facts.swap = Some((0, 0)));
    finds("swap", Note, "0 B of 1 GiB", |facts| facts.swap = Some((1 << 30, 0)));
    finds("huge_pages", Severity::Ok, "", |facts| facts.huge_pages = Some("madvise".into()));
    finds("huge_pages", Note, "madvise >", |facts| facts.huge_pages = Some("always".into()));
}

#[test]
fn a_tracked_port_is_a_problem_with_rules_for_every_port() {
    let table = |entries, of_tracker, tracker| {
        move |facts: &mut Facts| {
            facts.settings.listen[1].address.set_port(6970);
            facts.conntrack = Some(Conntrack { entries, max: 1000, of_tracker });
            facts.tracker = tracker;
        }
    };
    finds("conntrack", Severity::Ok, "not loaded", |_| {});
    finds("conntrack", Severity::Ok, "tracks nothing", table(0, None, None));
    for rule in ["udp dport '{ 6969, 6970 }' notrack", "udp sport '{ 6969, 6970 }' notrack"] {
        finds("conntrack", Problem, rule, table(10, Some(3), Some(7)));
    }
    finds("conntrack", Severity::Ok, "no client of the tracker", table(10, Some(0), Some(7)));
    finds("conntrack", Note, "while the tracker has clients", table(10, Some(0), None));
    finds("conntrack", Note, "cannot be read", table(10, None, None));
    finds("conntrack", Note, "cannot be read", table(899, None, None));
    finds("conntrack", Problem, "nearly full", table(900, None, None));
}

#[test]
fn too_few_open_files_are_a_problem_with_a_number() {
    let limited = |limit| {
        move |facts: &mut Facts| {
            facts.settings.placement = Placement::Split { socket_workers: 42, swarm_workers: 6 };
            facts.files = Some(limit);
        }
    };
    finds("files", Severity::Ok, "340", limited(1024));
    finds("files", Problem, "340 open files, and this shell may open 256", limited(256));
    finds("files", Problem, "ulimit -n 512", limited(256));
    finds("files", Severity::Ok, "process 77, the tracker, may open 65536", |facts| {
        (facts.tracker, facts.files) = (Some(77), Some(65_536));
    });
    finds("files", Problem, "LimitNOFILE=512 in the unit", limited(256));
}

#[test]
fn root_is_a_note_unless_the_tracker_changes_user() {
    finds("user", Note, "would run as root", |facts| facts.root = Some(true));
    finds("user", Severity::Ok, "", |facts| facts.root = Some(false));
    finds("user", Severity::Ok, "", |facts| {
        (facts.root, facts.settings.user) = (Some(true), Some("onrush".into()));
    });
}
