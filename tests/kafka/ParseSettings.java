import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Reads [["topic", "retention.ms", "5"], ...] and prints what Kafka makes of each text: text again, or null. */
public class ParseSettings {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode answers = json.createArrayNode();
        for (JsonNode asked : json.readTree(System.in)) {
            boolean isTopic = asked.get(0).asText().equals("topic");
            ConfigDef definition = isTopic ? LogConfig.configDefCopy() : AbstractKafkaConfig.CONFIG_DEF;
            answers.add(parse(definition.configKeys().get(asked.get(1).asText()), asked.get(2).asText()));
        }
        System.out.println(json.writeValueAsString(answers));
    }

    static String parse(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) key.validator.ensureValid(key.name, value);
            return ConfigDef.convertToString(value, key.type);
        } catch (ConfigException e) {
            return null;
        }
    }
}
