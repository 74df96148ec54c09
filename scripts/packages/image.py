"""Tests of the Dockerfile's image without a container engine: its files in a directory, its command by chroot as its user,
in a network namespace. See scripts/package-test.

Directories, environment, user, entry point and command are read from the Dockerfile.
"""

import glob
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "systemd"))

from checks import run
from host import TIMEOUT, child, until
from tracker import CLIENT


class Image:
    """The image of the Dockerfile with a binary."""

    def __init__(self, binary, place):
        self.binary, self.root = binary, place
        text = re.sub(r"\\\n", " ", pathlib.Path("Dockerfile").read_text())
        self.lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        build, last = text.split("\nFROM scratch\n")
        self.last = last
        for directory in re.search(r"mkdir -p ([^&]*)", build).group(1).split():
            os.makedirs(place + directory.removeprefix("/image"))
        copied = re.findall(r"cp (\S+) /image(\S+)", build)
        assert len(copied) == 2, copied
        for source, destination in copied:
            name = os.path.basename(source) if destination.endswith("/") else ""
            shutil.copy(binary if source == "target/release/onrush" else source, place + destination + name)
        owner = re.search(r"--chown=(\d+):(\d+)", last)
        for directory, names, files in os.walk(place):
            for name in [".", *names, *files]:
                os.chown(os.path.join(directory, name), int(owner.group(1)), int(owner.group(2)))
        os.chmod(place, 0o755)
        # Devices that every container engine adds; the binary reads random numbers.
        os.mkdir(place + "/dev")
        for name, minor in [("null", 3), ("random", 8), ("urandom", 9)]:
            os.mknod(f"{place}/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            os.chmod(f"{place}/dev/{name}", 0o666)

    def the_linter_accepts_the_dockerfile(self):
        linted = subprocess.run([os.environ["HADOLINT"], "Dockerfile"], capture_output=True, text=True)
        assert linted.returncode == 0, linted.stdout + linted.stderr
        # The linter rejects a file with faults.
        wrong = subprocess.run([os.environ["HADOLINT"], "-"], input="FROM debian\nRUN cd / && sudo ls\n",
                               capture_output=True, text=True)
        assert wrong.returncode != 0 and "DL3004" in wrong.stdout, wrong.stdout

    def the_binary_is_static(self):
        assert pathlib.Path(self.binary).read_bytes()[:4] == b"\x7fELF"
        headers = subprocess.run(["readelf", "-lW", self.binary], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers, headers
        needed = subprocess.run(["readelf", "-dW", self.binary], capture_output=True, text=True, check=True).stdout
        assert "NEEDED" not in needed, needed

    def names_are_looked_up_without_modules(self):
        """On a host with a module of the name service, which a static program cannot load."""
        module = [directory for directory in ["/usr/lib", "/lib"]
                  if glob.glob(f"{directory}/*/libnss_systemd.so.2")]
        assert module, "libnss-systemd is not installed"
        with tempfile.TemporaryDirectory() as place:
            for name, text in [("nsswitch", "passwd: systemd files\ngroup: systemd files\nhosts: systemd files\n"),
                               ("toml", 'user = "no-such-user"\n')]:
                pathlib.Path(place, name).write_text(text)
            checked = subprocess.run(
                ["unshare", "--mount", "sh", "-c", 'mount --bind "$1/nsswitch" /etc/nsswitch.conf && '
                 'exec "$2" --config "$1/toml" --check-config', "sh", place, os.path.abspath(self.binary)],
                capture_output=True, text=True,
            )
        assert checked.returncode == 2 and "useradd --system no-such-user" in checked.stderr, checked

    def the_image_serves_as_its_user(self):
        user = re.search(r"^USER (\d+:\d+)$", self.last, re.M).group(1)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **dict(re.findall(r"^ENV (\w+)=(\S+)$", self.last, re.M))}
        entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", self.last, re.M).group(1))
        command = entry + json.loads(re.search(r"^CMD (.*)$", self.last, re.M).group(1))
        with tempfile.TemporaryFile("w+") as log:
            # chroot changes the root, then the user, like an engine.
            process = subprocess.Popen(
                ["unshare", "--net", "--kill-child", "--fork", "sh", "-c",
                 'ip link set lo up && exec chroot --userspec="$1" "$2" "$3" "$4" "$5"',
                 "sh", user, self.root, *command],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
            try:
                assert len(command) == 3, command
                pid = until("the program runs", lambda: child(process.pid))
                for address in ["127.0.0.1", "::1"]:
                    client = subprocess.run(
                        ["nsenter", "-t", str(pid), "--net", "python3", "-c", CLIENT, address, "6969", str(TIMEOUT)],
                        capture_output=True, text=True,
                    )
                    log.seek(0)
                    assert client.stdout == "ok\n", client.stdout + client.stderr + log.read()
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                assert re.search(r"^Uid:\t65534\t65534\t65534\t65534$", status, re.M)
                assert os.readlink(f"/proc/{pid}/root") == self.root
                assert os.path.exists(self.root + "/var/lib/onrush/connection.key")
                health = ["chroot", f"--userspec={user}", self.root, *self._health_check()]
                until("the health check passes", lambda: subprocess.run(health, env=environment, capture_output=True).returncode == 0)
                os.kill(pid, 15)
                assert process.wait(TIMEOUT) == 0, log.read()
                stopped = subprocess.run(health, env=environment, capture_output=True, text=True)
                assert stopped.returncode == 1, (stopped.stdout, stopped.stderr)
            finally:
                process.kill()
                process.wait()

    def the_labels_agree_with_the_manifest(self):
        package = tomllib.loads(pathlib.Path("Cargo.toml").read_text())["workspace"]["package"]
        labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', self.last))
        assert labels["source"] == package["repository"] and labels["licenses"] == package["license"], labels

    def the_compose_file_has_the_right_form(self):
        command = [os.environ["CHECK_JSONSCHEMA"], "--builtin-schema", "vendor.compose-spec"]
        checked = subprocess.run([*command, "config/compose.yaml"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        # The checker rejects a file with faults, and the volume is where the image keeps its state.
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as wrong:
            wrong.write("services: {onrush: {images: onrush}}\n")
            wrong.flush()
            assert subprocess.run([*command, wrong.name], capture_output=True).returncode != 0
        state = json.loads(re.search(r"^VOLUME (.*)$", self.last, re.M).group(1))[0]
        assert f"- state:{state}\n" in pathlib.Path("config/compose.yaml").read_text()

    def print_config_works_without_a_file(self):
        shown = subprocess.run(["chroot", "--userspec=65534:65534", self.root, "/onrush", "--print-config"],
                               capture_output=True, text=True, check=True)
        assert "listen = [\":6969\"]" in shown.stdout

    def _health_check(self):
        return json.loads(re.search(r"^HEALTHCHECK .* CMD (.*)$", self.last, re.M).group(1))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="onrush-image-") as directory:
        failed = run(Image(sys.argv[1], directory))
    sys.exit(failed)
