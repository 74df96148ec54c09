//! Checks of vCPUs, limits, memory, disk and clock.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use onrush_config::Settings;
use onrush_config::service_unit::service_user;
use onrush_config::settings::BYTES_PER_PEER;
use onrush_net::clock::UNSYNCHRONISED;
use onrush_store::snapshot;
use onrush_text::numbers::{bytes, thousandths};
use procfs_core::Meminfo;

use super::facts::Files;
use super::{Facts, Finding, Severity};

/// Clock sources that are read without a hypervisor call or a device access.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// Open files beside the sockets and their pollers: log, state, lists, connections of the admin
/// side.
const OTHER_FILES: u64 = 64;
/// Bytes of a snapshot per peer: 32 per swarm and 8 per IPv4 peer, with two peers in a swarm on
/// average.
const SNAPSHOT_BYTES_PER_PEER: u64 = 24;

pub(super) fn checks(facts: &Facts) -> Vec<Finding> {
    let findings = [
        governor(&facts.files),
        clock_source(&facts.files),
        Some(quota(facts)),
        files(facts),
        connections(facts),
        user(facts),
        memory(facts),
        swap(&facts.files),
        huge_pages(&facts.files),
        disk(facts),
        time(facts),
    ];
    findings.into_iter().flatten().collect()
}

/// The frequency governor of a vCPU.
struct Governor {
    name: String,
    driver: String,
    /// The energy performance preference, if the hardware chooses frequencies.
    preference: Option<String>,
}

fn governor(files: &Files) -> Option<Finding> {
    let name = "governor";
    let of = |cpu: &Path| {
        let read = |file| files.text(cpu.join("cpufreq").join(file));
        Some(Governor {
            name: read("scaling_governor")?,
            driver: read("scaling_driver").unwrap_or_default(),
            preference: read("energy_performance_preference"),
        })
    };
    let cpus = files.entries("sys/devices/system/cpu");
    let worst = cpus.iter().filter_map(|cpu| of(cpu)).max_by_key(severity_of)?;
    let Governor { name: word, driver, preference } = &worst;
    let chosen = preference.as_ref().map(|preference| {
        format!(
            "the hardware chooses frequencies (\"{word}\" of {driver}) and prefers \
             \"{preference}\""
        )
    });
    Some(match (severity_of(&worst), chosen) {
        (Severity::Ok, Some(chosen)) if word != "performance" => Finding::ok(name, chosen),
        (Severity::Ok, _) => Finding::ok(name, "the governor keeps the vCPUs at full frequency"),
        (Severity::Note, Some(chosen)) => {
            Finding::note(name, format!("{chosen}: at low load vCPUs wake slowly"))
                .fix(
                    "cpupower set -b 0, or echo performance > energy_performance_preference of \
                     each vCPU",
                )
                .keep(
                    "run this command at boot, or set GOVERNOR=performance in \
                     /etc/default/cpufrequtils",
                )
        }
        (severity, _) => {
            let what = format!(
                "the governor is \"{word}\": at low load vCPUs run slowly, and bursts are dropped"
            );
            Finding::new(name, severity, what)
                .fix("cpupower frequency-set -g performance")
                .keep("GOVERNOR=performance in /etc/default/cpufrequtils, or cpupower.service")
        }
    })
}

/// The severity of a governor. With drivers whose hardware chooses frequencies, `powersave` names
/// that choice, not the lowest frequency (kernel, admin-guide/pm/intel_pstate, amd-pstate).
fn severity_of(governor: &Governor) -> Severity {
    let hardware_chooses = ["intel_pstate", "amd-pstate-epp"].contains(&governor.driver.as_str());
    match (governor.name.as_str(), governor.preference.as_deref()) {
        ("performance", _) => Severity::Ok,
        ("powersave", Some("performance" | "balance_performance" | "default"))
            if hardware_chooses =>
        {
            Severity::Ok
        }
        ("powersave", _) if hardware_chooses => Severity::Note,
        ("schedutil", _) => Severity::Note,
        _ => Severity::Problem,
    }
}

fn clock_source(files: &Files) -> Option<Finding> {
    let name = "clock";
    let clock = files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    if FAST_CLOCKS.contains(&clock.as_str()) {
        let what = format!("the clock source is {clock}, which is read in nanoseconds");
        return Some(Finding::ok(name, what));
    }
    let what = format!(
        "the clock source is {clock}, which takes over a microsecond to read, per turn of a worker \
         and per packet in the kernel"
    );
    Some(
        Finding::problem(name, what)
            .fix("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource")
            .keep(
                "clocksource=tsc on the kernel's command line, if the log does not call the TSC \
                 unstable",
            ),
    )
}

