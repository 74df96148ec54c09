//! Hosts made of files in a temporary directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::cli::doctor::facts::{Asked, Card, Holder};
use crate::cli::doctor::{Severity, checks};

/// A host of a few files.
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

    fn facts(&self) -> Facts {
        self.facts_with(&|_| Err("there are no tools".to_owned()))
    }

    fn facts_with(&self, tool: Tool<'_>) -> Facts {
        let host = Host { vcpus: vec![0, 1], memory: Some(8 << 30), ..Host::default() };
        let settings = Settings::for_test("[limits]\npeers = 1000000\n");
        Facts::gather(self.path(), &settings, &host, Some(tool))
    }
}

fn found(facts: &Facts, name: &str) -> Option<Severity> {
    checks(facts).iter().find(|finding| finding.name == name).map(|finding| finding.severity)
}

#[test]
fn a_host_without_files_is_not_seen() {
    let facts = Made::new(&[]).facts();
    assert!(facts.nothing_seen());
    let facts = Made::new(&[("proc/sys/net/core/rmem_max", "212992\n")]).facts();
    assert!(!facts.nothing_seen());
    assert_eq!(found(&facts, "rmem_max"), Some(Severity::Problem));
}

#[test]
fn numbers_are_read_from_where_the_kernel_writes_them() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max open files            1024                 524288               files     \n\
                  Max locked memory         unlimited            unlimited            bytes     \n";
    let facts = Made::new(&[
        ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
        ("proc/sys/net/core/rps_sock_flow_entries", "32768\n"),
        ("proc/net/softnet_stat", "0000a1b2 00000000 0\n0000ffff 0000001f 0\n"),
        ("proc/self/limits", limits),
        ("proc/self/status", "Name:\tonrush\nUid:\t0\t0\t0\t0\nSeccomp:\t2\n"),
        ("proc/sys/kernel/io_uring_disabled", "0\n"),
        ("proc/meminfo", "MemTotal: 100 kB\nSwapTotal:   2048 kB\nSwapFree:  1024 kB\n"),
        ("proc/sys/net/ipv4/ip_early_demux", "1\n"),
        ("proc/sys/net/ipv4/udp_early_demux", "1\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_driver", "acpi-cpufreq\n"),
    ])
    .facts();
    assert_eq!((facts.backlog, facts.backlog_drops), (Some(1000), Some(31)));
    assert_eq!(facts.flow_entries, Some(32_768));
    assert_eq!((facts.files, facts.locked_bytes), (Some(1024), None));
    assert_eq!((facts.root, facts.filtered), (Some(true), Some(true)));
    assert_eq!(facts.swap, Some((2 << 20, 1 << 20)));
    assert_eq!(facts.early_demux, Some(true));
    assert_eq!(facts.huge_pages.as_deref(), Some("madvise"));
    let governors: Vec<_> = facts.governors.iter().map(|governor| governor.name.as_str()).collect();
    assert_eq!(governors, ["powersave", "performance"]);
    assert_eq!(
        (facts.governors[1].driver.as_str(), &facts.governors[1].preference),
        ("acpi-cpufreq", &None)
    );
    for (name, expected) in [
        ("backlog", Severity::Problem),
        ("rfs", Severity::Note),
        ("clock", Severity::Problem),
        ("governor", Severity::Problem),
        ("swap", Severity::Note),
        ("user", Severity::Note),
        ("files", Severity::Ok),
        ("memory", Severity::Ok),
        ("huge_pages", Severity::Ok),
        ("port", Severity::Ok),
        ("conntrack", Severity::Ok),
    ] {
        assert_eq!(found(&facts, name), Some(expected), "{name}");
    }
}

#[test]
fn a_host_has_ipv6_where_a_card_has_an_address() {
    let lo = "00000000000000000000000000000001 01 80 10 80       lo\n";
    let card = "fe8000000000000000005efffe00535e 02 40 20 80     eth0\n";
    let no_ipv6 = |files: &[(&str, &str)]| Made::new(files).facts().no_ipv6;
    let path = "proc/net/if_inet6";
    assert!(!no_ipv6(&[(path, &format!("{lo}{card}"))]) && no_ipv6(&[(path, lo)]));
    assert!(no_ipv6(&[(path, "")]) && no_ipv6(&[("proc/net/snmp", "Udp: InDatagrams\nUdp: 1\n")]));
    // Nothing can be seen.
    assert!(!no_ipv6(&[]));
}

