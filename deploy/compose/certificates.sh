#!/bin/sh
# Makes a certificate authority, a certificate, and a secret: usage certificates.sh FOLDER NAMES [nodes]
# NAMES: the host names and addresses of the certificate, separated by commas. What exists is kept; the
# certificate is renewed when it expires within 30 days, or when the names change.
# For the profile `tls` of docker-compose.yml, the secret is a user with a random password. With `nodes`, it is
# the secret that the nodes of the profile `cluster` have, and the certificate is for connections between them.
set -eu
umask 077
secret=${3:-users}
case $secret in
    users | nodes) ;;
    *)
        echo "usage: certificates.sh FOLDER NAMES [nodes] (got '$secret')" >&2
        exit 2
        ;;
esac
cd "$1"

ended() {
    status=$?
    if [ "$status" != 0 ]; then
        echo "could not make certificates for '$names':" >&2
        cat openssl.log >&2
        echo "AMQP_STREAMS_HOSTS must be host names and addresses, separated by commas" >&2
    fi
    exit "$status"
}
names="$2,localhost,127.0.0.1"
: >openssl.log
trap ended EXIT
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

# Write names as OpenSSL wants them. What has a colon, or digits and dots only, is an address.
alternatives() {
    printf '%s' "$1" | tr ',' '\n' | while IFS= read -r name || [ -n "$name" ]; do
        case $name in
            "") ;;
            *:*) printf ',IP:%s' "$name" ;;
            *[!0-9.]*) printf ',DNS:%s' "$name" ;;
            *) printf ',IP:%s' "$name" ;;
        esac
    done
}

if [ ! -s ca.pem ]; then
    # shellcheck disable=SC2086 # several words
    openssl req -x509 $key -days 3650 -subj "/CN=AMQP event streams" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2>openssl.log
fi

if [ "$(cat names 2>/dev/null)" != "$names" ] || ! openssl x509 -checkend 2592000 -noout -in server.pem >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # several words
    openssl req $key -subj "/CN=AMQP event streams" -keyout server.key.new -out server.csr 2>openssl.log
    {
        printf 'subjectAltName=%s\n' "$(alternatives "$names" | cut -c2-)"
        if [ "$secret" = nodes ]; then
            echo "extendedKeyUsage=serverAuth,clientAuth"
        else
            echo "extendedKeyUsage=serverAuth"
        fi
        echo "authorityKeyIdentifier=keyid"
        echo "subjectKeyIdentifier=hash"
    } >server.ext
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
        -extfile server.ext -out server.pem.new 2>openssl.log
    mv server.key.new server.key
    mv server.pem.new server.pem
    printf '%s' "$names" >names
    echo "made a certificate for $names"
fi

# The last file that is made: without it, everything is made again.
if [ "$secret" = nodes ] && [ ! -s secret ]; then
    python -c 'import secrets; print(secrets.token_hex(32))' >secret
    echo "made the secret of the nodes: it is in $1/secret"
fi
if [ "$secret" = users ] && [ ! -s users ]; then
    python -c 'import secrets; print(secrets.token_urlsafe(24))' >password
    # For the gateway: token,user,uid,groups.
    python -c 'import secrets; print(secrets.token_urlsafe(32))' >token
    printf '%s,admin,admin,\n' "$(cat token)" >tokens.csv
    amqp-streams user add admin --users users --password-stdin <password >openssl.log 2>&1
    echo "made the user admin: its password is in $1/password, its token for the gateway in $1/token"
fi

for file in server.key server.pem users password token tokens.csv secret; do
    if [ "$(id -u)" = 0 ] && [ -e "$file" ]; then chown 10001 "$file"; fi
done
chmod 644 ca.pem server.pem
chmod 755 .
rm -f openssl.log server.csr server.ext
