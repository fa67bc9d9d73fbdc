import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.TreeMap;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;

/** Each line is a topic: its name, its id, and the racks of each partition, separated by commas. Prints the hash of each, then that of all. */
public class HashTopics {
    record Topic(String name, Uuid id, List<List<String>> racks) implements CoordinatorMetadataImage.TopicMetadata {
        public int partitionCount() {
            return racks.size();
        }

        public List<String> partitionRacks(int partition) {
            return new ArrayList<>(racks.get(partition));
        }
    }

    public static void main(String[] args) {
        Map<String, Long> hashes = new TreeMap<>();
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            List<List<String>> racks = new ArrayList<>();
            for (int i = 2; i < words.length; i++) {
                racks.add(words[i].isEmpty() ? List.of() : List.of(words[i].split(",")));
            }
            Topic topic = new Topic(words[0], Uuid.fromString(words[1]), racks);
            CoordinatorMetadataImage image = (CoordinatorMetadataImage) java.lang.reflect.Proxy.newProxyInstance(
                HashTopics.class.getClassLoader(),
                new Class<?>[] {CoordinatorMetadataImage.class},
                (proxy, method, arguments) -> Optional.of(topic));
            long hash = Utils.computeTopicHash(words[0], image);
            hashes.put(words[0], hash);
            System.out.println(hash);
        }
        System.out.println(Utils.computeGroupHash(hashes));
    }
}
