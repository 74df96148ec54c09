//! Starting, pinning and ending processes, so that none is left behind: each is ended when its
//! [`Child`] goes, whatever the reason, and dies with this process where the kernel can see to that.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nix::unistd::geteuid;
use onrush_load::process::Memory;
use procfs_core::FromRead as _;
use procfs_core::process::Status;
use signal_hook::consts::{SIGHUP, TERM_SIGNALS};

use crate::contender::Launch;
use crate::cpus::CpuList;

/// How often something is looked at that cannot be waited for.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);
/// How long a port may stay taken after whoever had it has gone.
const RELEASE: Duration = Duration::from_secs(5);
/// The user and group of nobody, as the kernel has it for whoever is unknown.
const NOBODY: &str = "65534";
/// Bytes of a process's output that an error quotes.
const QUOTE: usize = 600;

/// Whether the person at the terminal, or a service manager, wants this to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The run was ended from outside; not a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ended by a signal")
    }
}

impl std::error::Error for Stopped {}

impl Stop {
    /// Set by INT, TERM, QUIT and HUP (a terminal that went away; not under nohup). A second signal ends this process at once.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        let hangup = (!ignores(SIGHUP)).then_some(&SIGHUP);
        for signal in TERM_SIGNALS.iter().chain(hangup) {
            signal_hook::flag::register_conditional_shutdown(*signal, 130, Arc::clone(&stop.0))?;
            signal_hook::flag::register(*signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Asks whoever looks to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`Stopped`] when not.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.0.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }
}

/// Whether this process was started with a signal ignored, as nohup does (proc_pid_status(5)).
fn ignores(signal: i32) -> bool {
    let mask = Status::from_file("/proc/self/status").map_or(0, |status| status.sigign);
    mask >> (signal - 1) & 1 == 1
}

/// A process of ours.
#[derive(Debug)]
pub struct Child {
    inner: process::Child,
    name: String,
    log: PathBuf,
}

impl Child {
    /// Starts `launch` on `cpus`. What it prints goes to a file in `directory`.
    ///
    /// # Errors
    /// When it cannot be started; `taskset` (util-linux) is needed.
    pub fn start(launch: &Launch, cpus: &CpuList, directory: &Path) -> anyhow::Result<Self> {
        let name = launch.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = directory.join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        // taskset and setpriv become the program: its process id is ours to know. setpriv has the
        // kernel end it when this process is killed without a chance to do so. Whoever changes its
        // user loses that, so it is changed before.
        let mut command = Command::new("setpriv");
        if launch.unprivileged && geteuid().is_root() {
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "taskset", "-c"]).arg(cpus.to_string());
        command.arg(&launch.program).args(&launch.arguments);
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        // A group of its own: Ctrl-C is for the bench, which then ends everything in order.
        command.process_group(0);
        let inner = command
            .spawn()
            .context("cannot run setpriv and taskset (apt-get install util-linux)")?;
        Ok(Self { inner, name, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// The end of what it printed.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        let text = text.trim();
        let start =
            (text.len().saturating_sub(QUOTE)..text.len()).find(|at| text.is_char_boundary(*at));
        match start.map(|at| &text[at..]) {
            None | Some("") => "it printed nothing".into(),
            Some(end) => end.to_owned(),
        }
    }

    /// Waits until it answers a connect (BEP 15).
    ///
    /// # Errors
    /// When it has ended, does not answer for as long as `patience`, or everything is to end.
    pub fn wait_until_answering(
        &mut self,
        address: SocketAddr,
        patience: Duration,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        loop {
            stop.check()?;
            if let Some(status) = self.ended()? {
                bail!("{} ended ({status}) before it answered: {}", self.name, self.said());
            }
            match onrush_load::probe::probe(address, None, Duration::from_millis(200)) {
                Ok(_) => return Ok(()),
                Err(dead) if Instant::now() >= end => {
                    bail!("{}; {}", dead.advice(address), self.said());
                }
                Err(_) => {}
            }
        }
    }

    /// Waits for its end, which has to come within `limit`; `each` is called every now and then.
    ///
    /// # Errors
    /// When it takes longer, or everything is to end.
    pub fn wait(
        &mut self,
        limit: Duration,
        stop: &Stop,
        mut each: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            stop.check()?;
            each()?;
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!("{} did not end within {} s: {}", self.name, limit.as_secs(), self.said());
            }
            sleep(LOOK);
        }
    }

    /// Ends it: TERM, and KILL if that does not help.
    pub fn stop(&mut self) {
        let Ok(pid) = i32::try_from(self.inner.id()) else { return };
        if !matches!(self.inner.try_wait(), Ok(None)) {
            return;
        }
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.inner.try_wait(), Ok(None)) {
                return;
            }
            sleep(LOOK);
        }
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The most memory that a process had resident, in bytes; none where that is not told.
pub fn peak_rss(pid: u32) -> Option<u64> {
    Memory::of(pid).ok().map(|memory| memory.peak).filter(|&peak| peak > 0)
}

