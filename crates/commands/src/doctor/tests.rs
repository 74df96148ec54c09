//! Every check, by its findings on hosts made of files in a temporary directory.

mod certificates;
mod xdp;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use onrush_config::{Host, Settings};
use onrush_tracker::limits::Placement;
use tempfile::TempDir;

use super::Severity::{self, Note, Problem};
use super::facts::{Record, Records};
use super::{Facts, Finding, checks, system};
use onrush_config::socket_holders::{Holder, Process};

/// A host with a few files.
struct Made(TempDir);

impl Made {
    fn new(files: &[(&str, &str)]) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| made.file(path, text));
        made
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Process 77 has the socket of [`UDP_SOCKET`].
    fn open_socket(&self) {
        fs::create_dir_all(self.path().join("proc/77/fd")).unwrap();
        symlink("socket:[4711]", self.path().join("proc/77/fd/5")).unwrap();
    }

    fn facts(&self) -> Facts {
        self.look("[limits]\npeers = 20_000_000\n", false)
    }

    /// The facts of four vCPUs.
    fn look(&self, settings: &str, quick: bool) -> Facts {
        let vcpus = vec![0, 1, 2, 3];
        let host = Host { vcpus, memory: Some(2_000_000_000), ..Host::default() };
        Facts::gather(self.path(), &Settings::for_test(settings), &host, quick)
    }
}

/// The finding of this name.
fn found(facts: &Facts, name: &str) -> Option<Finding> {
    checks(facts).into_iter().find(|finding| finding.name == name)
}

/// Asserts the severity of a finding, and that its sentence or a remedy contains `part`.
#[track_caller]
fn finds_in(facts: &Facts, name: &str, severity: Severity, part: &str) {
    let finding = found(facts, name).unwrap_or_else(|| panic!("no finding {name}"));
    is(finding, severity, part);
}

#[track_caller]
fn is(finding: Finding, severity: Severity, part: &str) {
    assert_eq!(finding.severity, severity, "{finding:?}");
    let Finding { what, fix, keep, .. } = finding;
    let text = [Some(what), fix, keep].map(Option::unwrap_or_default).join("\n");
    assert!(text.contains(part), "no {part:?} in {text}");
}

/// The same on a host with these files.
#[track_caller]
fn finds(files: &[(&str, &str)], name: &str, severity: Severity, part: &str) {
    finds_in(&Made::new(files).facts(), name, severity, part);
}

/// The same on a host without files, after `change`.
#[track_caller]
fn finds_after(name: &str, severity: Severity, part: &str, change: impl FnOnce(&mut Facts)) {
    let mut facts = Made::new(&[]).facts();
    change(&mut facts);
    finds_in(&facts, name, severity, part);
}

/// A file of this host with other values for the lines that start with these names, so that the
/// parsers meet the format of a real kernel.
fn changed(path: &str, lines: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(path).unwrap();
    let change = |line: &str| {
        let value = lines.iter().find(|(name, _)| line.starts_with(name));
        value.map_or_else(|| line.to_owned(), |(name, value)| format!("{name}{value}"))
    };
    text.lines().map(|line| change(line) + "\n").collect()
}

fn limits(files: u64) -> String {
    let line = format!("            {files}   524288   files     ");
    changed("/proc/self/limits", &[("Max open files", &line)])
}

fn status(uid: u32, cpus: &str) -> String {
    let uids = format!("\t{uid}\t{uid}\t{uid}\t{uid}");
    changed("/proc/self/status", &[("Uid:", &uids), ("Cpus_allowed_list:", cpus)])
}

/// The header of /proc/net/udp and one socket, at port 6969 (1B39), with inode 4711.
const UDP_SOCKET: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
    retrnsmt   uid  timeout inode ref pointer drops\n    7: 00000000:1B39 00000000:0000 07 \
    00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 0\n";

const RMEM: &str = "proc/sys/net/core/rmem_max";
const WMEM: &str = "proc/sys/net/core/wmem_max";
const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";
const RFS: &str = "proc/sys/net/core/rps_sock_flow_entries";
const EARLY_DEMUX: [&str; 2] =
    ["proc/sys/net/ipv4/udp_early_demux", "proc/sys/net/ipv4/ip_early_demux"];

