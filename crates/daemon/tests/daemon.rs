//! The daemon as operators and init systems meet it: a process with flags, a file, a log, signals
//! and an exit code. Some of what it does takes root to show (another user, network namespaces).

#[path = "daemon/client.rs"]
mod client;
#[path = "daemon/network.rs"]
mod network;
#[path = "daemon/process.rs"]
mod process;

#[path = "daemon/configuration.rs"]
mod configuration;
#[path = "daemon/ctl.rs"]
mod ctl;
#[path = "daemon/death.rs"]
mod death;
#[path = "daemon/doctor.rs"]
mod doctor;
#[path = "daemon/export.rs"]
mod export;
#[path = "daemon/http.rs"]
mod http;
#[path = "daemon/kills.rs"]
mod kills;
#[path = "daemon/live_lists.rs"]
mod live_lists;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/overload.rs"]
mod overload;
#[path = "daemon/reload.rs"]
mod reload;
#[path = "daemon/service.rs"]
mod service;
#[path = "daemon/signals.rs"]
mod signals;
#[path = "daemon/snapshot.rs"]
mod snapshot;
#[path = "daemon/start.rs"]
mod start;
#[path = "daemon/state.rs"]
mod state;
#[path = "daemon/top.rs"]
mod top;
#[path = "daemon/upgrade.rs"]
mod upgrade;
#[path = "daemon/user.rs"]
mod user;
