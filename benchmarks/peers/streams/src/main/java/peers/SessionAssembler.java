package peers;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Collects the raw events of each session until its end event, and then emits the session's outputs.
 *
 * <p>An event is an entry of its own in the store, under (session key, 0, offset): appending it reads nothing, and writes its bytes once
 * to the store and once to the changelog. One entry a session would be read and written anew, as a whole, for each of its 102 events.
 * The end reads the session's range and deletes its entries.
 */
final class SessionAssembler implements Processor<byte[], byte[], byte[], byte[]> {
    static final String STORE = "open";
    private static final ByteArraySerializer PREFIX = new ByteArraySerializer();

    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> open;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        open = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> event) {
        if (event.key() == null || event.value() == null) {
            return;
        }
        switch (EventType.of(event.value())) {
            case START, ENTRY -> open.put(entry(event.key(), context.recordMetadata().orElseThrow().offset()), event.value());
            case END -> end(event);
            case MALFORMED -> {}
        }
    }

    private void end(Record<byte[], byte[]> event) {
        List<byte[]> entries = new ArrayList<>();
        // What a transform gets is the session's events: they are read, though this transform needs none of them.
        try (KeyValueIterator<byte[], byte[]> session = open.prefixScan(prefix(event.key()), PREFIX)) {
            while (session.hasNext()) {
                KeyValue<byte[], byte[]> next = session.next();
                entries.add(next.key);
            }
        }
        entries.forEach(open::delete);
        if (entries.isEmpty()) {
            return; // an end without a session
        }
        for (int number = 0; number < Twenty.OUTPUTS; number++) {
            context.forward(event.withValue(Twenty.output(event.timestamp(), number)));
        }
    }

    private static byte[] prefix(byte[] key) {
        // Keys hold no NUL, so that none is another one's prefix.
        return ByteBuffer.allocate(key.length + 1).put(key).array();
    }

    private static byte[] entry(byte[] key, long offset) {
        return ByteBuffer.allocate(key.length + 1 + Long.BYTES).put(key).put((byte) 0).putLong(offset).array();
    }
}
