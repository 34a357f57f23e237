#!/bin/sh
# Makes spark-defaults.conf with the secret by which Spark's master, workers and drivers know each other, at the first start of
# deploy/spark-cluster.yml. A file that is there already is kept. Its owner alone may read it.
set -eu
umask 077
cd "${1:?the folder for the secret}"
[ ! -s spark-defaults.conf ] || exit 0

secret=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
[ "${#secret}" -eq 64 ] || { echo "the secret would be too short" >&2; exit 1; }
rm -f .new # of a run that was cut off
# The pages of master and worker ask nobody for a secret, so nothing can be ended there. Master's REST port is closed.
cat > .new <<END
spark.authenticate                       true
spark.authenticate.secret                $secret
spark.network.crypto.enabled             true
spark.network.crypto.saslFallback        false
spark.network.crypto.authEngineVersion   2
spark.network.crypto.cipher              AES/GCM/NoPadding
spark.ui.killEnabled                     false
spark.master.rest.enabled                false
END
chmod 400 .new
mv .new spark-defaults.conf