#[test]
fn buffers_below_the_settings_are_a_problem_with_the_sysctl_that_fixes_it() {
    let small = [(RMEM, "212992\n")];
    finds(&small, "rmem_max", Problem, "4194304 bytes, and net.core.rmem_max allows 212992");
    finds(&small, "rmem_max", Problem, "sysctl -w net.core.rmem_max=4194304");
    finds(&small, "rmem_max", Problem, "/etc/sysctl.d/");
    finds(&[(WMEM, "1048576\n")], "wmem_max", Severity::Ok, "1048576");
    finds(&[(WMEM, "1048575\n")], "wmem_max", Problem, "bursts of replies");
    let [udp, ip] = EARLY_DEMUX;
    finds(&[(udp, "1\n"), (ip, "1\n")], "early_demux", Note, "udp_early_demux=0");
    finds(&[(udp, "0\n"), (ip, "1\n")], "early_demux", Severity::Ok, "");
}

#[test]
fn a_short_backlog_is_a_problem_once_it_has_dropped() {
    for (backlog, drops, severity, part) in [
        ("1000", "00000000", Note, "1000"),
        ("1000", "0000001f", Problem, "33 packets were dropped"),
        ("1000", "0000001f", Problem, "queue of 1000"),
        ("16384", "00000000", Severity::Ok, "16384"),
        ("16384", "0000001f", Severity::Ok, "16384"),
    ] {
        let softnet = format!("0000a1b2 {} 0\n0000ffff {drops} 0\n", drops.replace("1f", "02"));
        finds(
            &[(BACKLOG, backlog), ("proc/net/softnet_stat", &softnet)],
            "backlog",
            severity,
            part,
        );
    }
}

/// /proc/net/snmp with these numbers of received, dropped and unsent UDP datagrams.
fn snmp(counts: [u64; 3]) -> String {
    let snmp = fs::read_to_string("/proc/net/snmp").unwrap();
    let names = snmp.lines().find(|line| line.starts_with("Udp: ")).unwrap();
    let values = names.split_whitespace().map(|name| match name {
        "Udp:" => "Udp:".to_owned(),
        "InDatagrams" => counts[0].to_string(),
        "RcvbufErrors" => counts[1].to_string(),
        "SndbufErrors" => counts[2].to_string(),
        _ => "0".to_owned(),
    });
    let values = values.collect::<Vec<_>>().join(" ");
    let before = snmp.lines().find(|line| line.starts_with("Udp: ") && *line != names).unwrap();
    snmp.replace(before, &values)
}

#[test]
fn more_than_rare_drops_are_a_note() {
    for (counts, severity) in [
        ([1_000_000, 0, 0], Severity::Ok),
        ([1_000_000, 50, 50], Severity::Ok),
        ([1_000_000, 60, 41], Note),
        ([5, 0, 1], Note),
    ] {
        finds(&[("proc/net/snmp", &snmp(counts))], "drops", severity, "");
    }
}

#[test]
fn drops_of_both_families_are_added_up() {
    let v4 = snmp([1000, 5, 7]);
    let part = "of 1000 UDP datagrams since boot 5 were dropped by full receive buffers, and 7 ";
    finds(&[("proc/net/snmp", &v4)], "drops", Note, part);
    let counters =
        [("Udp6InDatagrams", " 500"), ("Udp6RcvbufErrors", " 50"), ("Udp6SndbufErrors", " 0")];
    let v6 = changed("/proc/net/snmp6", &counters);
    let part = "of 1500 UDP datagrams since boot 55 were dropped by full receive buffers, and 7 ";
    finds(&[("proc/net/snmp", &v4), ("proc/net/snmp6", &v6)], "drops", Note, part);
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
        finds_after("port", severity, part, |facts| facts.holders = holders);
    };
    finds(&[], "port", Severity::Ok, "6969 is free");
    held(Severity::Ok, "served by onrush (process 7, onrush.service)", &[(7, "onrush")]);
    held(Problem, "opentracker (process 7, opentracker.service)", &[(7, "opentracker")]);
    held(Problem, "`systemctl status 7`", &[(7, "opentracker")]);
    held(Note, "ss -ulpn", &[]);
}

