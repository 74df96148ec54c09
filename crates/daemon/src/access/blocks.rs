//! The blocks of sources in force: their authors, ends and counts of refused requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::time::Time;
use onrush_control::api::Problem;
use onrush_control::api::blocks::{BlockEntry, BlockRequest};
use onrush_store::blocks::{Block, MAX_BLOCKS};
use onrush_tracker::access::addresses::{AddressSet, network};
use onrush_tracker::access::blocks::{IpNet, SourceBlocks};
use onrush_tracker::access::member_counts::MemberCounts;

/// The blocks in force. A block ends at the time of day that was given when it was made, or after
/// its duration on the monotonic clock, whichever is earlier: so a clock that is set back does not
/// lengthen it.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Number of members that count.
    members: usize,
    entries: BTreeMap<IpNet, Entry>,
    /// `None` until there is a block.
    counts: Option<Arc<MemberCounts>>,
}

/// A block that was made or removed, until that is recorded.
#[derive(Debug)]
pub(super) struct BlockChange {
    /// Its prefix.
    pub(super) prefix: IpNet,
    former: Option<Entry>,
}

/// A block and the place of its counters.
#[derive(Clone, Debug)]
struct Entry {
    block: Block,
    /// When it ends at the latest.
    deadline: Option<Instant>,
    slot: usize,
    /// Sum of the slot's counters before this block.
    base: u64,
    /// When the count began, in seconds since 1970.
    counted_since: u64,
}

impl Blocks {
    /// No blocks, for this many members.
    pub(super) fn new(members: usize) -> Self {
        Self { members, ..Self::default() }
    }

