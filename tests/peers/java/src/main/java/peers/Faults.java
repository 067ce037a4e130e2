package peers;

import static peers.Main.add;
import static peers.Main.alone;
import static peers.World.*;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;
import org.apache.pulsar.client.api.*;

/** Unloads and kills under load. */
final class Faults {
    interface Disturbance {
        void run(IntSupplier receipts) throws Exception;
    }

    /** Every message with a receipt arrives at every type of subscription, each key in order. */
    static void underLoad(World w, String topic, boolean batched, Disturbance disturbance) throws Exception {
        Map<String, Map<String, Boolean>> seen = new ConcurrentHashMap<>();
        Map<String, Integer> last = new ConcurrentHashMap<>();
        List<String> bad = new ArrayList<>();
        for (SubscriptionType kind : SubscriptionType.values()) {
            seen.put(kind.name(), new ConcurrentHashMap<>());
            for (int i = 0; i < (kind == SubscriptionType.Exclusive ? 1 : 2); i++) {
                w.consumer(topic).subscriptionName(kind.name()).subscriptionType(kind).consumerName(kind.name() + i)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).messageListener((c, m) -> {
                            if (seen.get(kind.name()).put(m.getValue(), true) == null && kind != SubscriptionType.Shared) {
                                int n = Integer.parseInt(m.getValue().substring(1));
                                Integer was = last.put(kind.name() + m.getKey(), n);
                                if (was != null && was > n) {
                                    bad.add(kind + " " + m.getKey() + ": " + n + " after " + was);
                                }
                            }
                            c.acknowledgeAsync(m);
                        }).subscribe();
            }
        }
        Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).producerName("load").enableBatching(batched).sendTimeout(0, TimeUnit.SECONDS)
                .blockIfQueueFull(true).batcherBuilder(BatcherBuilder.KEY_BASED).initialSequenceId(1).create();
        AtomicInteger receipts = new AtomicInteger(), failed = new AtomicInteger(), total = new AtomicInteger();
        AtomicBoolean ended = new AtomicBoolean();
        Thread sender = new Thread(() -> {
            try {
                for (; !ended.get(); Thread.sleep(1)) {
                    int n = total.getAndIncrement();
                    p.newMessage().key("k" + n % 50).value("m" + n).sendAsync().whenComplete((id, error) -> (error == null ? receipts : failed).incrementAndGet());
                }
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
            }
        });
        sender.start();
        try {
            disturbance.run(receipts::get);
        } finally {
            ended.set(true);
            sender.join();
        }
        p.flush();
        equal(failed.get(), 0, "messages that failed");
        eventually("every message has its receipt", 20, () -> receipts.get() == total.get());
        for (String kind : seen.keySet()) {
            eventually(kind + " has all " + total.get(), 40, () -> seen.get(kind).size() == total.get());
        }
        equal(bad, List.of(), "order");
    }

    static void more(IntSupplier receipts) throws Exception {
        int before = receipts.getAsInt();
        eventually("more receipts", 60, () -> receipts.getAsInt() > before + 300);
    }

    static void declare() {
        for (boolean batched : new boolean[] {false, true}) {
            add("unloads under load, batched " + batched, w -> {
                String topic = w.topic();
                underLoad(w, topic, batched, receipts -> {
                    for (int i = 0; i < 4; i++) {
                        more(receipts);
                        w.admin("PUT", path(topic) + "/unload", null);
                    }
                });
            });
            alone("the broker killed under load, batched " + batched, w -> {
                String ns = w.namespace();
                w.admin("POST", "namespaces/" + ns + "/deduplication", "true");
                w.admin("POST", "namespaces/" + ns + "/retention", "{\"retentionTimeInMinutes\":60,\"retentionSizeInMB\":1000}");
                String topic = "persistent://" + ns + "/t";
                underLoad(w, topic, batched, receipts -> {
                    for (int i = 0; i < 3; i++) {
                        more(receipts);
                        Main.order("kill");
                        Main.order("start");
                    }
                });
                List<String> stored = Reading.all(w.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create());
                equal(stored.size(), (int) stored.stream().distinct().count(), "stored messages");
            });
        }
        alone("receipts of acknowledgments hold over kill -9; a pattern and a table view go on", w -> {
            String ns = w.namespace();
            String topic = "persistent://" + ns + "/t";
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).isAckReceiptEnabled(true).enableBatchIndexAcknowledgment(true).subscribe();
            Consumer<String> x = w.client.newConsumer(Schema.STRING).topicsPattern("persistent://" + ns + "/.*").subscriptionName("x")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            TableView<String> v = w.client.newTableView(Schema.STRING).topic(topic).create();
            send(w.producer(topic), "m", 0, 20);
            send(w.batches(topic, 10), "b", 0, 10);
            List<String> want = new ArrayList<>();
            for (int i = 0; i < 30; i++) {
                Message<String> m = receive(c);
                if (i % 3 == 0) {
                    want.add(m.getValue());
                } else {
                    c.acknowledge(m);
                }
            }
            Main.order("kill");
            Main.order("start");
            List<String> got = new ArrayList<>();
            drain(c, 5000, true).forEach(m -> got.add(m.getValue()));
            equal(sorted(got), sorted(want), "what comes again");
            drain(x, 1000, true);
            send(w.producer("persistent://" + ns + "/new"), "n", 0, 3);
            eventually("the pattern finds the new topic", 20, () -> {
                try {
                    return receive(x).getValue().equals("n2");
                } catch (Exception e) {
                    return false;
                }
            });
            w.producer(topic).newMessage().key("late").value("v").send();
            eventually("the table view goes on", 20, () -> v.containsKey("late"));
        });
    }
}
