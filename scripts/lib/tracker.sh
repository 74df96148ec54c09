# Sourced by scripts that run a tracker of their own.

# start_tracker PROGRAM DIR ARGUMENT...: a tracker with two workers on free ports and its log in DIR. Sets $pid, the
# address $udp (HOST:PORT) and the URL $http; fails with the log where it ends before it serves.
start_tracker() {
  local program="$1" log="$2/log"
  HOME="$2" "$program" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --workers 2 "${@:3}" 2>"$log" &
  pid=$!
  for _ in $(seq 1200); do
    grep -q ' ready: ' "$log" && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  http="$(sed -nE 's#.*(http://[0-9[][^ ]*) shows .*#\1#p' "$log" | head -n 1)"
  udp="$(sed -nE 's#.* serves udp://([0-9.]+:[0-9]+).*#\1#p' "$log" | head -n 1)"
  kill -0 "$pid" 2>/dev/null && [ -n "$http" ] && [ -n "$udp" ] || { cat "$log" >&2; return 1; }
}