/// Whether `address` can be listened on. A second tracker there would silently take half of the
/// datagrams (SO_REUSEPORT), and both would look as if they lost them. Whoever had it last may need a
/// moment.
///
/// # Errors
/// When somebody has it and keeps it.
pub fn must_be_free(address: SocketAddr, stop: &Stop) -> anyhow::Result<()> {
    let end = Instant::now() + RELEASE;
    let port = address.port();
    let any = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), port);
    for address in [address, any("0.0.0.0")] {
        while let Err(error) = UdpSocket::bind(address) {
            stop.check()?;
            if Instant::now() >= end {
                bail!(
                    "UDP port {port} is in use ({address}: {error}): end whoever has it (ss -lunp \
                     'sport = :{port}'), or take another with --port"
                );
            }
            sleep(LOOK);
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
            environment: vec![("WORD".into(), "from here".into())],
            unprivileged: false,
        }
    }

    fn first_cpu() -> CpuList {
        CpuList::new([crate::machine::cores().unwrap()[0][0]])
    }

    #[test]
    fn a_process_runs_where_it_should_and_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let launch = shell("grep Cpus_allowed_list /proc/self/status; echo $WORD; exit 3");
        let mut child = Child::start(&launch, &first_cpu(), directory.path()).unwrap();
        let status = child.wait(Duration::from_secs(20), &Stop::default(), || Ok(())).unwrap();
        assert_eq!(status.code(), Some(3));
        let said = child.said();
        assert!(said.contains(&format!("Cpus_allowed_list:\t{}\n", first_cpu())), "{said}");
        assert!(said.ends_with("from here"), "{said}");
    }

    #[test]
    fn a_process_goes_with_its_child_and_with_a_stop() {
        let directory = tempfile::tempdir().unwrap();
        let mut child =
            Child::start(&shell("exec sleep 600"), &first_cpu(), directory.path()).unwrap();
        let stop = Stop::default();
        stop.set();
        let error = child.wait(Duration::from_secs(600), &stop, || Ok(())).unwrap_err();
        assert!(error.is::<Stopped>(), "{error}");
        let proc = format!("/proc/{}", child.pid());
        assert!(Path::new(&proc).exists());
        drop(child);
        assert!(!Path::new(&proc).exists());
    }

    #[test]
    fn one_that_ends_before_it_answers_is_a_finding() {
        let directory = tempfile::tempdir().unwrap();
        let mut child =
            Child::start(&shell("echo no such key; exit 2"), &first_cpu(), directory.path())
                .unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = child.wait_until_answering(port, Duration::from_secs(20), &Stop::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no such key") && error.contains("exit status: 2"), "{error}");
    }

    #[test]
    fn a_port_in_use_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = must_be_free(address, &Stop::default()).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("--port"), "{error}");
        drop(taken);
        must_be_free(address, &Stop::default()).unwrap();
    }

    #[test]
    fn this_process_has_a_peak() {
        assert!(peak_rss(process::id()).unwrap() > 1 << 20);
    }
}
