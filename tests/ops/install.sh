# shellcheck shell=bash
# Sourced by tests/run: brings what the tests need onto this machine, and says what it could not get.
#
# Debian packages of this machine's own release are installed; those of newer releases are unpacked
# into $TOOLS and change nothing outside it. Everything is kept, so a second run downloads nothing.
# Each function returns non-zero when something required is missing.

DEBIAN_PACKAGES=(restic prometheus prometheus-alertmanager openssl faketime shellcheck strace
  openssh-server openssh-client rclone apache2-utils systemd gpg gpg-agent
  nginx-light curl btrfs-progs sshfs psmisc chromium
  fonts-dejavu-core)
# What only the long parts need, which make the Debian package and run it.
PACKAGER_PACKAGES=(debootstrap lintian man-db)

# The packages of this machine's own Debian release.
install_debian() {
  local wanted=("${DEBIAN_PACKAGES[@]}")
  # Debian's own Python comes without what makes virtual environments.
  python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3 python3-venv)
  command -v npm >/dev/null || wanted+=(npm)
  install_packages "${wanted[@]}"
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed \
      || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "missing: install these with apt-get as root: ${missing[*]}" >&2
    return 1
  fi
  echo "installing ${missing[*]}"
  apt-get -q update >/dev/null \
    && DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
      install --no-install-recommends "${missing[@]}" >/dev/null
}

# The mirror that this machine is set up with, so that none is written down here.
debian_mirror() {
  awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null \
    || awk '$1 == "deb" {print $2; exit}' /etc/apt/sources.list
}

