//! The settings for people: what `--check-config` shows, and what a log may begin with.

use super::host::thousandths;
use onrush_tracker::limits::Placement;

use super::{Access, Host, Listed, Settings};

impl Settings {
    /// A few lines that say what these settings are on `host`: where it listens, with how many
    /// workers on which vCPUs, under which limits.
    pub fn summary(&self, host: &Host) -> String {
        let lines = [
            ("listen", self.listen_line()),
            ("workers", self.workers_line()),
            ("vCPUs", vcpus_line(host)),
            ("announce", self.announce_line()),
            ("limits", self.limits_line()),
            ("access", self.access_line()),
            ("state", self.state_line()),
            ("admin", self.admin_line()),
        ];
        lines.iter().map(|(name, text)| format!("  {name:<9} {text}\n")).collect()
    }

    fn listen_line(&self) -> String {
        let show = |listen: &super::Listen| {
            let missing = if listen.optional { " (unless the host lacks IPv6)" } else { "" };
            format!("{}{missing}", listen.address)
        };
        let by = if self.sockets_passed { " (sockets by systemd)" } else { "" };
        self.listen.iter().map(show).collect::<Vec<_>>().join(", ") + by
    }

    /// How many workers of which kind, on which vCPUs.
    pub fn workers_line(&self) -> String {
        let kinds = match self.placement {
            Placement::Split { socket_workers, swarm_workers } => {
                format!("split: {socket_workers} socket workers, {swarm_workers} swarm workers")
            }
            Placement::Colocated { workers } => format!("{workers} colocated"),
        };
        match &self.pin {
            Some(vcpus) => format!("{kinds}, pinned to vCPU {}", ranges(vcpus)),
            None => format!("{kinds}, not pinned"),
        }
    }

    /// What announces get.
    pub fn announce_line(&self) -> String {
        let announce = &self.announce;
        format!(
            "every {} s +-{} %, peers forgotten after {} s, up to {} peers over IPv4, {} over IPv6",
            announce.interval,
            announce.interval_jitter_percent,
            announce.peer_lifetime,
            announce.max_peers_v4,
            announce.max_peers_v6
        )
    }

    /// What there may be at most.
    pub fn limits_line(&self) -> String {
        let most = self.limits.peers.saturating_mul(super::resolve::BYTES_PER_PEER);
        let peers = self.limits.peers;
        format!("{peers} peers (about {} if all are alone in their swarms)", bytes(most))
    }

    fn access_line(&self) -> String {
        let of = |listed: &Listed| {
            let inline = listed.hashes.len();
            match &listed.file {
                None => format!("{inline} info hashes"),
                Some(file) if inline == 0 => format!("those of {}", file.display()),
                Some(file) => format!("those of {} and {inline} more", file.display()),
            }
        };
        let list = match &self.access {
            Access::Open => "every info hash".to_owned(),
            Access::Allow(listed) => format!("only {}", of(listed)),
            Access::Deny(listed) => format!("every info hash but {}", of(listed)),
        };
        let bogons = if self.refuse_bogons { "refused" } else { "served" };
        format!("{list}; addresses that are not of the internet are {bogons}")
    }

    fn admin_line(&self) -> String {
        let Some(listen) = self.admin.listen else { return "off".to_owned() };
        let admin = match &self.admin.token_file {
            Some(file) => format!("admin API with the token in {}", file.display()),
            None => "no admin API (give admin.token_file)".to_owned(),
        };
        format!("http://{}: metrics, health, statistics; {admin}", listen.address)
    }

    /// Where the state is kept.
    pub fn state_line(&self) -> String {
        match (&self.connection.key_file, &self.state_dir) {
            (Some(key), Some(dir)) => format!("{}, key in {}", dir.display(), key.display()),
            (Some(key), None) => format!("no directory, key in {}", key.display()),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => {
                "no directory: connection ids end with the process (give --state-dir)".to_owned()
            }
        }
    }
}

fn vcpus_line(host: &Host) -> String {
    let usable = match host.vcpus.as_slice() {
        [] => "unknown".to_owned(),
        vcpus => format!("{} usable: {}", vcpus.len(), set(vcpus)),
    };
    match host.cpu_quota {
        Some(quota) => format!("{usable}, with a quota of {}", thousandths(quota)),
        None => usable,
    }
}

/// Numbers with runs drawn together: `0-3,8`. The order is kept.
pub(super) fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let show = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(show).collect::<Vec<_>>().join(",")
}

/// Numbers whose order means nothing, ascending: `0-3,8`.
pub(super) fn set(numbers: &[usize]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    ranges(&numbers)
}

/// A size that people can read: decimal units, one decimal.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_vcpus_are_drawn_together() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[4, 3, usize::MAX, 0]), format!("4,3,{},0", usize::MAX));
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(12_345), "12 kB");
        assert_eq!(bytes(2_560_000_000), "2.6 GB");
        assert_eq!(bytes(128_000_000), "128.0 MB");
    }
}