fn quota(facts: &Facts) -> Finding {
    let vcpus = facts.vcpus;
    let Some(quota) = facts.quota.filter(|quota| *quota < 1000 * vcpus) else {
        return Finding::ok("quota", format!("no CPU quota limits the {vcpus} usable vCPUs"));
    };
    let what = format!(
        "a CPU quota grants {} of {vcpus} vCPUs: once it is used up all workers are stopped for \
         the rest of 100 ms, and workers are not pinned",
        thousandths(quota)
    );
    let whole = match quota.div_ceil(1000) {
        0 | 1 => "0".to_owned(),
        whole => format!("0-{}", whole - 1),
    };
    Finding::problem("quota", what)
        .fix("systemctl set-property onrush.service CPUQuota=")
        .keep(format!("AllowedCPUs={whole} in the unit instead, which grants whole vCPUs"))
}

/// The limit of open files of the process.
fn files(facts: &Facts) -> Option<Finding> {
    let (limit, settings) = (facts.open_files?, &facts.settings);
    let (addresses, workers) = (settings.listen.len(), settings.placement.workers());
    let needed = needed_files(settings);
    let has = match facts.tracker {
        Some(pid) => format!("process {pid}, the tracker, may open {limit} files"),
        None => format!("this shell may open {limit} files (a unit has its own limit)"),
    };
    if limit >= needed {
        let what = format!("{has}, and the tracker needs about {needed}");
        return Some(Finding::ok("files", what));
    }
    let what = format!(
        "{workers} workers with {addresses} addresses need about {needed} open files, and {has}: \
         the tracker will not start"
    );
    let enough = needed.next_power_of_two();
    Some(
        Finding::problem("files", what)
            .fix(format!("ulimit -n {enough}"))
            .keep(format!("LimitNOFILE={enough} in the unit")),
    )
}

/// Open files without which the tracker does not start.
fn needed_files(Settings { listen, placement, http, .. }: &Settings) -> u64 {
    let sockets = placement.socket_sides() * listen.len() + 4 * placement.workers();
    let web = match http.listen.len() + http.tls_listen.len() {
        0 => 0,
        addresses => http.workers * (addresses + 4),
    };
    (sockets + web) as u64 + OTHER_FILES
}

/// Open files for all connections over HTTP.
fn connections(facts: &Facts) -> Option<Finding> {
    let (limit, http) = (facts.open_files?, &facts.settings.http);
    if !http.is_on() {
        return None;
    }
    let connections = (http.limits.connections * http.workers) as u64;
    let needed = needed_files(&facts.settings) + connections;
    if limit >= needed {
        let what = format!("{limit} open files are enough for {connections} connections");
        return Some(Finding::ok("connections", what));
    }
    let what = format!(
        "{connections} connections over HTTP (http.connections) need about {needed} open files, \
         and the limit is {limit}: beyond it new connections wait until others are closed"
    );
    let enough = needed.next_power_of_two();
    Some(
        Finding::note("connections", what)
            .fix(format!("ulimit -n {enough}"))
            .keep(format!("LimitNOFILE={enough} in the unit")),
    )
}

fn user(facts: &Facts) -> Option<Finding> {
    if !facts.root? || facts.settings.user.is_some() {
        return Some(Finding::ok("user", "the tracker does not stay root"));
    }
    let runs = match (facts.tracker, service_user(&facts.files.root)) {
        (Some(pid), _) => format!("process {pid}, the tracker, runs"),
        (None, Some(user)) => {
            let what = format!("onrush.service, which does not run, has the user {user}");
            return Some(Finding::ok("user", what));
        }
        (None, None) => "the tracker would run".to_owned(),
    };
    Some(
        Finding::note("user", format!("{runs} as root, which it does not need"))
            .fix("systemctl start onrush: the unit has its own user")
            .keep("`user = \"onrush\"` in the configuration, if it is not started by the unit"),
    )
}

