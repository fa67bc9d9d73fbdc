import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints a line for every error of Kafka's protocol: name, number, and whether a client may try again. */
public class DumpErrors {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            System.out.println(error.name() + " " + error.code() + " " + isRetriable);
        }
    }
}
