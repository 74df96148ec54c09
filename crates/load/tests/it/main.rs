//! The command against a small conforming tracker and against faulty ones, over real sockets.

mod command;
mod counted;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod find_max;
mod http;
mod http_server;
mod live;
#[path = "../../../net/tests/namespaces/namespace.rs"]
mod namespace;
#[path = "../../../verify/tests/it/over_tcp.rs"]
mod over_tcp;
mod profiles;
mod run;
mod sources;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../../../daemon/tests/it/harness/terminal.rs"]
mod terminal;
mod transport;
mod verify;
mod ws;
mod ws_server;
