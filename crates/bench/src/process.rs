//! Starts, pins and ends processes so that none is left behind: each is ended when its [`Child`] is
//! dropped, and by the kernel when this process is killed.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use nix::unistd::geteuid;
use onrush_load::affinity::format_list;
use onrush_load::interrupt;
use onrush_verify::reachability;
use procfs_core::FromRead as _;
use procfs_core::process::Status;
use signal_hook::consts::{SIGHUP, TERM_SIGNALS};

use crate::contender::Launch;
use crate::contender::hitch::backend_port;
use crate::mix::Protocol;

/// Polling interval.
const POLL: Duration = Duration::from_millis(10);
/// The time for one attempt to connect.
const ATTEMPT: Duration = Duration::from_millis(200);
/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// How long a port of UDP may stay in use after its process has ended, and one of TCP, which
/// connections keep in use for a minute (TIME_WAIT).
const RELEASE: Duration = Duration::from_secs(5);
const TCP_RELEASE: Duration = Duration::from_secs(65);
/// The user and group nobody: the kernel's overflow id.
const NOBODY: &str = "65534";
/// Bytes of a process's output in an error.
const QUOTE: usize = 600;

/// A flag set by termination signals.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The bench was ended by a signal and has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ended by a signal")]
pub struct Stopped;

impl Stop {
    /// A flag set by INT, TERM, QUIT and HUP (a closed terminal; not under nohup). A second signal
    /// ends this process at once.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn on_signals() -> io::Result<Self> {
        let hangup = (!ignores(SIGHUP)).then_some(&SIGHUP);
        interrupt::watch(TERM_SIGNALS.iter().chain(hangup).copied()).map(Self)
    }

    /// Checks the flag.
    ///
    /// # Errors
    /// [`Stopped`] when it is set.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.0.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }
}

/// Whether this process was started with a signal ignored, as nohup does (proc_pid_status(5)).
fn ignores(signal: i32) -> bool {
    let mask = Status::from_file("/proc/self/status").map_or(0, |status| status.sigign);
    mask >> (signal - 1) & 1 == 1
}

/// A child process.
#[derive(Debug)]
pub struct Child {
    inner: process::Child,
    name: String,
    log: PathBuf,
}

