import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes the Java client send every kind of request that it knows to a cluster of two brokers. */
public final class Tour {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final TopicPartition FIRST = new TopicPartition("tour", 0);
    private final String bootstrap;
    private final Admin admin;

    private interface Step {
        void run() throws Exception;
    }

    private Tour(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "tour-admin"));
    }

    public static void main(String[] args) throws Exception {
        Tour tour = new Tour(args[1]);
        switch (args[0]) {
            case "topic" -> tour.createATopic();
            case "clients" -> tour.clients(args[2]);
            case "add-voter" -> tour.admin.addRaftVoter(
                Integer.parseInt(args[2]), Uuid.fromString(args[3]), Set.of(new RaftVoterEndpoint(
                    "CONTROLLER", args[4].split(":")[0], Integer.parseInt(args[4].split(":")[1])))).all().get();
            case "remove-voter" -> tour.removeVoter(Integer.parseInt(args[2]), Uuid.fromString(args[3]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    private void createATopic() throws Exception {
        admin.createTopics(List.of(new NewTopic("raw", 1, (short) 1))).all().get();
        try (var producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>("raw", 0, 1_700_000_000_000L, bytes("key"), bytes("value"))).get();
        }
    }

    /** Asks until it has happened: a leader may lose its place, or remove itself, before it answers. */
    private void removeVoter(int nodeId, Uuid directory) throws Exception {
        while (admin.describeMetadataQuorum().quorumInfo().get().voters().size() > 1) {
            step("remove a voter", () -> admin.removeRaftVoter(nodeId, directory).all().get());
            Thread.sleep(1000);
        }
    }

    private void clients(String saslBootstrap) throws Exception {
        topics();
        configs();
        producers();
        groups();
        shareGroups();
        partitions();
        cluster();
        security(saslBootstrap);
        step("delete topics", () -> {
            admin.deleteTopics(List.of("tour-small")).all().get();
            Uuid id = admin.describeTopics(List.of("tour-2")).allTopicNames().get().get("tour-2").topicId();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        });
    }

    private void topics() {
        step("create topics", () -> {
            admin.createTopics(List.of(
                new NewTopic("tour", 2, (short) 2),
                new NewTopic("tour-2", Optional.of(1), Optional.empty()).configs(Map.of("segment.ms", "60000")),
                new NewTopic("tour-small", Map.of(0, List.of(2, 1))))).all().get();
            admin.createTopics(
                List.of(new NewTopic("tour-unmade", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true))
                .all().get();
        });
        refused("create an existing topic", () ->
            admin.createTopics(List.of(new NewTopic("tour", 1, (short) 1))).all().get());
        step("list and describe topics", () -> {
            admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get();
            var described = admin.describeTopics(List.of("tour", "tour-2"),
                new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get();
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.get("tour").topicId())))
                .allTopicIds().get();
        });
        step("create partitions", () ->
            admin.createPartitions(Map.of("tour-2", NewPartitions.increaseTo(2, List.of(List.of(2, 1))))).all().get());
    }

    private void configs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "tour");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "tour-share");
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "tour-metrics");
        step("alter configs", () -> admin.incrementalAlterConfigs(Map.of(
            topic, List.of(set("retention.ms", "86400000"), set("max.message.bytes", "900000")),
            broker, List.of(set("log.cleaner.io.max.bytes.per.second", "1000000")),
            group, List.of(set("share.auto.offset.reset", "earliest")),
            // Clients push their metrics to a broker that asks for them (KIP-714).
            metrics, List.of(
                set("interval.ms", "1000"), set("metrics", "org.apache.kafka.producer.connection"),
                set("match", "client_id=tour-.*")))).all().get());
        step("describe configs", () -> {
            admin.describeConfigs(List.of(topic, group, metrics),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(false)).all().get();
            admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, "tour-2"))).all().get();
            admin.describeConfigs(List.of(broker)).all().get();
        });
        step("list config resources", () -> {
            admin.listConfigResources().all().get();
            admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions())
                .all().get();
        });
        step("quotas", () -> {
            var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "vltava", ClientQuotaEntity.CLIENT_ID, "c"));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0))))).all().get();
            for (int i = 0; i < 20 && admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().isEmpty(); i++) {
                Thread.sleep(100);
            }
        });
    }

    private void producers() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            step("produce " + codec, () -> {
                try (var producer = producer(Map.of(
                        "compression.type", codec, "client.id", "tour-" + codec, "linger.ms", "100"))) {
                    for (int i = 0; i < 10; i++) {
                        var record = new ProducerRecord<>("tour", i % 2, bytes(i % 3 == 0 ? null : "key"), bytes("value " + i));
                        record.headers().add("header", bytes("é")).add("null", null);
                        producer.send(record);
                    }
                    producer.flush();
                    producer.send(new ProducerRecord<>("tour", 0, null, null)).get();
                    // Long enough for the client to have pushed metrics once.
                    if (codec.equals("none")) Thread.sleep(2500);
                }
            });
        }
        step("produce without acks", () -> {
            try (var producer = producer(Map.of("acks", "0", "enable.idempotence", "false"))) {
                producer.send(new ProducerRecord<>("tour", 0, bytes("key"), bytes("unacknowledged"))).get();
            }
        });
        step("transactions", () -> {
            try (var producer = producer(Map.of("transactional.id", "tour-txn"))) {
                producer.initTransactions();
                for (boolean isCommitted : new boolean[] {true, false}) {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>("tour", 0, bytes("key"), bytes("in a transaction")));
                    producer.send(new ProducerRecord<>("tour", 1, bytes("key"), bytes("in a transaction")));
                    producer.flush();
                    admin.listTransactions().all().get();
                    admin.describeTransactions(List.of("tour-txn")).all().get();
                    admin.describeProducers(List.of(FIRST)).all().get();
                    if (isCommitted) {
                        try (var consumer = consumer("tour-txn-group", "consumer", Map.of())) {
                            consumer.subscribe(List.of("tour"));
                            while (consumer.poll(POLL).isEmpty()) { }
                            producer.sendOffsetsToTransaction(
                                Map.of(FIRST, new OffsetAndMetadata(3, "within")), consumer.groupMetadata());
                        }
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
            }
            admin.listTransactions(new ListTransactionsOptions().filterOnDuration(0)).all().get();
            admin.fenceProducers(List.of("tour-txn")).all().get();
        });
        step("abort a hanging transaction", () -> {
            try (var producer = producer(Map.of("transactional.id", "tour-hanging"))) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("tour", 0, bytes("key"), bytes("hanging"))).get();
                var state = admin.describeProducers(List.of(FIRST)).all().get().get(FIRST).activeProducers().stream()
                    .filter(active -> active.currentTransactionStartOffset().isPresent()).findFirst().orElseThrow();
                admin.abortTransaction(new AbortTransactionSpec(
                    FIRST, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0)))
                    .all().get();
                producer.commitTransaction();
            }
        });
    }

    private void groups() {
        step("classic group", () -> {
            try (var consumer = consumer("tour-classic", "classic", Map.of("group.instance.id", "instance-1"))) {
                consume(consumer, () -> consumer.subscribe(List.of("tour")));
                admin.describeClassicGroups(List.of("tour-classic")).all().get();
                admin.describeConsumerGroups(List.of("tour-classic")).all().get();
                // Heartbeats leave every three seconds.
                Thread.sleep(3500);
                consumer.poll(POLL);
            }
            admin.removeMembersFromConsumerGroup("tour-classic", new RemoveMembersFromConsumerGroupOptions(
                List.of(new MemberToRemove("instance-1")))).all().get();
        });
        step("consumer group", () -> {
            try (var consumer = consumer("tour-consumer", "consumer", Map.of("isolation.level", "read_committed"))) {
                consume(consumer, () -> consumer.subscribe(new SubscriptionPattern("tour.*")));
                consumer.offsetsForTimes(Map.of(FIRST, 1L));
                consumer.beginningOffsets(List.of(FIRST));
                consumer.endOffsets(List.of(FIRST));
                consumer.committed(Set.of(FIRST));
                consumer.listTopics();
                consumer.partitionsFor("tour");
                admin.describeConsumerGroups(List.of("tour-consumer"),
                    new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get();
            }
        });
        step("classic group by pattern", () -> {
            try (var consumer = consumer("tour-pattern", "classic", Map.of("client.rack", "rack-1"))) {
                consume(consumer, () -> consumer.subscribe(Pattern.compile("tour.*")));
            }
        });
        step("group offsets", () -> {
            admin.listGroups().all().get();
            admin.listConsumerGroupOffsets(Map.of("tour-classic", new ListConsumerGroupOffsetsSpec(),
                "tour-consumer", new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(FIRST)))).all().get();
            admin.alterConsumerGroupOffsets("tour-classic", Map.of(FIRST, new OffsetAndMetadata(2, "altered"))).all().get();
            admin.deleteConsumerGroupOffsets("tour-classic", Set.of(FIRST)).all().get();
            admin.deleteConsumerGroups(List.of("tour-pattern")).all().get();
        });
    }

    private void shareGroups() {
        step("share group", () -> {
            try (var consumer = new KafkaShareConsumer<byte[], byte[]>(Map.of(
                    "bootstrap.servers", bootstrap, "group.id", "tour-share", "client.id", "tour-share",
                    "share.acknowledgement.mode", "explicit", "max.poll.records", "5",
                    "key.deserializer", ByteArrayDeserializer.class,
                    "value.deserializer", ByteArrayDeserializer.class))) {
                consumer.subscribe(List.of("tour"));
                AcknowledgeType[] types = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
                for (int seen = 0; seen < 20;) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                        consumer.acknowledge(record, types[seen++ % types.length]);
                    }
                    consumer.commitSync();
                }
                admin.describeShareGroups(List.of("tour-share")).all().get();
            }
            admin.listShareGroupOffsets(Map.of("tour-share", new ListShareGroupOffsetsSpec())).all().get();
            admin.alterShareGroupOffsets("tour-share", Map.of(FIRST, 1L)).all().get();
            admin.deleteShareGroupOffsets("tour-share", Set.of("tour")).all().get();
            admin.deleteShareGroups(List.of("tour-share")).all().get();
        });
    }

    private void partitions() {
        step("list offsets", () -> {
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                    OffsetSpec.forTimestamp(1), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
                admin.listOffsets(Map.of(FIRST, spec)).all().get();
            }
        });
        step("delete records", () ->
            admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(2))).all().get());
        step("elect leaders", () -> {
            admin.electLeaders(ElectionType.PREFERRED, Set.of(FIRST)).partitions().get();
            admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get();
        });
        step("reassign", () -> {
            var small = new TopicPartition("tour-small", 0);
            admin.alterPartitionReassignments(Map.of(
                small, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get();
            admin.listPartitionReassignments().reassignments().get();
        });
        step("log directories", () -> {
            admin.describeLogDirs(List.of(1, 2)).allDescriptions().get();
            admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica("tour", 0, 1))).all().get();
        });
        refused("move to an unknown directory", () -> admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica("tour", 0, 1), "/nowhere")).all().get());
    }

    private void cluster() {
        step("describe the cluster", () -> {
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)
                .includeFencedBrokers(true)).authorizedOperations().get();
            admin.describeMetadataQuorum().quorumInfo().get();
            admin.describeFeatures().featureMetadata().get();
        });
        refused("update an unknown feature", () -> admin.updateFeatures(
            Map.of("moldau.version", new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all().get());
        refused("unregister an unknown broker", () -> admin.unregisterBroker(99).all().get());
    }

    private void security(String saslBootstrap) {
        step("acls", () -> {
            var binding = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, "tour", PatternType.LITERAL),
                new AccessControlEntry("User:vltava", "*", AclOperation.READ, AclPermissionType.ALLOW));
            admin.createAcls(List.of(binding)).all().get();
            for (Collection<AclBinding> found = List.of(); found.isEmpty();) {
                found = admin.describeAcls(AclBindingFilter.ANY).values().get();
            }
            admin.deleteAcls(List.of(binding.toFilter())).all().get();
        });
        step("scram", () -> {
            for (String user : List.of("golden", "vltava")) {
                admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                    user, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), bytes("password"), bytes("salt"))))
                    .all().get();
            }
            while (admin.describeUserScramCredentials().all().get().size() < 2) { }
            admin.alterUserScramCredentials(List.of(
                new UserScramCredentialDeletion("vltava", ScramMechanism.SCRAM_SHA_256))).all().get();
        });
        step("delegation tokens", () -> {
            try (Admin golden = Admin.create(Map.of(
                    "bootstrap.servers", saslBootstrap, "client.id", "tour-sasl",
                    "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-256",
                    "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required "
                        + "username=\"golden\" password=\"password\";"))) {
                DelegationToken token = golden.createDelegationToken().delegationToken().get();
                while (golden.describeDelegationToken().delegationTokens().get().isEmpty()) { }
                golden.renewDelegationToken(token.hmac()).expiryTimestamp().get();
                golden.expireDelegationToken(token.hmac()).expiryTimestamp().get();
            }
        });
    }

    private void consume(KafkaConsumer<byte[], byte[]> consumer, Runnable subscribe) {
        subscribe.run();
        for (int seen = 0; seen < 20;) {
            seen += consumer.poll(POLL).count();
        }
        consumer.commitSync();
    }

    /** Runs one step to its end and says so if it fails, so that one surprise does not end the tour. */
    private static void step(String name, Step step) {
        try {
            step.run();
        } catch (Exception failed) {
            System.err.println(name + ": " + failed);
        }
    }

    /** Runs a step that the broker must refuse. */
    private static void refused(String name, Step step) {
        try {
            step.run();
            System.err.println(name + ": was not refused");
        } catch (Exception expected) {
            // The refusal is what was to be recorded.
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        var all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String protocol, Map<String, Object> settings) {
        var all = new HashMap<>(settings);
        all.putAll(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "client.id", "tour-" + protocol));
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
