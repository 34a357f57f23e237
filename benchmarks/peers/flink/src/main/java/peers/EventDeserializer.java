package peers;

import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** Records to events. What has no key or is malformed is dropped here, before it is sent to another task. */
final class EventDeserializer implements KafkaRecordDeserializationSchema<Event> {
    private static final long serialVersionUID = 1L;

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Event> events) {
        if (record.key() == null || record.value() == null) {
            return;
        }
        EventType type = EventType.of(record.value());
        if (type != EventType.MALFORMED) {
            String key = new String(record.key(), StandardCharsets.UTF_8);
            events.collect(new Event(key, type == EventType.END, record.timestamp(), record.value()));
        }
    }

    @Override
    public TypeInformation<Event> getProducedType() {
        return TypeInformation.of(Event.class);
    }
}
