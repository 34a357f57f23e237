#!/bin/bash
# Behaves like the entry point of the official image, for what is listed in tests/containers/README.md:
# 1. as root: make the folders the server's, and go on as `postgres`;
# 2. on an empty data directory: initdb, password rule for the network, first database, the scripts of the init folder,
#    all on a server that listens on its socket only;
# 3. the server in this process's place, so that it gets the container's signals.
set -Eeuo pipefail

# The value of variable $1, or of the file that $1_FILE names, or $2.
value_of() {
    local name=$1 file_name="$1_FILE"
    if [[ -n ${!name:-} && -n ${!file_name:-} ]]; then
        echo "error: both $name and $file_name are set (but are exclusive)" >&2
        exit 1
    fi
    if [[ -n ${!file_name:-} ]]; then
        cat "${!file_name}"
    else
        echo "${!name:-${2:-}}"
    fi
}

run_sql() {
    psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --no-password --no-psqlrc --host /var/run/postgresql "$@"
}

run_init_scripts() {
    local script
    for script in /docker-entrypoint-initdb.d/*; do
        case $script in
            *.sh)
                echo "$0: running $script"
                # Like the official one: what cannot be executed is sourced.
                # shellcheck disable=SC1090
                if [[ -x $script ]]; then "$script"; else . "$script"; fi
                ;;
            *.sql)
                echo "$0: running $script"
                run_sql --dbname "$POSTGRES_DB" -f "$script"
                ;;
            *.sql.gz)
                echo "$0: running $script"
                gunzip -c "$script" | run_sql --dbname "$POSTGRES_DB"
                ;;
            */\*) ;;
            *) echo "$0: ignoring $script" ;;
        esac
    done
}

# "$@": the server's arguments
initialise() {
    POSTGRES_PASSWORD=$(value_of POSTGRES_PASSWORD)
    POSTGRES_USER=$(value_of POSTGRES_USER postgres)
    POSTGRES_DB=$(value_of POSTGRES_DB "$POSTGRES_USER")
    POSTGRES_INITDB_ARGS=$(value_of POSTGRES_INITDB_ARGS)
    export POSTGRES_PASSWORD POSTGRES_USER POSTGRES_DB POSTGRES_INITDB_ARGS
    unset POSTGRES_PASSWORD_FILE POSTGRES_USER_FILE POSTGRES_DB_FILE POSTGRES_INITDB_ARGS_FILE
    if [[ -z $POSTGRES_PASSWORD && ${POSTGRES_HOST_AUTH_METHOD:-} != trust ]]; then
        echo "Error: Database is uninitialized and superuser password is not specified." >&2
        echo "       Set POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE (or POSTGRES_HOST_AUTH_METHOD=trust)." >&2
        exit 1
    fi
    # Arguments with quotes in them are the caller's to quote, as with the official image.
    eval 'initdb --username="$POSTGRES_USER" --pwfile=<(printf "%s\n" "$POSTGRES_PASSWORD") \
        --set "listen_addresses=*" --set unix_socket_directories=/var/run/postgresql '"$POSTGRES_INITDB_ARGS"
    local method
    method=${POSTGRES_HOST_AUTH_METHOD:-$(postgres -C password_encryption "$@")}
    printf '\nhost all all all %s\n' "$method" >> "$PGDATA/pg_hba.conf"
    # Needed where POSTGRES_INITDB_ARGS asks for a password on the socket too.
    export PGPASSWORD=${PGPASSWORD:-$POSTGRES_PASSWORD}
    pg_ctl -D "$PGDATA" -o "$(printf '%q ' "$@" -c listen_addresses= -p 5432)" -w start
    if [[ -z $(run_sql --dbname postgres --set db="$POSTGRES_DB" --tuples-only <<< "SELECT 1 FROM pg_database WHERE datname = :'db'") ]]; then
        run_sql --dbname postgres --set db="$POSTGRES_DB" <<< 'CREATE DATABASE :"db"'
    fi
    run_init_scripts
    pg_ctl -D "$PGDATA" -m fast -w stop
    unset PGPASSWORD
    printf '\nPostgreSQL init process complete; ready for start up.\n\n'
}

if [[ ${1:-} == -* ]]; then
    set -- postgres "$@"
fi
asks_for_help=
for argument in "$@"; do
    case $argument in -'?' | --help | --describe-config | -V | --version) asks_for_help=yes ;; esac
done
if [[ $1 == postgres && -z $asks_for_help ]]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    if [[ $(id -u) == 0 ]]; then
        find "$PGDATA" /var/run/postgresql \! -user postgres -exec chown postgres '{}' +
        HOME=/var/lib/postgresql exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
    fi
    if [[ ! -s $PGDATA/PG_VERSION ]]; then
        initialise "${@:2}"
    else
        printf '\nPostgreSQL Database directory appears to contain a database; Skipping initialization\n\n'
    fi
fi
exec "$@"
