# Sourced by every script that runs release programs: all of them share one build. Cargo builds dependencies again
# when it is asked for other packages or other kinds of targets, as these want other features of them.

# release_build [FLAG...]: builds every program.
release_build() {
  cargo build --release --locked --workspace --bins "$@"
}
