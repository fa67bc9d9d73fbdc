import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's console tools, many runs in one process: which to run, with what arguments and input, is read on stdin, and
 * what came of it is written to stdout, one line of JSON each.
 */
public final class ConsoleTools {
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static final ObjectMapper JSON = new ObjectMapper();

    // Scala keeps the streams that it finds first, so that all runs write to the same.
    private static final ByteArrayOutputStream OUTPUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();

    // What a tool does when its process ends: the producer, for one, sends what it still has.
    private static final List<Runnable> HOOKS = new ArrayList<>();

    // A tool that catches everything exits again, because it could not exit the first time.
    private static Integer firstStatus;

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(OUTPUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> {
            firstStatus = firstStatus == null ? status : firstStatus;
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        reply(replies, Map.of("ready", true, "version", AppInfoParser.getVersion(), "exceptions", exceptions()));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            reply(replies, run(JSON.readTree(line)));
        }
    }

    private static void reply(PrintStream replies, Map<String, Object> line) throws IOException {
        replies.write((JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        replies.flush();
    }

    private static Map<String, Object> run(JsonNode asked) throws IOException, ReflectiveOperationException {
        List<String> arguments = new ArrayList<>();
        asked.get("arguments").forEach(each -> arguments.add(each.asText()));
        OUTPUT.reset();
        ERRORS.reset();
        System.setIn(new ByteArrayInputStream(asked.get("input").binaryValue()));
        HOOKS.clear();
        int status = exitStatus(asked.get("tool").asText(), arguments.toArray(new String[0]));
        HOOKS.forEach(Runnable::run);
        return Map.of("status", status, "output", OUTPUT.toByteArray(), "errors", ERRORS.toByteArray());
    }

    private static int exitStatus(String tool, String[] arguments) throws ReflectiveOperationException {
        ClassLoader loader = new AnewLoader();
        Thread.currentThread().setContextClassLoader(loader);
        firstStatus = null;
        try {
            loader.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Exited)) {
                ended.getCause().printStackTrace();
                return 1;
            }
        }
        return firstStatus == null ? 0 : firstStatus;
    }

    /** The code and name of the error that each of Kafka's exceptions stands for. */
    private static Map<String, List<Object>> exceptions() {
        Map<String, List<Object>> found = new HashMap<>();
        for (Errors error : Errors.values()) {
            if (error != Errors.NONE) {
                found.put(error.exception().getClass().getSimpleName(), List.of(error.code(), error.name()));
            }
        }
        return found;
    }

    /** Ends a tool where it would end the process. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("the tool would end here", null, false, false);
        }
    }

    /** Loads the tools again for each run: they expect a new process, and count on in their static fields. */
    private static final class AnewLoader extends ClassLoader {
        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(TOOLS)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? findClass(name) : loaded;
            }
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            try (InputStream source = getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (source == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] code = source.readAllBytes();
                return defineClass(name, code, 0, code.length);
            } catch (IOException unreadable) {
                throw new ClassNotFoundException(name, unreadable);
            }
        }
    }
}
