//! Exports: the full scrape, every swarm with its counts, in a file.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@format`] | the contents of the file, and its compression |
//! | [`count`] | the counts of the swarms of a running shard |

pub mod count;
pub mod format;
