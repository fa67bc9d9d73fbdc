import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Puts one of everything that a broker keeps on disk there, and says what a consumer reads back. */
public final class DataDirectory {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final String COMPACTED = "compacted";
    private static final int COMPACTED_RECORDS = 40;
    private final String bootstrap;
    private final Admin admin;

    private DataDirectory(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "golden-admin"));
    }

    public static void main(String[] args) throws Exception {
        DataDirectory directory = new DataDirectory(args[1]);
        switch (args[0]) {
            case "fill" -> directory.fill();
            case "append" -> directory.append();
            case "crash" -> directory.leaveATransactionOpen();
            case "read" -> System.out.println(new ObjectMapper().writeValueAsString(directory.read()));
            default -> throw new IllegalArgumentException(args[0]);
        }
        // Whatever is still open stays open on the broker, as after a crash of the client.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void fill() throws Exception {
        createTopics();
        for (String codec : CODECS) {
            produceBatches(codec);
        }
        produceSegments(0, 40);
        produceCompacted();
        produceTransactions("golden-txn-1", 0);
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < 10; i++) {
                producer.send(record("log-append-time", 0, i, null, "value-" + i));
                producer.send(record("deleted-records", 0, i, "key-" + i, "value-" + i));
            }
        }
        admin.deleteRecords(Map.of(new TopicPartition("deleted-records", 0), RecordsToDelete.beforeOffset(4)))
            .all().get();
        consumeAndCommit("classic", "golden-classic");
        consumeAndCommit("consumer", "golden-consumer");
        consumeAsShareGroup();
        awaitCompaction();
    }

    private void append() throws Exception {
        produceSegments(40, 44);
        produceTransactions("golden-txn-2", 1);
    }

    private void leaveATransactionOpen() throws Exception {
        produceSegments(44, 48);
        var producer = producer(Map.of("transactional.id", "golden-txn-open"));
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(record("transactions", 0, 90, "open", "never finished"));
        producer.flush();
    }

    private void createTopics() throws Exception {
        // Record timestamps lie far apart and roll the segments; retention by time must not delete them.
        Map<String, String> rolling = Map.of(
            "segment.ms", "60000", "retention.ms", "-1", "index.interval.bytes", "100");
        Map<String, String> kept = Map.of("retention.ms", "-1");
        var topics = new TreeMap<String, NewTopic>();
        for (String codec : CODECS) {
            topics.put(codec, new NewTopic("codec-" + codec, 1, (short) 1).configs(kept));
        }
        topics.put("segments", new NewTopic("segments", 2, (short) 1).configs(rolling));
        topics.put("transactions", new NewTopic("transactions", 1, (short) 1).configs(rolling));
        topics.put("deleted", new NewTopic("deleted-records", 1, (short) 1).configs(rolling));
        topics.put("append-time", new NewTopic("log-append-time", 1, (short) 1)
            .configs(Map.of("message.timestamp.type", "LogAppendTime")));
        topics.put("empty", new NewTopic("empty", 1, (short) 1));
        topics.put("compacted", new NewTopic(COMPACTED, 1, (short) 1).configs(Map.of(
            "cleanup.policy", "compact", "segment.ms", "60000", "min.cleanable.dirty.ratio", "0.01")));
        admin.createTopics(topics.values()).all().get();
    }

    private void produceBatches(String codec) throws Exception {
        // The plain one has no producer id, so that both kinds of batches exist.
        String idempotence = codec.equals("none") ? "false" : "true";
        try (var producer = producer(Map.of(
                "compression.type", codec, "linger.ms", "1000", "enable.idempotence", idempotence))) {
            for (int batch = 0; batch < 2; batch++) {
                for (int i = batch * 10; i < batch * 10 + 10; i++) {
                    var record = record(
                        "codec-" + codec, 0, i, i % 3 == 0 ? null : "key-" + i,
                        i % 4 == 3 ? null : ("value " + i + " Vltava říčka ").repeat(i + 1));
                    record.headers().add("number", new byte[] {(byte) i}).add("null", null).add("", bytes("é"));
                    producer.send(record);
                }
                producer.flush();
            }
        }
    }

    private void produceSegments(int first, int end) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int i = first; i < end; i++) {
                producer.send(record("segments", i % 2, i, "key-" + i, "value-" + i)).get();
            }
        }
    }

    private void produceCompacted() throws Exception {
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < COMPACTED_RECORDS; i++) {
                String value = i % 8 == 7 ? null : "value-" + i;
                producer.send(record(COMPACTED, 0, i, "key-" + i % 5 + (i % 8 == 7 ? "-gone" : ""), value)).get();
            }
        }
    }

    @SuppressWarnings("removal")
    private void produceTransactions(String transactionalId, int round) throws Exception {
        try (var producer = producer(Map.of("transactional.id", transactionalId)); var plain = producer(Map.of())) {
            producer.initTransactions();
            for (int i = 0; i < 6; i++) {
                producer.beginTransaction();
                int number = round * 50 + i * 2;
                producer.send(record("transactions", 0, number, "key-" + number, "in a transaction"));
                producer.flush();
                plain.send(record("transactions", 0, number + 1, "key-" + (number + 1), "in none")).get();
                if (i == 1) {
                    producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition("segments", 0), new OffsetAndMetadata(7, "within")),
                        new ConsumerGroupMetadata("golden-txn-group"));
                }
                if (i % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    private void consumeAndCommit(String protocol, String group) {
        try (var consumer = new KafkaConsumer<byte[], byte[]>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class))) {
            consumer.subscribe(List.of("segments"));
            for (int seen = 0; seen < 40;) {
                seen += consumer.poll(POLL).count();
                consumer.commitSync();
            }
        }
    }

    private void consumeAsShareGroup() throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, "golden-share");
        admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", "golden-share", "share.acknowledgement.mode", "explicit",
                "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class))) {
            consumer.subscribe(List.of("codec-none"));
            for (int seen = 0; seen < 20;) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    boolean isRejected = record.offset() % 5 == 4;
                    consumer.acknowledge(record, isRejected ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    seen++;
                }
                consumer.commitSync();
            }
        }
    }

    private void awaitCompaction() throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(90).toNanos();
        while (readPartition(new TopicPartition(COMPACTED, 0), "read_uncommitted").size() == COMPACTED_RECORDS) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("the cleaner did not run");
            Thread.sleep(500);
        }
    }

    /** Every record of every topic of users, and every committed offset. */
    private ObjectNode read() throws Exception {
        ObjectNode answer = new ObjectMapper().createObjectNode();
        ObjectNode partitions = answer.putObject("partitions");
        for (var topic : new TreeMap<>(admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get())
                .values()) {
            for (var info : topic.partitions()) {
                describe(new TopicPartition(topic.name(), info.partition()),
                    partitions.putObject(topic.name() + "-" + info.partition())
                        .put("topic_id", topic.topicId().toString()));
            }
        }
        ObjectNode groups = answer.putObject("committed_offsets");
        for (String group : List.of("golden-classic", "golden-consumer", "golden-txn-group")) {
            ObjectNode offsets = groups.putObject(group);
            offsets(group).forEach(offsets::put);
        }
        ObjectNode share = answer.putObject("share_group_start_offsets").putObject("golden-share");
        admin.listShareGroupOffsets(Map.of("golden-share", new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo("golden-share").get()
            .forEach((partition, info) -> share.put(partition.toString(), info.startOffset()));
        return answer;
    }

    private Map<String, Long> offsets(String group) throws ExecutionException, InterruptedException {
        var found = new TreeMap<String, Long>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
        return found;
    }

    private void describe(TopicPartition partition, ObjectNode answer) {
        Set<Long> committed = new HashSet<>();
        readPartition(partition, "read_committed").forEach(record -> committed.add(record.offset()));
        try (var consumer = consumer("read_committed")) {
            answer.put("start_offset", consumer.beginningOffsets(List.of(partition)).get(partition));
            answer.put("last_stable_offset", consumer.endOffsets(List.of(partition)).get(partition));
        }
        try (var consumer = consumer("read_uncommitted")) {
            answer.put("high_watermark", consumer.endOffsets(List.of(partition)).get(partition));
        }
        ArrayNode records = answer.putArray("records");
        for (var record : readPartition(partition, "read_uncommitted")) {
            ObjectNode node = records.addObject()
                .put("offset", record.offset())
                .put("timestamp", record.timestamp())
                .put("timestamp_type", record.timestampType().toString())
                .put("leader_epoch", record.leaderEpoch().orElse(-1))
                .put("key", hex(record.key()))
                .put("value", hex(record.value()))
                .put("is_committed", committed.contains(record.offset()));
            ArrayNode headers = node.putArray("headers");
            record.headers().forEach(header -> headers.addArray().add(header.key()).add(hex(header.value())));
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> readPartition(TopicPartition partition, String isolation) {
        var records = new ArrayList<ConsumerRecord<byte[], byte[]>>();
        try (var consumer = consumer(isolation)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(POLL).forEach(records::add);
            }
        }
        return records;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        return new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", isolation,
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        var all = new TreeMap<String, Object>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, int number, String key, String value) {
        return new ProducerRecord<>(
            topic, partition, FIRST_TIMESTAMP + number * 10_000L, bytes(key), bytes(value));
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
