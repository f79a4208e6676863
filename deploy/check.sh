#!/usr/bin/env bash
# Checks this folder with the installed programs, without network access. Reports checks as skipped if their program is
# missing.
#
# Programs: shellcheck, yamllint, python3, hadolint, kubectl, kubernetes-validate, docker compose, systemd-analyze,
# nats-server with openssl.
set -euo pipefail
cd "$(dirname "$0")"

failures=0
have() {
  if command -v "$1" >/dev/null; then return 0; fi
  echo "skipped: $2 ($1 is not installed)"
  return 1
}
check() { # description, command…
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else
    echo "FAILED: $what" >&2
    failures=$((failures + 1))
  fi
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for script in check.sh cuda/*.sh nats/*.sh slurm/*.sbatch; do
  check "$script parses" bash -n "$script"
done
if have shellcheck scripts; then
  check "scripts, with shellcheck" shellcheck -x -P SCRIPTDIR check.sh cuda/*.sh nats/*.sh slurm/*.sbatch
fi
if have yamllint YAML; then
  check "YAML, with yamllint" yamllint -s -c .yamllint.yaml .
fi
if have python3 "the Grafana dashboard"; then
  check "the Grafana dashboard, as JSON" python3 -m json.tool grafana/lumos.json "$work/dashboard.json"
fi
if have hadolint Dockerfiles; then
  check "Dockerfiles, with hadolint" hadolint Dockerfile Dockerfile.cuda
fi

if have kubectl "Kubernetes manifests"; then
  check "Kubernetes manifests, with kustomize" kubectl kustomize kubernetes --output "$work/kubernetes.yaml"
  if have kubernetes-validate "Kubernetes manifests against their schema"; then
    check "Kubernetes manifests, against their schema" kubernetes-validate --quiet --strict "$work/kubernetes.yaml" \
      kubernetes/worker-gpu.yaml kubernetes/secret.example.yaml
  fi
fi

export LUMOS_COORDINATOR_PASSWORD=a LUMOS_WORKER_PASSWORD=b LUMOS_OBSERVER_PASSWORD=c
if docker compose version >/dev/null 2>&1; then
  check "compose.yaml, with docker compose" docker compose --env-file /dev/null -f compose.yaml config --quiet
else
  echo "skipped: compose.yaml (docker compose is not installed)"
fi
unset LUMOS_COORDINATOR_PASSWORD LUMOS_WORKER_PASSWORD LUMOS_OBSERVER_PASSWORD

if have systemd-analyze units; then
  mkdir "$work/units"
  # The programs of the units may be missing on this machine.
  for unit in systemd/*.service; do
    sed 's#/usr/local/bin/[a-z-]*#/bin/true#' "$unit" >"$work/units/$(basename "$unit" | sed 's/@\./@check./')"
  done
  units() {
    systemd-analyze verify --man=no "$work"/units/*.service 2>&1 | grep -F "$work" >"$work/findings" || true
    cat "$work/findings" >&2
    [ ! -s "$work/findings" ]
  }
  check "units, with systemd-analyze" units
fi

if have nats-server NATS && have openssl NATS; then
  check "NATS" nats/check.sh
fi

if [ "$failures" -gt 0 ]; then
  echo "$failures checks failed" >&2
  exit 1
fi