#[test]
fn the_holder_of_the_port_is_found() {
    let made = Made::new(&[("proc/net/udp", UDP_SOCKET), ("proc/77/comm", "opentracker\n")]);
    made.file("proc/77/cgroup", "0::/system.slice/opentracker.service\n");
    let (address, user) = (([0, 0, 0, 0], 6969).into(), 1000);
    let hidden = made.facts();
    assert_eq!(hidden.holders, [Holder { address, user, processes: vec![] }]);
    made.open_socket();
    let (name, unit) = ("opentracker".into(), Some("opentracker.service".into()));
    let processes = vec![Process { id: 77, name, unit }];
    assert_eq!(made.facts().holders, [Holder { address, user, processes }]);
    assert_eq!(made.look("", true).holders, []);
}

/// A file of the package's name would replace it (sysctl.d(5)).
#[test]
fn permanent_sysctls_have_a_file_of_their_own() {
    let [udp, ip] = EARLY_DEMUX;
    let files = [(RMEM, "1"), (BACKLOG, "1"), (RFS, "1"), (udp, "1"), (ip, "1")];
    let made = Made::new(&files);
    let facts = made.facts();
    for name in ["rmem_max", "early_demux", "rfs", "backlog"] {
        let keep = found(&facts, name).unwrap().keep.unwrap();
        assert!(keep.contains("/etc/sysctl.d/61-onrush-local.conf"), "{keep}");
    }
}

#[test]
fn an_unsynchronised_clock_matters_to_hosts_that_share_a_key() {
    assert_eq!(found(&Made::new(&[]).facts(), "time"), None, "the kernel does not say");
    let error = |millis| Some(Duration::from_millis(millis));
    finds_after("time", Severity::Ok, "12 ms", |facts| facts.clock_error = error(12));
    finds_after("time", Note, "systemd-timesyncd", |facts| facts.clock_error = error(16_000));
    finds_after("time", Problem, "connection.key_file", |facts| {
        facts.clock_error = error(16_000);
        facts.settings.connection.key_file = Some("/etc/onrush/connection.key".into());
    });
}

#[test]
fn the_disk_has_room_for_two_snapshots() {
    let room = |free, snapshot| system::room("/var/lib/onrush".as_ref(), free, snapshot, 1_000_000);
    is(room(48_000_000, 0), Severity::Ok, "/var/lib/onrush");
    is(room(28_000_000, 20_000_000), Severity::Ok, "");
    is(room(47_999_999, 0), Note, "limits.peers take about 45.8 MiB");
    is(room(19_000_000, 20_000_000), Problem, "will fail");
}

