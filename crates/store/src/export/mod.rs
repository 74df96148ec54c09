//! The full scrape in a file: every swarm with its counts, for whoever counts trackers or shows a catalogue.
//!
//! | room | what is in it |
//! |---|---|
//! | [`mod@format`] | what such a file looks like, by its name |
//! | [`schedule`] | when it is written, and by whom |
//!
//! The chore that walks over a shard is [`chores::tally`](crate::export::count).

pub mod count;
pub mod format;
