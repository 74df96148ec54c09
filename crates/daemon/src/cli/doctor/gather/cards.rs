//! Network cards and the vCPUs that their interrupts reach.

use std::path::PathBuf;

use onrush_net::affinity;

use super::{Files, name};
use crate::cli::doctor::facts::Card;

/// Cards that are up and have a device: no bridges, tunnels or loopback.
pub(super) fn cards(files: &mut Files<'_>) -> Vec<Card> {
    let mut cards = Vec::new();
    for path in files.entries("sys/class/net") {
        let up = files.text(path.join("operstate")).is_some_and(|text| text.trim() == "up");
        if !up || !path.join("device").exists() {
            continue;
        }
        let mut queues = files.entries(path.join("queues"));
        queues.retain(|queue| name(queue).starts_with("rx-"));
        let moves_packets = |queue: &&PathBuf| {
            let mask = files.text(queue.join("rps_cpus")).unwrap_or_default();
            mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
        };
        let rps_queues = queues.iter().filter(moves_packets).count() as u64;
        // The device of a virtio card is a child of the PCI device, which has the interrupts; `..`
        // follows the link, as in the kernel.
        let mut irqs = files.entries(path.join("device/msi_irqs"));
        if irqs.is_empty() {
            irqs = files.entries(path.join("device/../msi_irqs"));
        }
        let interrupts = irqs
            .iter()
            .filter_map(|irq| files.text(format!("proc/irq/{}/effective_affinity_list", name(irq))))
            .filter_map(|text| affinity::parse_list(&text))
            .collect();
        let (name, queues) = (name(&path).into_owned(), queues.len() as u64);
        cards.push(Card { name, queues, rps_queues, interrupts });
    }
    cards
}