#[test]
fn drops_of_both_families_are_added_up() {
    let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                SndbufErrors\nUdp: 1000 1 2 900 5 7\nUdpLite: InDatagrams\nUdpLite: 9\n";
    let snmp6 =
        "Udp6InDatagrams 500\nUdp6RcvbufErrors 50\nUdp6SndbufErrors 0\nUdpLite6InDatagrams 3\n";
    let facts = Made::new(&[("proc/net/snmp", snmp), ("proc/net/snmp6", snmp6)]).facts();
    let expected = Udp { received: 1500, receive_drops: 55, send_drops: 7 };
    assert_eq!(facts.udp, Some(expected));
    assert_eq!(found(&facts, "drops"), Some(Severity::Note));
}

#[test]
fn the_firewall_is_asked_when_something_is_tracked() {
    let made = Made::new(&[
        ("proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "12\n"),
    ]);
    let facts = made.facts();
    assert_eq!(found(&facts, "conntrack"), Some(Severity::Note));
    assert_eq!(facts.unseen, ["the firewall's rules: there are no tools"]);
    let nft = |rules: &'static str| {
        let tool = move |command: &[&str]| match command[0] {
            "nft" => Ok(rules.to_owned()),
            _ => Err("no such tool".to_owned()),
        };
        found(&made.facts_with(&tool), "conntrack")
    };
    assert_eq!(nft("udp dport { 6881-6999 } notrack\nudp sport 6969 notrack"), Some(Severity::Ok));
    assert_eq!(nft("table inet filter { }"), Some(Severity::Problem));
    // Each tool is asked for its own family: the tracker serves both.
    let saved = |names: &'static [&'static str]| {
        let rules = "-A PREROUTING -p udp --dport 6969 -j CT --notrack\n\
                     -A OUTPUT -p udp --sport 6969 -j CT --notrack\n";
        let tool = move |command: &[&str]| match names.contains(&command[0]) {
            true => Ok(rules.to_owned()),
            false => Ok(String::new()),
        };
        found(&made.facts_with(&tool), "conntrack")
    };
    assert_eq!(saved(&["iptables-save", "ip6tables-save"]), Some(Severity::Ok));
    assert_eq!(saved(&["iptables-save"]), Some(Severity::Problem));
    assert_eq!(saved(&["ip6tables-save"]), Some(Severity::Problem));
}

/// At start no tool is asked, and the port may be left out: only a table that will be full soon is said to hurt.
#[test]
fn without_a_tool_a_table_that_is_half_full_hurts_nobody() {
    let hurts = |count: &str| {
        let made = Made::new(&[
            ("proc/sys/net/netfilter/nf_conntrack_max", "1000\n"),
            ("proc/sys/net/netfilter/nf_conntrack_count", count),
        ]);
        let settings = Settings::for_test("");
        let facts = Facts::gather(made.path(), &settings, &Host::default(), None);
        let finding = checks(&facts).into_iter().find(|f| f.name == "conntrack").unwrap();
        assert!(!finding.what.contains("each client"), "{}", finding.what);
        finding.severity
    };
    assert_eq!([hurts("600\n"), hurts("950\n")], [Severity::Note, Severity::Problem]);
}

