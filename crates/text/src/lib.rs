//! Text for people: numbers, times, lines and the version, in one form for all programs. Sizes are
//! in binary units, as the kernel and systemd count memory.

pub mod lines;
pub mod numbers;
pub mod times;
pub mod version;
