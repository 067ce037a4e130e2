package image;

import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.schema.SchemaType;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.testcontainers.service.connection.ServiceConnection;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.pulsar.annotation.PulsarListener;
import org.springframework.pulsar.core.PulsarAdministration;
import org.springframework.pulsar.core.PulsarTemplate;
import org.springframework.pulsar.core.PulsarTopic;
import org.springframework.pulsar.core.PulsarTopicBuilder;
import org.springframework.pulsar.listener.AckMode;
import org.testcontainers.containers.PulsarContainer;
import org.testcontainers.utility.DockerImageName;

/**
 * A Spring Boot application whose Pulsar is a container that Spring connects it to; the image is the first argument. It
 * listens by annotations, publishes by template and in transactions, and has Spring make a topic with partitions.
 */
@SpringBootApplication
public class Main {
    private static final BlockingQueue<String> HEARD = new LinkedBlockingQueue<>();
    private static String image;
    private static ConfigurableApplicationContext running;

    record Order(String name, int count) {}

    /** What Spring's {@code main} for tests adds to the application. */
    @Configuration(proxyBeanMethods = false)
    static class Containers {
        @Bean
        @ServiceConnection
        PulsarContainer pulsar() {
            return new PulsarContainer(DockerImageName.parse(image).asCompatibleSubstituteFor("apachepulsar/pulsar"))
                    .withTransactions();
        }
    }

    @Bean
    PulsarTopic parted() {
        return new PulsarTopicBuilder().name("parted").numberOfPartitions(3).build();
    }

    // With transactions on, each call of a listener is one, with the acknowledgment of its message.
    @PulsarListener(id = "orders", topics = "orders", subscriptionName = "s", schemaType = SchemaType.JSON,
            ackMode = AckMode.RECORD)
    void order(Order order) {
        HEARD.add("order " + order.count() + " " + order.name());
    }

    @PulsarListener(id = "texts", topics = {"parted", "first", "second"}, subscriptionName = "s",
            subscriptionType = SubscriptionType.Shared, ackMode = AckMode.RECORD)
    void text(String text) {
        HEARD.add(text);
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        image = arguments[0];
        long begun = System.nanoTime();
        SpringApplication.from(Main::start).with(Containers.class).run(
                "--spring.pulsar.transaction.enabled=true",
                "--spring.pulsar.consumer.subscription.initial-position=" + SubscriptionInitialPosition.Earliest,
                "--logging.level.root=WARN", "--spring.main.banner-mode=off");
        System.out.printf("started in %d ms%n", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun));
        running.getBean(PulsarTemplate.class).send("orders", new Order("tea", 3));
        expect("order 3 tea");
        PulsarTemplate<String> template = running.getBean(PulsarTemplate.class);
        for (String text : List.of("one", "two", "three")) {
            template.newMessage(text).withTopic("parted").withMessageCustomizer(made -> made.key(text)).send();
        }
        expect("one", "two", "three");
        int partitions = running.getBean(PulsarAdministration.class).createAdminClient().topics()
                .getPartitionedTopicMetadata("parted").partitions;
        if (partitions != 3) {
            throw new AssertionError("expected 3 partitions, found " + partitions);
        }
        transactions(template);
        running.close();
        System.out.println("passed");
        System.exit(0);
    }

    static void start(String[] arguments) {
        running = SpringApplication.run(Main.class, arguments);
    }

    /** Both topics get what is committed, none what is rolled back. */
    private static void transactions(PulsarTemplate<String> template) throws Exception {
        try {
            template.executeInTransaction(sending -> {
                sending.send("first", "rolled back");
                throw new IllegalStateException("on purpose");
            });
            throw new AssertionError("the transaction ended well");
        } catch (IllegalStateException expected) {
            // It is what was thrown.
        }
        template.executeInTransaction(sending -> {
            sending.send("first", "to first");
            return sending.send("second", "to second");
        });
        expect("to first", "to second");
    }

    private static void expect(String... wanted) throws InterruptedException {
        TreeSet<String> missing = new TreeSet<>(List.of(wanted));
        while (!missing.isEmpty()) {
            String heard = HEARD.poll(30, TimeUnit.SECONDS);
            if (!missing.remove(String.valueOf(heard))) {
                throw new AssertionError("expected " + missing + ", heard " + heard);
            }
        }
    }
}
