#!/usr/bin/env bash
# Checks this folder with a real nats-server: the files parse, clients without TLS or with a wrong password are
# rejected, and permissions allow and deny the expected operations.
#
#   ./check.sh                  uses the nats-server on PATH
#   ./check.sh SERVER…          uses these programs, to compare versions
#
# Needs nats-server and openssl. Opens ports on 127.0.0.1 only and removes its temporary files.
set -euo pipefail
cd "$(dirname "$0")"

[ "$#" -gt 0 ] || set -- nats-server
for needed in "$@" openssl; do
  if ! command -v "$needed" >/dev/null; then
    echo "skipped: $needed is not installed" >&2
    exit 0
  fi
done

work=$(mktemp -d)
server=""
stop() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=""
  fi
}
trap 'stop; rm -rf "$work"' EXIT

failures=0
assert() { # description, command…
  local what=$1
  shift
  if "$@"; then
    echo "  ok: $what"
  else
    echo "  FAILED: $what" >&2
    failures=$((failures + 1))
  fi
}
not() { ! "$@"; }

# Connects without TLS, sends CONNECT, the given lines and PING, and prints the replies of the server.
talk() { # user password line…
  local user=$1 password=$2 line answer
  shift 2
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  {
    printf 'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"sh","version":"1","user":"%s","pass":"%s"}\r\n' \
      "$user" "$password"
    for line in "$@"; do printf '%s\r\n' "$line"; done
    printf 'PING\r\n'
  } >&3 2>/dev/null || true
  answer=""
  while IFS= read -r -t 5 line <&3; do
    answer+=$line$'\n'
    case $line in PONG* | *"Authorization Violation"* | *"TLS Required"*) break ;; esac
  done
  exec 3<&- 3>&-
  printf '%s' "$answer"
}
comes_in() { grep -q '^PONG' <<<"$(talk "$1" "$2")"; }
# Prints `allowed`, `refused`, or the server's reply if it is neither.
verdict() { # user line…
  local answer
  answer=$(talk "$1" "$(password "$1")" "${@:2}")
  case $answer in
    *"Permissions Violation"*) echo refused ;;
    *PONG*) echo allowed ;;
    *) echo "$answer" ;;
  esac
}
publishing() { [ "$(verdict "$2" "PUB $3 0" "")" = "$1" ]; }
subscribing() { [ "$(verdict "$2" "SUB $3 1")" = "$1" ]; }
password() { echo "pass$1"; }

start() { # program, configuration
  "$1" -c "$2" >"$work/log" 2>&1 &
  server=$!
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/log" >&2
  return 1
}

certificates() { DAYS=2 bash certificates.sh "$@" >/dev/null 2>&1; }
verified() { openssl verify -CAfile "$work/tls/ca.pem" "$@" >/dev/null; }
DAYS=2 bash certificates.sh "$work/tls" localhost nats-1 127.0.0.1 >/dev/null
assert "certificates.sh makes a certificate for a name" verified -purpose sslserver -verify_hostname localhost \
  "$work/tls/server.pem"
assert "certificates.sh makes a certificate for an address" verified -purpose sslclient -verify_ip 127.0.0.1 \
  "$work/tls/server.pem"
mkdir "$work/other"
cp "$work/tls/ca.pem" "$work/other/"
assert "certificates.sh does not replace an authority whose key is elsewhere" not certificates "$work/other" localhost
cp "$work/tls/ca.key" "$work/other/"
assert "certificates.sh rejects an invalid address" not certificates "$work/other" 999.0.0.1
assert "certificates.sh can be repeated after an error" certificates "$work/other" localhost
assert "certificates.sh reuses an authority" verified "$work/other/server.pem"

# Copies of the configuration files with the paths and port of this check.
port=$((20000 + RANDOM % 20000))
here() { sed -e "s#/etc/nats/tls#$work/tls#; s#/var/lib/nats#$work/store#; s#0\.0\.0\.0:4222#127.0.0.1:$port#" "$1"; }
cp accounts.conf "$work/"
here nats.conf >"$work/nats.conf"
here cluster.conf >"$work/cluster.conf"
sed 's/#2\.10 //' "$work/nats.conf" >"$work/nats-2.10.conf"
sed 's/#2\.10 //' "$work/cluster.conf" >"$work/cluster-2.10.conf"
# Without TLS, so that this script can talk to the server.
awk '/^tls \{/ { skip = 1 } !skip { print } /^\}/ { skip = 0 }' "$work/nats.conf" >"$work/clear.conf"

