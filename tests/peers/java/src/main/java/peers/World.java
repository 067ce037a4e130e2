package peers;

import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/** The world of one check: a client, names of its own, and what checks say often. */
final class World implements AutoCloseable {
    /** Credentials of the run by the names of the program's options; empty without. */
    private static Map<String, String> access = Map.of();
    private static HttpClient http = HttpClient.newHttpClient();
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final long RUN = ProcessHandle.current().pid();

    final String url;
    final String web;
    final PulsarClient client;
    private final List<PulsarClient> others = new ArrayList<>();

    World(String url, String web, boolean transacting) throws Exception {
        this.url = url;
        this.web = web;
        this.client = World.builder().serviceUrl(url).operationTimeout(20, TimeUnit.SECONDS).enableTransaction(transacting).build();
    }

    /** The credentials of every client, and of who administers. */
    static void secure(Map<String, String> options) throws Exception {
        access = options;
        if (options.containsKey("-trust")) {
            KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
            trusted.load(null, null);
            try (InputStream pem = Files.newInputStream(Path.of(options.get("-trust")))) {
                trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(pem));
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            http = HttpClient.newBuilder().sslContext(context).build();
        }
    }

    /** Of a client with the credentials of the run. */
    static ClientBuilder builder() {
        ClientBuilder builder = PulsarClient.builder();
        if (access.containsKey("-trust")) {
            builder.tlsTrustCertsFilePath(access.get("-trust")).enableTlsHostnameVerification(true);
        }
        if (access.containsKey("-token")) {
            builder.authentication(AuthenticationFactory.token(access.get("-token")));
        } else if (access.containsKey("-cert")) {
            builder.authentication(AuthenticationFactory.TLS(access.get("-cert"), access.get("-key")));
        }
        return builder;
    }

    /** An expectation that was not met. */
    static final class Failure extends RuntimeException {
        Failure(String text) {
            super(text);
        }
    }

    interface Attempt {
        void run() throws Exception;
    }

    static void expect(boolean ok, String what) {
        if (!ok) {
            throw new Failure(what);
        }
    }

    static void equal(Object got, Object want, String what) {
        expect(Objects.equals(got, want), what + " is " + got + ", expected " + want);
    }

    /** The attempt fails with one of these; the exception. */
    @SafeVarargs
    static Throwable refused(Attempt attempt, Class<? extends Throwable>... kinds) {
        try {
            attempt.run();
        } catch (Throwable error) {
            for (Class<? extends Throwable> kind : kinds) {
                for (Throwable at = error; at != null; at = at.getCause()) {
                    if (kind.isInstance(at)) {
                        return at;
                    }
                }
            }
            throw new Failure("refused with " + error);
        }
        throw new Failure("not refused");
    }

    static void eventually(String what, long seconds, BooleanSupplier ok) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!ok.getAsBoolean()) {
            expect(System.nanoTime() < deadline, "not within " + seconds + " s: " + what);
            Thread.sleep(50);
        }
    }

    String topic() {
        return "persistent://public/default/java-" + RUN + "-" + NUMBERS.incrementAndGet();
    }

    String namespace() throws Exception {
        String name = "public/java-" + RUN + "-" + NUMBERS.incrementAndGet();
        admin("PUT", "namespaces/" + name, null);
        if (access.containsKey("-consumer")) {
            admin("POST", "namespaces/" + name + "/permissions/" + access.get("-consumer"), "[\"consume\"]");
        }
        return name;
    }

    PulsarClient other(PulsarClient made) {
        others.add(made);
        return made;
    }

    Producer<String> producer(String topic) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create();
    }

    Producer<String> batches(String topic, int size) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).batchingMaxMessages(size)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
    }

    ConsumerBuilder<String> consumer(String topic) {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s");
    }

    static List<MessageId> send(Producer<String> producer, String prefix, int from, int to) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = from; i < to; i++) {
            sent.add(producer.newMessage().key("k" + i % 20).value(prefix + i).sendAsync());
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> one : sent) {
            ids.add(one.get(30, TimeUnit.SECONDS));
        }
        return ids;
    }

    static List<String> texts(String prefix, int from, int to) {
        List<String> all = new ArrayList<>();
        for (int i = from; i < to; i++) {
            all.add(prefix + i);
        }
        return all;
    }

    static <T> Message<T> receive(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(20, TimeUnit.SECONDS);
        expect(message != null, "nothing received within 20 s");
        return message;
    }

    static List<String> receive(Consumer<String> consumer, int count, boolean acknowledge) throws Exception {
        List<String> got = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<String> message = receive(consumer);
            got.add(message.getValue());
            if (acknowledge) {
                consumer.acknowledge(message);
            }
        }
        return got;
    }

    static void nothing(Consumer<?> consumer, int ms) throws Exception {
        Message<?> message = consumer.receive(ms, TimeUnit.MILLISECONDS);
        expect(message == null, "received " + (message == null ? "" : new String(message.getData(), StandardCharsets.UTF_8)));
    }

    /** What comes until nothing has come for a while. */
    static <T> List<Message<T>> drain(Consumer<T> consumer, int quietMs, boolean acknowledge) throws Exception {
        List<Message<T>> got = new ArrayList<>();
        for (Message<T> m; (m = consumer.receive(quietMs, TimeUnit.MILLISECONDS)) != null;) {
            got.add(m);
            if (acknowledge) {
                consumer.acknowledge(m);
            }
        }
        return got;
    }

    static List<String> sorted(Collection<String> in) {
        return in.stream().sorted().toList();
    }

    static String path(String topic) {
        return topic.replace("://", "/");
    }

    HttpResponse<String> rest(String method, String path, String json) throws Exception {
        HttpRequest.BodyPublisher body =
                json == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(json);
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(web + "/admin/v2/" + path))
                .header("Content-Type", "application/json").method(method, body);
        if (access.containsKey("-admin")) {
            request.header("Authorization", "Bearer " + access.get("-admin"));
        }
        return http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    String admin(String method, String path, String json) throws Exception {
        HttpResponse<String> answer = rest(method, path, json);
        expect(answer.statusCode() / 100 == 2, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    boolean statsHold(String topic, String text) {
        try {
            return admin("GET", path(topic) + "/stats", null).replace(" ", "").contains(text);
        } catch (Exception error) {
            return false;
        }
    }

    @Override
    public void close() {
        others.forEach(PulsarClient::closeAsync);
        client.closeAsync();
    }
}
