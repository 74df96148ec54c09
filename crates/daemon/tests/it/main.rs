//! Integration tests of the daemon: the process, with its flags, configuration, log, signals and
//! exit code; the admin side; and the protocol over real sockets. Some tests need root, or a user
//! namespace with several user ids, which `scripts/test` provides.

mod admin;
mod background_tasks;
mod blocks;
mod config;
mod control_socket;
mod ctl;
mod ctl_state;
mod doctor;
mod export;
mod harness;
mod history;
mod host_check;
mod hot_hash;
mod http;
mod http_upgrade;
mod https;
mod journal;
mod kills;
mod live_lists;
mod load_http;
mod logs;
mod memory_returned;
mod overload;
mod probe;
mod protocol;
mod proxies;
mod reload;
mod secrets;
mod service;
mod signals;
mod snapshot;
mod sources;
mod stalled_log;
mod start;
mod state;
mod steering;
mod takedowns;
mod top;
mod top_sources;
mod upgrade;
mod upgrade_limits;
mod user;
mod websocket;
mod worker_failure;
