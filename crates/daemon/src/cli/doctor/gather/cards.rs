//! Network cards and the vCPUs that their interrupts reach.

use std::fs;
use std::path::{Path, PathBuf};

use onrush_net::affinity;

use super::Files;
use crate::cli::doctor::facts::Card;

/// Cards that are up and have a device: no bridges, tunnels or loopback.
pub(super) fn cards(files: &mut Files<'_>) -> Vec<Card> {
    let mut cards = Vec::new();
    for path in files.entries("sys/class/net") {
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
            .filter_map(|irq| files.text(&format!("proc/irq/{irq}/effective_affinity_list")))
            .filter_map(|text| affinity::parse_list(&text))
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

/// The numbers of a card's interrupts. The device of a virtio card is a child of the PCI device,
/// which has the interrupts; `..` follows the link, as in the kernel.
fn interrupts(card: &Path) -> Vec<u32> {
    let paths = ["device/msi_irqs", "device/../msi_irqs"];
    let Some(Ok(entries)) =
        paths.map(|path| fs::read_dir(card.join(path))).into_iter().find(Result::is_ok)
    else {
        return Vec::new();
    };
    let number =
        |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}
