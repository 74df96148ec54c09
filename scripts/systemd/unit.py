"""Tests of the systemd units, in their sandbox: see scripts/unit-test."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SCRIPTS / "systemd"), str(SCRIPTS / "lib")]

from certificate import Certificate
from checks import run
from host import TIMEOUT, Host
from tracker import CLIENT, HTTP_LOAD, Load, assert_served, get, seeders

PTRACE_DETACH, PTRACE_INTERRUPT, PTRACE_SEIZE = 17, 0x4207, 0x4206
WAIT_ALL = 0x40000000
VCPUS = len(os.sched_getaffinity(0))
CONFIG = "/etc/onrush/onrush.toml"
CHAIN, KEY = "/etc/onrush/chain.pem", "/etc/onrush/key.pem"


def threads(pid, field):
    """Threads of a process by name, each with a field of its status."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/status") as status:
                lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        found[lines["Name"]] = (int(task), lines.get(field, "").strip())
    return found


def workers(pid, field="Cpus_allowed_list"):
    return {name: value for name, value in threads(pid, field).items() if re.fullmatch(r"worker-\d+", name)}


def trace(task, *requests):
    """Sends ptrace requests to a thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    for request in requests:
        assert libc.ptrace(request, task, None, None) == 0, os.strerror(ctypes.get_errno())


class Case:
    """A test host with the units in the places of the package."""

    def __init__(self, host, binary, config):
        self.host, self.config = host, config
        host.put(binary, "/usr/bin/onrush")
        for unit in ["onrush.service", "onrush.socket"]:
            host.put(f"{config}/{unit}", f"/usr/lib/systemd/system/{unit}", 0o644)
        # As in the package.
        host.write(CONFIG, pathlib.Path(config, "onrush.toml").read_text().replace("\n# state_dir =", "\nstate_dir ="))
        host.put(f"{config}/onrush.sysusers", "/usr/lib/sysusers.d/onrush.conf", 0o644)
        host.run("systemd-sysusers", "/usr/lib/sysusers.d/onrush.conf")
        host.run("systemctl", "daemon-reload")

    def start(self):
        """Restarts the service; the pid of its main process, and the time of the restart."""
        self.host.run("systemctl", "reset-failed", "onrush.service", check=False)
        since = time.time()
        started = self.host.run("systemctl", "restart", "onrush.service", check=False)
        assert started.returncode == 0, started.stderr + self.host.journal("onrush", since)
        self.greeted(since)
        return self.host.main_pid("onrush.service"), since

    def greeted(self, since):
        """Waits for the last line of a start in the journal, and returns the journal."""
        return self.host.until("the start in the log", lambda: (
            lambda journal: journal if "ready: add udp://" in journal else None)(self.host.journal("onrush", since)))

    def stop(self):
        self.host.run("systemctl", "stop", "onrush.socket", "onrush.service", check=False)

    @contextlib.contextmanager
    def stopped(self):
        """Stops the service and its sockets before a block and after it."""
        self.stop()
        try:
            yield
        finally:
            self.stop()

    # ---- sandbox, start, reload, watchdog ------------------------------------------------------

    def systemd_verifies_the_units(self):
        units = ["/usr/lib/systemd/system/onrush.service", "/usr/lib/systemd/system/onrush.socket"]
        verified = self.host.run("systemd-analyze", "verify", "--man=no", *units)
        assert verified.stdout + verified.stderr == "", verified.stdout + verified.stderr

    def the_exposure_score_is_low(self):
        # Exits with an error above the threshold: 20 is 2.0.
        self.host.run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager",
                      "/usr/lib/systemd/system/onrush.service")
        # Without two of its restrictions the unit fails the check.
        lax = self.host.run("sh", "-c", "sed 's/^ProtectSystem=.*//; s/^SystemCallFilter=.*//' "
                            "/usr/lib/systemd/system/onrush.service >/run/onrush.service; "
                            "systemd-analyze security --offline=yes --threshold=20 --no-pager /run/onrush.service",
                            check=False)
        assert lax.returncode != 0, lax.stdout

    def the_start_completes_when_the_service_is_ready_with_a_status(self):
        self.start()
        assert_served(self.host)
        assert self.host.show("onrush", "ActiveState") == "active"
        status = self.host.until("a live status", lambda: re.search(
            r"serves .*: .* peers in .* swarms", self.host.show("onrush", "StatusText")))
        assert status

    def the_service_runs_without_privileges(self):
        pid, _ = self.start()
        uid = self.host.run("id", "-u", "onrush").stdout.strip()
        for name, (_, uids) in threads(pid, "Uid").items():
            assert set(uids.split()) == {uid}, (name, uids)
        for field, expected in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapBnd", "0" * 16), ("CapEff", "0" * 16)]:
            for name, (_, value) in threads(pid, field).items():
                assert value == expected, (field, name, value)
        for path in ["/etc/onrush/x", "/usr/x", "/var/x"]:
            try:
                open(f"/proc/{pid}/root{path}", "w").close()
            except OSError as error:
                assert error.errno == 30, error  # EROFS, even for root
            else:
                raise AssertionError(f"{path} can be written")

    def workers_are_pinned_under_the_filter(self):
        pid, _ = self.start()
        pinned = workers(pid)
        assert len(pinned) == VCPUS, pinned
        assert all(re.fullmatch(r"\d+", cpus) for _, cpus in pinned.values()), pinned

    def a_filter_that_denies_pinning_is_logged(self):
        """The control of the test above; the log states the consequence of the denied system call."""
        with self.host.drop_in("onrush.service", "[Service]\nSystemCallFilter=~sched_setaffinity\n"):
            pid, since = self.start()
            assert_served(self.host)
            assert not any(re.fullmatch(r"\d+", cpus) for _, cpus in workers(pid).values()) or VCPUS == 1
            warnings = self.host.journal("onrush", since, "-p", "warning")
            assert re.search("worker.*pinned", warnings), self.host.journal("onrush", since)

    def receive_buffers_have_the_configured_size(self):
        _, since = self.start()
        limit = int(self.host.run("cat", "/proc/sys/net/core/rmem_max").stdout)
        expected = 2 * min(4194304, limit)
        found = re.findall(r"rb(\d+)", self.host.run("ss", "-Hulnm", "sport = :6969").stdout)
        assert found == [str(expected)] * 2 * VCPUS, (found, expected)
        warned = "net.core.rmem_max" in self.host.journal("onrush", since)
        assert warned == (limit < 4194304), self.host.journal("onrush", since)

    def the_key_file_is_in_the_state_directory(self):
        self.start()
        listed = self.host.run("stat", "-c", "%a %U %n", "/var/lib/onrush", "/var/lib/onrush/connection.key").stdout
        assert listed == "700 onrush /var/lib/onrush\n600 onrush /var/lib/onrush/connection.key\n", listed
        key = self.host.run("cat", "/var/lib/onrush/connection.key").stdout
        _, since = self.start()
        assert self.host.run("cat", "/var/lib/onrush/connection.key").stdout == key
        assert "--state-dir" not in self.host.journal("onrush", since, "-p", "warning")

    def the_doctor_inspects_the_host_in_the_sandbox(self):
        """A unit with the same sandbox runs the doctor."""
        text = self.host.read("/usr/lib/systemd/system/onrush.service")
        text = re.sub(r"(?m)^(Type|NotifyAccess|WatchdogSec|Restart\w*|ExecReload)=.*\n", "", text)
        text = re.sub(r"(?m)^ExecStart=.*$", "Type=oneshot\nSuccessExitStatus=1\nExecStart=/usr/bin/onrush doctor --json", text)
        self.host.write("/run/systemd/system/onrush-doctor.service", text)
        self.host.run("systemctl", "daemon-reload")
        pid, _ = self.start()
        since = time.time()
        self.host.run("systemctl", "start", "onrush-doctor.service")
        journal = self.host.journal("onrush-doctor", since)
        report = json.loads(journal[journal.index("{"):journal.rindex("}") + 1])
        found = {finding["name"]: finding for finding in report["findings"]}
        for name in ["rmem_max", "wmem_max", "early_demux", "drops", "conntrack", "port", "files", "quota", "user"]:
            assert name in found, (name, found)
        limit = int(self.host.run("cat", "/proc/sys/net/core/rmem_max").stdout)
        assert (found["rmem_max"]["severity"] == "problem") == (limit < 4194304), found["rmem_max"]
        # Processes of the same user are visible despite ProtectProc=invisible.
        assert "onrush" in found["port"]["what"], found["port"]

    def a_reload_applies_and_ends(self):
        pid, since = self.start()
        before = self.host.read(CONFIG)
        with self.host.rewritten(CONFIG, before.replace("interval = 1800", "interval = 900")):
            self.host.run("systemctl", "reload", "onrush")
            # The reload has waited until it is in force, as the user of the unit requested it.
            uid = self.host.run("id", "-u", "onrush").stdout.strip()
            journal = self.host.journal("onrush", since)
            assert f"reloaded by user {uid}: announce.interval: 1800 -> 900" in journal, journal
            self.host.until("the end of the reload", lambda: self.host.show("onrush", "ActiveState") == "active")
            assert self.host.main_pid("onrush.service") == pid
            # systemd ends a service that sends RELOADING=1 and never READY=1.
            assert_served(self.host)

    def a_rejected_reload_is_an_error_of_the_journal(self):
        """One entry with its priority and all of its lines, without a second time."""
        _, since = self.start()
        before = self.host.read(CONFIG)
        with self.host.rewritten(CONFIG, before.replace("interval = 1800", "intervall = 900")):
            self.host.run("systemctl", "kill", "--kill-whom=main", "--signal=SIGHUP", "onrush")
            errors = self.host.until("the error", lambda: self.host.errors("onrush", since))
            assert len(errors) == 1 and "onrush.toml:" in errors[0] and "announce.intervall" in errors[0], errors
            assert errors[0].count("\n") >= 3, errors
            journal = self.host.journal("onrush", since)
            assert "serves udp://" in journal and not re.search(r"\d\d:\d\d:\d\d\.\d\d\dZ|\[onrush", journal), journal
            assert_served(self.host)

    def an_error_at_the_start_is_one_error_of_the_journal(self):
        """Though the journal reads the unit of a process from /proc, and this process has little left to do."""
        for option in ["--config /nowhere", "--nothing", "--listen 192.0.2.1:6969"]:
            with self.host.drop_in("onrush.service", f"[Service]\nRestart=no\nExecStart=\nExecStart=/usr/bin/onrush {option}\n"):
                for _ in range(5):
                    since = time.time()
                    self.host.run("systemctl", "reset-failed", "onrush.service", check=False)
                    started = self.host.run("systemctl", "restart", "onrush.service", check=False)
                    assert started.returncode != 0
                    errors = self.host.errors("onrush", since)
                    named = option.split()[-1].removesuffix(":6969")
                    assert len(errors) == 1 and named in errors[0], (option, errors)

    def a_reload_of_a_refused_configuration_fails(self):
        pid, since = self.start()
        before = self.host.read(CONFIG)
        missing = before.replace('mode = "open"', 'mode = "deny"')
        missing = missing.replace("\nfiles = []", '\nfiles = ["/etc/onrush/denied.txt"]', 1)
        assert missing.count('\nfiles = ["/etc/onrush/denied.txt"]') == 1
        for text, error in [(before + "\nnonsense\n", "onrush.toml:"), (missing, "`access.files.0`")]:
            with self.host.rewritten(CONFIG, text):
                self._reload_fails(error, since)
                assert self.host.main_pid("onrush.service") == pid
        self.host.run("systemctl", "reload", "onrush")
        # SIGHUP reloads too.
        self.host.run("systemctl", "kill", "--kill-whom=main", "--signal=SIGHUP", "onrush")
        self.host.until("the reload in the log", lambda: "reloaded by SIGHUP" in self.host.journal("onrush", since))

    def _reload_fails(self, error, since):
        """`systemctl reload` fails with an error in the journal, and the tracker serves on."""
        reload = self.host.run("systemctl", "reload", "onrush", check=False)
        assert reload.returncode != 0, reload
        assert error in self.host.journal("onrush", since, "-p", "err"), self.host.journal("onrush", since)
        self.host.until("the end of the reload", lambda: self.host.show("onrush", "ActiveState") == "active")
        assert_served(self.host)

    def a_reload_of_a_list_that_lost_most_of_its_entries_fails(self):
        """The configuration itself is valid: only the tracker knows how long the list was."""
        listed = "/etc/onrush/denied.txt"
        entries = [f"{number:040x}\n" for number in range(90)]
        self.host.write(listed, "".join(entries))
        text = self.host.read(CONFIG).replace('mode = "open"', 'mode = "deny"')
        with self.host.rewritten(CONFIG, text.replace("\nfiles = []", f'\nfiles = ["{listed}"]', 1)):
            _, since = self.start()
            assert self._last_reload() == "1"
            self.host.write(listed, "".join(entries[:3]))
            self._reload_fails("--force", since)
            assert self._last_reload() == "0"
            entry = self.host.run("onrush", "ctl", "list", "show", entries[80].strip()).stdout
            assert "is listed, and not served" in entry, entry
            self.host.write(listed, "".join(entries[:80]))
            self.host.run("systemctl", "reload", "onrush")
            assert self._last_reload() == "1"

    def _last_reload(self):
        """The metric onrush_last_reload_successful."""
        _, text = get(self.host, "/metrics")
        return re.search(r"(?m)^onrush_last_reload_successful (\d)", text)[1]

    def the_check_tells_the_running_service_from_another_program(self):
        self.start()
        check = ["onrush", "--config", CONFIG, "--check-config"]
        # By root, and by the user of the service: before a reload it holds the addresses.
        for command in [check, ["runuser", "-u", "onrush", "--", *check]]:
            checked = self.host.run(*command)
            assert "checked as user onrush" in checked.stdout, checked.stdout
        self.stop()
        self.host.write("/run/systemd/system/squatter.service", "[Service]\nExecStart=/usr/bin/python3 -c \""
                        "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('0.0.0.0', 6969)); "
                        "time.sleep(600)\"\n")
        self.host.run("systemctl", "daemon-reload")
        self.host.run("systemctl", "start", "squatter")
        try:
            self.host.until("the other program has the port", lambda: self.host.run(
                "ss", "-Huln", "sport = :6969").stdout)
            checked = self.host.run(*check, check=False)
            taken = r"`listen\.0`: 0\.0\.0\.0:6969 is taken by python3 \(process (\d+), squatter\.service\)"
            found = re.search(taken, checked.stderr)
            assert checked.returncode == 2 and found, checked
            assert f"systemctl status {found[1]}" in checked.stderr, checked
        finally:
            self.host.run("systemctl", "stop", "squatter")

    def a_killed_service_is_restarted(self):
        pid, _ = self.start()
        self.host.kill(pid)
        self.host.until("another process", lambda: self.host.show("onrush", "NRestarts") == "1")
        self.host.until("the unit is active", lambda: self.host.show("onrush", "ActiveState") == "active")
        assert_served(self.host)

    def an_invalid_configuration_is_not_retried(self):
        self.stop()
        with self.host.drop_in("onrush.service", "[Service]\nExecStart=\nExecStart=/usr/bin/onrush --config /nowhere\n"):
            self.host.run("systemctl", "reset-failed", "onrush.service", check=False)
            started = self.host.run("systemctl", "start", "onrush.service", check=False)
            assert started.returncode != 0
            self.host.until("the unit has failed", lambda: self.host.show("onrush", "ActiveState") == "failed")
            assert self.host.show("onrush", "NRestarts") == "0"
            assert self.host.show("onrush", "ExecMainStatus") == "2"

    def a_stalled_worker_triggers_the_watchdog(self):
        """A debugger stops one thread; the main thread and all others keep running."""
        pid, since = self.start()
        self._watchdog_is_notified()
        self._stall_a_worker(pid, since)

    def _watchdog_is_notified(self):
        """While all workers take turns."""
        before = self.host.show("onrush", "WatchdogTimestampMonotonic")
        self.host.until("a notification", lambda: self.host.show("onrush", "WatchdogTimestampMonotonic") != before)
        assert self.host.show("onrush", "NRestarts") == "0"

    def a_stalled_worker_is_reported_before_the_watchdog_triggers(self):
        """/health and /metrics report the worker for as long as it is stalled."""
        with self.host.drop_in("onrush.service", "[Service]\nWatchdogSec=600s\n"):
            pid, _ = self.start()
            self.host.until("/health is ok", lambda: self._health() == (200, {"status": "ok", "stalled": []}))
            all_run = dict.fromkeys(workers(pid), "0")
            self.host.until("all workers take turns", lambda: self._stalled() == all_run)
            task = workers(pid)["worker-0"][0]
            trace(task, PTRACE_SEIZE, PTRACE_INTERRUPT)
            os.waitpid(task, WAIT_ALL)
            stalled = (503, {"status": "stalled", "stalled": ["worker-0"]})
            self.host.until("/health reports the worker", lambda: self._health() == stalled)
            self.host.until("/metrics reports the worker", lambda: self._stalled() == {**all_run, "worker-0": "1"})
            trace(task, PTRACE_DETACH)
            self.host.until("/health is ok again", lambda: self._health()[0] == 200)
            self.host.until("all workers take turns again", lambda: self._stalled() == all_run)
            assert self.host.show("onrush", "NRestarts") == "0"
            assert_served(self.host)

    def _health(self):
        """The status code and the body of /health."""
        code, text = get(self.host, "/health")
        return code, json.loads(text)

    def _stalled(self):
        """The metric onrush_worker_stalled of each worker."""
        _, text = get(self.host, "/metrics")
        return dict(re.findall(r'(?m)^onrush_worker_stalled\{worker="([^"]+)"\} (\d)(?:\.0)?$', text))

    def _stall_a_worker(self, pid, since):
        """Stalls a worker: the watchdog ends the unit's processes, and systemd restarts the unit."""
        task = workers(pid)["worker-0"][0]
        trace(task, PTRACE_SEIZE, PTRACE_INTERRUPT)

        def restarted():
            # A traced child is reaped by its tracer.
            try:
                os.waitpid(task, os.WNOHANG | WAIT_ALL)
            except ChildProcessError:
                pass
            return self.host.show("onrush", "NRestarts") == "1"

        self.host.until("systemd restarts the unit", restarted)
        journal = self.host.journal(None, since)
        assert "Watchdog timeout" in journal, journal
        self.host.until("the unit is active", lambda: self.host.show("onrush", "ActiveState") == "active")
        assert_served(self.host)

    # ---- upgrade ---------------------------------------------------------------------------------

    def _upgraded(self, request):
        """Starts an upgrade and waits for its end; the pid of the successor. The handoff to a successor that gets no CPU time
        for seconds fails, and the predecessor serves on: then the upgrade is requested again."""
        before, since = self.host.show("onrush", "MainPID"), time.time()
        request()
        failures = 0

        def handed_off():
            nonlocal failures
            failed = self.host.journal("onrush", since).count("the successor failed")
            if self.host.show("onrush", "MainPID") not in [before, "0"]:
                return True
            if failed > failures:
                failures = failed
                request()
            return False

        self.host.until("another main process", handed_off)
        self.host.until("the predecessor exits", lambda: len(self.host.pids("onrush.service")) == 1)
        assert self.host.show("onrush", "ActiveState") == "active"
        assert self.host.show("onrush", "NRestarts") == "0"
        journal = self.host.journal(None, since)
        # systemd must accept the successor as its own child, or it would not notice its exit.
        assert "not our child" not in journal and "does not belong to" not in journal, journal
        # Only the main process notifies.
        assert "reception only permitted" not in journal, journal
        return self.host.main_pid("onrush.service")

    def _signal(self):
        self.host.run("systemctl", "kill", "--kill-whom=main", "--signal=SIGUSR2", "onrush")

    def systemd_tracks_an_upgrade_without_a_loss(self):
        pid, since = self.start()
        name = "07" * 20
        assert seeders(self.host, name, peers=40) == 40
        with Load(self.host):
            second = self._upgraded(self._signal)
            self._watchdog_is_notified()
            assert self.host.show("onrush", "ActiveState") == "active"
            # As root, at the control socket: without a token and without flags.
            third = self._upgraded(lambda: self.host.run("onrush", "ctl", "--timeout", "120", "upgrade",
                                                            check=False))
        assert len({pid, second, third}) == 3
        assert seeders(self.host, name) == 40
        for field, expected in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapEff", "0" * 16)]:
            assert all(value == expected for _, value in threads(third, field).values()), field
        self.host.until("a live status", lambda: re.search(
            r"serves .*: .* peers in .* swarms", self.host.show("onrush", "StatusText")))
        # The watchdog also covers the successor.
        self._stall_a_worker(third, since)

    def a_stop_waits_for_the_upgraded_process(self):
        self.start()
        name = "08" * 20
        assert seeders(self.host, name, peers=30) == 30
        pid = self._upgraded(self._signal)
        since = time.time()
        self.host.run("systemctl", "stop", "onrush.service")
        assert not os.path.exists(f"/proc/{pid}")
        assert self.host.show("onrush", "Result") == "success"
        journal = self.host.journal("onrush", since)
        assert "snapshot: " in journal and "stopped: " in journal, journal
        self.start()
        assert seeders(self.host, name) == 30

    def an_upgraded_process_is_restarted_after_a_kill(self):
        self.start()
        pid = self._upgraded(self._signal)
        self.host.kill(pid)
        self.host.until("another process", lambda: self.host.show("onrush", "NRestarts") == "1")
        self.host.until("the unit is active", lambda: self.host.show("onrush", "ActiveState") == "active")
        assert_served(self.host)

    def a_failed_upgrade_leaves_the_unit_unchanged(self):
        pid, since = self.start()
        before = self.host.read(CONFIG)
        with self.host.rewritten(CONFIG, before + "\nnonsense\n"):
            self._signal()
            self.host.until("the failure in the log", lambda: "exit code 2" in self.host.journal("onrush", since))
            assert self.host.main_pid("onrush.service") == pid
            assert self.host.show("onrush", "ActiveState") == "active"
            assert_served(self.host)
        self._upgraded(self._signal)
        assert_served(self.host)

    def sockets_of_systemd_are_used(self):
        """Two sockets per address, by repeated lines: a reuseport group."""
        lines = "ListenDatagram=0.0.0.0:6969\nListenDatagram=[::]:6969\n" * 2
        sockets = self.host.drop_in("onrush.socket", f"[Socket]\nListenDatagram=\n{lines}")
        service = self.host.drop_in("onrush.service", f"[Service]\nExecStart=\nExecStart=/usr/bin/onrush --config {CONFIG} --workers 2\n")
        with sockets, service, self.stopped():
            since = time.time()
            self.host.run("systemctl", "start", "onrush.socket")
            # The first datagram starts the service, and stays queued in the socket until the start is complete.
            first = self.host.run("python3", "-c", CLIENT, "127.0.0.1", "6969", str(TIMEOUT))
            assert first.stdout == "ok\n"
            journal = self.greeted(since)
            assert re.search(r"udp://0\.0\.0\.0:6969.*udp://\[::\]:6969.*systemd", journal), journal
            assert "2 colocated" in journal and "steer" in journal, journal
            assert "--listen" not in self.host.journal("onrush", since, "-p", "warning"), journal
            assert_served(self.host)
            sockets = self.host.run("ss", "-Hulnm", "sport = :6969").stdout
            # ReceiveBuffer=4M of systemd may exceed rmem_max, and the daemon keeps that size.
            assert re.findall(r"rb(\d+)", sockets) == [str(2 * 4194304)] * 4, sockets
            # An upgrade passes the sockets to the successor.
            since = time.time()
            with Load(self.host):
                self._upgraded(self._signal)
            journal = self.greeted(since)
            assert re.search(r"udp://0\.0\.0\.0:6969.*udp://\[::\]:6969.*systemd", journal), journal
            assert "2 colocated" in journal, journal
            assert_served(self.host)
            # The sockets persist over restarts: a datagram that arrives during a restart gets its reply after it.
            self.host.run("systemctl", "restart", "onrush.service")
            assert_served(self.host)

    def one_socket_per_address_gives_one_worker(self):
        with self.stopped():
            self.host.run("systemctl", "start", "onrush.socket")
            _, since = self.start()
            assert_served(self.host)
            journal = self.host.journal("onrush", since)
            assert "1 colocated" in journal, journal
            warnings = self.host.journal("onrush", since, "-p", "warning")
            assert VCPUS == 1 or f"1 of {VCPUS} workers" in warnings, journal

    def sockets_without_reuseport_are_refused(self):
        lines = "ListenDatagram=127.0.0.1:6969\n" * 2
        with self.host.drop_in("onrush.socket", f"[Socket]\nReusePort=no\nListenDatagram=\n{lines}"), self.stopped():
            since = time.time()
            self.host.run("systemctl", "start", "onrush.socket")
            started = self.host.run("systemctl", "start", "onrush.service", check=False)
            assert started.returncode != 0
            journal = self.host.journal("onrush", since)
            assert "ReusePort=yes" in journal, journal
        self.host.run("systemctl", "reset-failed", "onrush.service", "onrush.socket", check=False)

    @contextlib.contextmanager
    def _certified(self):
        """A certificate for the host's addresses in the configuration during a block."""
        with tempfile.TemporaryDirectory() as place:
            made = Certificate(pathlib.Path(place), "tracker", "IP:127.0.0.1", "IP:::1")
            self.host.put(made.chain, CHAIN, 0o644)
            self.host.put(made.key, KEY, 0o600)
        self.host.run("chown", "onrush:", KEY)
        text = self.host.read(CONFIG)
        for key, path in [("certificates", CHAIN), ("keys", KEY)]:
            assert text.count(f"\n{key} = []\n") == 1, key
            text = text.replace(f"\n{key} = []\n", f'\n{key} = ["{path}"]\n')
        with self.host.rewritten(CONFIG, text):
            yield

    def _is_served_over(self, *urls):
        """Fails unless /health is ok at each of these, over both families."""
        curl = ["curl", "--silent", "--show-error", "--max-time", str(TIMEOUT), "--cacert", CHAIN]
        for url in urls:
            for address in ["127.0.0.1", "[::1]"]:
                got = self.host.run(*curl, url.replace("HOST", address) + "/health")
                assert got.stdout.startswith("ok"), (url, address, got)

    def listeners_of_systemd_are_used(self):
        """By the unit of docs/HTTP.md, and by one for HTTPS, at port 443."""
        page = (SCRIPTS.parent / "docs/HTTP.md").read_text()
        text = re.search(r"(?ms)^```ini\n(# /etc/systemd/system/onrush-http\.socket.*?)^```$", page)[1]
        units = {"onrush-http.socket": text}
        text = text.replace(":6969", ":443").replace("[Socket]\n", "[Socket]\nFileDescriptorName=tls\n")
        units["onrush-https.socket"] = text
        urls = ["http://HOST:6969", "https://HOST"]
        served = r"serves udp://.*http://0\.0\.0\.0:6969.*https://\[::\]:443 \(HTTP and HTTPS sockets by systemd\)"
        with self._certified(), self.stopped(), self._installed(units):
            since = time.time()
            # The first connection starts the service, and waits until the start is complete.
            self._is_served_over(*urls)
            journal = self.greeted(since)
            assert re.search(served, journal), journal
            assert_served(self.host)
            # The same listeners, in each process.
            for change in [lambda: self._upgraded(self._signal), self.start]:
                since = time.time()
                with Load(self.host, program=HTTP_LOAD):
                    change()
                journal = self.greeted(since)
                assert re.search(served, journal), journal
                self._is_served_over(*urls)

    @contextlib.contextmanager
    def _installed(self, units):
        """Sockets, by their units, which are started for a block."""
        for name, text in units.items():
            self.host.write(f"/etc/systemd/system/{name}", text)
        self.host.run("systemctl", "daemon-reload")
        self.host.run("systemctl", "start", *units)
        try:
            yield
        finally:
            self.host.run("systemctl", "stop", *units, "onrush.service", check=False)
            self.host.remove(*(f"/etc/systemd/system/{name}" for name in units))
            self.host.run("systemctl", "daemon-reload")

    def low_ports_need_the_two_lines_of_the_comment(self):
        lines = "CapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"
        lines += f"ExecStart=\nExecStart=/usr/bin/onrush --config {CONFIG} --listen :80 --https :443\n"
        with self._certified(), self.host.drop_in("onrush.service", f"[Service]\n{lines}"), self.stopped():
            self.start()
            assert_served(self.host, port=80)
            self._is_served_over("https://HOST")

    def the_drop_in_permits_the_xdp_program_and_its_queues(self):
        drop_in = pathlib.Path(self.config, "onrush-xdp.conf").read_text()
        self.host.write("/run/onrush.service", self.host.read("/usr/lib/systemd/system/onrush.service") + drop_in)
        self.host.run("systemd-analyze", "security", "--offline=yes", "--threshold=22", "--no-pager",
                      "/run/onrush.service")
        self.host.run("ip", "link", "add", "name", "xdp0", "type", "veth", "peer", "name", "xdp1")
        self.host.run("ip", "link", "set", "xdp0", "up")
        # A container may not raise the limit of locked memory, which is 8 MiB by default.
        lines = f"{drop_in}Environment=ONRUSH_XDP__RING=512\n"
        lines += f"ExecStart=\nExecStart=/usr/bin/onrush --config {CONFIG} --xdp xdp0\n"
        with self.host.drop_in("onrush.service", lines), self.stopped():
            pid, since = self.start()
            journal = self.host.journal("onrush", since)
            assert "XDP program at xdp0 (native)" in journal, journal
            assert "1 AF_XDP queue of 1 worker with 4 MiB" in journal, journal
            left = {name for name, (_, held) in threads(pid, "CapPrm").items() if int(held, 16)}
            assert left - {"jemalloc_bg_thd"} == {"spawn"}, left
            since = time.time()
            self._upgraded(self._signal)
            assert "XDP program at xdp0 (native)" in self.greeted(since)
            assert_served(self.host)
        self.host.run("ip", "link", "delete", "xdp0")

    def a_stop_is_clean(self):
        _, since = self.start()
        self.stop()
        assert self.host.show("onrush", "ActiveState") == "inactive"
        assert self.host.show("onrush", "Result") == "success"
        assert "stopped: " in self.host.journal("onrush", since)


if __name__ == "__main__":
    with Host() as booted:
        failed = run(Case(booted, *sys.argv[1:]))
    sys.exit(failed)