impl Child {
    /// Starts `launch` on `cpus`, with its output in a file in `directory`.
    ///
    /// # Errors
    /// When it cannot be started; `taskset` (util-linux) is needed.
    pub fn start(launch: &Launch, cpus: &[usize], directory: &Path) -> anyhow::Result<Self> {
        let name = launch.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = directory.join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        // taskset and setpriv exec the program, so its process id is that of the child. setpriv has
        // the kernel end it when this process is killed. A process that changes its user loses that
        // setting, so the user is changed before.
        let mut command = Command::new("setpriv");
        if launch.unprivileged && geteuid().is_root() {
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "taskset", "-c"]).arg(format_list(cpus));
        if let Some(name) = &launch.namespace {
            command.args(["nsenter".into(), format!("--net=/run/netns/{name}")]);
        }
        command.arg(&launch.program).args(&launch.arguments);
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        // A process group of its own: Ctrl-C reaches the bench only, which ends its children in
        // order.
        command.process_group(0);
        let inner = command
            .spawn()
            .context("cannot run setpriv and taskset (apt-get install util-linux)")?;
        Ok(Self { inner, name, log })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// The name of its program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The exit status, if the process has ended.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// The last part of the process's output.
    pub fn output_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        let text = text.trim();
        let start =
            (text.len().saturating_sub(QUOTE)..text.len()).find(|at| text.is_char_boundary(*at));
        match start.map(|at| &text[at..]) {
            None | Some("") => "no output".into(),
            Some(end) => end.to_owned(),
        }
    }

    /// Waits until the process replies to a connect (BEP 15) or, where it serves another protocol
    /// than UDP, takes connections.
    ///
    /// # Errors
    /// When the process has ended, does not reply within `timeout`, or the bench is stopped.
    pub fn wait_until_answering(
        &mut self,
        address: SocketAddr,
        protocol: Protocol,
        timeout: Duration,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + timeout;
        loop {
            stop.check()?;
            if let Some(status) = self.ended()? {
                bail!("{} ended ({status}) before it answered: {}", self.name, self.output_tail());
            }
            let answer = match protocol {
                it if it.is_udp() => reachability::connect(address, None, ATTEMPT)
                    .map(drop)
                    .map_err(|failure| failure.to_string()),
                _ => TcpStream::connect_timeout(&address, ATTEMPT)
                    .map(drop)
                    .map_err(|error| format!("{address} takes no connection: {error}")),
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(failure) if Instant::now() >= end => {
                    bail!("{failure}; {}", self.output_tail());
                }
                Err(_) if protocol.is_udp() => {}
                // A refusal comes at once.
                #[expect(clippy::disallowed_methods, reason = "a port opens without an event")]
                Err(_) => sleep(POLL),
            }
        }
    }

    /// Waits for the end of the process within `limit`; calls `each` repeatedly meanwhile.
    ///
    /// # Errors
    /// When the process takes longer, or the bench is stopped.
    pub fn wait(
        &mut self,
        limit: Duration,
        stop: &Stop,
        mut each: impl FnMut(),
    ) -> anyhow::Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            stop.check()?;
            each();
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!(
                    "{} did not end within {} s: {}",
                    self.name,
                    limit.as_secs(),
                    self.output_tail()
                );
            }
            #[expect(clippy::disallowed_methods, reason = "the process is polled")]
            sleep(POLL);
        }
    }

    /// Ends the process with SIGTERM, and with SIGKILL after a grace period.
    pub fn stop(&mut self) {
        let Ok(pid) = i32::try_from(self.inner.id()) else { return };
        if !matches!(self.inner.try_wait(), Ok(None)) {
            return;
        }
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        if self.wait(GRACE, &Stop::default(), || ()).is_err() {
            // With its children: the group is its own.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = self.inner.wait();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Checks that `address` is free and, for TCP, the port of trackers behind hitch. A second tracker
/// there would silently receive half of the datagrams or connections (SO_REUSEPORT), which would
/// count as loss. Waits a moment for the release by the last process.
///
/// # Errors
/// When an address stays in use.
pub fn must_be_free(address: SocketAddr, protocol: Protocol, stop: &Stop) -> anyhow::Result<()> {
    let udp = protocol.is_udp();
    let bind = |address| match udp {
        true => UdpSocket::bind(address).map(drop),
        false => TcpListener::bind(address).map(drop),
    };
    let (name, end) = match udp {
        true => ("UDP", Instant::now() + RELEASE),
        false => ("TCP", Instant::now() + TCP_RELEASE),
    };
    let other = match udp {
        true => SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())),
        false => SocketAddr::new(address.ip(), backend_port(address.port())),
    };
    for address in [address, other] {
        while let Err(error) = bind(address) {
            stop.check()?;
            if Instant::now() >= end {
                let (port, flag) = (address.port(), if udp { 'u' } else { 't' });
                bail!(
                    "{name} port {port} is in use ({address}: {error}): end its process (ss \
                     -ln{flag}p 'sport = :{port}'), or take another with --port"
                );
            }
            #[expect(clippy::disallowed_methods, reason = "a port becomes free without an event")]
            sleep(POLL);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("GREETING".into(), "from the environment".into())],
            ..Launch::default()
        }
    }

    fn first_cpu() -> [usize; 1] {
        [crate::machine::cores().unwrap()[0]]
    }

    #[test]
    fn a_process_is_pinned_and_its_output_kept() {
        let directory = tempfile::tempdir().unwrap();
        let launch = shell("grep Cpus_allowed_list /proc/self/status; echo $GREETING; exit 3");
        let mut child = Child::start(&launch, &first_cpu(), directory.path()).unwrap();
        let status = child.wait(Duration::from_secs(120), &Stop::default(), || ()).unwrap();
        assert_eq!(status.code(), Some(3));
        let text = child.output_tail();
        assert!(text.contains(&format!("Cpus_allowed_list:\t{}\n", first_cpu()[0])), "{text}");
        assert!(text.ends_with("from the environment"), "{text}");
    }

    #[test]
    fn a_process_ends_with_its_child_and_with_a_stop() {
        let directory = tempfile::tempdir().unwrap();
        let mut child =
            Child::start(&shell("exec sleep 600"), &first_cpu(), directory.path()).unwrap();
        let stop = Stop(Arc::new(AtomicBool::new(true)));
        let error = child.wait(Duration::from_secs(600), &stop, || ()).unwrap_err();
        assert!(error.is::<Stopped>(), "{error}");
        let proc = format!("/proc/{}", child.pid());
        assert!(Path::new(&proc).exists());
        drop(child);
        assert!(!Path::new(&proc).exists());
    }
}