export NATS_SERVER_NAME=nats-1
for program in "$@"; do
  version=$("$program" --version | sed 's/.*v\([0-9]*\.[0-9]*\).*/\1/')
  echo "$("$program" --version):"
  unset LUMOS_COORDINATOR_PASSWORD LUMOS_WORKER_PASSWORD LUMOS_OBSERVER_PASSWORD
  parses() { "$program" -t -c "$work/$1" >"$work/log" 2>&1 || { [ "${2:-}" = quiet ] || cat "$work/log" >&2; false; }; }
  assert "the server does not start without passwords" not parses nats.conf quiet
  LUMOS_COORDINATOR_PASSWORD=$(password coordinator)
  LUMOS_WORKER_PASSWORD=$(password worker)
  LUMOS_OBSERVER_PASSWORD=$(password observer)
  export LUMOS_COORDINATOR_PASSWORD LUMOS_WORKER_PASSWORD LUMOS_OBSERVER_PASSWORD
  assert "nats.conf parses" parses nats.conf
  assert "cluster.conf parses" parses cluster.conf
  if [ "$(printf '%s\n' 2.10 "$version" | sort -V | head -1)" = 2.10 ]; then
    assert "nats.conf parses with the lines for 2.10" parses nats-2.10.conf
    assert "cluster.conf parses with the lines for 2.10" parses cluster-2.10.conf
  fi

  assert "the server starts with TLS" start "$program" "$work/nats.conf"
  assert "clients without TLS are rejected" not comes_in worker "$(password worker)"
  stop

  assert "the server starts without TLS" start "$program" "$work/clear.conf"
  for user in coordinator worker observer; do
    assert "$user can connect" comes_in "$user" "$(password "$user")"
    assert "$user cannot connect with a wrong password" not comes_in "$user" wrong
  done
  assert "an unknown user cannot connect" not comes_in somebody wrong
  for allowed in \
    "coordinator lumos.2.work.0123456789abcdef.5.0123456789abcdef.a" \
    "coordinator \$JS.API.STREAM.CREATE.lumos-2-work" \
    "coordinator \$KV.lumos-2-runs.0123456789abcdef" \
    "coordinator \$JS.API.STREAM.DELETE.lumos-2-results" \
    "worker \$JS.API.CONSUMER.MSG.NEXT.lumos-2-work.lane-0123456789abcdef-5" \
    "worker \$JS.ACK.lumos-2-work.lane-0123456789abcdef-5.1.1.1.1.0" \
    "worker lumos.2.results.0123456789abcdef.a" \
    "worker \$KV.lumos-2-workers.host.example-1-a" \
    "worker \$O.lumos-2-payloads.C.a" \
    "observer \$JS.API.STREAM.MSG.GET.KV_lumos-2-status"; do
    read -r user subject <<<"$allowed"
    assert "$user may publish to $subject" publishing allowed "$user" "$subject"
  done
  for refused in \
    "coordinator \$JS.API.STREAM.DELETE.KV_lumos-2-runs" \
    "coordinator lumos.2.results.0123456789abcdef.a" \
    "worker \$JS.API.STREAM.DELETE.lumos-2-work" \
    "worker \$JS.API.STREAM.PURGE.lumos-2-work" \
    "worker \$JS.API.STREAM.CREATE.lumos-2-work" \
    "worker \$JS.API.CONSUMER.CREATE.lumos-2-work.a" \
    "worker \$JS.API.CONSUMER.MSG.NEXT.lumos-2-results.results-0123456789abcdef" \
    "worker lumos.2.work.0123456789abcdef.5.0123456789abcdef.a" \
    "worker \$KV.lumos-2-runs.0123456789abcdef" \
    "worker \$KV.lumos-2-owners.0123456789abcdef" \
    "worker \$O.lumos-2-shared.C.a" \
    "observer lumos.2.results.0123456789abcdef.a" \
    "observer \$KV.lumos-2-status.0123456789abcdef"; do
    read -r user subject <<<"$refused"
    assert "$user may not publish to $subject" publishing refused "$user" "$subject"
  done
  for user in coordinator worker observer; do
    assert "$user may subscribe to its inbox" subscribing allowed "$user" "_INBOX.a.b"
    assert "$user may not subscribe to all subjects" subscribing refused "$user" ">"
    assert "$user may not subscribe to work" subscribing refused "$user" "lumos.2.work.>"
  done
  stop
  rm -rf "$work/store"
done

if [ "$failures" -gt 0 ]; then
  echo "$failures checks failed" >&2
  exit 1
fi
echo "all checks passed"
