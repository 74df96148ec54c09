# Sourced by scripts that use programs of Debian's packages.

# need PROGRAM=PACKAGE...: the packages of those programs that are missing are installed by root, and named for others.
need() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  install_packages "${missing[@]+"${missing[@]}"}"
}

# install_packages PACKAGE...: as root; otherwise fails and prints the command that installs them.
install_packages() {
  [ $# -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "error: missing Debian packages; install them with" >&2
    echo "  sudo apt-get install --no-install-recommends $(printf '%s\n' "$@" | sort -u | tr '\n' ' ')" >&2
    return 1
  fi
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# need_without_services PROGRAM=PACKAGE...: like need. The services of packages that this installs, which have the names of
# the packages, are not started, neither now nor at the next boot.
need_without_services() {
  local missing=() pair
  for pair; do command -v "${pair%%=*}" >/dev/null || missing+=("$pair"); done
  [ "${#missing[@]}" -gt 0 ] || return 0
  (
    policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" -eq 0 ] && [ ! -e "$policy" ]; then
      trap 'rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    need "${missing[@]}"
  ) || return
  # Where systemd does not run, this changes files alone.
  ! command -v systemctl >/dev/null || systemctl disable "${missing[@]#*=}"
}

# need_venv: python3 with what `python3 -m venv` needs.
need_venv() {
  command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || install_packages python3 python3-venv
}

# of_pypi DIR PACKAGE VERSION PROGRAM: the path of a program of PyPI, installed into DIR once.
of_pypi() {
  local place="$1/$2-$3"
  if [ ! -x "$place/bin/$4" ]; then
    need_venv >&2 && python3 -m venv --clear "$place" &&
      "$place/bin/pip" install -q --disable-pip-version-check "$2==$3" >&2 || return
  fi
  echo "$place/bin/$4"
}

# of_npm DIR PACKAGE VERSION: the path of a package of npm, installed into DIR once, beside its dependencies. No script
# of a package is run: such scripts download programs.
of_npm() {
  local place="$1/$2-$3"
  if [ ! -e "$place/installed" ]; then
    npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --omit=optional --loglevel=error \
      --prefix "$place" "$2@$3" >&2 && touch "$place/installed" || return
  fi
  echo "$place/node_modules/$2"
}

# of_npm_playwright DIR: what drives a browser.
of_npm_playwright() { of_npm "$1" playwright-core 1.64.1; }

# need_namespaces: the caller is root, or can be root of a user namespace with a range of ids.
need_namespaces() {
  [ "$(id -u)" -ne 0 ] || return 0
  need unshare=util-linux newuidmap=uidmap || return 1
  local user output
  user="$(id -un)"
  output="$(unshare --map-root-user --map-auto -- unshare --net true 2>&1)" && return 0
  echo "error: no user namespace for the tests: $output" >&2
  if [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ]; then
    echo "  AppArmor forbids them: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" >&2
  elif [ "$(cat /proc/sys/kernel/unprivileged_userns_clone 2>/dev/null)" = 0 ]; then
    echo "  the kernel forbids them: sudo sysctl -w kernel.unprivileged_userns_clone=1" >&2
  elif [ "$(cat /proc/sys/user/max_user_namespaces 2>/dev/null)" = 0 ]; then
    echo "  the kernel forbids them: sudo sysctl -w user.max_user_namespaces=10000" >&2
  elif ! grep -q "^$user:" /etc/subuid || ! grep -q "^$user:" /etc/subgid; then
    echo "  $user has no range of ids: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user" >&2
  else
    echo "  util-linux 2.38 or later is needed (this is $(unshare --version)); or run the tests as root" >&2
  fi
  return 1
}
