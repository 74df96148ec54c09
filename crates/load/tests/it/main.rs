//! The command against a small conforming tracker and against faulty ones, over real sockets.

mod command;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod profiles;
mod run;
mod verify;
