#!/bin/bash
# Run a class of Kafka's jars, with the variables that Kafka's own script of this name takes.
set -euo pipefail
kafka=$(dirname "$(dirname "$(realpath "$0")")")
: "${KAFKA_HEAP_OPTS:=-Xmx256M}"
: "${KAFKA_JVM_PERFORMANCE_OPTS:=-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true}"
: "${KAFKA_LOG4J_OPTS:=-Dlog4j2.configurationFile=$kafka/config/tools-log4j2.yaml}"
# Unquoted: each holds several options.
# shellcheck disable=SC2086
exec java $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS ${KAFKA_JMX_OPTS:-} -Dkafka.logs.dir="${LOG_DIR:-$kafka/logs}" \
    $KAFKA_LOG4J_OPTS -cp "${CLASSPATH:+$CLASSPATH:}$kafka/libs/*" ${KAFKA_OPTS:-} "$@"