#[test]
fn the_disk_of_the_state_directory_has_a_snapshot() {
    let made = Made::new(&[("var/lib/onrush/onrush.snapshot", "")]);
    // No disk has as much room.
    let snapshot = made.path().join("var/lib/onrush/onrush.snapshot");
    File::options().write(true).open(snapshot).unwrap().set_len(1 << 43).unwrap();
    let few = "limits.peers = 1000\n";
    let facts = |settings: &str| made.look(&format!("{few}{settings}"), true);
    finds_in(&facts("state_dir = '/var/lib/onrush'"), "disk", Problem, "needs about 8 TiB");
    finds_in(&facts("state_dir = '/var/lib/other/onrush'"), "disk", Severity::Ok, "free in");
    for none in ["state_dir = '/var/lib/onrush'\nsnapshot.enabled = false", ""] {
        assert_eq!(found(&facts(none), "disk"), None, "{none}");
    }
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
    finds_after("dns", Problem, "does not resolve: why", with("':6969'", Err("why")));
    finds_after("dns", Problem, "dig AAAA t.example", with("':6969'", Ok(vec![])));
    finds_after("dns", Severity::Ok, v4, with("':6969'", Ok(vec![(v4, true)])));
    finds_after("dns", Severity::Ok, v6, with("'[2001:db8::7]:6969'", Ok(vec![(v6, true)])));
    finds_after("dns", Note, "no address of this host", with("':6969'", Ok(vec![(v4, false)])));
    let only_v4 = with("'0.0.0.0:6969'", Ok(vec![(v6, true)]));
    finds_after("dns", Problem, "does not listen over IPv6", only_v4);
    let elsewhere = with("'127.0.0.1:6969'", Ok(vec![(v4, true)]));
    finds_after("dns", Problem, "add 198.51.100.7 to `listen`", elsewhere);
    assert_eq!(found(&Made::new(&[]).facts(), "dns"), None, "no name was given");
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
    let made = Made::new(&[]);
    for (cpu, (name, driver, preference)) in governors.iter().enumerate() {
        let file = |file: &str, text: &str| {
            made.file(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"), text);
        };
        file("scaling_governor", name);
        file("scaling_driver", driver);
        preference.iter().for_each(|text| file("energy_performance_preference", text));
    }
    finds_in(&made.facts(), "governor", severity, part);
}

#[test]
fn the_slowest_governor_counts() {
    let none = found(&Made::new(&[]).facts(), "governor");
    assert_eq!(none, None, "a virtual machine has no governor");
    let [performance, powersave, schedutil] =
        ["performance\n", "powersave\n", "schedutil\n"].map(|name| (name, "acpi-cpufreq\n", None));
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
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    finds(&[(clock, "tsc\n")], "clock", Severity::Ok, "tsc");
    finds(&[(clock, "hpet\n")], "clock", Problem, "hpet");
    for (quota, severity, part) in [
        (None, Severity::Ok, "4 usable"),
        (Some(4_000), Severity::Ok, "4 usable"),
        (Some(2_000), Problem, "AllowedCPUs=0-1 "),
        (Some(3_500), Problem, "3.5 of 4 vCPUs"),
        (Some(200), Problem, "AllowedCPUs=0 "),
    ] {
        finds_after("quota", severity, part, |facts| facts.quota = quota);
    }
}

/// A host with a card that is up, with this many queues, of which RPS moves packets, and with these
/// interrupts.
fn card(queues: usize, rps_queues: usize, interrupts: &[&str]) -> Made {
    let made = Made::new(&[("sys/class/net/eth0/operstate", "up\n")]);
    for queue in 0..queues {
        let mask = if queue < rps_queues { "00000000,00000003\n" } else { "00000000,00000000\n" };
        made.file(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), mask);
    }
    made.file("sys/class/net/eth0/queues/tx-0/xps_cpus", "1\n");
    made.file("sys/class/net/eth0/device/vendor", "x");
    for (number, cpus) in interrupts.iter().enumerate() {
        made.file(&format!("sys/class/net/eth0/device/msi_irqs/{}", 40 + number), "msix");
        made.file(&format!("proc/irq/{}/effective_affinity_list", 40 + number), cpus);
    }
    made
}

#[track_caller]
fn carded(severity: Severity, part: &str, card: &Made, vcpus: u64) {
    let facts = Facts { vcpus, ..card.facts() };
    finds_in(&facts, "cards", severity, part);
}

#[test]
fn interrupts_that_all_reach_one_vcpu_are_a_problem() {
    carded(Problem, "vCPU 0 ", &card(4, 0, &["0\n"; 4]), 4);
    carded(Severity::Ok, "4 queues", &card(4, 0, &["0\n", "1\n"]), 4);
    carded(Severity::Ok, "4 queues", &card(4, 0, &["0-1\n"; 2]), 4);
    carded(Severity::Ok, "", &card(1, 0, &["0\n"; 2]), 1);
    carded(Note, "has one queue", &card(1, 0, &["0\n"; 2]), 4);
}

#[test]
fn queues_and_rps_are_weighed_against_each_other() {
    carded(Note, "RPS moves the packets of 4", &card(4, 4, &[]), 4);
    carded(Note, "2 queues, and RPS moves the packets of 1", &card(2, 1, &[]), 4);
    for (mask, vcpus) in
        [("f", 4), ("ffffffff", 32), ("ff,ffffffff", 40), ("ffffffff,ffffffff", 64)]
    {
        carded(Note, &format!("echo {mask} >"), &card(1, 0, &[]), vcpus);
    }
    carded(Severity::Ok, "1 queues", &card(1, 1, &[]), 4);
}

#[test]
fn cards_are_up_and_have_a_device() {
    let made = card(2, 0, &["1\n"; 2]);
    made.file("sys/class/net/lo/operstate", "unknown\n");
    made.file("sys/class/net/eth1/operstate", "down\n");
    made.file("sys/class/net/eth1/device/vendor", "x");
    made.file("sys/class/net/tun0/operstate", "up\n");
    made.file("sys/class/net/eth0/msi_irqs/39", "of the bridge before the card");
    made.file("proc/irq/39/effective_affinity_list", "3\n");
    carded(Problem, "all 2 interrupts of eth0 reach vCPU 1 ", &made, 4);
    let all = checks(&made.facts());
    assert_eq!(all.iter().filter(|finding| finding.name == "cards").count(), 1, "{all:?}");
}

