//! State that outlives the process: peers, lists, exports, and the key of connection ids; and the
//! lock file of the state directory.
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | the state directory, opened at start: its lock and the key |
//! | [`state_file`] | opens the files of the state directory, without following links |
//! | [`state_socket`] | sockets in it, made again if their files are lost |
//! | [`lock`], [`key_file`] | the lock of the state directory; the secrets of connection ids |
//! | [`snapshot`] | the peers in a file |
//! | [`blocks`] | sources that were blocked while the tracker ran |
//! | [`lists`] | files of info hashes and of blocked sources, and the journal of changes |
//! | [`export`] | the full scrape in a file |
//! | [`atomic_file`] | a file that is whole or not there |
//! | [`damaged_file`] | a file that is not valid is renamed |

pub mod atomic_file;
pub mod blocks;
pub mod damaged_file;
pub mod export;
pub mod key_file;
pub mod lists;
pub mod lock;
pub mod snapshot;
pub mod state;
pub mod state_file;
pub mod state_socket;
