"""Tests of the Debian packages from installation to purge: see scripts/package-test."""

import os
import pathlib
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "systemd"))
sys.path.insert(0, HERE)

from checks import run
from host import Host
from tracker import Load, assert_served, is_served, seeders

CONFIG = "/etc/onrush/onrush.toml"


class Package:
    """A package on a test host; the checks run in order."""

    def __init__(self, host, deb, tools):
        self.host, self.deb, self.tools = host, deb, tools
        host.put(deb, "/onrush.deb", 0o644)
        host.put(tools, "/onrush-tools.deb", 0o644)
        # The overlay shows an installation on the machine; these files would disturb the test.
        for path in ["/usr/bin/onrush", "/usr/local/bin/onrush", "/etc/onrush", "/var/lib/onrush"]:
            host.remove(path)
        # Machine images often forbid packages to start services; indexing manual pages takes long.
        for path in ["/usr/sbin/policy-rc.d", "/var/lib/man-db/auto-update"]:
            host.remove(path)

    def active(self):
        return self.host.show("onrush", "ActiveState") == "active"

    def the_linter_has_no_findings(self):
        for deb in [self.deb, self.tools]:
            command = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]
            linted = subprocess.run([*command, deb], capture_output=True, text=True)
            assert linted.returncode == 0 and not linted.stdout, linted.stdout + linted.stderr
            # Without the overrides the linter has findings.
            found = subprocess.run([*command, "--no-override", deb], capture_output=True, text=True)
            assert found.returncode != 0 and "initial-upload-closes-no-bugs" in found.stdout, found.stdout + found.stderr

    def an_installation_starts_the_service(self):
        since = time.time()
        self.host.run("dpkg", "-i", "/onrush.deb")
        assert self.active(), self.host.journal("onrush", since)
        assert self.host.run("systemctl", "is-enabled", "onrush").stdout.strip() == "enabled"
        # The socket unit is optional.
        assert self.host.run("systemctl", "is-enabled", "onrush.socket", check=False).stdout.strip() == "disabled"
        assert_served(self.host)
        # With the command line of the unit.
        pid = self.host.main_pid("onrush.service")
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert command[:3] == [b"/usr/bin/onrush", b"--config", b"/etc/onrush/onrush.toml"], command

    def the_tracker_is_controlled_without_any_setup(self):
        for action in ["health", "reload", "stats"]:
            done = self.host.run("onrush", "ctl", "--timeout", "120", action)
            assert not done.stderr, (action, done.stderr)
        # It gives up after five seconds.
        done = self.host.until("a view of the tracker", lambda: (
            lambda done: done if done.returncode == 0 and not done.stderr else None)(
            self.host.run("onrush", "top", "--once", check=False)))
        assert "/var/lib/onrush/control.sock" in done.stdout, done.stdout
        as_user = ["runuser", "-u"]
        self.host.run(*as_user, "onrush", "--", "onrush", "ctl", "reload")
        refused = self.host.run(*as_user, "nobody", "--", "onrush", "ctl", "reload", check=False)
        assert refused.returncode == 1 and "sudo -u onrush" in refused.stderr, refused.stderr
        assert self.host.run(*as_user, "nobody", "--", "onrush", "ctl", "health").stdout.startswith("ready")

    def systemd_verifies_the_installed_units(self):
        # --man also checks Documentation=, whose manual page is in the package.
        verified = self.host.run("systemd-analyze", "verify", "--man=yes", "onrush.service", "onrush.socket")
        assert verified.stdout + verified.stderr == "", verified.stdout + verified.stderr

    def files_are_in_their_places(self):
        listed = self.host.run("dpkg", "-L", "onrush").stdout.splitlines()
        for path in [
            "/usr/share/man/man8/onrush.8.gz", "/usr/share/man/man8/onrush-ctl-list-add.8.gz",
            "/usr/share/man/man5/onrush.toml.5.gz",
            "/usr/share/bash-completion/completions/onrush", "/usr/share/zsh/vendor-completions/_onrush",
            "/usr/share/fish/vendor_completions.d/onrush.fish", "/usr/share/doc/onrush/copyright",
            "/usr/share/doc/onrush/OPERATING.md", "/usr/share/doc/onrush/CONFIGURATION.md",
            "/usr/share/doc/onrush/METRICS.md", "/usr/share/doc/onrush/HTTP.md",
            "/usr/share/doc/onrush/WEBTORRENT.md", "/usr/lib/sysctl.d/10-onrush.conf",
            "/usr/share/lintian/overrides/onrush",
        ]:
            assert any(name in listed for name in [path, path + ".gz"]), f"{path} is not in {listed}"
        assert any(re.match(r"/usr/share/doc/onrush/changelog", name) for name in listed), listed
        assert "onrush" in self.host.run("bash", "-c",
            "source /usr/share/bash-completion/completions/onrush; complete -p onrush").stdout
        assert self.host.run("dpkg-query", "-W", "-f", "${Conffiles}", "onrush").stdout.split()[0] == "/etc/onrush/onrush.toml"

    def the_tools_are_a_package_beside_it(self):
        self.host.run("dpkg", "-i", "/onrush-tools.deb")
        listed = self.host.run("dpkg", "-L", "onrush-tools").stdout.splitlines()
        for path in [
            "/usr/share/man/man1/onrush-load.1.gz", "/usr/share/man/man1/onrush-load-verify.1.gz",
            "/usr/share/bash-completion/completions/onrush-load", "/usr/share/zsh/vendor-completions/_onrush-load",
        ]:
            assert path in listed, f"{path} is not in {listed}"
        verified = self.host.run("onrush-load", "verify", "127.0.0.1:6969").stdout
        assert re.search(r"\b0 fails", verified), verified

    def manual_pages_are_complete(self):
        listed = self.host.run("dpkg", "-L", "onrush", "onrush-tools").stdout.splitlines()
        pages = [name for name in listed if "/man/" in name and name.endswith(".gz")]
        assert len(pages) > 25, pages
        for page in pages:
            # As a reader with 80 columns sees it, and the formatter's complaints.
            shown = self.host.run("env", "MANWIDTH=80", "LC_ALL=C.UTF-8", "man", "--warnings", "-l", page)
            assert not shown.stderr, (page, shown.stderr)
            lines = shown.stdout.splitlines()
            wide = [line for line in lines if len(line) > 87]
            assert not wide, (page, wide)
            assert "SEE ALSO" in lines and "EXTRA" not in lines, (page, lines)
            # Header and footer name page and version, not the subcommand alone.
            name = os.path.basename(page).removesuffix(".gz").rsplit(".", 1)[0]
            assert name.upper() in lines[0] and re.search(r"onrush \d+\.\d+\.\d+", lines[-1]), (page, lines[0], lines[-1])
            if name == "onrush":
                sections = ["EXAMPLES", "FILES", "ENVIRONMENT", "SIGNALS", "EXIT STATUS", "SEE ALSO"]
                assert [line for line in lines if line in sections] == sections, lines

    def the_check_needs_no_environment_of_the_unit(self):
        """As root, while the service holds the addresses."""
        checked = self.host.run("onrush", "--config", "/etc/onrush/onrush.toml", "--check-config").stdout
        assert re.search(r"state +/var/lib/onrush\n", checked), checked
        assert re.search(r"user +checked as user onrush, as which the service runs", checked), checked

    def a_larger_sysctl_of_the_operator_takes_precedence(self):
        self.host.write("/etc/sysctl.d/30-net.conf", "net.core.rmem_max = 26214400\n")
        lines = self.host.run("systemd-analyze", "cat-config", "sysctl.d").stdout.splitlines()
        values = [line.split("=")[1].strip() for line in lines if re.match(r"net.core.rmem_max *=", line)]
        assert "4194304" in values and values[-1] == "26214400", values
        self.host.remove("/etc/sysctl.d/30-net.conf")

    def an_upgrade_keeps_changed_configuration(self):
        text = self.host.read(CONFIG).replace("interval = 1800", "interval = 1200")
        self.host.write(CONFIG, text)
        before = self.host.main_pid("onrush.service")
        key = self.host.run("cat", "/var/lib/onrush/connection.key").stdout
        name = "09" * 20
        assert seeders(self.host, name, peers=20) == 20
        with Load(self.host):
            self.host.run("dpkg", "-i", "--force-confdef", "--force-confold", "/onrush.deb")
        # The successor serves, with all peers.
        assert seeders(self.host, name) == 20
        assert self.host.read(CONFIG) == text
        assert self.active() and self.host.main_pid("onrush.service") != before
        assert self.host.run("cat", "/var/lib/onrush/connection.key").stdout == key
        assert_served(self.host)

    def a_failed_upgrade_keeps_the_predecessor(self):
        before = self.host.main_pid("onrush.service")
        with self.host.rewritten(CONFIG, self.host.read(CONFIG) + "\nnonsense\n"):
            done = self.host.run("dpkg", "-i", "--force-confdef", "--force-confold", "/onrush.deb")
            assert "journalctl -u onrush" in done.stderr, done.stdout + done.stderr
            assert self.active() and self.host.main_pid("onrush.service") == before
            assert_served(self.host)

    def a_disabled_service_stays_disabled(self):
        self.host.run("systemctl", "disable", "onrush")
        self.host.run("dpkg", "-i", "--force-confold", "/onrush.deb")
        assert self.host.run("systemctl", "is-enabled", "onrush", check=False).stdout.strip() == "disabled"

    def a_removal_stops_the_service_and_keeps_configuration_and_state(self):
        self.host.run("dpkg", "-r", "onrush")
        assert not self.active()
        assert not is_served(self.host, "127.0.0.1", 6969, seconds=1)
        for path in ["/etc/onrush/onrush.toml", "/var/lib/onrush/connection.key"]:
            assert os.path.exists(self.host.path(path)), path
        assert not os.path.exists(self.host.path("/usr/bin/onrush"))

    def a_reinstallation_succeeds(self):
        self.host.run("dpkg", "-i", "--force-confold", "/onrush.deb")
        # The service was disabled, so it is not started.
        assert not self.active()
        assert self.host.run("systemctl", "is-enabled", "onrush.socket", check=False).stdout.strip() == "disabled"
        self.host.run("systemctl", "enable", "--now", "onrush")
        assert self.active()
        assert_served(self.host)

    def a_purge_removes_everything(self):
        self.host.write("/etc/onrush/admin.token", "0123456789abcdef\n", 0o600)
        purged = self.host.run("dpkg", "-P", "onrush")
        assert "warning" not in purged.stderr, purged.stderr
        for path in ["/etc/onrush", "/var/lib/onrush", "/usr/share/doc/onrush", "/usr/lib/systemd/system/onrush.service",
                     "/etc/systemd/system/multi-user.target.wants/onrush.service", "/etc/systemd/system/onrush.service",
                     "/usr/lib/sysctl.d/10-onrush.conf"]:
            assert not os.path.lexists(self.host.path(path)), path
        assert self.host.run("dpkg", "-l", "onrush", check=False).returncode != 0


if __name__ == "__main__":
    with Host() as booted:
        failed = run(Package(booted, *sys.argv[1:]))
    sys.exit(failed)