#[test]
fn interrupts_of_a_virtio_card_are_those_of_its_pci_device() {
    let made = card(2, 0, &[]);
    let pci = "sys/devices/pci0000:00/0000:00:03.0";
    made.file(&format!("{pci}/virtio0/vendor"), "x");
    for irq in [27, 28] {
        made.file(&format!("{pci}/msi_irqs/{irq}"), "msix");
        made.file(&format!("proc/irq/{irq}/effective_affinity_list"), "3\n");
    }
    let device = made.path().join("sys/class/net/eth0/device");
    fs::remove_dir_all(&device).unwrap();
    symlink("../../../devices/pci0000:00/0000:00:03.0/virtio0", device).unwrap();
    carded(Problem, "all 2 interrupts of eth0 reach vCPU 3 ", &made, 4);
}

#[test]
fn rfs_is_to_be_off() {
    finds(&[(RFS, "32768\n")], "rfs", Note, "= 32768");
    finds(&[(RFS, "32768\n")], "rfs", Note, "sysctl -w net.core.rps_sock_flow_entries=0");
    finds(&[(RFS, "0\n")], "rfs", Severity::Ok, "off");
    assert_eq!(found(&Made::new(&[]).facts(), "rfs"), None, "the kernel has no RFS");
}

#[test]
fn more_peers_than_memory_are_a_problem_with_a_number_that_fits() {
    finds(&[], "memory", Severity::Ok, "1.19 GiB");
    let many = |facts: &mut Facts| facts.settings.limits.peers = 100_000_000;
    finds_after("memory", Problem, "5.96 GiB, and the process may use 1.86 GiB", many);
    finds_after("memory", Problem, "limits.peers = 15625000 ", many);
}

#[test]
fn swap_and_huge_pages_are_notes() {
    let meminfo = |total: &str, free: &str| {
        changed("/proc/meminfo", &[("SwapTotal:", total), ("SwapFree:", free)])
    };
    finds(&[("proc/meminfo", &meminfo(" 0 kB", " 0 kB"))], "swap", Severity::Ok, "off");
    let some = meminfo("   2048 kB", "   512 kB");
    finds(&[("proc/meminfo", &some)], "swap", Note, "1.5 MiB of 2 MiB");
    let pages = "sys/kernel/mm/transparent_hugepage/enabled";
    finds(&[(pages, "always [madvise] never\n")], "huge_pages", Severity::Ok, "\"madvise\"");
    finds(&[(pages, "[always] madvise never\n")], "huge_pages", Note, "madvise >");
}

/// An entry of the table of connection tracking.
fn entry(protocol: &str, port: u16) -> String {
    entry_of(["192.0.2.7", "198.51.100.1"], protocol, port)
}

fn entry_of([client, server]: [&str; 2], protocol: &str, port: u16) -> String {
    format!(
        "ipv4     2 {protocol}      17 29 src={client} dst={server} sport=40000 dport={port} \
         [UNREPLIED] src={server} dst={client} sport={port} dport=40000 mark=0 use=2\n"
    )
}

