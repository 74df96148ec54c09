# Sourced by scripts that run programs as checks: counts in $passed and $failed. The output of a check goes to $check_log.

passed=0
failed=0

# check NAME COMMAND...: counts whether the command succeeds; shows its output where it fails.
check() {
  local name="$1" start=$SECONDS result=ok
  shift
  if "$@" >"$check_log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    result=FAILED
  fi
  printf '%-7s %s (%d s)\n' "$result" "$name" $((SECONDS - start))
  [ "$result" = ok ] || sed 's/^/        /' "$check_log" | head -n 60
}

# summary: the last line, which counts; the exit status is 0 where none failed.
summary() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}
