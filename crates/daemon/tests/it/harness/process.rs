//! The daemon as a child process: flags, configuration, log lines, signals and exit status.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::mem;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

use crate::harness::messages::{
    ADMIN_LISTENS, PEERS_RESTORED, READY, SERVES, STOPPED, UPGRADE_DONE, UPGRADE_RECEIVED,
};
use crate::harness::{Client, TOKEN};

/// Deadline of every wait, for an event that is certain.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// The admin API's token in the configuration file. Further keys of `[admin]` may follow.
pub(crate) const TOKEN_FILE: &str = "[admin]\ntoken_file = \"HOME/token\"\n";

/// Polls until the condition holds.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        thread::yield_now();
    }
}

/// The account `nobody`, which has no privileges and exists on every host.
pub(crate) fn nobody() -> User {
    User::from_name("nobody").unwrap().expect("a user `nobody`")
}

/// Sets a flag when it is dropped: ends a thread of a scope, which waits for it, also if the test
/// fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `test` while a thread for each of these actions repeats it.
pub(crate) fn meanwhile<T>(
    actions: impl IntoIterator<Item = impl FnMut() + Send>,
    test: impl FnOnce() -> T,
) -> T {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        // First, as making an action may fail, too.
        let _over = SetOnDrop(over);
        for mut action in actions {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    action();
                }
            });
        }
        test()
    })
}

/// A free address for a daemon that does not log its own, or that starts repeatedly: a port outside
/// the ephemeral range, free for UDP and TCP over both families. It stays reserved until this
/// process ends, also between two starts of a daemon: no other test program gets it.
pub(crate) fn free_address() -> SocketAddr {
    for port in 10_000..32_000 {
        // Names of this kind belong to a network namespace, as ports do, and leave no files.
        let name = format!("onrush-test-port-{port}");
        let name = unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let Ok(reservation) = UnixDatagram::bind_addr(&name) else { continue };
        let free =
            |ip| UdpSocket::bind((ip, port)).is_ok() && TcpListener::bind((ip, port)).is_ok();
        if free("127.0.0.1") && free("::1") {
            mem::forget(reservation);
            return ([127, 0, 0, 1], port).into();
        }
    }
    panic!("no port is free on both 127.0.0.1 and ::1");
}

/// Asserts that a text contains these parts.
#[track_caller]
pub(crate) fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Fails unless the test has root's privileges over users and namespaces, which `scripts/test`
/// provides to ordinary users too.
pub(crate) fn require_root(why: &str) {
    assert!(Uid::effective().is_root(), "this test {why}: run it with scripts/test, or as root");
}

/// A command line of the daemon. The home directory, with the default state directory and a token,
/// is temporary.
pub(crate) struct Launch {
    command: Command,
    home: TempDir,
    admin: &'static str,
}