/// Room for `limits.peers`.
fn memory(facts: &Facts) -> Option<Finding> {
    let (memory, most) = (facts.memory?, facts.settings.limits.peers * BYTES_PER_PEER);
    let (allowed, usable) = (bytes(most), bytes(memory));
    let what = format!("limits.peers allows peers of {allowed}, and the process may use {usable}");
    if most <= memory {
        return Some(Finding::ok("memory", what));
    }
    let what = format!("{what}: the kernel will kill it before the limit is reached");
    let fits = memory / 2 / BYTES_PER_PEER;
    let fix = format!("limits.peers = {fits} in the configuration, or more memory");
    Some(Finding::problem("memory", what).fix(fix))
}

fn swap(files: &Files) -> Option<Finding> {
    let memory: Meminfo = files.parse("proc/meminfo")?;
    let (all, used) = (memory.swap_total, memory.swap_total.saturating_sub(memory.swap_free));
    if all == 0 {
        return Some(Finding::ok("swap", "swap is off"));
    }
    let (all, used) = (bytes(all), bytes(used));
    let what = format!(
        "{used} of {all} swap are used: reading a swapped-out swarm blocks its worker for \
         milliseconds"
    );
    Some(
        Finding::note("swap", what)
            .fix("systemctl set-property onrush.service MemorySwapMax=0")
            .keep("the same command: it is permanent"),
    )
}

fn huge_pages(files: &Files) -> Option<Finding> {
    let (text, name) = (files.text("sys/kernel/mm/transparent_hugepage/enabled")?, "huge_pages");
    let mode = text.split_once('[')?.1.split_once(']')?.0;
    if mode != "always" {
        return Some(Finding::ok(name, format!("transparent huge pages are \"{mode}\"")));
    }
    let what = "transparent huge pages are \"always\": memory that the allocator returns in small \
                pieces may stay in use";
    Some(
        Finding::note(name, what)
            .fix("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
            .keep("transparent_hugepage=madvise on the kernel's command line"),
    )
}

/// Room for snapshots in the state directory, or in the directory that it will be created in.
fn disk(facts: &Facts) -> Option<Finding> {
    let directory =
        facts.settings.state_dir.as_ref().filter(|_| facts.settings.snapshot.enabled)?;
    let here = facts.files.root.join(directory.strip_prefix("/").unwrap_or(directory));
    let found = here.ancestors().find_map(|directory| statvfs(directory).ok())?;
    let free = found.blocks_available() * found.fragment_size();
    let snapshot = fs::metadata(here.join(snapshot::FILE)).map_or(0, |metadata| metadata.len());
    Some(room(directory, free, snapshot, facts.settings.limits.peers))
}

/// Room for two snapshots: the previous one, of `snapshot` bytes, stays until the new one is
/// complete.
pub(super) fn room(directory: &Path, free: u64, snapshot: u64, peers: u64) -> Finding {
    let two = 2 * peers.saturating_mul(SNAPSHOT_BYTES_PER_PEER);
    let directory = directory.display();
    let has = format!("{} are free in {directory}", bytes(free));
    if free < snapshot {
        let size = bytes(snapshot);
        let what = format!("{has}, and the next snapshot needs about {size}: it will fail");
        return Finding::problem("disk", what)
            .fix(format!("df -h {directory}; remove files there"))
            .keep("a larger file system, or `state_dir` on another one");
    }
    if free.saturating_add(snapshot) >= two {
        return Finding::ok("disk", format!("{has}: two snapshots of limits.peers fit"));
    }
    let what = format!(
        "{has}, and two snapshots of limits.peers take about {}: they will fail before the limit \
         is reached",
        bytes(two)
    );
    Finding::note("disk", what).fix("a larger file system, or a lower limits.peers")
}

/// The wall clock: connection ids contain the time, and hosts that share a key compare it.
fn time(facts: &Facts) -> Option<Finding> {
    let (error, name) = (facts.clock_error?, "time");
    if error < UNSYNCHRONISED {
        let what = format!("the wall clock is synchronised, to {} ms at most", error.as_millis());
        return Some(Finding::ok(name, what));
    }
    let finding = match &facts.settings.connection.key_file {
        Some(_) => Finding::problem(
            name,
            "nothing synchronises the wall clock: hosts with the same connection.key_file refuse \
             each other's connection ids once their clocks differ by ten seconds",
        ),
        None => Finding::note(
            name,
            "nothing synchronises the wall clock: times in logs and snapshots drift, and peers \
             expire when it is set by hand before a restart",
        ),
    };
    Some(finding.fix("systemctl enable --now systemd-timesyncd, or install chrony"))
}
