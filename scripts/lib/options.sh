# Sourced by scripts with one option at most.

# one_option "OPTION..." [ARGUMENT]: prints the comment at the head of the script for -h and --help, and ends it for an
# argument that is none of these options.
one_option() {
  case "${2:-}" in
    "") ;;
    -h | --help) sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) [[ " $1 " == *" $2 "* ]] || { echo "$0: unknown argument $2 (see --help)" >&2; exit 2; } ;;
  esac
}

# need_root REASON: ends the script for other users.
need_root() {
  [ "$(id -u)" -eq 0 ] || { echo "$0: $1, which needs root: sudo $0" >&2; exit 1; }
}
