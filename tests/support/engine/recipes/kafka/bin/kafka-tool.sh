#!/bin/bash
# Each of Kafka's tools, by the name this script is called by.
set -euo pipefail
kafka=$(dirname "$(dirname "$(realpath "$0")")")
tool=$(basename "$0" .sh)
case $tool in
    kafka-server-start)
        : "${KAFKA_HEAP_OPTS:=-Xmx1G -Xms1G}"
        : "${KAFKA_LOG4J_OPTS:=-Dlog4j2.configurationFile=$kafka/config/log4j2.yaml}"
        export KAFKA_HEAP_OPTS KAFKA_LOG4J_OPTS
        class=kafka.Kafka
        ;;
    kafka-storage) class=kafka.tools.StorageTool ;;
    kafka-configs) class=kafka.admin.ConfigCommand ;;
    kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
    kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
    kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    kafka-broker-api-versions) class=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
    kafka-get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
    kafka-transactions) class=org.apache.kafka.tools.TransactionsCommand ;;
    *)
        echo "$tool: this stand-in for the official image does not have it" >&2
        exit 64
        ;;
esac
exec "$kafka/bin/kafka-run-class.sh" "$class" "$@"
