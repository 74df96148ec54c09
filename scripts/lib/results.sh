# Sourced by scripts that write results of onrush-bench to $out.

# machine: its name, like 2vcpu-xeon.
machine() {
  local model word
  model="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | tr '[:upper:]' '[:lower:]')"
  word="$(grep -oE 'xeon|epyc|ryzen|threadripper|core|neoverse|altra' <<<"$model" | head -n 1 || true)"
  echo "$(nproc)vcpu-${word:-$(uname -m)}"
}

# pack PLAN: the plan and the results of a finished run become one file.
pack() {
  tar -C "$out" --remove-files -czf "$out/data.tar.gz" "$1" raw.jsonl
  echo "$0: $out/report.md"
}
