package image;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.testcontainers.containers.PulsarContainer;
import org.testcontainers.utility.DockerImageName;

/** What a test of an application does with a PulsarContainer; the image is the first argument. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        DockerImageName name = DockerImageName.parse(arguments[0]).asCompatibleSubstituteFor("apachepulsar/pulsar");
        try (PulsarContainer pulsar = new PulsarContainer(name).withTransactions()
                .withEnv("PULSAR_PREFIX_brokerDeleteInactiveTopicsEnabled", "false")) {
            long begun = System.nanoTime();
            pulsar.start();
            System.out.printf("started in %d ms%n", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun));
            try (PulsarClient client = PulsarClient.builder()
                    .serviceUrl(pulsar.getPulsarBrokerUrl()).enableTransaction(true).build()) {
                publishInATransaction(client);
            }
            String topics = pulsar.execInContainer("bin/pulsar-client", "produce", "by-hand", "-m", "a,b").getStdout();
            expect(topics, "2 messages sent\n");
        }
        System.out.println("passed");
        System.exit(0);
    }

    private static void publishInATransaction(PulsarClient client) throws Exception {
        try (Consumer<String> consumer = client.newConsumer(Schema.STRING).topic("t").subscriptionName("s").subscribe();
                Producer<String> producer = client.newProducer(Schema.STRING).topic("t")
                        .sendTimeout(0, TimeUnit.SECONDS).create()) {
            Transaction transaction = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            producer.newMessage(transaction).value("hello").send();
            transaction.commit().get();
            Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
            expect(message == null ? "nothing" : message.getValue(), "hello");
            consumer.acknowledge(message);
        }
    }

    private static void expect(String found, String expected) {
        if (!found.equals(expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
