package peers;

import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.ParameterTool;

/**
 * Assembles sessions from one Kafka topic and writes twenty outputs for each to another, exactly once.
 *
 * <p>The one argument is a properties file. {@code flink.*} are Flink's own settings, {@code source.*} and {@code sink.*} those of
 * Kafka's consumer and producer, {@code job.*} the job's. The mini cluster runs inside this JVM.
 */
public final class SessionJob {
    private static final long CANCEL_TIMEOUT_S = 20;

    public static void main(String[] args) throws Exception {
        ParameterTool given = ParameterTool.fromPropertiesFile(args[0]);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(below(given, "flink.")));

        env.fromSource(source(given), WatermarkStrategy.noWatermarks(), "events")
                .uid("events")
                .keyBy(event -> event.key, Types.STRING)
                .process(new SessionAssembler())
                .uid("sessions")
                .sinkTo(sink(given))
                .uid("outputs");

        JobClient job = env.executeAsync("sessions");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> cancel(job)));
        job.getJobExecutionResult().get();
    }

    private static KafkaSource<Event> source(ParameterTool given) {
        return KafkaSource.<Event>builder()
                .setBootstrapServers(given.getRequired("job.bootstrap-servers"))
                .setTopics(given.getRequired("job.input-topic"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(new EventDeserializer())
                .setProperties(properties(given, "source."))
                .build();
    }

    private static KafkaSink<Output> sink(ParameterTool given) {
        return KafkaSink.<Output>builder()
                .setBootstrapServers(given.getRequired("job.bootstrap-servers"))
                .setRecordSerializer(new OutputSerializer(given.getRequired("job.output-topic")))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(given.getRequired("job.transactional-id-prefix"))
                .setTransactionNamingStrategy(
                        TransactionNamingStrategy.valueOf(given.getRequired("job.transaction-naming")))
                .setKafkaProducerConfig(properties(given, "sink."))
                .build();
    }

    /** Ends the job as {@code flink cancel} does: open transactions are aborted rather than left to their time-out. */
    private static void cancel(JobClient job) {
        try {
            job.cancel().get(CANCEL_TIMEOUT_S, TimeUnit.SECONDS);
            job.getJobExecutionResult().handle((result, error) -> null).get(CANCEL_TIMEOUT_S, TimeUnit.SECONDS);
        } catch (Exception error) {
            System.err.println("cancelling the job failed: " + error);
        }
    }

    private static Map<String, String> below(ParameterTool given, String prefix) {
        return given.toMap().entrySet().stream()
                .filter(entry -> entry.getKey().startsWith(prefix))
                .collect(Collectors.toMap(
                        entry -> entry.getKey().substring(prefix.length()), Map.Entry::getValue));
    }

    private static Properties properties(ParameterTool given, String prefix) {
        Properties properties = new Properties();
        properties.putAll(below(given, prefix));
        return properties;
    }
}
