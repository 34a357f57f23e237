package peers;

import java.nio.charset.StandardCharsets;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Outputs to records: the session's key, no header, the partition by Kafka's own hash of the key. */
final class OutputSerializer implements KafkaRecordSerializationSchema<Output> {
    private static final long serialVersionUID = 1L;

    private final String topic;

    OutputSerializer(String topic) {
        this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Output output, KafkaSinkContext context, Long timestamp) {
        return new ProducerRecord<>(topic, output.key.getBytes(StandardCharsets.UTF_8), output.value);
    }
}
