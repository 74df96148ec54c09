# Sourced by scripts/release, after build.sh: the parts of a release.

# make_release DIR ARCH...: a release of the current directory, which is a copy of the source.
make_release() {
  local output="$1" arch
  shift
  mkdir -p "$output/notices"
  target="$PWD/target"
  notices "$output/notices"
  for arch; do
    bill_of_materials "$arch" "$output"
    # In a shell of its own, as it sets variables of the compilers.
    (architecture "$arch" "$output")
  done
  cp "$output/notices/THIRD-PARTY" "$output/THIRD-PARTY.txt"
  rm -r "$output/notices"
  (cd "$output" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)
}

# notices DIR: the licences of the crates that the programs contain, by the rules of deny.toml.
notices() {
  local crate
  python3 - >target/about.toml <<'END'
import hashlib, json, pathlib, subprocess, tomllib

rules = tomllib.load(open("deny.toml", "rb"))
print("accepted =", json.dumps(rules["licenses"]["allow"]))
print("targets =", json.dumps(rules["graph"]["targets"]))
print("ignore-build-dependencies = true\nignore-dev-dependencies = true")
# One file of aws-lc-sys has the notices of all its parts. cargo-about would search 69 MB of C for texts of licences.
metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--format-version", "1"]))
[crate] = [each for each in metadata["packages"] if each["name"] == "aws-lc-sys"]
text = pathlib.Path(crate["manifest_path"]).with_name("LICENSE").read_bytes()
print("[aws-lc-sys.clarify]\nlicense =", json.dumps(crate["license"]))
print('[[aws-lc-sys.clarify.files]]\npath = "LICENSE"\nlicense = "ISC"')
print("checksum =", json.dumps(hashlib.sha256(text).hexdigest()))
END
  cat >target/about.hbs <<'END'
{{#each licenses}}
{{name}}: {{#each used_by}}{{crate.name}} {{crate.version}}{{#unless @last}}, {{/unless}}{{/each}}

{{{text}}}
{{/each}}
END
  for crate in daemon load; do
    "$TARGET/tools/bin/cargo-about" about generate --locked --offline --fail --config target/about.toml \
      --manifest-path "crates/$crate/Cargo.toml" --output-file "target/notices-$crate" target/about.hbs
  done
  {
    echo "The programs of onrush contain the following crates, under these licences."
    echo
    for crate in daemon load; do
      printf '%s\n\n' "==== $(sed -n 's/^name = "\(onrush.*\)"/\1/p' "crates/$crate/Cargo.toml" | head -n 1)"
      cat "target/notices-$crate"
    done
  } >"$1/THIRD-PARTY"
}

# bill_of_materials ARCH DIR: a file of CycloneDX for each program.
bill_of_materials() {
  local crate program triple
  triple="$(triple_of "$1")"
  while read -r crate program; do
    "$TARGET/tools/bin/cargo-cyclonedx" cyclonedx -q --manifest-path "crates/$crate/Cargo.toml" --format json \
      --describe binaries --spec-version 1.5 --no-build-deps --target "$triple"
    # References to the crates of the workspace have the path of this directory.
    sed "s|$PWD|/onrush|g" "crates/$crate/${program}_bin.cdx.json" >"$2/$program-$version-$1.cdx.json"
  done <<<$'daemon onrush\nload onrush-load'
}

# architecture ARCH DIR: its packages, and an archive of static programs.
architecture() {
  local arch="$1" output="$2" release="$PWD/target/release" name="onrush-$version-linux-$1" program cross=() strip=strip
  scripts/package --arch "$arch" --notices "$output/notices" >/dev/null
  export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
  if [ "$arch" != "$native" ]; then
    cross_compile "$arch"
    cross=(--target "$triple")
    release="$PWD/target/$triple/release"
  fi
  cp "$release"/package/*deb "$output/"
  mkdir -p "target/$name"
  for program in onrush onrush-load; do
    # glibc is linked statically. The flag applies to the last crate only, so the others are not built again.
    release_cargo rustc -q --release --locked "${cross[@]}" -p "$program" --bin "$program" -- \
      -C target-feature=+crt-static
    "$strip" -o "target/$name/$program" "$release/$program"
  done
  cp LICENSE README.md CHANGELOG.md SECURITY.md "target/$name/"
  cp "$output/notices/THIRD-PARTY" "target/$name/THIRD-PARTY.txt"
  cp -r config "target/$name/config"
  cp -r "$release/package/completions" "target/$name/"
  mkdir "target/$name/man"
  cp -r "$release"/package/man? "target/$name/man/"
  tar -c -C target --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w "$name" |
    gzip -9n >"$output/$name.tar.gz"
}

# answers ARCH DIR: the static programs of the archive serve, and pass the load tester's checks.
answers() (
  local arch="$1" place run=()
  [ "$arch" = "$native" ] || { need_emulator "$arch"; run=("${emulator[@]}"); }
  place="$(mktemp -d)"
  trap 'kill "$tracker" 2>/dev/null; wait; rm -rf "$place"' EXIT
  tar -xzf "$2"/onrush-*-linux-"$arch".tar.gz -C "$place" --strip-components=1
  "${run[@]}" "$place/onrush" --listen 127.0.0.1:16969 --admin off --state-dir "$place/state" --workers 1 \
    >"$place/log" 2>&1 &
  tracker=$!
  if "${run[@]}" "$place/onrush-load" verify 127.0.0.1:16969 >"$place/verify"; then
    echo "ok: the programs for $arch serve: $(tail -n 1 "$place/verify")"
  else
    cat "$place/log" "$place/verify" >&2
    echo "failed: the programs for $arch" >&2
    return 1
  fi
)
