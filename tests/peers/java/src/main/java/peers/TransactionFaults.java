package peers;

import static peers.Main.alone;
import static peers.Main.transacting;
import static peers.World.*;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException;

/** Unloads, kills and lost connections in the middle of transactions. */
final class TransactionFaults {
    interface Disturbance {
        void run(AtomicInteger moved, String in, String out) throws Exception;
    }

    static String deduplicated(World w) throws Exception {
        String ns = w.namespace();
        w.admin("POST", "namespaces/" + ns + "/deduplication", "true");
        return "persistent://" + ns + "/";
    }

    static Producer<String> patient(World w, String topic, boolean batched) throws Exception {
        return w.client.newProducer(Schema.STRING).topic(topic).enableBatching(batched).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    /** Each number goes from one topic to the other, once, whatever the disturbance does. */
    static void transfer(World w, boolean batched, Disturbance disturbance) throws Exception {
        String base = deduplicated(w);
        String in = base + "in", out = base + "out";
        int total = 400;
        Consumer<String> c = w.consumer(in).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true).subscribe();
        Consumer<String> d = w.consumer(out).subscribe();
        send(batched ? w.batches(in, 10) : w.producer(in), "m", 0, total);
        Producer<String> p = patient(w, out, batched);
        AtomicInteger moved = new AtomicInteger();
        AtomicBoolean disturbed = new AtomicBoolean();
        List<String> bad = new ArrayList<>();
        Thread disturber = new Thread(() -> {
            try {
                disturbance.run(moved, in, out);
            } catch (Exception error) {
                bad.add("the disturbance: " + error);
            }
            disturbed.set(true);
        });
        disturber.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(150);
        Map<String, Message<String>> held = new HashMap<>();
        // Seconds: what a lost transaction holds comes again after its time-out.
        int quiet = 0;
        while (quiet < 13 || !disturbed.get()) {
            expect(System.nanoTime() < deadline, "moved " + moved + " of " + total + " in time");
            held.clear();
            for (Message<String> m; held.size() < 15 && (m = c.receive(1, TimeUnit.SECONDS)) != null;) {
                held.put(m.getValue(), m);
            }
            if (held.isEmpty()) {
                quiet++;
                c.redeliverUnacknowledgedMessages();
                continue;
            }
            quiet = 0;
            Transaction txn = null;
            try {
                txn = Txn.begin(w, 10);
                List<CompletableFuture<?>> all = new ArrayList<>();
                for (Message<String> m : held.values()) {
                    all.add(p.newMessage(txn).value(m.getValue()).sendAsync());
                    all.add(c.acknowledgeAsync(m.getMessageId(), txn));
                }
                p.flushAsync();
                for (CompletableFuture<?> one : all) {
                    one.get(30, TimeUnit.SECONDS);
                }
                txn.commit().get(30, TimeUnit.SECONDS);
                moved.addAndGet(held.size());
            } catch (Exception error) {
                if (txn != null) {
                    try {
                        txn.abort().get(30, TimeUnit.SECONDS);
                    } catch (Exception ended) {
                        // it timed out, or was committed although nobody was told
                    }
                }
                c.redeliverUnacknowledgedMessages();
            }
        }
        disturber.join();
        equal(bad, List.of(), "problems");
        List<String> got = new ArrayList<>();
        drain(d, 3000, true).forEach(m -> got.add(m.getValue()));
        Set<String> distinct = new TreeSet<>(got);
        equal(distinct.size(), total, "different messages moved");
        equal(got.size(), total, "messages moved");
        eventually("no backlog", 15, () -> w.statsHold(in, "\"msgBacklog\":0"));
    }

    static void more(AtomicInteger moved) throws Exception {
        int before = moved.get();
        eventually("more moved", 60, () -> moved.get() > Math.min(before + 40, 399));
    }

