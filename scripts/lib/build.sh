# Sourced by every script that runs release programs: all of them share one build. Cargo builds dependencies again
# when it is asked for other packages or other kinds of targets, as these want other features of them.

# release_build [FLAG...]: builds every program, with the two examples that scripts run: these ask for features of
# their own, too.
release_build() {
  # Told to the build, for reports and --version: whoever builds with another commit builds again.
  ONRUSH_COMMIT="${ONRUSH_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" \
    cargo build --release --locked --workspace --bins --example instructions --example pages "$@"
}
