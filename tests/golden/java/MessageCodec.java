import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.RequestHeaderDataJsonConverter;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.ResponseHeaderDataJsonConverter;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/** Turns messages into bytes and back with Kafka's own classes: one JSON object a line in, one a line out. */
public final class MessageCodec {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (InvocationTargetException failed) {
                answer = JSON.createObjectNode().put("error", failed.getCause().toString());
            } catch (Exception failed) {
                answer = JSON.createObjectNode().put("error", failed.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ObjectNode answer(JsonNode asked) throws Exception {
        short version = asked.path("version").shortValue();
        return switch (asked.get("op").textValue()) {
            case "encode" -> encode(
                asked.get("class").textValue(), version, asked.get("json"), asked.path("unknown_tag").asInt(-1));
            case "headers" -> headers(asked.get("api_key").shortValue(), version);
            case "frame" -> decodeFrame(
                asked.get("api_key").shortValue(), version, asked.get("kind").textValue().equals("request"),
                HEX.parseHex(asked.get("hex").textValue()));
            default -> throw new IllegalArgumentException("unknown op " + asked.get("op"));
        };
    }

    /** The bytes of a message given as JSON, or of a fresh one if the JSON is null, with a tag of the future if asked. */
    private static ObjectNode encode(String className, short version, JsonNode json, int unknownTag)
            throws Exception {
        Message message = json.isNull()
            ? (Message) Class.forName(className).getConstructor().newInstance()
            : (Message) converter(className)
                .getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
        if (unknownTag >= 0) {
            message.unknownTaggedFields().add(new RawTaggedField(unknownTag, "future".getBytes(StandardCharsets.UTF_8)));
        }
        byte[] bytes = bytes(message, version);
        Message again = (Message) Class.forName(className).getConstructor().newInstance();
        again.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
        ObjectNode answer = JSON.createObjectNode().put("hex", HEX.formatHex(bytes));
        answer.set("json", toJson(again, version));
        return answer;
    }

    private static ObjectNode headers(short apiKey, short version) {
        ApiMessageType type = ApiMessageType.fromApiKey(apiKey);
        return JSON.createObjectNode()
            .put("request", type.requestHeaderVersion(version))
            .put("response", type.responseHeaderVersion(version));
    }

    /** What a frame of the network says, and the bytes Kafka would write for the same. */
    private static ObjectNode decodeFrame(short apiKey, short version, boolean isRequest, byte[] frame)
            throws Exception {
        ApiMessageType type = ApiMessageType.fromApiKey(apiKey);
        ByteBuffer buffer = ByteBuffer.wrap(frame);
        ByteBufferAccessor readable = new ByteBufferAccessor(buffer);
        Message header;
        Message body;
        short headerVersion;
        JsonNode headerJson;
        if (isRequest) {
            headerVersion = type.requestHeaderVersion(version);
            header = new RequestHeaderData(readable, headerVersion);
            headerJson = RequestHeaderDataJsonConverter.write((RequestHeaderData) header, headerVersion);
            body = type.newRequest();
        } else {
            headerVersion = type.responseHeaderVersion(version);
            header = new ResponseHeaderData(readable, headerVersion);
            headerJson = ResponseHeaderDataJsonConverter.write((ResponseHeaderData) header, headerVersion);
            body = type.newResponse();
        }
        body.read(readable, version);
        String again = HEX.formatHex(bytes(header, headerVersion)) + HEX.formatHex(bytes(body, version));
        ObjectNode answer = JSON.createObjectNode().put("header_version", headerVersion);
        answer.set("header", headerJson);
        answer.set("json", toJson(body, version));
        return answer.put("hex", again).put("left", buffer.remaining());
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) throw new IllegalStateException("size() and write() disagree");
        return buffer.array();
    }

    private static JsonNode toJson(Message message, short version) throws Exception {
        return (JsonNode) converter(message.getClass().getName())
            .getMethod("write", message.getClass(), short.class, boolean.class)
            .invoke(null, message, version, false);
    }

    private static Class<?> converter(String className) throws ClassNotFoundException {
        return Class.forName(className + "JsonConverter");
    }
}
