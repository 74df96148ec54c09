//! Facts gathered from hosts made of files in a temporary directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;

use crate::cli::doctor::checks;
use crate::cli::doctor::facts::Card;
use crate::ports::{Holder, Process};

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
        self.look(false)
    }

    fn look(&self, quick: bool) -> Facts {
        let host = Host { vcpus: vec![0, 1], memory: Some(8 << 30), ..Host::default() };
        let settings = Settings::for_test("[limits]\npeers = 1000000\n");
        Facts::gather(self.path(), &settings, &host, quick)
    }
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

#[test]
fn cards_are_up_and_have_a_device() {
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
        ("sys/class/net/eth0/msi_irqs/39", "of the bridge before the card"),
        ("proc/irq/39/effective_affinity_list", "3\n"),
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
fn interrupts_of_a_virtio_card_are_those_of_its_pci_device() {
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
fn a_directory_without_files_is_not_a_host() {
    assert!(Made::new(&[]).facts().is_empty());
    let facts = Made::new(&[("proc/sys/net/core/rmem_max", "212992\n")]).facts();
    assert!(!facts.is_empty());
    assert_eq!(facts.rmem_max, Some(212_992));
}

#[test]
fn facts_are_read_from_the_files_of_the_kernel() {
    let memory =
        changed("/proc/meminfo", &[("SwapTotal:", "   2048 kB"), ("SwapFree:", "   1024 kB")]);
    let facts = Made::new(&[
        ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
        ("proc/sys/net/core/rps_sock_flow_entries", "32768\n"),
        ("proc/net/softnet_stat", "0000a1b2 00000000 0\n0000ffff 0000001f 0\n"),
        ("proc/self/limits", &limits(1024)),
        ("proc/self/status", &status(0, "\t0-1")),
        ("proc/meminfo", &memory),
        ("proc/sys/net/ipv4/ip_early_demux", "1\n"),
        ("proc/sys/net/ipv4/udp_early_demux", "1\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_driver", "acpi-cpufreq\n"),
    ])
    .facts();
    assert_eq!(facts.unreadable, [""; 0]);
    assert_eq!((facts.backlog, facts.backlog_drops), (Some(1000), Some(31)));
    assert_eq!((facts.flow_entries, facts.files), (Some(32_768), Some(1024)));
    assert_eq!((facts.root, facts.early_demux), (Some(true), Some(true)));
    assert_eq!(facts.swap, Some((2 << 20, 1 << 20)));
    assert_eq!(facts.huge_pages.as_deref(), Some("madvise"));
    assert_eq!(facts.clock.as_deref(), Some("hpet"));
    let governors: Vec<_> = facts.governors.iter().map(|governor| governor.name.as_str()).collect();
    assert_eq!(governors, ["powersave", "performance"]);
    assert_eq!(
        (facts.governors[1].driver.as_str(), &facts.governors[1].preference),
        ("acpi-cpufreq", &None)
    );
}

#[test]
fn drops_of_both_families_are_added_up() {
    let snmp = fs::read_to_string("/proc/net/snmp").unwrap();
    let names = snmp.lines().find(|line| line.starts_with("Udp: ")).unwrap();
    let values = names.split_whitespace().map(|name| match name {
        "Udp:" => "Udp:",
        "InDatagrams" => "1000",
        "RcvbufErrors" => "5",
        "SndbufErrors" => "7",
        _ => "0",
    });
    let values = values.collect::<Vec<_>>().join(" ");
    let before = snmp.lines().find(|line| line.starts_with("Udp: ") && *line != names).unwrap();
    let snmp = snmp.replace(before, &values);
    let v4 = Made::new(&[("proc/net/snmp", &snmp)]).facts();
    assert_eq!(v4.udp, Some(Udp { received: 1000, receive_drops: 5, send_drops: 7 }));
    let counters =
        [("Udp6InDatagrams", " 500"), ("Udp6RcvbufErrors", " 50"), ("Udp6SndbufErrors", " 0")];
    let snmp6 = changed("/proc/net/snmp6", &counters);
    let both = Made::new(&[("proc/net/snmp", &snmp), ("proc/net/snmp6", &snmp6)]).facts();
    assert_eq!(both.udp, Some(Udp { received: 1500, receive_drops: 55, send_drops: 7 }));
}

#[test]
fn tracked_entries_of_the_port_are_counted() {
    let entry = |protocol: &str, port: u16| {
        format!(
            "ipv4     2 {protocol}      17 29 src=192.0.2.7 dst=198.51.100.1 sport=40000 \
             dport={port} [UNREPLIED] src=198.51.100.1 dst=192.0.2.7 sport={port} dport=40000 \
             mark=0 use=2\n"
        )
    };
    let table = [entry("udp", 6969), entry("tcp", 6969), entry("udp", 16_969), entry("udp", 53)];
    let made = Made::new(&[
        ("proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "4\n"),
    ]);
    let conntrack = |facts: &Facts| facts.conntrack.unwrap();
    assert_eq!(conntrack(&made.facts()).of_tracker, None, "a kernel without the file");
    made.file("proc/net/nf_conntrack", &table.concat());
    assert_eq!(conntrack(&made.facts()).of_tracker, Some(1));
    assert_eq!(conntrack(&made.look(true)).of_tracker, None, "a quick look skips the table");
    made.file("proc/net/nf_conntrack", &table[1..].concat());
    assert_eq!(conntrack(&made.facts()).of_tracker, Some(0));
}

#[test]
fn limits_are_those_of_the_running_tracker() {
    let made = Made::new(&[
        ("proc/net/udp", UDP_SOCKET),
        ("proc/self/limits", &limits(1024)),
        ("proc/self/status", &status(0, "\t0-1")),
        ("proc/77/comm", "onrush\n"),
        ("proc/77/limits", &limits(65_536)),
        ("proc/77/status", &status(9, "\t0-3")),
        ("proc/77/cgroup", "0::/system.slice/onrush.service\n"),
        ("sys/fs/cgroup/system.slice/onrush.service/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/system.slice/memory.max", "1000000\n"),
    ]);
    let before = made.facts();
    assert_eq!((before.tracker, before.files, before.root), (None, Some(1024), Some(true)));
    assert_eq!((before.vcpus, before.quota), (2, None));
    made.open_socket();
    let facts = made.facts();
    assert_eq!((facts.tracker, facts.files), (Some(77), Some(65_536)));
    assert_eq!(facts.root, Some(false));
    let Facts { vcpus, quota, memory, .. } = facts;
    assert_eq!((vcpus, quota, memory), (4, Some(1_500), Some(1_000_000)));
    assert_eq!(made.look(true).tracker, None, "a quick look does not search processes");
}

#[test]
fn the_holder_of_the_port_is_named() {
    let made = Made::new(&[("proc/net/udp", UDP_SOCKET), ("proc/77/comm", "opentracker\n")]);
    made.file("proc/77/cgroup", "0::/system.slice/opentracker.service\n");
    let (address, user) = (([0, 0, 0, 0], 6969).into(), 1000);
    let hidden = made.facts();
    assert_eq!(hidden.holders, [Holder { address, user, processes: vec![] }]);
    made.open_socket();
    let (name, unit) = ("opentracker".into(), Some("opentracker.service".into()));
    let processes = vec![Process { id: 77, name, unit }];
    assert_eq!(made.facts().holders, [Holder { address, user, processes }]);
    assert_eq!(made.look(true).holders, []);
}

#[test]
fn the_disk_of_the_state_directory_has_room_and_a_snapshot() {
    let made = Made::new(&[("var/lib/onrush/onrush.snapshot", "12345")]);
    let host = Host::default();
    let disk = |text: &str| {
        let settings = Settings::for_test(text);
        Facts::gather(made.path(), &settings, &host, true).state_disk
    };
    let found = disk("state_dir = '/var/lib/onrush'").unwrap();
    assert!(found.free > 0 && found.snapshot == 5, "{found:?}");
    assert_eq!(disk("state_dir = '/var/lib/other/onrush'").unwrap().snapshot, 0);
    assert_eq!(disk("state_dir = '/var/lib/onrush'\nsnapshot.enabled = false"), None);
    assert_eq!(disk(""), None);
}

#[test]
fn this_host_can_be_read() {
    let host = Host::here(vec![0]);
    let settings = Settings::for_test("");
    let facts = Facts::gather(Path::new("/"), &settings, &host, false);
    assert!(!facts.is_empty());
    assert!(facts.files.is_some() && facts.udp.is_some() && facts.root.is_some(), "{facts:?}");
    assert!(checks(&facts).len() >= 10);
}
