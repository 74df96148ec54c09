# Sourced by scripts that run programs of this repository.

# release_build [FLAG...]: the programs as they are shipped, with the two examples that scripts run. One build for all
# scripts: cargo builds dependencies again when other packages or kinds of targets select other features of them.
release_build() {
  # For reports and --version; another commit is built again.
  ONRUSH_COMMIT="${ONRUSH_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" \
    cargo build --release --locked --workspace --bins --example instructions --example pages "$@"
}

# functional_build: prints the directory of the programs for scripts that test behaviour and not speed: $ONRUSH_BIN,
# or a development build, which takes a fraction of the time of a release build and checks debug assertions.
functional_build() {
  if [ -n "${ONRUSH_BIN:-}" ]; then
    (cd "$ONRUSH_BIN" && pwd)
    return
  fi
  cargo build --quiet --locked --workspace --bins >&2 && (cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
}
