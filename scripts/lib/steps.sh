# Sourced by scripts/test and scripts/test-all: runs steps one after another, keeps their output in
# files, shows what went wrong, and counts.

target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target/test-logs"
logs="$(cd "$target/test-logs" && pwd)"
target="$(cd "$target" && pwd)"
passed=0
failed=0
failures=()

# step NAME COMMAND...: passes when the command does.
step() {
  run_step "$@"
  if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else note_failure "$1"; fi
}

# tests NAME COMMAND...: like step, for a command that prints test results: each test counts. A run
# without a single test has failed, and so has one that ignored any.
tests() {
  run_step "$@"
  local counts ok bad ignored
  # cargo prints "test result: ok. N passed; M failed; K ignored"; our own scripts "N passed, M failed".
  counts="$(sed -nE 's/^test result: [^0-9]*([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p; s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2 0/p' "$log" \
    | awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }')"
  read -r ok bad ignored <<<"$counts"
  passed=$((passed + ok))
  failed=$((failed + bad))
  echo "     $ok passed, $bad failed"
  if [ "$bad" -gt 0 ]; then
    failures+=("$1")
  elif [ "$status" -ne 0 ] || [ "$ok" -eq 0 ] || [ "$ignored" -gt 0 ]; then
    note_failure "$1 (exit status $status, $ok tests, $ignored ignored)"
  fi
}

# The count, and an exit status that says the same.
finish() {
  for failure in "${failures[@]+"${failures[@]}"}"; do echo "failed: $failure"; done
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
  exit
}

run_step() {
  local name="$1" start
  shift
  log="$logs/${name// /-}.log"
  start=$SECONDS
  printf '==> %-14s' "$name"
  "$@" >"$log" 2>&1 </dev/null
  status=$?
  printf ' %4d s  %s\n' $((SECONDS - start)) "$([ "$status" -eq 0 ] && echo ok || echo FAILED)"
  if [ "$status" -ne 0 ]; then
    grep -nE '^(error|warning: unused)|panicked at|FAILED|^---- |Error' "$log" | head -n 40
    echo "     ... the last lines of $log:"
    tail -n 40 "$log" | sed 's/^/     | /'
  fi
}

note_failure() {
  failed=$((failed + 1))
  failures+=("$1")
}
