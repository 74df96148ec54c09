# Sourced by every script that runs release programs: all of them share one build. Cargo builds dependencies again
# when it is asked for other packages or other kinds of targets, as these want other features of them.

# release_build [FLAG...]: builds the programs that users run, and the example that writes man pages and completions.
release_build() {
  # Told to the build, for reports and --version: whoever builds with another commit builds again.
  ONRUSH_COMMIT="${ONRUSH_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" \
    cargo build --release --locked -p onrush -p onrush-load -p onrush-bench --bins --example pages "$@"
}

# lab_build PROGRAM...: builds programs of onrush-lab, which measure parts of the tracker.
lab_build() {
  local program programs=()
  for program; do programs+=(--bin "$program"); done
  cargo build --release --locked --quiet -p onrush-lab "${programs[@]}"
}
