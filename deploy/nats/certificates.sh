#!/usr/bin/env bash
# Creates a certificate authority and a certificate for a NATS server:
#
#   ./certificates.sh FOLDER NAME…     names and addresses that clients use for the server
#
# Writes to FOLDER: ca.pem (for everyone), ca.key (keep it offline), server.pem and server.key (for the server). An
# existing authority is reused: for another server of a cluster, run the script with another folder that contains the
# same ca.pem and ca.key. If it fails, it writes none of them. Needs openssl.
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
# Clients do not trust the certificates of a new authority, so that an incomplete one is not replaced.
for file in ca.pem ca.key; do
  if [ ! -e "$file" ] && { [ -e ca.pem ] || [ -e ca.key ]; }; then
    echo "$folder: $file of the existing authority not found; copy it there, or move the other file to create another" >&2
    exit 1
  fi
done

# Files are moved to their places once all of them are complete.
work=$(mktemp -d ./new.XXXXXX)
trap 'rm -rf "$work"' EXIT
# Runs a command and prints its messages only if it fails.
quiet() { "$@" 2>"$work/messages" || { cat "$work/messages" >&2; return 1; }; }

authority=.
if [ ! -e ca.pem ]; then
  authority=$work
  quiet openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -sha256 \
    -subj "/CN=lumos certificate authority" -keyout "$work/ca.key" -out "$work/ca.pem"
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

printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' \
  "$names" >"$work/extensions"
quiet openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -subj "/CN=$1" \
  -keyout "$work/server.key" -out "$work/request"
quiet openssl x509 -req -in "$work/request" -CA "$authority/ca.pem" -CAkey "$authority/ca.key" \
  -set_serial "0x$(openssl rand -hex 16)" -days "$days" -sha256 -extfile "$work/extensions" -out "$work/server.pem"

# Certificates are public; keys are not.
chmod 644 "$authority/ca.pem" "$work/server.pem"
chmod 600 "$authority/ca.key" "$work/server.key"
[ "$authority" = . ] || mv "$work/ca.key" "$work/ca.pem" .
mv "$work/server.key" "$work/server.pem" .
echo "$folder: ca.pem, ca.key, server.pem, server.key for $names, valid for $days days"
