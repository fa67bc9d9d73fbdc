import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams counts the words of a topic until stdin ends; words go through a topic, counts into a changelog. */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String application = arguments[1];
        String input = arguments[2];
        String output = arguments[3];
        String stateFolder = arguments[4];

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));

        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", bootstrap,
            "application.id", application,
            "state.dir", stateFolder,
            "processing.guarantee", "at_least_once",
            "default.key.serde", Serdes.StringSerde.class.getName(),
            "default.value.serde", Serdes.StringSerde.class.getName(),
            "num.stream.threads", "2",
            "commit.interval.ms", "200",
            "repartition.purge.interval.ms", "200"));
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "1000");

        CountDownLatch ended = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(failed -> {
            failed.printStackTrace();
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException broken) {
                broken.printStackTrace();
            }
            ended.countDown();
        });
        reader.setDaemon(true);
        reader.start();
        ended.await();
        boolean failed = streams.state() == KafkaStreams.State.ERROR;
        streams.close();
        System.exit(failed ? 1 : 0);
    }
}