impl Launch {
    /// A command line with these flags.
    pub(crate) fn new(flags: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("token"), TOKEN).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onrush"));
        command.args(flags).env("HOME", home.path()).stdin(Stdio::null());
        command.env_remove("STATE_DIRECTORY").env_remove("XDG_STATE_HOME");
        command.env_remove("NOTIFY_SOCKET").env("ONRUSH_CONFIG", "");
        Self { command, home, admin: "off" }
    }

    /// Enables the admin side on a free port, see [`Daemon::admin`]. It is off by default because
    /// daemons of parallel tests would use the same port.
    pub(crate) fn admin(mut self) -> Self {
        self.admin = "127.0.0.1:0";
        self
    }

    /// Enables the admin side with a token. `tables` may begin with further keys of `[admin]`.
    pub(crate) fn admin_api(self, tables: &str) -> Self {
        self.admin().config(&format!("{TOKEN_FILE}{tables}"))
    }

    /// Leaves the admin side to the configuration file.
    pub(crate) fn configured_admin(mut self) -> Self {
        self.admin = "";
        self
    }

    /// Runs the daemon under another program, which gets the daemon's command line as its last
    /// arguments.
    pub(crate) fn under(mut self, program: &[impl AsRef<OsStr>]) -> Self {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg(self.command.get_program()).stdin(Stdio::null());
        self.replace(command);
        self
    }

    /// Runs another program, with the arguments added and in the same environment.
    pub(crate) fn replace(&mut self, mut command: Command) {
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.command = command;
    }

    /// Sets an environment variable.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// A command line with free ports of 127.0.0.1 and ::1.
    pub(crate) fn on_loopback() -> Self {
        Self::new(&["--listen", "127.0.0.1:0", "--listen", "[::1]:0"])
    }

    /// Adds a flag and its value.
    pub(crate) fn flag(mut self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.arg(flag).arg(value);
        self
    }

    /// Adds flags.
    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.command.args(flags);
        self
    }

    /// Adds a configuration file with this text, in which HOME is the home directory.
    pub(crate) fn config(self, text: &str) -> Self {
        write_config(self.home.path(), text);
        let path = self.config_path();
        self.flag("--config", path)
    }

    /// The path of the file that [`config`](Self::config) writes.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.home.path().join("onrush.toml")
    }

    /// Runs the daemon as the user `nobody`, who owns the home directory.
    pub(crate) fn run_as_nobody(mut self) -> Self {
        require_root("starts the daemon as another user");
        let account = nobody();
        chown(self.home.path(), Some(account.uid.as_raw()), Some(account.gid.as_raw())).unwrap();
        let mut command = Command::new("/proc/self/fd/0");
        // `nobody` may not have access to the build directory, but can execute an open file.
        command.stdin(File::open(env!("CARGO_BIN_EXE_onrush")).unwrap());
        command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        self.replace(command);
        self
    }

    /// Starts the daemon.
    pub(crate) fn start(self) -> Daemon {
        self.start_with_log_to(Stdio::piped())
    }

    /// Starts the daemon and waits for its exit.
    pub(crate) fn run(self) -> Ended {
        self.start().end()
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) fn serve(self) -> Daemon {
        let mut daemon = self.start();
        daemon.serving();
        daemon
    }

    /// Starts the daemon and waits until it serves the peers of its snapshot.
    pub(crate) fn serve_restored(self) -> Daemon {
        let mut daemon = self.start();
        daemon.line(PEERS_RESTORED);
        daemon.serving();
        daemon
    }

    /// Starts the daemon with its log on a full disk.
    pub(crate) fn start_with_a_full_disk(self) -> Daemon {
        let full = File::options().write(true).open("/dev/full").unwrap();
        self.start_with_log_to(full.into())
    }

    /// Starts the daemon with its log elsewhere.
    pub(crate) fn start_with_log_to(mut self, log: Stdio) -> Daemon {
        let without_admin = ["--print-config", "--admin", "ctl", "doctor", "top", "probe"];
        let listens = |flag| without_admin.iter().all(|other| flag != *other);
        if !self.admin.is_empty() && self.command.get_args().all(listens) {
            self.command.args(["--admin", self.admin]);
        }
        let mut child = self.command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (sender, lines) = channel();
        read_lines(child.stdout.take().unwrap(), sender.clone(), Line::Output);
        if let Some(log) = child.stderr.take() {
            read_lines(log, sender, Line::Log);
        }
        let (log, output, addresses) = (Vec::new(), Vec::new(), Vec::new());
        let (home, successor, ended) = (self.home, None, false);
        Daemon { child, successor, lines, log, output, read: 0, served: 0, addresses, home, ended }
    }
}

fn write_config(home: &Path, text: &str) {
    let text = text.replace("HOME", home.to_str().unwrap());
    fs::write(home.join("onrush.toml"), text).unwrap();
}

/// A running daemon. When it is dropped it is stopped, and must exit with code 0; if the test has
/// failed, it is killed.
pub(crate) struct Daemon {
    child: Child,
    /// The successor after an upgrade; its log is in the same pipe.
    successor: Option<u32>,
    lines: Receiver<Line>,
    log: Vec<String>,
    output: Vec<String>,
    /// Number of log lines up to the last one waited for.
    read: usize,
    /// Number of log lines up to the last ones of a start or an upgrade.
    served: usize,
    /// The addresses of the listeners, once the daemon serves.
    addresses: Vec<SocketAddr>,
    home: TempDir,
    /// Whether a test has waited for its exit.
    ended: bool,
}

/// The result of a daemon that has exited.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code; `None` when a signal ended the process.
    pub(crate) code: Option<i32>,
    /// The signal that ended the process.
    pub(crate) signal: Option<i32>,
    /// Lines of standard error.
    pub(crate) log: Vec<String>,
    /// Lines of standard output.
    pub(crate) output: String,
}

impl Ended {
    /// Asserts that it has exited with status 0, and that its output contains these parts.
    #[track_caller]
    pub(crate) fn prints(&self, parts: &[&str]) {
        self.exits(0, &[]);
        assert_parts(&self.output, parts);
    }

    /// Asserts that it has exited with this status, and that its log contains these parts.
    #[track_caller]
    pub(crate) fn exits(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(status), "{self:?}");
        assert_parts(&self.text(), parts);
    }

    /// Asserts that its log has a line with `part`, and that the first one contains these parts.
    #[track_caller]
    pub(crate) fn has_line(&self, part: &str, parts: &[&str]) {
        let line = self.log.iter().find(|line| line.contains(part));
        assert_parts(line.unwrap_or_else(|| panic!("no line with `{part}`: {self:?}")), parts);
    }

    /// The log as one text.
    pub(crate) fn text(&self) -> String {
        self.log.join("\n")
    }

    /// The output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

