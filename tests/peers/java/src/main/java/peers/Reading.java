package peers;

import static peers.Main.add;
import static peers.World.*;

import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Readers, table views, encryption. */
final class Reading {
    static List<String> all(Reader<String> r) throws Exception {
        List<String> got = new ArrayList<>();
        while (r.hasMessageAvailable()) {
            got.add(r.readNext(20, TimeUnit.SECONDS).getValue());
        }
        return got;
    }

    static String data(String kind, byte[] der) {
        String pem = "-----BEGIN " + kind + "-----\n" + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der) + "\n-----END " + kind + "-----\n";
        return "data:application/x-pem-file;base64," + Base64.getEncoder().encodeToString(pem.getBytes(StandardCharsets.UTF_8));
    }

    static void declare() {
        for (boolean batched : new boolean[] {false, true}) {
            add("readers: ends, beside and at a message, seek, hasMessageAvailable, batched " + batched, w -> {
                String topic = w.topic();
                ReaderBuilder<String> b = w.client.newReader(Schema.STRING).topic(topic);
                Reader<String> empty = b.clone().startMessageId(MessageId.earliest).create();
                expect(!empty.hasMessageAvailable(), "something in nothing");
                Producer<String> p = batched ? w.batches(topic, 10) : w.producer(topic);
                List<MessageId> ids = send(p, "m", 0, 20);
                equal(all(empty), texts("m", 0, 20), "all");
                for (int i : new int[] {0, 4, 9, 10, 18}) {
                    equal(all(b.clone().startMessageId(ids.get(i)).create()), texts("m", i + 1, 20), "behind " + i);
                    equal(all(b.clone().startMessageId(ids.get(i)).startMessageIdInclusive().create()), texts("m", i, 20), "from " + i);
                }
                expect(!b.clone().startMessageId(ids.get(19)).create().hasMessageAvailable(), "something behind the last");
                equal(all(b.clone().startMessageId(MessageId.latest).startMessageIdInclusive().create()), texts("m", 19, 20), "latest inclusive");
                equal(all(b.clone().startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()), texts("m", 0, 20), "an hour back");
                Reader<String> last = b.clone().startMessageId(MessageId.latest).create();
                expect(!last.hasMessageAvailable(), "something at the end");
                empty.seek(ids.get(7));
                equal(all(empty), texts("m", 8, 20), "after seek");
                empty.seek(System.currentTimeMillis() + 60_000);
                expect(!empty.hasMessageAvailable(), "something in the future");
                empty.seek(System.currentTimeMillis() - 3_600_000);
                equal(all(empty), texts("m", 0, 20), "after seek by time");
                empty.seek(MessageId.latest);
                expect(!empty.hasMessageAvailable(), "something after the last");
                send(p, "n", 0, 1);
                equal(last.readNext(10, TimeUnit.SECONDS).getValue(), "n0", "next");
            });
        }
        add("readers of partitions and of hash ranges, with names", w -> {
            String topic = w.topic();
            w.admin("PUT", path(topic) + "/partitions", "3");
            send(w.producer(topic), "m", 0, 60);
            equal(sorted(all(w.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create())), sorted(texts("m", 0, 60)), "partitions");
            String plain = w.topic();
            Reader<String> half = w.client.newReader(Schema.STRING).topic(plain).startMessageId(MessageId.earliest).keyHashRange(Range.of(0, 32767)).subscriptionName("half").create();
            Reader<String> rest = w.client.newReader(Schema.STRING).topic(plain).startMessageId(MessageId.earliest).keyHashRange(Range.of(32768, 65535)).create();
            send(w.producer(plain), "m", 0, 100);
            List<String> got = new ArrayList<>();
            for (Reader<String> r : List.of(half, rest)) {
                for (Message<String> m; (m = r.readNext(700, TimeUnit.MILLISECONDS)) != null;) {
                    got.add(m.getValue());
                }
            }
            equal(sorted(got), sorted(texts("m", 0, 100)), "of both halves");
            expect(w.admin("GET", path(plain) + "/subscriptions", null).contains("half"), "no subscription of that name");
        });
        add("table view: what is there, what comes, what is deleted", w -> {
            String topic = w.topic();
            w.admin("PUT", path(topic) + "/partitions", "2");
            Producer<String> p = w.producer(topic);
            p.newMessage().key("a").value("1").send();
            p.newMessage().key("a").value("2").send();
            p.newMessage().key("b").value("3").send();
            TableView<String> v = w.client.newTableView(Schema.STRING).topic(topic).create();
            equal(v.get("a") + v.get("b"), "23", "values");
            Map<String, String> heard = new ConcurrentHashMap<>();
            v.forEachAndListen((key, value) -> heard.put(key, value == null ? "" : value));
            p.newMessage().key("c").value("4").send();
            p.newMessage().key("a").value(null).send();
            eventually("c is there, a is not", 10, () -> v.containsKey("c") && !v.containsKey("a"));
            equal(heard.get("c"), "4", "heard");
            p.newMessage().key("d").value("5").send();
            v.refresh();
            equal(v.get("d"), "5", "after refresh");
        });
        add("encryption: with the key, and the three actions without", w -> {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            KeyPair keys = generator.generateKeyPair();
            String pub = data("PUBLIC KEY", keys.getPublic().getEncoded()), priv = data("PRIVATE KEY", keys.getPrivate().getEncoded());
            String topic = w.topic();
            Consumer<String> with = w.consumer(topic).defaultCryptoKeyReader(priv).subscribe();
            Consumer<String> discard = w.consumer(topic).subscriptionName("d").cryptoFailureAction(ConsumerCryptoFailureAction.DISCARD).subscribe();
            Consumer<byte[]> raw = w.client.newConsumer().topic(topic).subscriptionName("c").cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
            for (boolean batched : new boolean[] {false, true}) {
                Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).enableBatching(batched).compressionType(CompressionType.ZSTD)
                        .addEncryptionKey("k1").defaultCryptoKeyReader(pub).create();
                send(p, "m", 0, 5);
                equal(receive(with, 5, true), texts("m", 0, 5), "with the key");
            }
            expect(receive(raw).getEncryptionCtx().isPresent(), "no encryption context");
            nothing(discard, 500);
            eventually("what is discarded is acknowledged", 5, () -> w.statsHold(topic, "\"msgBacklog\":0"));
        });
    }
}
