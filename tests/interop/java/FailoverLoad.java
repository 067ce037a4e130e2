import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.ServiceUrlProvider;
import org.apache.pulsar.client.impl.AutoClusterFailover;
import org.apache.pulsar.client.impl.ControlledClusterFailover;

/**
 * Publishes one message after the other: {@code auto TOPIC INTERVAL_MS PRIMARY SECONDARY}, or {@code controlled TOPIC INTERVAL_MS
 * URL_OF_PROVIDER FIRST}. Prints {@code A number} for each receipt, and ends with standard input.
 */
public final class FailoverLoad {
    private FailoverLoad() {}

    public static void main(String[] arguments) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrlProvider(provider(arguments))
                .operationTimeout(120, TimeUnit.SECONDS).lookupTimeout(120, TimeUnit.SECONDS).build();
        Producer<byte[]> producer = client.newProducer().topic(arguments[1]).enableBatching(false)
                .sendTimeout(0, TimeUnit.SECONDS).create();
        Thread ends = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            Runtime.getRuntime().halt(0);
        });
        ends.start();
        for (long number = 0;; number++) {
            producer.send(Long.toString(number).getBytes(StandardCharsets.UTF_8));
            System.out.println("A " + number);
            System.out.flush();
        }
    }

    private static ServiceUrlProvider provider(String[] arguments) throws Exception {
        long intervalMs = Long.parseLong(arguments[2]);
        if (arguments[0].equals("auto")) {
            return AutoClusterFailover.builder().primary(arguments[3]).secondary(List.of(arguments[4]))
                    .checkInterval(intervalMs, TimeUnit.MILLISECONDS).failoverDelay(intervalMs, TimeUnit.MILLISECONDS)
                    .switchBackDelay(intervalMs, TimeUnit.MILLISECONDS).build();
        }
        return ControlledClusterFailover.builder().defaultServiceUrl(arguments[4]).urlProvider(arguments[3])
                .checkInterval(intervalMs, TimeUnit.MILLISECONDS).build();
    }
}
