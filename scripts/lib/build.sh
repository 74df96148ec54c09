# Sourced by scripts that run programs of this repository.

# source_commit: what --version and reports show; another commit is built again.
source_commit() { echo "${ONRUSH_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}"; }

# in_target [NAME]: prints the path of cargo's target directory, or of a directory in it, which is made.
in_target() {
  local place="${CARGO_TARGET_DIR:-target}/${1:-}"
  mkdir -p "$place" && (cd "$place" && pwd)
}

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

# release_build [FLAG...]: the programs as `cargo build --release` makes them, and the examples that write man pages and
# completions. One build for all scripts: cargo builds dependencies again when other packages select other features of
# them.
release_build() {
  release_cargo build --release --locked -p onrush -p onrush-load -p onrush-bench --bins --example pages \
    --example load-pages "$@"
}

# triple_of ARCH: what Rust calls an architecture of Debian.
triple_of() {
  case "$1" in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *) echo "error: no build for $1: amd64 or arm64" >&2; return 2 ;;
  esac
}

# cross_compile ARCH: builds with `--target "$triple"` are for this architecture, with the cross compiler of Debian.
cross_compile() {
  local gnu
  triple="$(triple_of "$1")" || return
  gnu="${triple/-unknown/}"
  # Kernels of arm64 have pages of 4, 16 or 64 KiB; an allocator for the largest works with all.
  [ "$1" != arm64 ] || export JEMALLOC_SYS_WITH_LG_PAGE=16
  need "$gnu-gcc=gcc-${gnu/_/-}" >&2 || return
  if ! rustup target list --installed | grep -qx "$triple" && ! timeout 300 rustup target add "$triple" >&2; then
    echo "error: no standard library of Rust for $triple: rustup target add $triple" >&2
    return 1
  fi
  local name="${triple//-/_}"
  export "CARGO_TARGET_${name^^}_LINKER=$gnu-gcc" "CC_$name=$gnu-gcc" "AR_$name=$gnu-ar"
  strip="$gnu-strip"
}

# need_emulator ARCH: "${emulator[@]}" PROGRAM... runs a program of the other architecture.
need_emulator() {
  local triple
  triple="$(triple_of "$1")" || return
  emulator=("qemu-${triple%%-*}-static" -L "/usr/${triple/-unknown/}")
  need "${emulator[0]}=qemu-user-static" >&2
}

# install_tool DIR NAME VERSION [FLAG...]: a program of crates.io into DIR, once.
install_tool() {
  local tools="$1" name="$2" version="$3"
  shift 3
  # Not every one of them tells its version.
  cargo install --list --root "$tools" | grep -q "^$name v$version" && return
  echo "installing $name $version into $tools (once)" >&2
  CARGO_TARGET_DIR="$tools/build" cargo install -q --locked --force --version "$version" --root "$tools" "$@" "$name"
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
    in_target debug
}
