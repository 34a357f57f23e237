package peers;

import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.Stores;

/**
 * Assembles sessions from one Kafka topic and writes twenty outputs for each to another, exactly once.
 *
 * <p>The one argument is a properties file. {@code streams.*} are Kafka Streams' own settings (with its prefixes for the clients),
 * {@code job.*} the job's.
 */
public final class StreamsSessions {
    private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(20);

    public static void main(String[] args) throws Exception {
        Properties given = new Properties();
        try (Reader reader = new FileReader(args[0])) {
            given.load(reader);
        }
        KafkaStreams streams = new KafkaStreams(topology(given), settings(given));
        CountDownLatch ended = new CountDownLatch(1);
        // What Flink's fixed-delay restart is: a thread that failed is replaced.
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CLOSE_TIMEOUT)));
        streams.start();
        ended.await();
    }

    private static Topology topology(Properties given) {
        String name = SessionAssembler.STORE;
        KeyValueBytesStoreSupplier supplier = given.getProperty("job.store").equals("memory")
                ? Stores.inMemoryKeyValueStore(name)
                : Stores.persistentKeyValueStore(name);
        return new Topology()
                .addSource("events", given.getProperty("job.input-topic"))
                .addProcessor("sessions", SessionAssembler::new, "events")
                .addStateStore(
                        // Each key is written once and deleted once: a cache would hold back nothing, and is left out.
                        Stores.keyValueStoreBuilder(supplier, Serdes.ByteArray(), Serdes.ByteArray())
                                .withCachingDisabled(),
                        "sessions")
                .addSink("outputs", given.getProperty("job.output-topic"), "sessions");
    }

    private static Properties settings(Properties given) {
        Properties settings = new Properties();
        for (String name : given.stringPropertyNames()) {
            if (name.startsWith("streams.")) {
                settings.put(name.substring("streams.".length()), given.getProperty(name));
            }
        }
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        return settings;
    }
}
