//! Network cards and the vCPUs that their packets reach.

use std::fs;
use std::path::{Path, PathBuf};

use super::Look;
use crate::cli::doctor::facts::Card;

/// Cards that have a device behind them and are up: no bridges, tunnels or loopback.
pub(super) fn cards(look: &mut Look<'_>) -> Vec<Card> {
    let mut cards = Vec::new();
    for path in look.entries("sys/class/net") {
        let up = fs::read_to_string(path.join("operstate")).is_ok_and(|text| text.trim() == "up");
        if !up || !path.join("device").exists() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let queues = receive_queues(&path);
        let rps = |queue: &&PathBuf| {
            let mask = fs::read_to_string(queue.join("rps_cpus")).unwrap_or_default();
            mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
        };
        let rps_queues = queues.iter().filter(rps).count() as u64;
        let interrupts = interrupts(&path)
            .into_iter()
            .filter_map(|irq| look.text(&format!("proc/irq/{irq}/effective_affinity_list")))
            .map(|text| cpu_list(&text))
            .filter(|cpus| !cpus.is_empty())
            .collect();
        cards.push(Card { name, queues: queues.len() as u64, rps_queues, interrupts });
    }
    cards
}

fn receive_queues(card: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(card.join("queues")).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let receives = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rx-"))
    };
    paths.filter(receives).collect()
}

/// The numbers of its interrupts. A virtio card's device is a child of the one that is on the bus,
/// which has them; the way up leads through the link, as the kernel walks it.
fn interrupts(card: &Path) -> Vec<u32> {
    let places = ["device/msi_irqs", "device/../msi_irqs"];
    let Some(Ok(entries)) =
        places.map(|place| fs::read_dir(card.join(place))).into_iter().find(Result::is_ok)
    else {
        return Vec::new();
    };
    let number =
        |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// `0-2,5` as numbers.
pub(super) fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}
