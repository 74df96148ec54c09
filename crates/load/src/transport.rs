//! The cost of a transport: a client whose streams write blocks, and a server that returns them, as
//! two processes of one host. The load is that of libp2p's comparison of WebRTC with TCP
//! (2023): 10 connections of 1,000 streams, or 100 of 100.
//!
//! | module | contents |
//! |---|---|
//! | `args` | the arguments |
//! | [`echoes`] | what is due, and whether what returns is right; time is an argument |
//! | [`pattern`] | the content of blocks |
//! | `stack` | what a transport does, as a trait |
//! | [`frames`] | streams over one connection of bytes |
//! | `tcp` | TCP and TLS |
//! | `quic` | QUIC |
//! | `webrtc` | WebRTC |
//! | [`sdp`] | descriptions of connections |
//! | `signal` | offers and answers through a tracker |
//! | `datagrams` | batches of datagrams |
//! | `certificate` | the server's certificate |
//! | `control` | messages between the processes |
//! | `server`, `client` | the processes |
//! | `report`, `page` | the result |

mod args;
mod certificate;
mod client;
mod control;
mod datagrams;
pub mod echoes;
pub mod frames;
mod page;
pub mod pattern;
mod quic;
mod report;
pub mod sdp;
mod server;
mod signal;
mod stack;
mod tcp;
mod webrtc;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use anyhow::{Context as _, Error};
use onrush_net::affinity::{self, pin_current_thread};

use crate::environment::Environment;
use crate::options::command_line;
use client::Task;
use control::Message;
use echoes::Shape;
use quic::{Quic, Role};
use signal::Swarm;
use stack::Stack;
use tcp::{Encryption, Tcp};
use webrtc::WebRtc;

#[cfg(test)]
pub(crate) use args::EXAMPLES;
pub use args::{Preset, TransportArgs};
pub use report::{FORMAT, Interval, SideReport, TransportReport};
pub use server::serve;
pub use stack::StackKind;

/// Runs the load until its end, or until `stop` is set in the measured window. The error of the
/// inner result is why a connection did not come about.
///
/// # Errors
/// When a process or socket cannot be opened, a vCPU is not allowed, or the run was interrupted
/// before the measured window.
pub fn transport(
    args: &TransportArgs,
    stop: &AtomicBool,
) -> anyhow::Result<Result<TransportReport, String>> {
    let environment = Environment::read();
    let pin = args.cpus(&affinity::allowed()?).map_err(Error::msg)?;
    if let [_, Some(cpu)] = pin {
        pin_current_thread(cpu).context("--pin")?;
    }
    let task = Task {
        stack: args.stack.context("--stack is missing")?,
        server: args.server.clone(),
        shape: args.shape(),
        seconds: args.seconds,
        server_cpu: pin[0],
        swarm: args.signal.as_deref().map(Swarm::new),
        quiet: args.report.quiet,
    };
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let outcome = match client::run(&task, stop)? {
        Ok(outcome) => outcome,
        Err(silent) => return Ok(Err(silent)),
    };
    let mut report = TransportReport::new(&task, outcome, pin);
    let whole = args.seconds.as_secs_f64();
    if report.seconds < whole - 1e-3 {
        let measured = report.seconds;
        report.warnings.push(format!("ended early: measured {measured:.1} s of {whole:.1} s"));
    }
    report.warnings.extend(environment.warning());
    report.started = started.as_secs();
    report.command = command_line("onrush-load");
    report.environment = Some(environment);
    Ok(Ok(report))
}

/// A server, and what its client has to know.
fn open_server(kind: StackKind, streams: u32) -> io::Result<(Box<dyn Stack>, Message)> {
    let tcp = |encryption, certificate| {
        let tcp = Tcp::new(streams, None, encryption)?;
        let ready = Message::Ready { address: tcp.address()?, certificate };
        Ok((Box::new(tcp) as Box<dyn Stack>, ready))
    };
    let tls = || certificate::server().map(|(der, config)| (der, Arc::new(config)));
    match kind {
        StackKind::Tcp => tcp(Encryption::Plain, Vec::new()),
        StackKind::Tls => {
            let (certificate, config) = tls()?;
            tcp(Encryption::Server(config), certificate)
        }
        StackKind::Quic => {
            let (certificate, config) = tls()?;
            let quic = Quic::new(streams, Role::Server(config))?;
            let ready = Message::Ready { address: quic.address(), certificate };
            Ok((Box::new(quic), ready))
        }
        StackKind::Webrtc => {
            let webrtc = WebRtc::new(None)?;
            let ready = Message::Ready { address: webrtc.address(), certificate: Vec::new() };
            Ok((Box::new(webrtc), ready))
        }
    }
}

/// The client of a server that is `ready`.
fn open_client(kind: StackKind, shape: Shape, ready: &Message) -> anyhow::Result<Box<dyn Stack>> {
    let Message::Ready { address, certificate } = ready else {
        anyhow::bail!("the server sent {ready:?}")
    };
    let encryption = || certificate::client(certificate);
    let streams = shape.streams;
    Ok(match kind {
        StackKind::Tcp => Box::new(Tcp::new(streams, Some(*address), Encryption::Plain)?),
        StackKind::Tls => {
            Box::new(Tcp::new(streams, Some(*address), Encryption::Client(encryption()?))?)
        }
        StackKind::Quic => Box::new(Quic::new(streams, Role::Client(*address, encryption()?))?),
        StackKind::Webrtc => Box::new(WebRtc::new(Some(shape.connections))?),
    })
}
