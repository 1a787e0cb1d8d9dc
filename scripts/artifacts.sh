#!/usr/bin/env bash
# Makes what is released of a binary: artifacts.sh BINARY DIRECTORY. Run by release.sh, and by the test of packages.
#
#   plimsoll_VERSION_ARCH.deb       for Debian and Ubuntu: binary, units, manual pages, completions, examples
#   plimsoll-VERSION-ARCH.tar.gz    the same files, for any Linux
#   plimsoll-VERSION.cdx.json       bill of materials (CycloneDX)
#   plimsoll-VERSION-ARCH.oci.tar   image in the layout of OCI
#   SHA256SUMS                      checksums of all; a person signs them (RELEASING.md)
#
# The same binary gives the same bytes: times are that of the commit, names are sorted, owners are root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
version=${PLIMSOLL_VERSION:-$("$binary" -V | cut -d' ' -f2)}
arch=$(dpkg --print-architecture)
# Of package and archive; the test saves time.
level=${PLIMSOLL_COMPRESSION:-9}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export TZ=UTC LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The tree that the archive and the package have in common, with paths of an installed system.
stage() {
  local root=$1 share=$1/usr/share unit
  install -D -m 755 "$binary" "$root/usr/bin/plimsoll"
  for unit in deploy/systemd/*; do
    install -D -m 644 /dev/null "$root/usr/lib/systemd/system/$(basename "$unit")"
    sed 's|/usr/local/bin/plimsoll|/usr/bin/plimsoll|' "$unit" >"$root/usr/lib/systemd/system/$(basename "$unit")"
  done
  "$binary" man "$share/man/man1"
  gzip -9n "$share"/man/man1/*.1
  mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
  "$binary" completions bash >"$share/bash-completion/completions/plimsoll"
  "$binary" completions zsh >"$share/zsh/vendor-completions/_plimsoll"
  "$binary" completions fish >"$share/fish/vendor_completions.d/plimsoll.fish"
  mkdir -p "$share/doc/plimsoll/examples"
  cp -r examples/control examples/proxy deploy/prometheus deploy/grafana "$share/doc/plimsoll/examples/"
  install -m 644 README.md SECURITY.md docs/runbook.md "$share/doc/plimsoll/"
  gzip -9nc CHANGELOG.md >"$share/doc/plimsoll/changelog.gz"
  find "$share" -type f -exec chmod 644 {} +
  find "$root" -type d -exec chmod 755 {} +
}

# archive ROOT FILE: like dpkg-deb, which clamps times to SOURCE_DATE_EPOCH by itself.
archive() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$(dirname "$1")" -cf - \
    "$(basename "$1")" | gzip "-${level}n" >"$2"
}

make_archive() {
  local root=$work/plimsoll-$version-$arch
  stage "$root"
  install -m 644 LICENSE "$root/LICENSE"
  archive "$root" "$out/plimsoll-$version-$arch.tar.gz"
}

make_package() {
  local root=$work/deb doc=$work/deb/usr/share/doc/plimsoll
  stage "$root"
  # The full text of the license is on every Debian system.
  install -m 644 deploy/debian/copyright "$doc/copyright"
  mv "$doc/changelog.gz" "$doc/NEWS.gz"
  debian_changelog | gzip -9n >"$doc/changelog.gz"
  # Somebody's files: removed with the package only by a purge, never replaced by an upgrade.
  install -D -m 644 deploy/debian/control.yaml "$root/etc/plimsoll/control.yaml"
  install -d -m 755 "$root/DEBIAN"
  echo /etc/plimsoll/control.yaml >"$root/DEBIAN/conffiles"
  install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN/"
  sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@LIBC@/$(libc_version)/" \
    -e "s/@SIZE@/$(du -ks --apparent-size "$root/usr" | cut -f1)/" deploy/debian/control >"$root/DEBIAN/control"
  (cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  dpkg-deb --root-owner-group -Zxz "-z$level" --build "$root" "$out/plimsoll_${version}_$arch.deb" >/dev/null
}

debian_changelog() {
  printf 'plimsoll (%s) stable; urgency=medium\n\n  * See NEWS.gz.\n\n -- %s  %s\n' \
    "$version" 'The Plimsoll authors <plimsoll@example.org>' "$(date -R -d "@$SOURCE_DATE_EPOCH")"
}

# The newest version of the C library whose symbols the binary needs.
libc_version() {
  objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | cut -d_ -f2
}

# The bill of materials, written and checked with the library of the project CycloneDX.
make_bill() {
  "$tools/venv/bin/python" scripts/sbom.py "$version" >"$out/plimsoll-$version.cdx.json"
}

# An image with the binary and the C library that it needs, which no daemon builds: umoci, unpacked from Debian's package.
make_image() {
  local layout=$work/oci root=$work/image umoci
  umoci=$(command -v umoci || echo "$tools/usr/bin/umoci")
  install -D -m 755 "$binary" "$root/usr/local/bin/plimsoll"
  ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
    install -D -m 755 "$library" "$root$library"
  done
  install -D -m 644 deploy/debian/control.yaml "$root/etc/plimsoll/control.yaml"
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  "$umoci" init --layout "$layout"
  "$umoci" new --image "$layout:$version"
  "$umoci" insert --rootless --image "$layout:$version" --history.created "$(created)" "$root" /
  "$umoci" config --image "$layout:$version" --created "$(created)" --history.created "$(created)" \
    --architecture "$arch" --os linux \
    --config.user 65532:65532 --config.stopsignal SIGTERM --config.exposedports 18000 --config.exposedports 18001 \
    --config.entrypoint /usr/local/bin/plimsoll --config.cmd control --config.cmd -c \
    --config.cmd /etc/plimsoll/control.yaml --config.cmd --log-format --config.cmd json
  "$umoci" gc --layout "$layout"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$layout" \
    -cf "$out/plimsoll-$version-$arch.oci.tar" .
  # By which a deployment names the image: a tag can be moved.
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["manifests"][0]["digest"])' "$layout/index.json" \
    >"$out/plimsoll-$version-$arch.oci.digest"
}

created() {
  date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ
}

tools=${CARGO_TARGET_DIR:-target}/release-tools
tools=$(realpath "$tools")
make_archive
make_package
make_bill
make_image
(cd "$out" && sha256sum "plimsoll_${version}_$arch.deb" "plimsoll-$version-$arch.tar.gz" "plimsoll-$version.cdx.json" \
  "plimsoll-$version-$arch.oci.tar" >SHA256SUMS)
