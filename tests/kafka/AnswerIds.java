import java.util.Scanner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.utils.Utils;

/** Answers questions about ids, one a line: "hash 00410042" (UTF-16 in hex), "uuid text", "topic text", ... */
public class AnswerIds {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", 2);
            System.out.println(answer(words[0], words[1]));
        }
    }

    static String answer(String question, String about) {
        switch (question) {
            case "coordinator": return "" + Utils.abs(utf16(about).hashCode()) % 50;
            case "uuid": return uuid(about);
            case "topic": return "" + isTopicName(about);
            case "collision": return "" + Topic.hasCollision(about.split(" ")[0], about.split(" ")[1]);
            default: throw new IllegalArgumentException(question);
        }
    }

    static String utf16(String hex) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < hex.length(); i += 4) text.append((char) Integer.parseInt(hex.substring(i, i + 4), 16));
        return text.toString();
    }

    static String uuid(String text) {
        try {
            Uuid uuid = Uuid.fromString(text);
            return String.format("%016x%016x", uuid.getMostSignificantBits(), uuid.getLeastSignificantBits());
        } catch (IllegalArgumentException e) {
            return "invalid";
        }
    }

    static boolean isTopicName(String text) {
        try {
            Topic.validate(text);
            return true;
        } catch (InvalidTopicException e) {
            return false;
        }
    }
}