enum Line {
    Output(String),
    Log(String),
}

impl Daemon {
    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.successor.unwrap_or_else(|| self.child.id())
    }

    /// Waits until a successor started by this process serves; the successor's addresses. The log
    /// lines of the predecessor and of the successor may arrive in any order.
    pub(crate) fn upgraded(&mut self) -> Vec<SocketAddr> {
        let from = self.served;
        let done = self.wait_for_since(from, UPGRADE_DONE);
        let number = done.split("process ").nth(1).unwrap().split(' ').next().unwrap();
        self.successor = Some(number.parse().unwrap());
        let serves = self.wait_for_since(from, SERVES);
        self.wait_for_since(from, UPGRADE_RECEIVED);
        self.wait_for_since(from, READY);
        let ready = self.log.iter().rposition(|line| line.contains(READY)).unwrap();
        self.read = self.read.max(ready + 1);
        self.serves(&serves)
    }

    /// Starts a successor with SIGUSR2 and waits until it serves; its addresses.
    pub(crate) fn upgrade(&mut self) -> Vec<SocketAddr> {
        self.signal("USR2");
        self.upgraded()
    }

    /// Waits for a log line with `part`, in any order with other lines: several threads write.
    pub(crate) fn wait_for_line(&mut self, part: &str) {
        self.wait_for_since(0, part);
    }

    /// Waits for a line with `part` that is not before the line `from`.
    fn wait_for_since(&mut self, from: usize, part: &str) -> String {
        let at = self.place_since(from, part);
        self.log[at].clone()
    }

    /// Waits for a line with `part` that is not before the line `from`. Returns its place in the
    /// log.
    fn place_since(&mut self, from: usize, part: &str) -> usize {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.log[from..].iter().position(|line| line.contains(part)) {
                return from + at;
            }
            if let Err(why) = self.read_line(deadline) {
                panic!("no line with `{part}` ({why}) in:\n{}", self.log.join("\n"));
            }
        }
    }

    /// The daemon's home directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The path of its configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.home().join("onrush.toml")
    }

    /// Replaces the text of the configuration file, in which HOME is the home directory.
    pub(crate) fn configure(&self, text: &str) {
        write_config(self.home.path(), text);
    }

    /// Waits until the daemon serves; the addresses of its listeners.
    pub(crate) fn serving(&mut self) -> Vec<SocketAddr> {
        let line = self.line(SERVES);
        self.line(READY);
        self.serves(&line)
    }

    /// Takes the addresses from a line that names them.
    fn serves(&mut self, line: &str) -> Vec<SocketAddr> {
        self.served = self.log.len();
        let addresses = line.split("udp://").skip(1);
        let address = |text: &str| text.split(' ').next().unwrap().parse().unwrap();
        self.addresses = addresses.map(address).collect();
        self.addresses.clone()
    }

    /// The address of the first listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The addresses of the listeners.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A client of the first listener, with a connection id.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address()).connected()
    }

    /// Checks the replies of every listener.
    pub(crate) fn check(&self) {
        for address in &self.addresses {
            Client::new(*address).connect_and_check();
        }
    }

    /// The address of the admin side, once the daemon serves.
    pub(crate) fn admin(&self) -> SocketAddr {
        let line = self.log.iter().find(|line| line.contains(ADMIN_LISTENS));
        let (_, address) = line.and_then(|line| line.split_once("http://")).expect("its log line");
        address.split(' ').next().unwrap().parse().unwrap()
    }

    /// Runs `onrush ctl` with the daemon's token.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Ended {
        let url = format!("http://{}", self.admin());
        let launch = Launch::new(&["ctl", "--url", &url]);
        launch.flag("--token-file", self.home().join("token")).flags(arguments).run()
    }

    /// Runs `onrush ctl` with the daemon's configuration file: at the control socket, without a
    /// token.
    pub(crate) fn local_ctl(&self, arguments: &[&str]) -> Ended {
        self.command(&["ctl"]).flags(arguments).run()
    }

    /// A command line with the daemon's configuration file.
    pub(crate) fn command(&self, arguments: &[&str]) -> Launch {
        Launch::new(arguments).flag("--config", self.config_path())
    }

    /// The output of such a command, which has to succeed.
    #[track_caller]
    pub(crate) fn local_output(&self, arguments: &[&str]) -> String {
        let ended = self.local_ctl(arguments);
        assert_eq!((ended.code, ended.text().as_str()), (Some(0), ""), "{arguments:?}: {ended:?}");
        ended.output
    }

    /// Waits for a log line with `part` after the last line waited for.
    pub(crate) fn line(&mut self, part: &str) -> String {
        let at = self.place_since(self.read, part);
        self.read = at + 1;
        self.log[at].clone()
    }

    /// The same, and asserts that this line contains these parts.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str, parts: &[&str]) {
        assert_parts(&self.line(part), parts);
    }

    /// Skips all lines so far.
    pub(crate) fn skip(&mut self) {
        self.read_until(Instant::now());
        self.read = self.log.len();
    }

    /// Whether the process has exited.
    pub(crate) fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Reads the daemon's output until `moment`, or until it exits.
    pub(crate) fn read_until(&mut self, moment: Instant) {
        while self.read_line(moment).is_ok() {}
    }

    /// The log lines so far.
    pub(crate) fn log(&self) -> &[String] {
        &self.log
    }

    /// Sends a signal, named without SIG.
    pub(crate) fn signal(&self, name: &str) {
        let signal: Signal = format!("SIG{name}").parse().unwrap();
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Waits for the exit.
    pub(crate) fn end(mut self) -> Ended {
        self.await_exit()
    }

    /// Waits for the exit of a daemon that the caller keeps.
    pub(crate) fn await_exit(&mut self) -> Ended {
        self.ended = true;
        let deadline = Instant::now() + TIMEOUT;
        let why = loop {
            if let Err(why) = self.read_line(deadline) {
                break why;
            }
        };
        let log = self.log.join("\n");
        assert_eq!(why, RecvTimeoutError::Disconnected, "the daemon still runs:\n{log}");
        // A process that has closed both outputs has exited, or is about to.
        let status = self.child.wait().unwrap();
        Ended {
            code: status.code(),
            signal: status.signal(),
            log: mem::take(&mut self.log),
            output: self.output.join("\n"),
        }
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(self) -> Ended {
        self.end_by("KILL")
    }

    /// Sends a signal, named without SIG, and waits for the exit.
    pub(crate) fn end_by(self, signal: &str) -> Ended {
        self.signal(signal);
        self.end()
    }

    /// Sends SIGTERM and waits for the exit, which must have code 0.
    pub(crate) fn stop(mut self) -> Ended {
        self.stop_cleanly()
    }

    fn stop_cleanly(&mut self) -> Ended {
        self.signal("TERM");
        if self.successor.is_some() {
            // The exit code below is that of the predecessor.
            self.line(STOPPED);
        }
        let ended = self.await_exit();
        ended.exits(0, &[]);
        ended
    }

    /// Waits for a failed start, which must have exit code 1 and a log with these parts.
    #[track_caller]
    pub(crate) fn refusal(self, parts: &[&str]) {
        let ended = self.end();
        ended.exits(1, parts);
        assert!(!ended.text().contains(READY), "{ended:?}");
    }

    /// A field of /proc/PID/status.
    pub(crate) fn status(&self, field: &str) -> String {
        status(&format!("/proc/{}/status", self.pid()), field)
    }

    /// A field of /proc/PID/status in kB.
    pub(crate) fn memory_kb(&self, field: &str) -> u64 {
        self.status(field).trim_end_matches(" kB").parse().expect("a number of kB")
    }

    /// A field of the status of each thread, with the thread's name.
    pub(crate) fn threads(&self, field: &str) -> Vec<(String, String)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let of = |task: fs::DirEntry| {
            let path = format!("{}/status", task.path().display());
            (status(&path, "Name"), status(&path, field))
        };
        tasks.map(|task| of(task.unwrap())).collect()
    }

    fn read_line(&mut self, deadline: Instant) -> Result<(), RecvTimeoutError> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))? {
            Line::Log(line) => self.log.push(line),
            Line::Output(line) => self.output.push(line),
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A process that does not stop is killed before the test fails.
        let stop = AssertUnwindSafe(|| {
            if !self.ended && !thread::panicking() {
                self.stop_cleanly();
            }
        });
        let stopped = catch_unwind(stop);
        if let Some(successor) = self.successor {
            let _ = kill(Pid::from_raw(successor as i32), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Err(failure) = stopped {
            resume_unwind(failure);
        }
    }
}

fn read_lines(from: impl Read + Send + 'static, to: Sender<Line>, kind: fn(String) -> Line) {
    thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        lines.map(kind).for_each(|line| drop(to.send(line)));
    });
}

fn status(path: &str, field: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let start = format!("{field}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {field} in {path}")).trim().to_owned()
}

/// The permission bits of a file or directory.
pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