#[test]
fn a_tracked_port_is_a_problem_with_rules_for_every_port() {
    let table = |entries: u64, tracked: Option<usize>, tracker| {
        let made = Made::new(&[
            ("proc/sys/net/netfilter/nf_conntrack_max", "1000\n"),
            ("proc/sys/net/netfilter/nf_conntrack_count", &entries.to_string()),
        ]);
        if let Some(tracked) = tracked {
            // Entries of TCP, of other ports, and of this host as the client of another one.
            let away = entry_of(["127.0.0.1", "192.0.2.9"], "udp", 6969);
            let others =
                [entry("tcp", 6969), entry("udp", 16_969), entry("udp", 53), away].concat();
            let table = others + &entry("udp", 6969).repeat(tracked);
            made.file("proc/net/nf_conntrack", &table);
        }
        let mut facts = made.facts();
        facts.settings.listen[1].address.set_port(6970);
        (Facts { tracker, ..facts }, made)
    };
    let finds = |severity, part: &str, (facts, _made): (Facts, Made)| {
        finds_in(&facts, "conntrack", severity, part);
    };
    finds_in(&Made::new(&[]).facts(), "conntrack", Severity::Ok, "not loaded");
    finds(Severity::Ok, "tracks nothing", table(0, None, None));
    for part in [
        "udp dport '{ 6969, 6970 }' notrack",
        "udp sport '{ 6969, 6970 }' notrack",
        "taken by 3 clients over UDP, each for 30 s:",
    ] {
        finds(Problem, part, table(10, Some(3), Some(7)));
    }
    finds(Severity::Ok, "no client of the tracker", table(10, Some(0), Some(7)));
    finds(Note, "while the tracker has clients", table(10, Some(0), None));
    finds(Note, "cannot be read", table(10, None, None));
    finds(Note, "cannot be read", table(899, None, None));
    finds(Problem, "nearly full", table(900, None, None));
    let (facts, made) = table(10, Some(3), None);
    finds(Note, "cannot be read", (Facts { quick: true, ..facts }, made));
}

#[test]
fn ports_of_http_are_tracked_by_their_protocol() {
    const HTTP: &str = "http = { listen = [':80', ':6969'], tls_listen = [':443'], certificates = \
                        ['/t.crt'], keys = ['/t.key'] }";
    let finds = |severity, part: &str, entries: &[String]| {
        let made = Made::new(&[
            ("proc/sys/net/netfilter/nf_conntrack_max", "1000\n"),
            ("proc/sys/net/netfilter/nf_conntrack_count", "10\n"),
            ("proc/net/nf_conntrack", &entries.concat()),
        ]);
        finds_in(&made.look(HTTP, false), "conntrack", severity, part);
    };
    let others = [
        entry("udp", 443),
        entry("tcp", 8080),
        entry_of(["127.0.0.1", "192.0.2.9"], "tcp", 443),
        entry_of(["::1", "2001:db8::9"], "tcp", 443),
    ];
    finds(Note, "while the tracker has clients", &others);
    // A proxy on this host is a client like others.
    let proxy = entry_of(["127.0.0.1", "127.0.0.1"], "tcp", 80);
    let over_tcp = [entry("tcp", 443), entry("tcp", 6969), proxy];
    for part in [
        "tcp dport '{ 80, 443, 6969 }' notrack",
        "tcp sport '{ 80, 443, 6969 }' notrack",
        "udp dport '{ 6969 }' notrack",
        "taken by 3 connections over TCP, each until two minutes after its end:",
    ] {
        finds(Problem, part, &over_tcp);
    }
    let part = "taken by 2 clients over UDP, each for 30 s, and 3 connections over TCP, ";
    finds(Problem, part, &[over_tcp.concat(), entry("udp", 6969).repeat(2)]);
}

#[test]
fn too_few_open_files_are_a_problem_with_a_number() {
    let limited = |limit| {
        move |facts: &mut Facts| {
            facts.settings.placement = Placement::Split { socket_workers: 42, swarm_workers: 6 };
            facts.open_files = Some(limit);
        }
    };
    finds_after("files", Severity::Ok, "340", limited(1024));
    finds_after("files", Problem, "340 open files, and this shell may open 256", limited(256));
    finds_after("files", Problem, "ulimit -n 512", limited(256));
    finds_after("files", Severity::Ok, "process 77, the tracker, may open 65536", |facts| {
        (facts.tracker, facts.open_files) = (Some(77), Some(65_536));
    });
    finds_after("files", Problem, "LimitNOFILE=512 in the unit", limited(256));
}

#[test]
fn connections_over_http_need_files_and_a_queue() {
    let look = |somaxconn: &str, files: u64| {
        let queue = ("proc/sys/net/core/somaxconn", somaxconn);
        let made = Made::new(&[queue, ("proc/self/limits", &limits(files))]);
        (made.look("http = { listen = [':80'], connections = 5000 }", false), made)
    };
    let (enough, _made) = look("4096", 65_536);
    finds_in(&enough, "connections", Severity::Ok, "5000 connections");
    finds_in(&enough, "somaxconn", Severity::Ok, "4096");
    let (small, _made) = look("128", 4096);
    finds_in(&small, "files", Severity::Ok, "4096");
    finds_in(&small, "connections", Note, "LimitNOFILE=8192");
    finds_in(&small, "somaxconn", Note, "sysctl -w net.core.somaxconn=4096");
    let off = Made::new(&[("proc/self/limits", &limits(256))]).facts();
    assert!(found(&off, "connections").is_none() && found(&off, "somaxconn").is_none());
}