# apt-get with lists and a cache of its own: the machine's package state is not touched.
apt_newer() {
  apt-get -q -o Dir::Etc::sourcelist="$TOOLS/apt/newer.sources" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$TOOLS/apt/lists" \
    -o Dir::Cache="$TOOLS/apt/cache" -o Acquire::Languages=none \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}

# unpack_newer PACKAGE SUITE: unpacks one package to $TOOLS/PACKAGE-SUITE.
unpack_newer() {
  local folder=$TOOLS/$1-$2
  [ ! -e "$folder/.complete" ] || return 0
  mkdir -p "$TOOLS/apt/lists/partial" "$TOOLS/apt/cache/archives/partial" "$TOOLS/debs/$2"
  if [ ! -e "$TOOLS/apt/.updated" ]; then
    printf 'Types: deb\nURIs: %s\nSuites: trixie sid\nComponents: main\nSigned-By: %s\n' \
      "$(debian_mirror)" /usr/share/keyrings/debian-archive-keyring.gpg \
      > "$TOOLS/apt/newer.sources"
    apt_newer update >/dev/null && touch "$TOOLS/apt/.updated" || return 1
  fi
  rm -rf "$folder" "$TOOLS/debs/$2/$1"_*.deb
  (cd "$TOOLS/debs/$2" && apt_newer download "$1/$2" >/dev/null) \
    && dpkg-deb -x "$TOOLS/debs/$2/$1"_*.deb "$folder" \
    && touch "$folder/.complete"
}

# Newer restics: trixie's is required and frozen, sid's moves and is an extra.
install_restics() {
  local failed=0
  unpack_newer restic trixie || {
    echo "missing: restic of Debian trixie, which is required" >&2
    failed=1
  }
  unpack_newer restic sid || extra_missing "restic of Debian sid: its tests did not run"
  return $failed
}

# Newer promtool and amtool: users load the rules into these as well as into bookworm's.
install_promtools() {
  local package failed=0
  for package in promtool prometheus-alertmanager; do
    unpack_newer $package trixie || {
      echo "missing: $package of Debian trixie, which is required" >&2
      failed=1
    }
  done
  unpack_newer promtool sid || extra_missing "promtool of Debian sid: the rules were not tried on it"
  return $failed
}

# restic's own REST server, which this machine's release does not have.
install_rest_server() {
  unpack_newer restic-rest-server trixie && return
  echo "missing: restic-rest-server of Debian trixie, which is required" >&2
  return 1
}

# Azurite, a server of Azure's blobs, from npm.
install_azurite() {
  [ -x "$TOOLS/npm/node_modules/.bin/azurite-blob" ] && return
  mkdir -p "$TOOLS/npm" \
    && (cd "$TOOLS/npm" && npm install --no-fund --no-audit --silent azurite@3 >/dev/null) \
    && return
  echo "missing: azurite of npm, which is required" >&2
  return 1
}

# The types of the Prometheus operator's objects, from npm; apart from the rest, since npm moves what
# stands beside a package that it installs.
install_operator_types() {
  local package=@kubernetes-models/prometheus-operator folder=$TOOLS/npm-operator
  [ -e "$folder/node_modules/$package/package.json" ] && return
  mkdir -p "$folder" \
    && (cd "$folder" && npm install --no-fund --no-audit --silent "$package@6.0.0" >/dev/null) \
    && return
  echo "missing: $package of npm, which is required" >&2
  return 1
}

# What drives the browser, and what judges its pages for people who hear or type them, from npm.
install_browser() {
  local packages=(playwright-core@1.65.1 axe-core@4.14.1) folder=$TOOLS/npm-browser
  [ -e "$folder/node_modules/axe-core/axe.min.js" ] && return
  mkdir -p "$folder" \
    && (cd "$folder" && npm install --no-fund --no-audit --silent "${packages[@]}" >/dev/null) \
    && return
  echo "missing: ${packages[*]} of npm, which is required" >&2
  return 1
}

# A virtual environment with the packages of requirements.txt, made anew when that file changes.
install_python() {
  local stamp=$TOOLS/py/.requirements
  cmp -s tests/ops/requirements.txt "$stamp" && return 0
  rm -f "$stamp"
  python3 -m venv "$TOOLS/py" \
    && "$TOOLS/py/bin/pip" install -q --disable-pip-version-check -r tests/ops/requirements.txt \
    && cp tests/ops/requirements.txt "$stamp"
}

# cargo-deb, lintian, and an archive with a root folder of Debian to install into.
install_packager() {
  local archive=$TOOLS/debian-root.tar folder
  install_packages "${PACKAGER_PACKAGES[@]}" || return 1
  if [ ! -x "$TOOLS/cargo/bin/cargo-deb" ]; then
    # It packs files; that is as good without optimisation, and built in a third of the time.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off \
      cargo install --quiet --locked cargo-deb --version 3.8.0 --root "$TOOLS/cargo" || return 1
  fi
  [ ! -e "$archive" ] || return 0
  folder=$(mktemp -d "${TMPDIR:-/tmp}/debian-root.XXXXXX") || return 1
  debootstrap --variant=minbase bookworm "$folder/root" "$(debian_mirror)" >"$folder/log" 2>&1 \
    && rm -rf "$folder"/root/var/cache/apt/archives/*.deb \
    && tar -C "$folder/root" -cf "$archive.partial" . && mv "$archive.partial" "$archive" \
    || { tail -5 "$folder/log" >&2; return 1; }
  rm -rf "$folder"
}

# cargo-deny, what makes the bill of materials, and what knows how such a bill has to look.
install_auditors() {
  local tool
  "$TOOLS/py/bin/pip" install -q --disable-pip-version-check \
    'cyclonedx-python-lib[json-validation]>=11,<12' || return 1
  for tool in cargo-cyclonedx@0.5.9 cargo-deny@0.20.2; do
    [ -x "$TOOLS/cargo/bin/${tool%@*}" ] \
      || CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off \
        cargo install --quiet --locked "$tool" --root "$TOOLS/cargo" || return 1
  done
}

# Grafana's own components and a browser, to draw the boards: only for the part "pictures".
install_drawing() {
  local missing=() package
  for package in chromium fonts-dejavu-core; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed \
      || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    apt-get -q update >/dev/null \
      && DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends "${missing[@]}" >/dev/null \
      || return 1
  fi
  cmp -s tests/ops/pictures/package.json "$TOOLS/drawing/.installed" && return
  # The peers that @grafana/ui names are older than what it runs with.
  mkdir -p "$TOOLS/drawing" && cp tests/ops/pictures/package.json "$TOOLS/drawing" \
    && (cd "$TOOLS/drawing" && npm install --legacy-peer-deps --ignore-scripts --no-fund --no-audit \
      --silent >/dev/null) \
    && cp tests/ops/pictures/package.json "$TOOLS/drawing/.installed" && return
  echo "missing: Grafana's components of npm, which the pictures need" >&2
  return 1
}
