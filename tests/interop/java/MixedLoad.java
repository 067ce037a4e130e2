import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Publishes to topics and consumes them while brokers come and go: {@code URL TOPICS TRANSACTED PAUSE_MS}, topics with commas
 * between; each message of the transacted ones is one of a transaction that spans them all.
 *
 * <p>Prints {@code A topic number} for each receipt, {@code R topic number key} for each delivery, {@code C number} and
 * {@code X number} for a transaction that is committed or aborted, {@code U number} where nobody told, {@code E text} for what
 * failed. {@code stop} ends publishing: {@code S topic count} says how many were sent; {@code end} ends it.
 */
public final class MixedLoad {
    private static final int KEYS = 4;
    private static final AtomicBoolean STOPPING = new AtomicBoolean();

    private MixedLoad() {}

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        List<String> topics = List.of(arguments[1].split(","));
        List<String> transacted = List.of(arguments[2].split(","));
        long pauseMs = Long.parseLong(arguments[3]);
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true)
                .operationTimeout(120, TimeUnit.SECONDS).lookupTimeout(120, TimeUnit.SECONDS).build();
        Consumer<byte[]> consumer = client.newConsumer().topics(topics).subscriptionName("java")
                .subscriptionType(SubscriptionType.Failover)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        for (String topic : topics) {
            start(() -> send(client, topic, pauseMs));
        }
        start(() -> transact(client, transacted));
        start(() -> {
            while (true) {
                Message<byte[]> message = consumer.receive();
                say("R " + message.getTopicName() + " " + text(message) + " " + message.getKey());
                consumer.acknowledgeAsync(message);
            }
        });
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); "stop".equals(order); order = orders.readLine()) {
            STOPPING.set(true);
        }
        Runtime.getRuntime().halt(0);
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                say("E " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(int number) {
        return Integer.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    private static void send(PulsarClient client, String topic, long pauseMs) throws Exception {
        Producer<byte[]> producer = client.newProducer().topic(topic).producerName("java").initialSequenceId(0)
                .sendTimeout(0, TimeUnit.SECONDS).blockIfQueueFull(true)
                .batchingMaxPublishDelay(5, TimeUnit.MILLISECONDS).create();
        int number = 0;
        while (!STOPPING.get()) {
            int mine = ++number;
            producer.newMessage().key(Integer.toString(mine % KEYS)).value(bytes(mine)).sendAsync()
                    .whenComplete((id, error) -> say(error == null
                            ? "A " + topic + " " + mine : "E " + topic + " " + mine + ": " + error));
            Thread.sleep(pauseMs);
        }
        producer.flush();
        say("S " + topic + " " + number);
    }

    private static void transact(PulsarClient client, List<String> topics) throws Exception {
        List<Producer<byte[]>> producers = new java.util.ArrayList<>();
        for (String topic : topics) {
            producers.add(client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).create());
        }
        int number = 0;
        while (!STOPPING.get()) {
            int mine = ++number;
            Transaction transaction = null;
            try {
                transaction = client.newTransaction().withTransactionTimeout(20, TimeUnit.SECONDS).build()
                        .get(60, TimeUnit.SECONDS);
                for (Producer<byte[]> producer : producers) {
                    producer.newMessage(transaction).value(bytes(mine)).sendAsync().get(60, TimeUnit.SECONDS);
                }
            } catch (Exception error) {
                // Nobody commits it any more.
                say("X " + mine);
                continue;
            }
            boolean isCommitted = mine % 3 != 0;
            try {
                (isCommitted ? transaction.commit() : transaction.abort()).get(60, TimeUnit.SECONDS);
                say((isCommitted ? "C " : "X ") + mine);
            } catch (Exception error) {
                say((isCommitted ? "U " : "X ") + mine);
            }
            Thread.sleep(100);
        }
        say("S transactions " + number);
    }
}
