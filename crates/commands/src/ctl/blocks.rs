//! Blocks of sources as text.

use std::fmt::Write;

use onrush_control::api::blocks::{BlockEntry, BlockList, BlockUpdate};
use onrush_text::numbers::grouped;
use onrush_text::times::{date_time, duration};

/// Why blocks end with the process.
const NOT_LASTING: &str = "lost at the next restart, as there is no state directory";

/// A block that was made.
pub fn blocked(update: &BlockUpdate) -> String {
    let BlockUpdate { block, replaced, blocks, lasting } = update;
    let mut text = format!("{} is blocked {}", block.prefix, lasts(block.seconds));
    if let Some(former) = replaced {
        let _ = write!(text, "; replaced a block {}{}", lasts(former.ends_in), because(former));
    }
    let until = if *lasting { String::new() } else { format!("; {NOT_LASTING}") };
    format!("{text}; blocks now: {}{until}\n", grouped(*blocks))
}

/// A block that was removed.
pub fn unblocked(block: &BlockEntry) -> String {
    format!(
        "{} is no longer blocked{}; requests refused since {}: {}\n",
        block.prefix,
        because(block),
        date_time(block.counted_since),
        grouped(block.refused)
    )
}

/// All blocks, as a table.
pub fn list(list: &BlockList) -> String {
    if list.blocks.is_empty() {
        return "no source is blocked by `onrush ctl block`\n".to_owned();
    }
    let width = list.blocks.iter().map(|block| block.prefix.len()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:<width$} {:>11} {:>13}  {:<20}  reason (by)\n",
        "prefix", "ends in", "refused", "since"
    );
    for block in &list.blocks {
        let BlockEntry { prefix, ends_in, refused, counted_since, reason, by, .. } = block;
        let ends_in = ends_in.map_or_else(|| "-".to_owned(), |seconds| duration(seconds as f64));
        let (refused, since) = (grouped(*refused), date_time(*counted_since));
        let space = if reason.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{prefix:<width$} {ends_in:>11} {refused:>13}  {since:<20}  {reason}{space}({by})"
        );
    }
    if !list.lasting {
        let _ = writeln!(text, "blocks are {NOT_LASTING}");
    }
    text
}

fn lasts(seconds: Option<u64>) -> String {
    seconds.map_or_else(
        || "until it is unblocked".to_owned(),
        |seconds| format!("for {}", duration(seconds as f64)),
    )
}

fn because(block: &BlockEntry) -> String {
    if block.reason.is_empty() { String::new() } else { format!(" ({})", block.reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(prefix: &str, ends_in: Option<u64>) -> BlockEntry {
        BlockEntry {
            prefix: prefix.to_owned(),
            since: 1_790_000_000,
            seconds: ends_in,
            ends_in,
            refused: 12_345,
            counted_since: 1_790_000_000,
            reason: "flood".to_owned(),
            by: "user 0".to_owned(),
        }
    }

    /// Also where a second has passed before the response.
    #[test]
    fn a_block_that_was_made_has_the_time_that_was_requested() {
        let block = BlockEntry { ends_in: Some(7_199), ..block("192.0.2.0/24", Some(7_200)) };
        let update = BlockUpdate { block, replaced: None, blocks: 1, lasting: true };
        assert!(blocked(&update).contains("192.0.2.0/24 is blocked for 2 h;"));
    }

    #[test]
    fn a_line_has_the_end_the_count_its_begin_and_the_reason() {
        let blocks = vec![block("192.0.2.0/24", Some(7_200)), block("2001:db8::/32", None)];
        let shown = list(&BlockList { lasting: false, blocks });
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let first =
            ["192.0.2.0/24", "2", "h", "12,345", "2026-09-21T14:13:20Z", "flood", "(user", "0)"];
        assert_eq!(lines[1], first, "{shown}");
        assert_eq!(lines[2][..2], ["2001:db8::/32", "-"], "{shown}");
        assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
        assert!(shown.contains(NOT_LASTING), "{shown}");
    }
}