    /// Continues the blocks of a former process.
    pub(super) fn load(&mut self, blocks: Vec<Block>, time: Time) {
        for block in blocks {
            // So far the slots have no gap.
            self.insert(block, self.entries.len(), time);
        }
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The blocks, for the file.
    pub(super) fn all(&self) -> Vec<Block> {
        self.entries.values().map(|entry| entry.block.clone()).collect()
    }

    /// The blocks in the form that workers use, beside the sources that the configuration blocks.
    pub(super) fn compiled(&self, configured: &AddressSet) -> Arc<SourceBlocks> {
        match &self.counts {
            Some(counts) if !self.entries.is_empty() => {
                let slots = self.entries.iter().map(|(prefix, entry)| (*prefix, entry.slot));
                Arc::new(SourceBlocks::new(slots, configured, counts.clone()))
            }
            _ => Arc::default(),
        }
    }

    /// Makes a block.
    ///
    /// # Errors
    /// [`Problem`]; nothing has changed then.
    pub(super) fn block(
        &mut self,
        request: BlockRequest,
        by: String,
        time: Time,
    ) -> Result<BlockChange, Problem> {
        let BlockRequest { prefix, seconds, reason, force } = request;
        let prefix = network(&prefix).map_err(Problem::bad_request)?;
        let block = Block { prefix, since: time.unix, seconds, reason, by };
        block.check().map_err(Problem::bad_request)?;
        if block.is_too_wide() && !force {
            return Err(Problem::bad_request(format!(
                "{prefix} is a large part of all addresses: name a longer prefix (IPv4 /8, IPv6 \
                 /16 or longer), or block it with --force (\"force\": true)"
            )));
        }
        let former = self.entries.get(&prefix).cloned();
        if former.is_none() && self.entries.len() >= MAX_BLOCKS {
            return Err(Problem::conflict(format!(
                "there are {MAX_BLOCKS} blocks already, which is the maximum: a long list belongs \
                 into access.blocked_file"
            )));
        }
        self.insert(block, self.free_slot(), time);
        Ok(BlockChange { prefix, former })
    }

    /// Removes a block.
    ///
    /// # Errors
    /// [`Problem`]; nothing has changed then.
    pub(super) fn unblock(&mut self, prefix: &str) -> Result<BlockChange, Problem> {
        let prefix = network(prefix).map_err(Problem::bad_request)?;
        let Some(entry) = self.entries.remove(&prefix) else {
            let covering = self.entries.keys().rfind(|block| block.contains(&prefix));
            let covering = covering.map(|block| format!("; {block} contains it"));
            return Err(Problem::not_found(format!(
                "{prefix} is not blocked by this exact prefix: `onrush ctl blocks` lists the \
                 blocks{}",
                covering.unwrap_or_default()
            )));
        };
        Ok(BlockChange { prefix, former: Some(entry) })
    }

    /// Reverts a change that could not be recorded.
    pub(super) fn revert(&mut self, change: BlockChange) {
        match change.former {
            Some(former) => drop(self.entries.insert(change.prefix, former)),
            None => drop(self.entries.remove(&change.prefix)),
        }
    }

    /// The block that a change has made, and the one that it has replaced or removed.
    pub(super) fn changed(
        &self,
        change: &BlockChange,
        time: Time,
    ) -> (Option<BlockEntry>, Option<BlockEntry>) {
        let show = |entry: &Entry| self.show(entry, time);
        (self.entries.get(&change.prefix).map(show), change.former.as_ref().map(show))
    }

    /// Removes the blocks that have ended, and returns them.
    pub(super) fn expire(&mut self, time: Time) -> Vec<BlockEntry> {
        let ended: Vec<IpNet> = self
            .entries
            .iter()
            .filter(|(_, it)| it.ends_in(time) == Some(0))
            .map(|it| *it.0)
            .collect();
        let removed: Vec<Entry> =
            ended.iter().filter_map(|prefix| self.entries.remove(prefix)).collect();
        removed.iter().map(|entry| self.show(entry, time)).collect()
    }

    /// All blocks, sorted by prefix.
    pub(super) fn shown(&self, time: Time) -> Vec<BlockEntry> {
        self.entries.values().map(|entry| self.show(entry, time)).collect()
    }

    /// The first slot without a block.
    fn free_slot(&self) -> usize {
        let used: BTreeSet<usize> = self.entries.values().map(|entry| entry.slot).collect();
        (0..MAX_BLOCKS).find(|slot| !used.contains(slot)).unwrap_or(MAX_BLOCKS)
    }

    /// Puts a block into force. One of the same prefix continues to count, in its slot.
    fn insert(&mut self, block: Block, slot: usize, time: Time) {
        let ends_in = block.ends_in(time.unix).map(Duration::from_secs);
        let deadline = ends_in.map(|seconds| time.now + seconds);
        let members = self.members;
        let counts =
            self.counts.get_or_insert_with(|| Arc::new(MemberCounts::new(members, MAX_BLOCKS)));
        let entry = match self.entries.get(&block.prefix) {
            Some(former) => Entry { block, deadline, ..former.clone() },
            None => {
                let base = counts.sum(slot);
                Entry { block, deadline, slot, base, counted_since: time.unix }
            }
        };
        self.entries.insert(entry.block.prefix, entry);
    }

    fn show(&self, entry: &Entry, time: Time) -> BlockEntry {
        let Block { prefix, since, seconds, reason, by } = entry.block.clone();
        let counted = self.counts.as_ref().map_or(0, |counts| counts.sum(entry.slot));
        BlockEntry {
            prefix: prefix.to_string(),
            since,
            seconds,
            ends_in: entry.ends_in(time),
            refused: counted.saturating_sub(entry.base),
            counted_since: entry.counted_since,
            reason,
            by,
        }
    }
}

impl Entry {
    /// Seconds until the block ends, rounded up.
    fn ends_in(&self, time: Time) -> Option<u64> {
        let left = self.deadline?.saturating_duration_since(time.now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Some(self.block.ends_in(time.unix)?.min(seconds))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::{TimeVal, TimeValLike};

    use super::*;
    use onrush_store::blocks::BlockFile;

    fn at(start: Instant, seconds: u64, unix: u64) -> Time {
        Time { now: start + Duration::from_secs(seconds), unix }
    }

    fn request(prefix: &str, seconds: Option<u64>) -> BlockRequest {
        BlockRequest { prefix: prefix.to_owned(), seconds, reason: "why".to_owned(), force: false }
    }

    fn block(
        blocks: &mut Blocks,
        request: BlockRequest,
        time: Time,
    ) -> Result<BlockChange, Problem> {
        blocks.block(request, "user 7".to_owned(), time)
    }

    fn prefixes(blocks: Vec<BlockEntry>) -> Vec<String> {
        blocks.into_iter().map(|block| block.prefix).collect()
    }

    #[test]
    fn a_block_ends_by_the_clock_that_is_first() {
        let start = Instant::now();
        for (elapsed, unix, ended) in [
            (59, 1_059, false),
            (60, 1_060, true),
            // Set back, set forward.
            (59, 0, false),
            (60, 0, true),
            (1, 1_060, true),
        ] {
            let mut blocks = Blocks::new(1);
            block(&mut blocks, request("192.0.2.0/24", Some(60)), at(start, 0, 1_000)).unwrap();
            block(&mut blocks, request("192.0.3.0/24", None), at(start, 0, 1_000)).unwrap();
            let expired = prefixes(blocks.expire(at(start, elapsed, unix)));
            assert_eq!(!expired.is_empty(), ended, "{elapsed} s, {unix}: {expired:?}");
            assert_eq!(blocks.len(), 2 - expired.len());
        }
    }

    #[test]
    fn a_restart_with_a_wrong_clock_does_not_lengthen_a_block() {
        let directory = tempfile::tempdir().unwrap();
        let (start, file) = (Instant::now(), BlockFile::new(directory.path()));
        let load = |time: Time| {
            let mut blocks = Blocks::new(1);
            blocks.load(file.load(time.unix).0, time);
            blocks
        };
        let mut first = load(at(start, 0, 1_000));
        block(&mut first, request("192.0.2.0/24", Some(60)), at(start, 0, 1_000)).unwrap();
        file.write(&first.all()).unwrap();
        assert_eq!(load(at(start, 0, 1_020)).shown(at(start, 0, 1_020))[0].ends_in, Some(40));
        assert_eq!(load(at(start, 0, 1_060)).len(), 0);
        let mut wrong = load(at(start, 0, 7));
        assert_eq!(wrong.shown(at(start, 0, 7))[0].ends_in, Some(60));
        assert_eq!(wrong.expire(at(start, 59, 66)).len(), 0);
        assert_eq!(wrong.expire(at(start, 60, 67)).len(), 1);
    }

    #[test]
    fn a_replaced_block_counts_on_and_a_slot_that_is_used_again_begins_at_zero() {
        let time = at(Instant::now(), 0, 1_000);
        let mut blocks = Blocks::new(1);
        let count = |blocks: &Blocks, ip: &str| {
            blocks.compiled(&AddressSet::default()).count(0, ip.parse().unwrap());
        };
        let refused = |blocks: &Blocks| {
            blocks.shown(time).into_iter().map(|block| block.refused).collect::<Vec<_>>()
        };
        block(&mut blocks, request("192.0.2.0/24", Some(60)), time).unwrap();
        count(&blocks, "192.0.2.9");
        let made = blocks.block(request("192.0.2.0/24", None), "user 8".to_owned(), time).unwrap();
        let (now, replaced) = blocks.changed(&made, time);
        let now = now.unwrap();
        assert_eq!((now.seconds, now.refused, now.by.as_str()), (None, 1, "user 8"));
        assert_eq!(replaced.and_then(|block| block.seconds), Some(60));
        let removed = blocks.unblock("192.0.2.0/24").unwrap();
        let (made, removed) = blocks.changed(&removed, time);
        assert_eq!((made, removed.unwrap().refused), (None, 1));
        block(&mut blocks, request("2001:db8::/32", None), time).unwrap();
        assert_eq!(refused(&blocks), [0]);
        count(&blocks, "2001:db8::1");
        count(&blocks, "192.0.2.9");
        assert_eq!(refused(&blocks), [1]);
    }

    #[test]
    fn a_refused_or_reverted_change_changes_nothing() {
        let time = at(Instant::now(), 0, 1_000);
        let mut blocks = Blocks::new(1);
        block(&mut blocks, request("192.0.0.0/16", None), time).unwrap();
        let with =
            |reason: &str| BlockRequest { reason: reason.to_owned(), ..request("9.9.9.9", None) };
        for (wrong, part) in [
            (request("192.0.2.1/24", None), "192.0.2.0/24"),
            (request("nonsense", None), "nonsense"),
            (request("0.0.0.0/7", None), "--force"),
            (request("2000::/15", None), "--force"),
            (request("192.0.2.1", Some(0)), "1 s"),
            (with("two\nlines"), "control character"),
            (with(&"x".repeat(201)), "200"),
        ] {
            let error = block(&mut blocks, wrong, time).unwrap_err().error;
            assert!(error.contains(part), "{error}");
        }
        let error = blocks.unblock("192.0.2.0/24").unwrap_err();
        assert!(error.error.contains("192.0.0.0/16 contains it"), "{error:?}");
        let forced = BlockRequest { force: true, ..request("128.0.0.0/1", None) };
        block(&mut blocks, forced, time).unwrap();
        assert!(blocks.unblock("128.0.0.0/1").is_ok());
        for change in [
            |blocks: &mut Blocks, time| block(blocks, request("9.9.9.9", None), time),
            |blocks: &mut Blocks, time| block(blocks, request("192.0.0.0/16", Some(5)), time),
            |blocks: &mut Blocks, _| blocks.unblock("192.0.0.0/16"),
        ] {
            let change = change(&mut blocks, time).unwrap();
            blocks.revert(change);
            let left = blocks.shown(time);
            assert_eq!((left.len(), left[0].seconds), (1, None), "{left:?}");
        }
    }

    /// CPU time of this thread.
    fn cpu_time() -> Duration {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let micros = |time: TimeVal| Duration::from_micros(time.num_microseconds() as u64);
        micros(usage.user_time()) + micros(usage.system_time())
    }

    #[test]
    fn there_are_at_most_ten_thousand_which_are_loaded_and_written_in_milliseconds() {
        let directory = tempfile::tempdir().unwrap();
        let time = at(Instant::now(), 0, 1_000);
        let reason = "x".repeat(200);
        let made: Vec<Block> = (0..MAX_BLOCKS as u32)
            .map(|number| Block {
                prefix: IpNet::from(IpAddr::from(Ipv4Addr::from(0x0100_0000 + number))),
                since: 1_000,
                seconds: None,
                reason: reason.clone(),
                by: "user 0".to_owned(),
            })
            .collect();
        let file = BlockFile::new(directory.path());
        file.write(&made).unwrap();
        let before = cpu_time();
        let mut blocks = Blocks::new(1);
        blocks.load(file.load(time.unix).0, time);
        assert_eq!(blocks.len(), MAX_BLOCKS);
        let error = block(&mut blocks, request("9.9.9.9", None), time).unwrap_err().error;
        assert!(error.contains("10000") && error.contains("access.blocked_file"), "{error}");
        // One that is there can be replaced.
        block(&mut blocks, request("1.0.0.1", Some(9)), time).unwrap();
        assert_eq!(blocks.compiled(&AddressSet::default()).len(), MAX_BLOCKS);
        file.write(&blocks.all()).unwrap();
        let used = cpu_time() - before;
        assert!(used < Duration::from_secs(2), "{used:?}");
    }
}
