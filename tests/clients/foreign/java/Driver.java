import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownServerException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Kafka's own client, asked on stdin and answering on stdout, one line of JSON each. */
public final class Driver {
    private static final int NO_CODE = -1;
    private static final short CLUSTER_CHOOSES = -1;
    // Larger than any batch or request that is asked for, so that it is the broker that refuses one.
    private static final String BYTES_MAX = String.valueOf(16 << 20);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;

    private Driver(String bootstrap, Admin admin) {
        this.bootstrap = bootstrap;
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = System.out;
        // Whatever logs must not come between the replies.
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "default.api.timeout.ms", "15000", "request.timeout.ms", "10000");
        try (Admin admin = Admin.create(settings)) {
            Driver driver = new Driver(arguments[0], admin);
            reply(replies, Map.of("ready", true, "version", AppInfoParser.getVersion()));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                reply(replies, driver.answer(JSON.readTree(line)));
            }
        }
    }

    private static void reply(PrintStream replies, Map<String, Object> line) throws IOException {
        replies.write((JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        replies.flush();
    }

    private Map<String, Object> answer(JsonNode asked) throws InterruptedException {
        long id = asked.get("id").asLong();
        try {
            return Map.of("id", id, "ok", carryOut(asked));
        } catch (UnsupportedOperationException unsupported) {
            return Map.of("id", id, "unsupported", unsupported.getMessage());
        } catch (ExecutionException | RuntimeException | IOException failed) {
            failed.printStackTrace();
            return Map.of("id", id, "error", described(failed));
        }
    }

    private Map<String, ?> carryOut(JsonNode asked) throws ExecutionException, InterruptedException, IOException {
        return switch (asked.get("op").asText()) {
            case "create_topic" -> createTopic(asked);
            case "describe_topic" -> describeTopic(topic(asked));
            case "list_topics" -> Map.of("topics", admin.listTopics().names().get());
            case "describe_configs" -> describeConfigs(topic(asked));
            case "alter_configs" -> alterConfigs(asked);
            case "create_partitions" -> createPartitions(asked);
            case "delete_topic" -> deleteTopic(topic(asked));
            case "delete_records" -> deleteRecords(asked);
            case "produce" -> produce(asked);
            case "consume" -> consume(asked);
            case "consume_from_time" -> consumeFromTime(asked);
            case "list_offsets" -> listOffsets(partition(asked));
            case "offset_for_time" -> offsetForTime(asked);
            case "describe_cluster" -> describeCluster();
            default -> throw new UnsupportedOperationException("the driver has no such operation");
        };
    }

    /** What the broker said is inside of what the client made of it. */
    private static Map<String, Object> described(Throwable failed) {
        for (Throwable cause = failed.getCause(); cause != null; cause = cause.getCause()) {
            if (failed instanceof ExecutionException || isKafkas(cause)) {
                failed = cause;
            }
        }
        // The consumer's exception of this name is not the one that stands for the error.
        Errors error =
            failed instanceof OffsetOutOfRangeException ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(failed);
        boolean hasCode = error == Errors.OFFSET_OUT_OF_RANGE || isKafkas(failed);
        return Map.of(
            "code", hasCode ? error.code() : NO_CODE,
            "name", hasCode ? error.name() : failed.getClass().getSimpleName(),
            "message", String.valueOf(failed.getMessage()));
    }

    private static boolean isKafkas(Throwable failed) {
        return failed instanceof UnknownServerException || Errors.forException(failed) != Errors.UNKNOWN_SERVER_ERROR;
    }

    private Map<String, ?> createTopic(JsonNode asked) throws ExecutionException, InterruptedException {
        Optional<Short> replicationFactor = asked.has("replication_factor")
            ? Optional.of((short) asked.get("replication_factor").asInt())
            : Optional.of(CLUSTER_CHOOSES);
        NewTopic wanted = new NewTopic(topic(asked), Optional.of(asked.get("partitions").asInt()), replicationFactor);
        admin.createTopics(List.of(wanted.configs(configs(asked)))).all().get();
        return Map.of();
    }

    private Map<String, ?> describeTopic(String topic) throws ExecutionException, InterruptedException {
        TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        List<Integer> leaders = found.partitions().stream().map(each -> each.leader().id()).toList();
        return Map.of("partitions", leaders.size(), "leaders", leaders);
    }

    private Map<String, ?> describeConfigs(String topic) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            found.put(entry.name(), entry.value());
        }
        return Map.of("configs", found);
    }

    private Map<String, ?> alterConfigs(JsonNode asked) throws ExecutionException, InterruptedException {
        List<AlterConfigOp> changes = new ArrayList<>();
        configs(asked).forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(asked));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return Map.of();
    }

    private Map<String, ?> createPartitions(JsonNode asked) throws ExecutionException, InterruptedException {
        NewPartitions wanted = NewPartitions.increaseTo(asked.get("total").asInt());
        admin.createPartitions(Map.of(topic(asked), wanted)).all().get();
        return Map.of();
    }

    private Map<String, ?> deleteTopic(String topic) throws ExecutionException, InterruptedException {
        admin.deleteTopics(List.of(topic)).all().get();
        return Map.of();
    }

    private Map<String, ?> deleteRecords(JsonNode asked) throws ExecutionException, InterruptedException {
        TopicPartition partition = partition(asked);
        RecordsToDelete before = RecordsToDelete.beforeOffset(asked.get("before_offset").asLong());
        long lowWatermark =
            admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
        return Map.of("low_watermark", lowWatermark);
    }

    private Map<String, ?> produce(JsonNode asked) throws ExecutionException, InterruptedException, IOException {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", asked.get("codec").asText());
        settings.put("acks", asked.get("acks").asText());
        settings.put("enable.idempotence", asked.get("idempotent").asBoolean());
        settings.put("max.request.size", BYTES_MAX);
        // Records wait for each other until the flush, so that they share batches.
        settings.put("batch.size", 1 << 20);
        settings.put("linger.ms", 1000);
        settings.put("max.block.ms", 5_000);
        settings.put("request.timeout.ms", 20_000);
        settings.put("delivery.timeout.ms", 40_000);
        List<Future<RecordMetadata>> deliveries = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : asked.get("records")) {
                deliveries.add(producer.send(record(topic(asked), record)));
            }
            producer.flush();
        }
        List<Map<String, Object>> results = new ArrayList<>();
        for (Future<RecordMetadata> delivery : deliveries) {
            RecordMetadata written = delivery.get();
            results.add(Map.of("partition", written.partition(), "offset", written.offset()));
        }
        return Map.of("results", results);
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode wanted) throws IOException {
        Integer partition = wanted.has("partition") ? wanted.get("partition").asInt() : null;
        Long timestamp = wanted.has("timestamp") ? wanted.get("timestamp").asLong() : null;
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, partition, timestamp, bytes(wanted.get("key")), bytes(wanted.get("value")));
        for (JsonNode header : wanted.path("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    private Map<String, ?> consume(JsonNode asked) {
        TopicPartition partition = partition(asked);
        JsonNode offset = asked.get("offset");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(partition)) {
            switch (offset.asText()) {
                case "earliest" -> consumer.seekToBeginning(List.of(partition));
                case "latest" -> consumer.seekToEnd(List.of(partition));
                default -> consumer.seek(partition, offset.asLong());
            }
            return Map.of("records", read(consumer, asked));
        }
    }

    private Map<String, ?> consumeFromTime(JsonNode asked) {
        TopicPartition partition = partition(asked);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(partition)) {
            long offset = offsetAtTime(consumer, partition, asked.get("timestamp").asLong());
            if (offset < 0) {
                return Map.of("offset", offset, "records", List.of());
            }
            consumer.seek(partition, offset);
            return Map.of("offset", offset, "records", read(consumer, asked));
        }
    }

    private Map<String, ?> offsetForTime(JsonNode asked) {
        TopicPartition partition = partition(asked);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(partition)) {
            return Map.of("offset", offsetAtTime(consumer, partition, asked.get("timestamp").asLong()));
        }
    }

    private static long offsetAtTime(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
        return found == null ? -1 : found.offset();
    }

    private KafkaConsumer<byte[], byte[]> consumer(TopicPartition partition) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "auto.offset.reset", "none",
            "enable.auto.commit", false,
            "allow.auto.create.topics", false,
            "max.partition.fetch.bytes", BYTES_MAX,
            "default.api.timeout.ms", 10_000);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(partition));
        return consumer;
    }

    private static List<Map<String, Object>> read(KafkaConsumer<byte[], byte[]> consumer, JsonNode asked) {
        int count = asked.get("count").asInt();
        long deadline = System.currentTimeMillis() + asked.get("timeout_ms").asLong();
        List<Map<String, Object>> found = new ArrayList<>();
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            long waitMs = Math.max(1, deadline - System.currentTimeMillis());
            consumer.poll(Duration.ofMillis(waitMs)).forEach(record -> found.add(described(record)));
        }
        return found.subList(0, Math.min(count, found.size()));
    }

    private static Map<String, Object> described(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(base64(header.value()));
            headers.add(pair);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("partition", record.partition());
        found.put("offset", record.offset());
        found.put("timestamp", record.timestamp());
        found.put("key", base64(record.key()));
        found.put("value", base64(record.value()));
        found.put("headers", headers);
        return found;
    }

    private Map<String, ?> listOffsets(TopicPartition partition) throws ExecutionException, InterruptedException {
        var earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get();
        var latest = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get();
        return Map.of("earliest", earliest.offset(), "latest", latest.offset());
    }

    private Map<String, ?> describeCluster() throws ExecutionException, InterruptedException {
        var cluster = admin.describeCluster();
        List<Map<String, Object>> nodes = new ArrayList<>();
        cluster.nodes().get().forEach(node ->
            nodes.add(Map.of("id", node.id(), "host", node.host(), "port", node.port())));
        int controllerId = cluster.controller().get().id();
        return Map.of("cluster_id", cluster.clusterId().get(), "controller_id", controllerId, "nodes", nodes);
    }

    private static String topic(JsonNode asked) {
        return asked.get("topic").asText();
    }

    private static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(topic(asked), asked.get("partition").asInt());
    }

    private static Map<String, String> configs(JsonNode asked) {
        Map<String, String> found = new HashMap<>();
        asked.get("configs").properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64 == null || base64.isNull() ? null : base64.binaryValue();
    }

    private static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
