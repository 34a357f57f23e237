#!/bin/sh
# Makes what the services identify themselves with, at the first `docker compose up`: random passwords, a DSN for each service.
#
# Every file has one reader and nobody else may read it. It is given to the reader's group, of which this process is a member too
# (`group_add` in docker-compose.yml): so no root and no capability is needed. A file that is there already is kept.
set -eu
umask 077
cd "${1:?the folder for the secrets}"

POSTGRES=999 # the group of postgres in its official image, which makes the logins and so must know every password

give() { # give FILE GROUP: the content comes on stdin; the rename makes it appear whole or not at all
    rm -f ".$1.new" # of a run that was cut off: no longer writable
    cat > ".$1.new"
    [ -s ".$1.new" ] || { echo "$1 would be empty" >&2; exit 1; }
    chgrp "$2" ".$1.new"
    chmod 440 ".$1.new"
    mv ".$1.new" "$1"
}

password() { # password LOGIN
    [ -s "$1.password" ] || head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' | give "$1.password" "$POSTGRES"
}

login() { # login NAME GROUP
    password "$1"
    [ -s "$1.dsn" ] || printf 'postgresql://%s:%s@postgres:5432/outbox\n' "$1" "$(cat "$1.password")" | give "$1.dsn" "$2"
}

password postgres
login spark_job 10001
login publisher 10002
login outbox_owner 10003
login auditor 10004
login retention 10005
