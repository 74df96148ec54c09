//! Integration tests of the data path: whole trackers on the in-process network, on one thread and
//! from one seed. Conversations of many clients under faults: crates/daemon/tests/simulation.

mod expiry;
mod fronts;
mod gather;
mod intake;
mod overload;
mod placements;
mod source_samples;
