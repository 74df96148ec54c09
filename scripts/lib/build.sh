# Sourced by scripts that run programs of this repository.

# source_commit: what --version and reports show; another commit is built again.
source_commit() { echo "${ONRUSH_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}"; }

# release_cargo ARGUMENT...: cargo for release builds. Programs contain the places of panics; the directories of this
# machine are replaced in them, so that a build of the same source elsewhere has the same bytes (scripts/supply-chain).
release_cargo() {
  local target="${CARGO_TARGET_DIR:-target}" flags="${RUSTFLAGS:-}"
  case "$target" in /*) ;; *) target="$PWD/$target" ;; esac
  flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/onrush"
  # The last one that fits applies.
  flags+=" --remap-path-prefix=$target=/onrush/target"
  RUSTFLAGS="$flags" ONRUSH_COMMIT="$(source_commit)" cargo "$@"
}

# release_build [FLAG...]: the programs as `cargo build --release` makes them, and the example that writes man pages and
# completions. One build for all scripts: cargo builds dependencies again when other packages select other features of
# them.
release_build() {
  release_cargo build --release --locked -p onrush -p onrush-load -p onrush-bench --bins --example pages "$@"
}

# lab_build PROGRAM...: programs of onrush-lab, which measure parts of the tracker.
lab_build() {
  local program programs=()
  for program; do programs+=(--bin "$program"); done
  release_cargo build --release --locked --quiet -p onrush-lab "${programs[@]}"
}

# functional_build: prints the directory of the programs for scripts that test behaviour and not speed: $ONRUSH_BIN, or a
# development build, which takes a fraction of the time of a release build and checks debug assertions.
functional_build() {
  if [ -n "${ONRUSH_BIN:-}" ]; then
    (cd "$ONRUSH_BIN" && pwd)
    return
  fi
  cargo build --quiet --locked -p onrush -p onrush-load -p onrush-bench --bins >&2 &&
    (cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
}
