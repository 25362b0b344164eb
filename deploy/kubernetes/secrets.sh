#!/bin/sh
# Makes certificates, passwords and the secret of the nodes, and prints the Secrets of a namespace:
#   secrets.sh FOLDER NAMESPACE DATABASE_URL | kubectl --namespace NAMESPACE apply --server-side --filename -
# DATABASE_URL: postgresql://USER:PASSWORD@HOST/DATABASE of an existing database of the gateways. FOLDER keeps
# what was made: run it again with the same folder to renew a certificate or to print the Secrets again. It
# needs openssl, and the programs of this project on the PATH.
set -eu
umask 077

if [ "$#" != 3 ]; then
    echo "usage: secrets.sh FOLDER NAMESPACE DATABASE_URL" >&2
    exit 2
fi
case $2 in
    "" | *[!a-z0-9-]*)
        echo "NAMESPACE must have small letters, digits and '-' only (got '$2')" >&2
        exit 2
        ;;
esac
case $3 in
    postgresql://*@*/*) ;;
    *)
        echo "DATABASE_URL must be postgresql://USER:PASSWORD@HOST/DATABASE" >&2
        exit 2
        ;;
esac
for program in openssl amqp-streams; do
    if ! command -v "$program" >/dev/null; then
        echo "$program is not on the PATH: install it, or run this in the environment where it is" >&2
        exit 1
    fi
done
folder=$1 namespace=$2 database=$3
scripts=$(cd "$(dirname "$0")/../compose" && pwd)
mkdir -p "$folder/nodes" "$folder/clients"

# The name that all nodes expect (certificate_name in nodes.yaml): their addresses change.
sh "$scripts/certificates.sh" "$folder/nodes" amqp-streams-nodes nodes >&2
names="amqp-streams,amqp-streams.$namespace,amqp-streams.$namespace.svc"
sh "$scripts/certificates.sh" "$folder/clients" "$names" >&2
if [ ! -s "$folder/gateway-password" ]; then
    python -c 'import secrets; print(secrets.token_urlsafe(24))' >"$folder/gateway-password.new"
    amqp-streams user add gateway --users "$folder/clients/users" --password-stdin \
        <"$folder/gateway-password.new" >&2
    mv "$folder/gateway-password.new" "$folder/gateway-password"
fi

# entry NAME FILE: a line of a Secret with the contents of a file.
entry() {
    printf '  %s: %s\n' "$1" "$(base64 <"$2" | tr -d '\n')"
}

# begin NAME: the first lines of a Secret.
begin() {
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\ntype: Opaque\ndata:\n' "$1"
}

begin amqp-streams-nodes
entry secret "$folder/nodes/secret"
entry node.pem "$folder/nodes/server.pem"
entry node.key "$folder/nodes/server.key"
entry nodes-ca.pem "$folder/nodes/ca.pem"
entry server.pem "$folder/clients/server.pem"
entry server.key "$folder/clients/server.key"
entry users "$folder/clients/users"

printf 'amqps://gateway:%s@amqp-streams:5671' "$(cat "$folder/gateway-password")" >"$folder/amqp-url"
printf '%s' "$database" >"$folder/database-url"
begin amqp-streams-gateway
entry amqp-url "$folder/amqp-url"
entry database-url "$folder/database-url"
entry ca.pem "$folder/clients/ca.pem"
entry tokens.csv "$folder/clients/tokens.csv"
rm "$folder/amqp-url" "$folder/database-url"
echo "the password of the user admin is in $folder/clients/password, its token for the gateway in" \
    "$folder/clients/token" >&2
