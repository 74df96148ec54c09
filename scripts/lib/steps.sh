# Sourced by scripts/test, scripts/test-release and scripts/test-all: runs steps, in turn or beside each other, keeps
# the output of each in a log file, prints what failed, and counts.

# The tracker refuses the state directories of tests if their group may write to them.
umask 022
. scripts/lib/build.sh
target="$(in_target)"
logs="$(in_target test-logs)"
# Results of a run that was interrupted.
rm -f "$logs"/*.result
passed=0
failed=0
failures=()
beside=()
trap 'for pid in "${beside[@]+"${beside[@]}"}"; do kill -- "-$pid" 2>/dev/null; done' EXIT

# step NAME COMMAND...: passes when the command exits with 0.
step() { execute "$@"; report step "$1"; }

# tests NAME COMMAND...: a command that prints counts of tests; each test counts. No test at all is a failure, and so is
# an ignored one.
tests() { execute "$@"; report tests "$1"; }

# Output of a step that a reader of the summary wants to see: lines of its log that match a pattern.
show() { sed -n "s/^\($2\)/     \1/p" "$(log_of "$1")"; }

# beside FUNCTION: runs a function, whose steps call `execute`, beside the steps that follow. Its lines are printed by
# `join`, which takes the kind and name of each of its steps.
beside() {
  # A process group of its own, which is ended when the script is.
  set -m
  "$1" &
  beside+=($!)
  set +m
}

# join [KIND NAME]...: waits for what runs beside, then reports these steps.
join() {
  wait "${beside[@]}"
  beside=()
  while [ $# -gt 0 ]; do
    report "$1" "$2"
    shift 2
  done
}

# The count, and an exit status that says the same.
finish() {
  for failure in "${failures[@]+"${failures[@]}"}"; do echo "failed: $failure"; done
  echo "$passed passed, $failed failed, in $((SECONDS / 60)) min $((SECONDS % 60)) s"
  [ "$failed" -eq 0 ]
  exit
}

log_of() { echo "$logs/${1// /-}.log"; }

# execute NAME COMMAND...: runs the command; its output, exit status and duration go into files.
execute() {
  local log start=$SECONDS status=0
  log="$(log_of "$1")"
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  echo "$status $((SECONDS - start))" >"$log.result"
}

# report KIND NAME: prints and counts the result of a step that has run.
report() {
  local log status seconds ok bad ignored
  log="$(log_of "$2")"
  read -r status seconds <"$log.result" || { note_failure "$2 (it did not run)"; return; }
  rm "$log.result"
  printf '==> %-14s %4d s  %s\n' "$2" "$seconds" "$([ "$status" -eq 0 ] && echo ok || echo FAILED)"
  [ "$status" -eq 0 ] || show_failure "$log"
  if [ "$1" = step ]; then
    if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else note_failure "$2"; fi
    return
  fi
  # cargo prints "test result: ok. N passed; M failed; K ignored", the scripts "N passed, M failed".
  read -r ok bad ignored < <(
    sed -nE 's/^test result: [^0-9]*([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p
      s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2 0/p' "$log" |
      awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }'
  )
  passed=$((passed + ok))
  failed=$((failed + bad))
  echo "     $ok passed, $bad failed"
  if [ "$bad" -gt 0 ]; then
    failures+=("$2")
  elif [ "$status" -ne 0 ] || [ "$ok" -eq 0 ] || [ "$ignored" -gt 0 ]; then
    note_failure "$2 (exit status $status, $ok tests, $ignored ignored)"
  fi
}

show_failure() {
  grep -nE '^(error|warning: unused)|panicked at|FAILED|^---- |Error' "$1" | head -n 40
  echo "     ... the last lines of $1:"
  tail -n 40 "$1" | sed 's/^/     | /'
}

note_failure() {
  failed=$((failed + 1))
  failures+=("$1")
}
