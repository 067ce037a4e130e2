package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Uses the public API of the Java client against a broker and says, check by check, whether what the client's
 * documentation promises was seen. Started by "python -m tools.peers java"; the same conversation on standard input and
 * output as that of the Go program.
 */
public final class Main {
    private static final int PARALLEL = 4;
    private static final long LIMIT_S = 60;
    private static final List<Check> CHECKS = new ArrayList<>();
    private static final BufferedReader ORDERS = new BufferedReader(new InputStreamReader(System.in));

    interface Body {
        void run(World world) throws Exception;
    }

    private record Check(String name, boolean alone, boolean transacting, Body body) {}

    static void add(String name, Body body) {
        CHECKS.add(new Check(name, false, false, body));
    }

    static void alone(String name, Body body) {
        CHECKS.add(new Check(name, true, false, body));
    }

    /** As the two above, with a client that has transactions. */
    static void transacting(String name, boolean alone, Body body) {
        CHECKS.add(new Check("transactions: " + name, alone, true, body));
    }

    /** Ask for something to be done to the broker, and wait until it is done. */
    static synchronized void order(String what) throws Exception {
        say("!" + what);
        if (ORDERS.readLine() == null) {
            throw new World.Failure("no answer to " + what);
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    private static String problem(Throwable error) {
        StringBuilder text = new StringBuilder(error instanceof World.Failure ? error.getMessage() : error.toString());
        for (StackTraceElement at : error.getStackTrace()) {
            if (at.getClassName().startsWith("peers.") && !at.getFileName().startsWith("World") && !at.getFileName().startsWith("Main")) {
                text.append(" (").append(at.getFileName()).append(':').append(at.getLineNumber()).append(')');
            }
        }
        return text.toString();
    }

    private static void run(Check check, String url, String web, ExecutorService bodies) {
        long start = System.nanoTime();
        String problem = "";
        try (World world = new World(url, web, check.transacting)) {
            Future<?> done = bodies.submit(() -> {
                check.body.run(world);
                return null;
            });
            try {
                done.get(check.alone ? 4 * LIMIT_S : LIMIT_S, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                done.cancel(true);
                problem = "did not end in time";
            } catch (ExecutionException error) {
                problem = problem(error.getCause());
            }
        } catch (Exception error) {
            problem = problem(error);
        }
        long ms = (System.nanoTime() - start) / 1_000_000;
        say("{\"check\":" + quoted(check.name) + ",\"ms\":" + ms + ",\"problem\":" + quoted(problem) + "}");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        System.setProperty("org.slf4j.simpleLogger.logFile", options.getOrDefault("-log", "System.err"));
        World.secure(options);
        Producing.declare();
        Consuming.declare();
        Reading.declare();
        Faults.declare();
        TransactedMessages.declare();
        TransactedAcks.declare();
        TransactionFaults.declare();
        String only = options.getOrDefault("-k", "");
        ExecutorService bodies = Executors.newCachedThreadPool();
        ExecutorService checks = Executors.newFixedThreadPool(PARALLEL);
        for (Check check : CHECKS) {
            if (!check.alone && check.name.contains(only)) {
                checks.submit(() -> run(check, options.get("-url"), options.get("-web"), bodies));
            }
        }
        checks.shutdown();
        checks.awaitTermination(1, TimeUnit.HOURS);
        for (Check check : CHECKS) {
            if (check.alone && check.name.contains(only)) {
                run(check, options.get("-url"), options.get("-web"), bodies);
            }
        }
        System.exit(0);
    }
}
