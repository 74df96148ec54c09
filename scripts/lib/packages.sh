# Sourced by scripts that use programs of Debian's packages.

# need PROGRAM=PACKAGE...: installs the packages of those programs that are missing.
need() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"
}
