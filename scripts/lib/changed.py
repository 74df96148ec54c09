#!/usr/bin/env python3
"""Packages of the workspace that have changed, and those that depend on them; for scripts/check.

    changed.py             files that differ from main, or from HEAD where main is checked out
    changed.py CRATE...    these crates, by directory below crates/
    changed.py --all       every package

Prints a line `changed PACKAGE...` and a line `dependents PACKAGE...`.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A change of these concerns every package.
EVERYWHERE = {"Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml"}


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def changed_files():
    """Paths, relative to the root, of what differs, with files that git does not know yet."""
    exists = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "main"], cwd=ROOT, capture_output=True)
    base = output("git", "merge-base", "HEAD", "main").strip() if exists.returncode == 0 else "HEAD"
    files = output("git", "diff", "--name-only", base) + output("git", "ls-files", "--others", "--exclude-standard")
    return set(files.split("\n")) - {""}


def main():
    metadata = json.loads(output("cargo", "metadata", "--format-version=1", "--no-deps", "--locked"))
    packages = {package["name"]: package for package in metadata["packages"]}
    directories = {
        name: str(pathlib.Path(package["manifest_path"]).parent.relative_to(ROOT)) for name, package in packages.items()
    }
    arguments = sys.argv[1:]
    if arguments == ["--all"]:
        changed = set(packages)
    elif arguments:
        by_directory = {directory.removeprefix("crates/"): name for name, directory in directories.items()}
        unknown = [argument for argument in arguments if argument not in by_directory]
        if unknown:
            sys.exit(f"check: no crate {' '.join(unknown)}: there are {' '.join(sorted(by_directory))} (see --help)")
        changed = {by_directory[argument] for argument in arguments}
    else:
        files = changed_files()
        changed = {name for name, at in directories.items() if any(file.startswith(f"{at}/") for file in files)}
        if files & EVERYWHERE:
            changed = set(packages)
    dependents, found = set(), True
    while found:
        known = changed | dependents
        found = {
            name for name, package in packages.items()
            if name not in known and any(it["name"] in known and it["kind"] != "dev" for it in package["dependencies"])
        }
        dependents |= found
    print("changed", *sorted(changed))
    print("dependents", *sorted(dependents))


if __name__ == "__main__":
    main()
