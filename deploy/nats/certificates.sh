#!/usr/bin/env bash
# Creates a certificate authority and a certificate for a NATS server:
#
#   ./certificates.sh FOLDER NAME…     names and addresses that clients use for the server
#
# Writes to FOLDER: ca.pem (for everyone), ca.key (keep it offline), server.pem and server.key (for the server). An
# existing authority is reused: for another server of a cluster, run the script with another folder that contains the
# same ca.pem and ca.key. Needs openssl.
set -euo pipefail
umask 077

if [ "$#" -lt 2 ]; then
  echo "usage: $0 FOLDER NAME…" >&2
  exit 2
fi
folder=$1
shift
days=${DAYS:-825}
mkdir -p "$folder"
cd "$folder"

if [ -e server.pem ] || [ -e server.key ]; then
  echo "$folder already contains a server certificate; move it to create another" >&2
  exit 1
fi

if [ ! -e ca.pem ] || [ ! -e ca.key ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -sha256 \
    -subj "/CN=lumos certificate authority" -keyout ca.key -out ca.pem 2>/dev/null
fi

names=""
for name in "$@"; do
  case $name in
    *[!0-9.]*) kind=DNS ;;
    *) kind=IP ;;
  esac
  case $name in *:*) kind=IP ;; esac
  names="$names${names:+,}$kind:$name"
done

extensions=$(mktemp)
request=$(mktemp)
trap 'rm -f "$extensions" "$request"' EXIT
printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' \
  "$names" >"$extensions"
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -subj "/CN=$1" \
  -keyout server.key -out "$request" 2>/dev/null
openssl x509 -req -in "$request" -CA ca.pem -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days "$days" -sha256 \
  -extfile "$extensions" -out server.pem 2>/dev/null

# Certificates are public; keys are not.
chmod 644 ca.pem server.pem
chmod 600 ca.key server.key
echo "$folder: ca.pem, ca.key, server.pem, server.key for $names, valid for $days days"