#[test]
fn connections_in_time_wait_are_a_note_near_their_limit() {
    let look = |waiting: &str, settings: &str| {
        let sockets = changed("/proc/net/sockstat", &[("TCP:", waiting)]);
        let limit = ("proc/sys/net/ipv4/tcp_max_tw_buckets", "1000\n");
        let made = Made::new(&[limit, ("proc/net/sockstat", &sockets)]);
        found(&made.look(settings, false), "time_wait")
    };
    let at = |waiting| {
        let line = format!(" inuse 3000 orphan 0 tw {waiting} alloc 54 mem 4000");
        look(&line, "http.listen = [':80']").unwrap()
    };
    is(at(799), Severity::Ok, "799 ended connections");
    is(at(800), Note, "800 ended connections are in TIME_WAIT, of at most 1000:");
    is(at(800), Note, "sysctl -w net.ipv4.tcp_max_tw_buckets=2000");
    assert_eq!(look(" inuse 3 orphan 0 tw 1000 alloc 54 mem 40", ""), None, "HTTP is off");
}

#[test]
fn root_is_a_note_unless_the_tracker_changes_user() {
    finds_after("user", Note, "would run as root", |facts| facts.root = Some(true));
    finds_after("user", Severity::Ok, "", |facts| facts.root = Some(false));
    finds_after("user", Severity::Ok, "", |facts| {
        (facts.root, facts.settings.user) = (Some(true), Some("onrush".into()));
    });
    // A service that is stopped is started by its unit, not by this shell.
    let unit = "usr/lib/systemd/system/onrush.service";
    let made = Made::new(&[(unit, "[Service]\nUser=onrush\n")]);
    let mut facts = made.facts();
    facts.root = Some(true);
    finds_in(&facts, "user", Severity::Ok, "the user onrush");
    facts.tracker = Some(77);
    finds_in(&facts, "user", Note, "process 77, the tracker, runs as root");
}

#[test]
fn limits_are_those_of_the_running_tracker() {
    let made = Made::new(&[
        ("proc/net/udp", UDP_SOCKET),
        ("proc/self/limits", &limits(1024)),
        ("proc/self/status", &status(0, "\t0-1")),
        ("proc/77/comm", "onrush\n"),
        ("proc/77/limits", &limits(65_536)),
        ("proc/77/status", &status(9, "\t0-6")),
        ("proc/77/cgroup", "0::/system.slice/onrush.service\n"),
        ("sys/fs/cgroup/system.slice/onrush.service/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/system.slice/memory.max", "1000000\n"),
    ]);
    let before = made.facts();
    assert_eq!((before.tracker, before.open_files, before.root), (None, Some(1024), Some(true)));
    assert_eq!((before.vcpus, before.quota), (4, None));
    made.open_socket();
    let facts = made.facts();
    assert_eq!((facts.tracker, facts.open_files), (Some(77), Some(65_536)));
    assert_eq!(facts.root, Some(false));
    assert_eq!((facts.vcpus, facts.quota, facts.memory), (7, Some(1_500), Some(1_000_000)));
    assert_eq!(made.look("", true).tracker, None, "a quick look does not search processes");
    checks(&facts);
    assert_eq!(facts.files.unreadable(), [""; 0]);
}

#[test]
fn a_directory_without_files_is_not_a_host() {
    assert!(Made::new(&[]).facts().files.is_empty());
    assert!(!Made::new(&[(RMEM, "212992\n")]).facts().files.is_empty());
}

#[test]
fn this_host_can_be_read() {
    let host = Host::here(vec![0]);
    let facts = Facts::gather(Path::new("/"), &Settings::for_test(""), &host, false);
    assert!(!facts.files.is_empty());
    assert!(facts.open_files.is_some() && facts.root.is_some(), "{facts:?}");
    assert!(found(&facts, "drops").is_some());
    assert!(checks(&facts).len() >= 10);
}