#[test]
fn cards_are_those_with_a_device_that_are_up() {
    let made = Made::new(&[
        ("sys/class/net/lo/operstate", "unknown\n"),
        ("sys/class/net/eth1/operstate", "down\n"),
        ("sys/class/net/eth1/device/vendor", "x"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000\n"),
        ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000003\n"),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "1\n"),
        ("sys/class/net/eth0/device/msi_irqs/40", "msix"),
        ("sys/class/net/eth0/device/msi_irqs/41", "msix"),
        ("proc/irq/40/effective_affinity_list", "1\n"),
        ("proc/irq/41/effective_affinity_list", "0-2,5\n"),
    ]);
    let expected = Card {
        name: "eth0".into(),
        queues: 2,
        rps_queues: 1,
        interrupts: vec![vec![1], vec![0, 1, 2, 5]],
    };
    assert_eq!(made.facts().cards, [expected]);
}

#[test]
fn interrupts_of_a_virtio_card_are_at_the_device_on_the_bus() {
    let made = Made::new(&[
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
        ("sys/devices/pci0000:00/0000:00:03.0/virtio0/vendor", "x"),
        ("sys/devices/pci0000:00/0000:00:03.0/msi_irqs/27", "msix"),
        ("proc/irq/27/effective_affinity_list", "3\n"),
    ]);
    let device = "../../../devices/pci0000:00/0000:00:03.0/virtio0";
    symlink(device, made.path().join("sys/class/net/eth0/device")).unwrap();
    assert_eq!(made.facts().cards[0].interrupts, [[3]]);
}

#[test]
fn limits_are_of_the_tracker_that_runs() {
    let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n \
               7: 00000000:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 0\n";
    let made = Made::new(&[
        ("proc/net/udp", udp),
        ("proc/meminfo", "MemTotal: 8000000 kB\n"),
        ("proc/self/limits", "Max open files            1024   4096   files\n"),
        ("proc/self/status", "Uid:\t0\t0\t0\t0\nSeccomp:\t0\n"),
        ("proc/77/comm", "onrush\n"),
        ("proc/77/limits", "Max open files            65536  65536  files\n"),
        ("proc/77/status", "Uid:\t9\t9\t9\t9\nSeccomp:\t2\nCpus_allowed_list:\t0-3\n"),
        ("proc/77/cgroup", "0::/system.slice/onrush.service\n"),
        ("sys/fs/cgroup/system.slice/onrush.service/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/system.slice/memory.max", "1000000\n"),
    ]);
    let before = made.facts();
    assert_eq!((before.tracker, before.files, before.root), (None, Some(1024), Some(true)));
    assert_eq!((before.asked.vcpus, before.asked.quota), (2, None));
    fs::create_dir_all(made.path().join("proc/77/fd")).unwrap();
    symlink("socket:[4711]", made.path().join("proc/77/fd/5")).unwrap();
    let facts = made.facts();
    assert_eq!((facts.tracker, facts.files), (Some(77), Some(65_536)));
    assert_eq!((facts.root, facts.filtered), (Some(false), Some(true)));
    let Asked { vcpus, quota, memory, .. } = facts.asked;
    assert_eq!((vcpus, quota, memory), (4, Some(1_500), Some(1_000_000)));
    let files = checks(&facts).into_iter().find(|finding| finding.name == "files").unwrap();
    assert!(
        files.what.contains("65536 open files are allowed to the tracker (process 77)"),
        "{}",
        files.what
    );
    assert_eq!(found(&facts, "quota"), Some(Severity::Problem));
}

/// At start no process is looked at and no tool asked.
#[test]
fn a_quick_look_passes_over_who_has_the_port() {
    let udp = "sl local\n 7: 00000000:1B39 00000000:0000 07 0:0 0:0 0 0 0 4711 2 0 0\n";
    let made = Made::new(&[
        ("proc/net/udp", udp),
        ("proc/self/limits", "Max open files 1024 4096 files\n"),
    ]);
    assert_eq!(made.facts().holders.len(), 1);
    let host = Host { vcpus: vec![0], ..Host::default() };
    let settings = Settings::for_test("");
    let facts = Facts::gather(made.path(), &settings, &host, None);
    assert_eq!((facts.holders.len(), facts.files), (0, Some(1024)));
}

#[test]
fn whoever_has_the_port_is_named() {
    // Port 6969 is 1B39; the tenth field is the inode.
    let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n \
               7: 00000000:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 0\n";
    let made = Made::new(&[("proc/net/udp", udp), ("proc/77/comm", "opentracker\n")]);
    let hidden = made.facts();
    assert_eq!(hidden.holders, [Holder { port: 6969, process: None }]);
    fs::create_dir_all(made.path().join("proc/77/fd")).unwrap();
    symlink("socket:[4711]", made.path().join("proc/77/fd/5")).unwrap();
    let facts = made.facts();
    assert_eq!(facts.holders, [Holder { port: 6969, process: Some((77, "opentracker".into())) }]);
    assert_eq!(found(&facts, "port"), Some(Severity::Problem));
}

#[test]
fn this_host_can_be_looked_at() {
    let host = Host::here(vec![0]);
    let settings = Settings::for_test("");
    let facts = Facts::gather(Path::new("/"), &settings, &host, Some(&tool));
    assert!(!facts.nothing_seen());
    assert!(facts.files.is_some() && facts.udp.is_some() && facts.root.is_some(), "{facts:?}");
    assert!(checks(&facts).len() >= 10);
}
