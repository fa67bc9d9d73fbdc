import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints, as JSON, every setting that Kafka defines for brokers, topics, groups and quotas. */
public class DumpSettings {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        ObjectNode all = JSON.createObjectNode();
        dump(all.putObject("broker"), AbstractKafkaConfig.CONFIG_DEF, QuotaConfig.brokerQuotaConfigs());
        dump(all.putObject("topic"), LogConfig.configDefCopy());
        dump(all.putObject("group"), GroupConfig.CONFIG_DEF);
        dump(all.putObject("quota"), QuotaConfig.userAndClientQuotaConfigs(), QuotaConfig.ipConfigs());
        dumpSynonyms(all.putObject("synonyms"));
        ObjectNode modes = all.putObject("update_modes");
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach(modes::put);
        System.out.println(JSON.writeValueAsString(all));
    }

    static void dump(ObjectNode into, ConfigDef... definitions) {
        for (ConfigDef definition : definitions) {
            for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
                ObjectNode one = into.putObject(key.name);
                one.put("type", key.type.name());
                one.put("has_default", key.hasDefault());
                one.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
                one.put("validity", key.validator == null ? null : key.validator.toString());
                one.put("is_internal", key.internalConfig);
                one.put("doc", key.documentation);
            }
        }
    }

    /** For each topic or group setting the broker settings that stand in for it, and what each makes of "6". */
    static void dumpSynonyms(ObjectNode into) {
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topicName, synonyms) -> {
            ArrayNode list = into.putArray(topicName);
            synonyms.forEach(s -> list.addObject().put("name", s.name()).put("of_six", s.converter().apply("6")));
        });
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((groupName, synonym) -> {
            ArrayNode list = into.putArray(groupName);
            synonym.ifPresent(name -> list.addObject().put("name", name).put("of_six", "6"));
        });
    }
}
