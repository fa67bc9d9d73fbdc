import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group with Kafka's own client: tells on stdout what happens to it, and leaves when stdin ends. */
public final class Member {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream EVENTS = System.out;

    public static void main(String[] arguments) throws Exception {
        // Whatever logs must not come between the events.
        System.setOut(System.err);
        JsonNode asked = JSON.readTree(arguments[0]);
        String topic = asked.get("topic").asText();
        AtomicBoolean leaves = inputEnded();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings(asked), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(java.util.List.of(topic), new Teller());
            while (!leaves.get()) {
                Map<TopicPartition, OffsetAndMetadata> nexts = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> each : poll(consumer)) {
                    tell(Map.of("event", "read", "partition", each.partition(), "offset", each.offset()));
                    nexts.put(
                        new TopicPartition(topic, each.partition()), new OffsetAndMetadata(each.offset() + 1));
                }
                if (!nexts.isEmpty()) {
                    commit(consumer, nexts);
                }
            }
        }
    }

    private static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> found = new HashMap<>(Map.of(
            "bootstrap.servers", asked.get("bootstrap").asText(),
            "group.id", asked.get("group").asText(),
            "group.protocol", asked.get("protocol").asText(),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        if (asked.get("protocol").asText().equals("classic")) {
            // With the new protocol all three are for the coordinator to say.
            found.put("session.timeout.ms", asked.get("session_timeout_ms").asInt());
            found.put("heartbeat.interval.ms", asked.get("heartbeat_interval_ms").asInt());
            found.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        return found;
    }

    private static Iterable<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            return consumer.poll(POLL);
        } catch (UnknownMemberIdException fenced) {
            // A member that was silent for too long asks where to read on, and may learn so that it is none any
            // more, before its heartbeat tells; it joins again by itself.
            System.err.println("not polled: " + fenced);
            return java.util.List.of();
        }
    }

    private static void commit(KafkaConsumer<?, ?> consumer, Map<TopicPartition, OffsetAndMetadata> nexts) {
        try {
            consumer.commitSync(nexts);
        } catch (KafkaException refused) {
            // Whoever has the partitions now reads the records again.
            System.err.println("not committed: " + refused);
            return;
        }
        Map<String, Long> offsets = new TreeMap<>();
        nexts.forEach((place, next) -> offsets.put(String.valueOf(place.partition()), next.offset()));
        tell(Map.of("event", "committed", "offsets", offsets));
    }

    private static AtomicBoolean inputEnded() {
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try (InputStream input = System.in) {
                input.readAllBytes();
            } catch (IOException broken) {
                System.err.println("the input broke: " + broken);
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        return ended;
    }

    private static synchronized void tell(Map<String, ?> event) {
        Map<String, Object> line = new HashMap<>(event);
        line.put("at", System.currentTimeMillis());
        try {
            EVENTS.println(JSON.writeValueAsString(line));
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
        EVENTS.flush();
    }

    private static final class Teller implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            tellPlaces("assigned", places);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            tellPlaces("revoked", places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            tellPlaces("lost", places);
        }

        private static void tellPlaces(String event, Collection<TopicPartition> places) {
            tell(Map.of("event", event, "partitions", places.stream().map(TopicPartition::partition).toList()));
        }
    }
}
