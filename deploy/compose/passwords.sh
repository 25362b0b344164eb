#!/bin/sh
# Makes the passwords that the services of docker-compose.yml share, once: usage passwords.sh FOLDER
set -eu
umask 077
cd "$1"

# random FILE OWNER: write a random password that only the user OWNER can read, unless the file exists.
random() {
    if [ ! -s "$1" ]; then
        python -c 'import secrets; print(secrets.token_urlsafe(24), end="")' >"$1.new"
        mv "$1.new" "$1"
    fi
    own "$1" "$2"
}

own() {
    if [ "$(id -u)" = 0 ]; then chown "$2" "$1"; fi
}

random database 0
# The gateways read the password of the databases from a file in the format of PostgreSQL's clients.
for host in database cluster-database; do
    printf '%s:5432:gateway:gateway:%s\n' "$host" "$(cat database)"
done >pgpass
own pgpass 10001
# 472 is the user of Grafana's image.
random grafana 472
chmod 755 .
echo "the passwords are in $1"
