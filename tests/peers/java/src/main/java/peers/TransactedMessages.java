package peers;

import static peers.Main.transacting;
import static peers.World.*;

import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClient;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException.InvalidTxnStatusException;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException.TransactionNotFoundException;
import org.apache.pulsar.client.impl.PulsarClientImpl;

/** What is published in transactions: who sees it when, states, time-outs. */
final class TransactedMessages {
    /** A key pair as the client's default reader takes it: data URLs. */
    static String pem(String kind, byte[] der) {
        String text = "-----BEGIN " + kind + "-----\n" + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der) + "\n-----END " + kind + "-----\n";
        return "data:application/x-pem-file;base64," + Base64.getEncoder().encodeToString(text.getBytes());
    }

    static ProducerBuilder<byte[]> bytes(World w, String topic) {
        return w.client.newProducer().topic(topic).enableBatching(false);
    }

    static void visibility() {
        for (boolean batched : new boolean[] {false, true}) {
            for (int partitions : new int[] {0, 3}) {
                transacting("a commit shows, an abort hides; batched " + batched + ", partitions " + partitions, false, w -> {
                    String topic = w.topic();
                    if (partitions > 0) {
                        w.admin("PUT", path(topic) + "/partitions", "" + partitions);
                    }
                    Consumer<String> c = w.consumer(topic).subscribe();
                    Producer<String> p = batched ? w.batches(topic, 10) : w.producer(topic);
                    for (boolean commit : new boolean[] {false, true}) {
                        Transaction txn = Txn.begin(w);
                        equal(txn.getState(), Transaction.State.OPEN, "state");
                        Txn.send(txn, p, commit ? "c" : "a", 0, 50);
                        nothing(c, 400);
                        Txn.end(txn, commit);
                    }
                    equal(sorted(receive(c, 50, true)), sorted(texts("c", 0, 50)), "received");
                    send(p, "plain", 0, 3);
                    equal(sorted(receive(c, 3, true)), texts("plain", 0, 3), "plain ones behind them");
                });
            }
        }
        transacting("every type of subscription, two consumers each", false, w -> {
            String topic = w.topic();
            Map<SubscriptionType, List<Consumer<String>>> all = new java.util.HashMap<>();
            for (SubscriptionType kind : SubscriptionType.values()) {
                all.put(kind, new ArrayList<>());
                for (int i = 0; i < (kind == SubscriptionType.Exclusive ? 1 : 2); i++) {
                    all.get(kind).add(w.consumer(topic).subscriptionName(kind.name()).subscriptionType(kind).subscribe());
                }
            }
            Producer<String> p = w.producer(topic);
            for (int round = 0; round < 3; round++) {
                Transaction txn = Txn.begin(w);
                Txn.send(txn, p, "m" + round + "-", 0, 40);
                Txn.end(txn, round != 1);
            }
            List<String> want = new ArrayList<>(texts("m0-", 0, 40));
            want.addAll(texts("m2-", 0, 40));
            for (SubscriptionType kind : SubscriptionType.values()) {
                List<String> got = new ArrayList<>();
                for (Consumer<String> c : all.get(kind)) {
                    drain(c, 700, true).forEach(m -> got.add(m.getValue()));
                }
                equal(sorted(got), sorted(want), kind.name());
            }
        });
        transacting("several topics, also partitioned ones, and namespaces in one", false, w -> {
            String plain = w.topic(), parted = w.topic(), far = "persistent://" + w.namespace() + "/t";
            w.admin("PUT", path(parted) + "/partitions", "4");
            List<Producer<String>> producers = new ArrayList<>();
            List<Consumer<String>> consumers = new ArrayList<>();
            for (String topic : List.of(plain, parted, far)) {
                producers.add(w.producer(topic));
                consumers.add(w.consumer(topic).subscribe());
            }
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = Txn.begin(w);
                for (Producer<String> p : producers) {
                    Txn.send(txn, p, commit ? "c" : "a", 0, 12);
                }
                for (Consumer<String> c : consumers) {
                    nothing(c, 200);
                }
                Txn.end(txn, commit);
            }
            for (Consumer<String> c : consumers) {
                equal(sorted(receive(c, 12, true)), sorted(texts("c", 0, 12)), "received");
                nothing(c, 200);
            }
        });
        for (boolean batched : new boolean[] {false, true}) {
            transacting("plain messages wait behind an open one, and two that interleave; batched " + batched, false, w -> {
                String topic = w.topic();
                Consumer<String> c = w.consumer(topic).subscribe();
                Producer<String> p = batched ? w.batches(topic, 10) : w.producer(topic);
                // The client puts plain messages into the batch of a transaction that is open in the same producer.
                Producer<String> plain = batched ? w.batches(topic, 10) : p;
                send(plain, "before", 0, 1);
                Transaction first = Txn.begin(w), second = Txn.begin(w);
                expect(!first.getTxnID().equals(second.getTxnID()), "two have the id " + first.getTxnID());
                Txn.send(first, p, "first", 5, 6);
                List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    sent.add(p.newMessage(first).value("first" + i).sendAsync());
                    sent.add(p.newMessage(second).value("second" + i).sendAsync());
                    sent.add(plain.newMessage().value("plain" + i).sendAsync());
                }
                p.flush();
                plain.flush();
                for (CompletableFuture<MessageId> one : sent) {
                    one.get(20, TimeUnit.SECONDS);
                }
                equal(receive(c, 1, true), List.of("before0"), "before the transactions");
                nothing(c, 300);
                Txn.end(second, true);
                nothing(c, 300);
                Txn.end(first, false);
                List<String> want = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    want.add("second" + i);
                    want.add("plain" + i);
                }
                List<String> got = drain(c, 1500, true).stream().map(Message::getValue).toList();
                equal(sorted(got), sorted(want), "received");
                equal(got.stream().filter(each -> each.startsWith("second")).toList(), texts("second", 0, 5), "order of the second");
                equal(got.stream().filter(each -> each.startsWith("plain")).toList(), texts("plain", 0, 5), "order of plain ones");
            });
        }
        transacting("one that does nothing; 1,000 small ones", false, w -> {
            Txn.end(Txn.begin(w), true);
            Txn.end(Txn.begin(w), false);
            String topic = w.topic(), other = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe(), d = w.consumer(other).subscribe();
            Producer<String> p = w.producer(topic), q = w.batches(other, 10);
            Semaphore room = new Semaphore(50);
            List<CompletableFuture<Void>> all = new ArrayList<>();
            Set<String> want = new HashSet<>();
            for (int i = 0; i < 1000; i++) {
                String value = "m" + i;
                boolean commit = i % 5 != 0;
                if (commit) {
                    want.add(value);
                }
                room.acquire();
                all.add(w.client.newTransaction().withTransactionTimeout(60, TimeUnit.SECONDS).build().thenCompose(txn -> {
                    var one = p.newMessage(txn).value(value).sendAsync();
                    var two = q.newMessage(txn).value(value).sendAsync();
                    return CompletableFuture.allOf(one, two).thenCompose(none -> commit ? txn.commit() : txn.abort());
                }).whenComplete((done, error) -> room.release()));
                if (i % 25 == 0) {
                    q.flush();
                }
            }
            for (CompletableFuture<Void> one : all) {
                one.get(50, TimeUnit.SECONDS);
            }
            equal(new HashSet<>(receive(c, 800, true)), want, "received");
            equal(new HashSet<>(receive(d, 800, true)), want, "received of the other");
            nothing(c, 300);
        });
    }

    static void payloads() {
        transacting("compression, large messages, properties", false, w -> {
            String topic = w.topic();
            Consumer<byte[]> c = w.client.newConsumer().topic(topic).subscriptionName("s").subscribe();
            for (CompressionType kind : CompressionType.values()) {
                for (boolean batched : new boolean[] {false, true}) {
                    Producer<byte[]> p = bytes(w, topic).compressionType(kind).enableBatching(batched).create();
                    Transaction txn = Txn.begin(w);
                    p.newMessage(txn).value(Producing.noise(1_000_000)).key("k").property("a", "b").eventTime(7).send();
                    Txn.end(txn, true);
                    Message<byte[]> m = receive(c);
                    expect(Arrays.equals(m.getValue(), Producing.noise(1_000_000)), kind + ": payload is another");
                    equal(List.of(m.getKey(), m.getProperty("a"), m.getEventTime()), List.of("k", "b", 7L), "fields");
                    p.close();
                }
            }
            Producer<byte[]> p = bytes(w, topic).create();
            Transaction txn = Txn.begin(w);
            p.newMessage(txn).value(Producing.noise((5 << 20) - 2000)).send();
            Txn.end(txn, true);
            equal(receive(c).size(), (5 << 20) - 2000, "size of the largest");
            Transaction failed = Txn.begin(w);
            p.newMessage(failed).value(new byte[] {1}).send();
            refused(() -> p.newMessage(failed).value(Producing.noise((5 << 20) + 1)).send(), PulsarClientException.InvalidMessageException.class);
            refused(() -> failed.commit().get(20, TimeUnit.SECONDS), PulsarClientException.TransactionHasOperationFailedException.class);
            nothing(c, 300);
        });
        transacting("encryption", false, w -> {
            String topic = w.topic();
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            KeyPair pair = generator.generateKeyPair();
            String open = pem("PUBLIC KEY", pair.getPublic().getEncoded()), secret = pem("PRIVATE KEY", pair.getPrivate().getEncoded());
            Consumer<String> c = w.consumer(topic).defaultCryptoKeyReader(secret).subscribe();
            for (boolean batched : new boolean[] {false, true}) {
                Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).enableBatching(batched).addEncryptionKey("key").defaultCryptoKeyReader(open).create();
                for (boolean commit : new boolean[] {false, true}) {
                    Transaction txn = Txn.begin(w);
                    Txn.send(txn, p, commit ? "c" : "a", 0, 10);
                    Txn.end(txn, commit);
                }
                equal(receive(c, 10, true), texts("c", 0, 10), "received");
            }
        });
        transacting("chunks: sent, and acknowledged", false, w -> {
            String topic = w.topic();
            ConsumerBuilder<byte[]> b = w.client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(SubscriptionType.Shared);
            Consumer<byte[]> c = b.subscribe();
            Producer<byte[]> p = bytes(w, topic).enableChunking(true).chunkMaxMessageSize(50_000).create();
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = Txn.begin(w);
                p.newMessage(txn).key("k").value(Producing.noise(commit ? 700_000 : 600_000)).send();
                p.newMessage(txn).value(new byte[] {1}).send();
                nothing(c, 300);
                Txn.end(txn, commit);
            }
            Message<byte[]> large = receive(c), small = receive(c);
            expect(Arrays.equals(large.getValue(), Producing.noise(700_000)), "payload is another: " + large.size());
            c.acknowledge(small);
            Transaction txn = Txn.begin(w);
            Txn.ack(txn, c, large.getMessageId());
            Txn.end(txn, false);
            c.redeliverUnacknowledgedMessages();
            large = receive(c);
            expect(Arrays.equals(large.getValue(), Producing.noise(700_000)), "the second time it is another: " + large.size());
            txn = Txn.begin(w);
            Txn.ack(txn, c, large.getMessageId());
            Txn.end(txn, true);
            eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
            c.close();
            nothing(b.subscribe(), 500);
        });
        transacting("delayed messages are due by their time, not before the commit", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<String> p = w.producer(topic);
            Transaction txn = Txn.begin(w), aborted = Txn.begin(w);
            long start = System.currentTimeMillis();
            p.newMessage(aborted).value("hidden").deliverAfter(1, TimeUnit.SECONDS).send();
            p.newMessage(txn).value("late").deliverAfter(4, TimeUnit.SECONDS).send();
            p.newMessage(txn).value("soon").deliverAfter(100, TimeUnit.MILLISECONDS).send();
            p.newMessage(txn).value("now").send();
            nothing(c, 1000);
            Txn.end(txn, true);
            Txn.end(aborted, false);
            equal(sorted(receive(c, 2, true)), List.of("now", "soon"), "first two");
            equal(receive(c, 1, true), List.of("late"), "last");
            expect(System.currentTimeMillis() >= start + 3900, "it came too early");
            nothing(c, 500);
        });
        transacting("deduplication: sequence ids that come again", false, w -> {
            String ns = w.namespace();
            w.admin("POST", "namespaces/" + ns + "/deduplication", "true");
            String topic = "persistent://" + ns + "/t";
            Consumer<String> c = w.consumer(topic).subscribe();
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).producerName("d").enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create();
            Transaction txn = Txn.begin(w);
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 10; i++) {
                    p.newMessage(txn).sequenceId(i).value("m" + i).sendAsync();
                }
                p.flush();
            }
            Txn.end(txn, true);
            equal(receive(c, 10, true), texts("m", 0, 10), "received");
            txn = Txn.begin(w);
            p.newMessage(txn).sequenceId(10).value("aborted").send();
            Txn.end(txn, false);
            p.newMessage().sequenceId(11).value("next").send();
            equal(receive(c, 1, true), List.of("next"), "behind the aborted one");
            nothing(c, 300);
        });
    }

    static void states() {
        transacting("what is over takes nothing more, and is not ended twice", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            Producer<String> p = w.producer(topic);
            send(p, "m", 0, 2);
            Message<String> m = receive(c);
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = Txn.begin(w);
                Txn.send(txn, p, commit ? "c" : "a", 0, 1);
                Txn.end(txn, commit);
                refused(() -> txn.commit().get(10, TimeUnit.SECONDS), InvalidTxnStatusException.class);
                refused(() -> txn.abort().get(10, TimeUnit.SECONDS), InvalidTxnStatusException.class);
                refused(() -> p.newMessage(txn).value("late").send(), InvalidTxnStatusException.class, PulsarClientException.class);
                refused(() -> Txn.ack(txn, c, m.getMessageId()), InvalidTxnStatusException.class);
                equal(txn.getState(), commit ? Transaction.State.COMMITTED : Transaction.State.ABORTED, "state after that");
            }
            c.acknowledge(m);
            equal(receive(c, 2, true), List.of("m1", "c0"), "received");
            nothing(c, 300);
        });
        transacting("the coordinator refuses the other end, and what is unknown", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            Producer<String> p = w.producer(topic);
            TransactionCoordinatorClient coordinators = ((PulsarClientImpl) w.client).getTcClient();
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = Txn.begin(w);
                Txn.send(txn, p, commit ? "c" : "a", 0, 1);
                Txn.end(txn, commit);
                // Apache's broker has forgotten it; Geminga's knows how it ended.
                refused(() -> {
                    if (commit) {
                        coordinators.abort(txn.getTxnID());
                    } else {
                        coordinators.commit(txn.getTxnID());
                    }
                }, InvalidTxnStatusException.class, TransactionNotFoundException.class);
                refused(() -> coordinators.addPublishPartitionToTxn(txn.getTxnID(), List.of(topic)), InvalidTxnStatusException.class, TransactionNotFoundException.class);
                refused(() -> coordinators.addSubscriptionToTxn(txn.getTxnID(), topic, "s"), InvalidTxnStatusException.class, TransactionNotFoundException.class);
            }
            var unknown = new org.apache.pulsar.client.api.transaction.TxnID(0, 1L << 40);
            refused(() -> coordinators.commit(unknown), TransactionNotFoundException.class);
            refused(() -> coordinators.abort(unknown), TransactionNotFoundException.class);
            refused(() -> coordinators.addPublishPartitionToTxn(unknown, List.of(topic)), TransactionNotFoundException.class);
            equal(receive(c, 1, true), List.of("c0"), "received");
            nothing(c, 300);
        });
        transacting("time-out: aborted by the broker, its topic goes on", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<String> p = w.producer(topic);
            send(p, "m", 0, 1);
            Message<String> m = receive(c);
            long start = System.currentTimeMillis();
            Transaction txn = Txn.begin(w, 3);
            Txn.send(txn, p, "t", 0, 3);
            Txn.ack(txn, c, m.getMessageId());
            send(p, "n", 0, 3);
            List<Message<String>> all = Txn.take(c, 4);
            equal(sorted(Txn.values(all)), List.of("m0", "n0", "n1", "n2"), "behind it, and what it had acknowledged");
            long took = System.currentTimeMillis() - start;
            expect(took > 2500 && took < 15_000, "the topic was held back for " + took + " ms");
            eventually("the client knows", 5, () -> txn.getState() == Transaction.State.TIME_OUT);
            refused(() -> txn.commit().get(10, TimeUnit.SECONDS), InvalidTxnStatusException.class);
            refused(() -> p.newMessage(txn).value("late").send(), InvalidTxnStatusException.class, PulsarClientException.class);
            refused(() -> ((PulsarClientImpl) w.client).getTcClient().commit(txn.getTxnID()), InvalidTxnStatusException.class, TransactionNotFoundException.class);
            Transaction other = Txn.begin(w);
            Txn.ack(other, c, all);
            Txn.end(other, true);
            eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
        });
        transacting("a client that goes with open ones: they time out", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            send(w.producer(topic), "m", 0, 2);
            PulsarClient gone = World.builder().serviceUrl(w.url).enableTransaction(true).build();
            Transaction txn = gone.newTransaction().withTransactionTimeout(3, TimeUnit.SECONDS).build().get(20, TimeUnit.SECONDS);
            Producer<String> p = gone.newProducer(Schema.STRING).topic(topic).create();
            Txn.send(txn, p, "lost", 0, 5);
            gone.shutdown();
            send(w.producer(topic), "n", 0, 2);
            equal(receive(c, 4, true), List.of("m0", "m1", "n0", "n1"), "received");
        });
        transacting("a topic that is deleted or terminated while it is open", false, w -> {
            String deleted = w.topic(), terminated = w.topic(), kept = w.topic();
            for (boolean commit : new boolean[] {false, true}) {
                Consumer<String> c = w.consumer(kept).subscriptionName("s" + commit).subscribe();
                Transaction txn = Txn.begin(w, 20);
                try (Producer<String> p = w.producer(deleted); Producer<String> q = w.producer(kept)) {
                    Txn.send(txn, p, "d", 0, 2);
                    Txn.send(txn, q, "k", 0, 2);
                }
                w.admin("DELETE", path(deleted) + "?force=true", null);
                Txn.end(txn, commit);
                if (commit) {
                    equal(receive(c, 2, true), texts("k", 0, 2), "of the topic that is kept");
                } else {
                    nothing(c, 300);
                }
            }
            Consumer<String> c = w.consumer(terminated).subscribe();
            Producer<String> p = w.producer(terminated);
            send(p, "m", 0, 1);
            w.admin("POST", path(terminated) + "/terminate", null);
            Transaction txn = Txn.begin(w, 20);
            refused(() -> p.newMessage(txn).value("late").send(), PulsarClientException.class);
            Txn.end(txn, false);
            equal(receive(c, 1, true), List.of("m0"), "of the one that is terminated");
        });
    }

    static void odd() {
        transacting("schemas", false, w -> {
            String topic = w.topic();
            Consumer<org.apache.pulsar.client.api.schema.GenericRecord> c = w.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s").subscribe();
            Producer<Producing.Person> p = w.client.newProducer(Schema.AVRO(Producing.Person.class)).topic(topic).create();
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = Txn.begin(w);
                p.newMessage(txn).value(Producing.person(commit ? "c" : "a", 1)).send();
                Txn.end(txn, commit);
            }
            equal(receive(c).getValue().getField("name").toString(), "c", "name");
            nothing(c, 300);
        });
        // Apache's broker takes it into the transaction, which can not be ended then.
        transacting("a topic that is not persistent is refused", false, w -> {
            Producer<String> p = w.producer("non-" + w.topic());
            Transaction txn = Txn.begin(w, 20);
            refused(() -> p.newMessage(txn).value("x").sendAsync().get(20, TimeUnit.SECONDS), PulsarClientException.class, Exception.class);
            Txn.end(txn, false);
            p.send("plain");
        });
        // Apache's broker never ends them: it writes markers to the topic, which takes none.
        transacting("a topic that is terminated while they are open on it", false, w -> {
            String topic = w.topic(), other = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe(), d = w.consumer(other).subscribe();
            Producer<String> p = w.producer(topic);
            Transaction commits = Txn.begin(w, 30), aborts = Txn.begin(w, 30);
            Txn.send(commits, p, "c", 0, 2);
            Txn.send(aborts, p, "x", 0, 2);
            Txn.send(commits, p, "c", 2, 4);
            Txn.send(commits, w.producer(other), "o", 0, 2);
            w.admin("POST", path(topic) + "/terminate", null);
            CompletableFuture<Void> committed = commits.commit();
            equal(receive(d, 2, true), texts("o", 0, 2), "of another topic");
            Txn.end(aborts, false);
            committed.get(30, TimeUnit.SECONDS);
            equal(receive(c, 4, true), texts("c", 0, 4), "committed");
            nothing(c, 300);
            eventually("the end of the topic is told", 10, c::hasReachedEndOfTopic);
        });
    }

    static void reading() {
        transacting("readers: hasMessageAvailable, last message id, seek", false, w -> {
            String topic = w.topic();
            Producer<String> p = w.producer(topic);
            Reader<String> r = w.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create();
            expect(!r.hasMessageAvailable(), "there is a message in an empty topic");
            send(p, "m", 0, 3);
            Transaction txn = Txn.begin(w);
            List<MessageId> ids = Txn.send(txn, p, "t", 0, 3);
            equal(Reading.all(r), texts("m", 0, 3), "read while it is open");
            Consumer<String> c = w.consumer(topic).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            expect(((MessageIdAdv) c.getLastMessageIds().get(0)).compareTo(ids.get(0)) < 0, "the last id is one of an open transaction");
            Txn.end(txn, false);
            expect(!r.hasMessageAvailable(), "an aborted message is available");
            txn = Txn.begin(w);
            Txn.send(txn, p, "u", 0, 3);
            Txn.end(txn, true);
            expect(r.hasMessageAvailable(), "committed ones are not available");
            equal(Reading.all(r), texts("u", 0, 3), "read after the commit");
            expect(!r.hasMessageAvailable(), "a marker is available");
            Transaction open = Txn.begin(w);
            Txn.send(open, p, "v", 0, 2);
            List<String> want = new ArrayList<>(texts("m", 0, 3));
            want.addAll(texts("u", 0, 3));
            r.seek(MessageId.earliest);
            equal(Reading.all(r), want, "read again while another is open");
            equal(receive(c, 6, false), want, "consumed");
            c.seek(MessageId.earliest);
            equal(receive(c, 6, true), want, "consumed again");
            Reader<String> late = w.client.newReader(Schema.STRING).topic(topic).startMessageId(ids.get(1)).create();
            equal(Reading.all(late), texts("u", 0, 3), "read from an aborted message on");
            Txn.end(open, true);
            equal(Reading.all(r), texts("v", 0, 2), "read in the end");
            equal(receive(c, 2, true), texts("v", 0, 2), "consumed in the end");
        });
        transacting("table views", false, w -> {
            String topic = w.topic();
            Producer<String> p = w.producer(topic);
            p.newMessage().key("a").value("1").send();
            Transaction txn = Txn.begin(w), aborted = Txn.begin(w);
            p.newMessage(txn).key("a").value("2").send();
            p.newMessage(txn).key("b").value("1").send();
            p.newMessage(aborted).key("c").value("1").send();
            TableView<String> v = w.client.newTableView(Schema.STRING).topic(topic).create();
            equal(Map.copyOf(tableOf(v)), Map.of("a", "1"), "while they are open");
            Txn.end(aborted, false);
            Txn.end(txn, true);
            eventually("what was committed is there", 10, () -> tableOf(v).equals(Map.of("a", "2", "b", "1")));
            TableView<String> fresh = w.client.newTableView(Schema.STRING).topic(topic).create();
            equal(tableOf(fresh), Map.of("a", "2", "b", "1"), "a new one");
        });
    }

    private static Map<String, String> tableOf(TableView<String> view) {
        Map<String, String> out = new java.util.HashMap<>();
        view.forEach(out::put);
        return out;
    }

    static void declare() {
        visibility();
        payloads();
        states();
        odd();
        reading();
    }
}