    static void declare() {
        for (boolean batched : new boolean[] {false, true}) {
            transacting("exactly once while topics are unloaded, batched " + batched, true, w -> transfer(w, batched, (moved, in, out) -> {
                for (int i = 0; i < 4; i++) {
                    more(moved);
                    w.admin("PUT", path(i % 2 == 0 ? out : in) + "/unload", null);
                }
            }));
            transacting("exactly once while the broker is killed, batched " + batched, true, w -> transfer(w, batched, (moved, in, out) -> {
                for (int i = 0; i < 3; i++) {
                    more(moved);
                    Main.order("kill");
                    Main.order("start");
                }
            }));
        }
        for (String how : new String[] {"unload", "kill"}) {
            transacting("open ones outlive it: " + how, how.equals("kill"), w -> {
                String base = deduplicated(w), topic = base + "t", acked = base + "acked";
                Consumer<String> c = w.consumer(topic).subscribe();
                ConsumerBuilder<String> b = w.consumer(acked).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true);
                Consumer<String> d = b.subscribe();
                Producer<String> p = patient(w, topic, false);
                send(w.batches(acked, 5), "a", 0, 20);
                List<Message<String>> all = Txn.take(d, 20);
                Transaction commits = Txn.begin(w), aborts = Txn.begin(w);
                Txn.send(commits, p, "c", 0, 10);
                Txn.send(aborts, p, "x", 0, 10);
                Txn.ack(commits, d, all.subList(0, 8));
                Txn.ack(aborts, d, all.subList(8, 12));
                if (how.equals("kill")) {
                    Main.order("kill");
                    Main.order("start");
                } else {
                    w.admin("PUT", path(topic) + "/unload", null);
                    w.admin("PUT", path(acked) + "/unload", null);
                }
                Txn.send(commits, p, "c", 10, 20);
                Txn.send(aborts, p, "x", 10, 20);
                nothing(c, 500);
                // What is held by no transaction comes again to the consumer that came again.
                equal(sorted(receive(d, 8, false)), sorted(texts("a", 12, 20)), "held by none");
                nothing(d, 300);
                Txn.end(aborts, false);
                Txn.end(commits, true);
                equal(receive(c, 20, true), texts("c", 0, 20), "committed");
                nothing(c, 300);
                d.close();
                equal(sorted(receive(b.subscribe(), 12, true)), sorted(texts("a", 8, 20)), "to be acknowledged");
            });
        }
        transacting("a kill while it commits: all or nothing, and nobody is told otherwise", true, w -> {
            String base = deduplicated(w), in = base + "in";
            ConsumerBuilder<String> b = w.consumer(in).subscriptionType(SubscriptionType.Shared);
            Consumer<String> c = b.subscribe();
            List<Producer<String>> producers = new ArrayList<>();
            List<Consumer<String>> consumers = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                producers.add(patient(w, base + "out" + i, false));
                consumers.add(w.consumer(base + "out" + i).subscribe());
            }
            for (int round = 0; round < 3; round++) {
                String mine = "r" + round + "-";
                send(w.producer(in), "r" + round + "-", 0, 4);
                List<Message<String>> all = Txn.take(c, 4);
                Transaction txn = Txn.begin(w, 60);
                for (Producer<String> p : producers) {
                    Txn.send(txn, p, "r" + round + "-", 0, 5);
                }
                Txn.ack(txn, c, all);
                CompletableFuture<Void> commit = txn.commit();
                Thread.sleep(7 * round);
                Main.order("kill");
                Main.order("start");
                boolean told;
                try {
                    commit.get(60, TimeUnit.SECONDS);
                    told = true;
                } catch (Exception unknown) {
                    told = false;
                }
                if (!told) {
                    try {
                        txn.commit().get(30, TimeUnit.SECONDS);
                        told = true;
                    } catch (Exception unknown) {
                        // It may have been committed all the same, as long as that is true everywhere.
                    }
                }
                List<Integer> counts = new ArrayList<>();
                for (Consumer<String> one : consumers) {
                    // By id: what came before the kill and was taken behind it is acknowledged to nobody, and comes again.
                    counts.add((int) drain(one, told ? 3000 : 5000, true).stream()
                        .filter(m -> m.getValue().startsWith(mine)).map(Message::getMessageId).distinct().count());
                }
                expect(counts.stream().distinct().count() == 1, "of one transaction there are " + counts + " messages");
                boolean committed = counts.get(0) == 5;
                expect(committed || !told && counts.get(0) == 0, "committed, and there are " + counts);
                c.close();
                c = b.subscribe();
                equal(drain(c, 1500, true).size(), committed ? 0 : 4, "of the acknowledged ones came again");
            }
        });
        transacting("one that times out while the broker is down", true, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<String> p = patient(w, topic, false);
            send(p, "m", 0, 2);
            Transaction txn = Txn.begin(w, 5);
            Txn.ack(txn, c, Txn.take(c, 2));
            Txn.send(txn, p, "lost", 0, 3);
            Main.order("kill");
            Thread.sleep(4000);
            Main.order("start");
            send(p, "n", 0, 2);
            List<String> got = new ArrayList<>();
            eventually("all of them come, and nothing else", 40, () -> {
                try {
                    got.addAll(receive(c, 1, true));
                } catch (Exception error) {
                    return false;
                }
                return Set.copyOf(got).equals(Set.of("m0", "m1", "n0", "n1"));
            });
            nothing(c, 300);
            refused(() -> txn.commit().get(30, TimeUnit.SECONDS), TransactionCoordinatorClientException.class);
        });
        transacting("new ones after restarts have other ids", true, w -> {
            Set<String> ids = new TreeSet<>();
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 40; i++) {
                    Transaction txn = Txn.begin(w);
                    expect(ids.add(txn.getTxnID().toString()), "twice: " + txn.getTxnID());
                    Txn.end(txn, i % 2 == 0);
                }
                Main.order("kill");
                Main.order("start");
            }
        });
        alone("transactions: a clear error, at once, from a broker that has none", w -> {
            Main.order("kill");
            Main.order("start transactionCoordinatorEnabled=false");
            try {
                long start = System.nanoTime();
                refused(() -> {
                    // Its constructor waits for the coordinators without a limit: for ever, where it is told of some that
                    // then refuse it (Apache's broker, if transactions were on before). A broker without tells of none.
                    CompletableFuture<PulsarClient> made = new CompletableFuture<>();
                    ClientBuilder b = World.builder().serviceUrl(w.url).enableTransaction(true).operationTimeout(10, TimeUnit.SECONDS);
                    Thread maker = new Thread(() -> {
                        try {
                            made.complete(b.build());
                        } catch (Exception error) {
                            made.completeExceptionally(error);
                        }
                    });
                    maker.setDaemon(true);
                    maker.start();
                    PulsarClient t = w.other(made.get(25, TimeUnit.SECONDS));
                    t.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get(15, TimeUnit.SECONDS);
                }, PulsarClientException.class, TransactionCoordinatorClientException.class);
                expect(System.nanoTime() - start < 10_000_000_000L, "took too long");
            } finally {
                Main.order("kill");
                Main.order("start transactionCoordinatorEnabled=true");
            }
        });
    }
}
