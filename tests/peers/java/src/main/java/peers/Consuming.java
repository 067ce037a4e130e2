package peers;

import static peers.Main.add;
import static peers.World.*;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/** Consumers: types, acknowledging, redelivery, seeking, several topics. */
final class Consuming {
    static final class Watch implements ConsumerEventListener {
        volatile Boolean active;

        @Override
        public void becameActive(Consumer<?> c, int partition) {
            active = true;
        }

        @Override
        public void becameInactive(Consumer<?> c, int partition) {
            active = false;
        }
    }

    static void declare() {
        add("Exclusive: a second consumer, another type", w -> {
            String topic = w.topic();
            w.consumer(topic).subscribe();
            refused(() -> w.consumer(topic).subscribe(), PulsarClientException.ConsumerBusyException.class);
            refused(() -> w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe(), PulsarClientException.ConsumerBusyException.class);
        });
        add("Shared: spread, priority levels, a full one lets the others on", w -> {
            String topic = w.topic();
            ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(SubscriptionType.Shared).receiverQueueSize(10);
            Consumer<String> first = b.clone().priorityLevel(0).subscribe();
            Consumer<String> second = b.clone().priorityLevel(1).subscribe();
            send(w.producer(topic), "m", 0, 15);
            Thread.sleep(500);
            equal(receive(first, 10, false).size(), 10, "of priority 0");
            int more = drain(first, 500, false).size() + drain(second, 500, false).size();
            equal(more, 5, "rest");
        });
        add("Failover: listeners, priority, takeover", w -> {
            String topic = w.topic();
            Watch x = new Watch(), y = new Watch();
            Consumer<String> a = w.consumer(topic).subscriptionType(SubscriptionType.Failover).consumerName("a").priorityLevel(0).consumerEventListener(x).subscribe();
            Consumer<String> b = w.consumer(topic).subscriptionType(SubscriptionType.Failover).consumerName("b").priorityLevel(1).consumerEventListener(y).subscribe();
            eventually("a is active, b is not", 5, () -> Boolean.TRUE.equals(x.active) && Boolean.FALSE.equals(y.active));
            send(w.producer(topic), "m", 0, 10);
            equal(receive(a, 10, false), texts("m", 0, 10), "a's");
            nothing(b, 300);
            a.close();
            equal(receive(b, 10, true), texts("m", 0, 10), "b's");
            expect(Boolean.TRUE.equals(y.active), "b was not told");
        });
        add("Key_Shared: AUTO_SPLIT keeps keys and their order, STICKY its ranges", w -> {
            String topic = w.topic();
            Map<String, String> owner = new ConcurrentHashMap<>();
            Map<String, Integer> last = new ConcurrentHashMap<>();
            AtomicInteger got = new AtomicInteger();
            List<String> bad = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                w.consumer(topic).subscriptionType(SubscriptionType.Key_Shared).messageListener((c, m) -> {
                    String before = owner.putIfAbsent(m.getKey(), c.getConsumerName());
                    int n = Integer.parseInt(m.getValue().substring(1));
                    Integer was = last.put(m.getKey(), n);
                    if (before != null && !before.equals(c.getConsumerName()) || was != null && was > n) {
                        bad.add(m.getKey());
                    }
                    c.acknowledgeAsync(m);
                    got.incrementAndGet();
                }).subscribe();
            }
            send(w.producer(topic), "m", 0, 400);
            eventually("all", 10, () -> got.get() == 400);
            equal(bad, List.of(), "keys out of order or at two consumers");
            ConsumerBuilder<String> s = w.consumer(topic).subscriptionName("sticky").subscriptionType(SubscriptionType.Key_Shared);
            Consumer<String> low = s.clone().keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 30000))).subscribe();
            refused(() -> s.clone().keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(20000, 40000))).subscribe(), PulsarClientException.ConsumerAssignException.class);
            Consumer<String> high = s.clone().keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(30001, 65535))).subscribe();
            send(w.producer(topic), "n", 0, 100);
            int x = drain(low, 1000, true).size(), y = drain(high, 1000, true).size();
            expect(x + y == 100 && x > 0 && y > 0, x + " and " + y);
        });
        for (boolean receipts : new boolean[] {false, true}) {
            add("acknowledging: one, list, cumulative, receipts " + receipts, w -> {
                String topic = w.topic();
                ConsumerBuilder<String> b = w.consumer(topic).isAckReceiptEnabled(receipts);
                Consumer<String> c = b.clone().subscribe();
                send(w.producer(topic), "m", 0, 20);
                List<Message<String>> ms = drain(c, 500, false);
                equal(ms.size(), 20, "messages");
                for (int i = 0; i < 20; i += 2) {
                    c.acknowledge(ms.get(i));
                }
                c.acknowledgeCumulative(ms.get(9));
                c.acknowledge(List.of(ms.get(11).getMessageId(), ms.get(13).getMessageId()));
                c.close();
                c = b.clone().subscribe();
                equal(receive(c, 3, true), List.of("m15", "m17", "m19"), "left");
            });
        }
        for (boolean index : new boolean[] {false, true}) {
            add("a batch acknowledged in part, by index " + index, w -> {
                String topic = w.topic();
                for (boolean cumulative : new boolean[] {false, true}) {
                    ConsumerBuilder<String> b = w.consumer(topic).subscriptionName("s" + cumulative).isAckReceiptEnabled(true).enableBatchIndexAcknowledgment(index)
                            .subscriptionType(cumulative ? SubscriptionType.Exclusive : SubscriptionType.Shared);
                    Consumer<String> c = b.clone().subscribe();
                    send(w.batches(topic, 10), "m", 0, 10);
                    List<Message<String>> ms = drain(c, 500, false);
                    if (cumulative) {
                        c.acknowledgeCumulative(ms.get(5));
                    } else {
                        for (int i = 0; i <= 5; i++) {
                            c.acknowledge(ms.get(i));
                        }
                    }
                    c.close();
                    c = b.clone().subscribe();
                    equal(receive(c, index ? 4 : 10, true), texts("m", index ? 6 : 0, 10), "again, cumulative " + cumulative);
                    nothing(c, 300);
                }
            });
        }
        add("negative acknowledgment, growing delays, ack timeout, redeliverUnacknowledgedMessages", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared)
                    .negativeAckRedeliveryBackoff(MultiplierRedeliveryBackoff.builder().minDelayMs(300).maxDelayMs(5000).multiplier(3).build()).subscribe();
            Consumer<String> t = w.consumer(topic).subscriptionName("t").subscriptionType(SubscriptionType.Shared).ackTimeout(1, TimeUnit.SECONDS)
                    .ackTimeoutTickTime(200, TimeUnit.MILLISECONDS).subscribe();
            Consumer<String> e = w.consumer(topic).subscriptionName("e").subscribe();
            Producer<String> p = w.producer(topic);
            p.send("x");
            for (int i = 0; i < 4; i++) {
                Message<String> m = receive(c);
                equal(m.getRedeliveryCount(), i, "redelivery count");
                c.negativeAcknowledge(m);
            }
            equal(receive(t).getRedeliveryCount(), 0, "count");
            equal(receive(t).getRedeliveryCount(), 1, "count after the ack timeout");
            p.send("y");
            equal(receive(e, 2, false), List.of("x", "y"), "before");
            e.redeliverUnacknowledgedMessages();
            equal(receive(e, 2, false), List.of("x", "y"), "again");
        });
        add("dead letters and retries", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("first").build()).subscribe();
            Producer<String> p = w.producer(topic);
            p.newMessage().key("k").property("a", "b").value("poison").send();
            for (int i = 0; i < 3; i++) {
                c.negativeAcknowledge(receive(c));
            }
            Message<String> dead = receive(w.client.newConsumer(Schema.STRING).topic(topic + "-s-DLQ").subscriptionName("first").subscribe());
            equal(dead.getValue() + dead.getKey() + dead.getProperty("a") + dead.getProperty("REAL_TOPIC"), "poisonkb" + topic, "dead letter");
            Consumer<String> r = w.consumer(topic).subscriptionName("r").subscriptionType(SubscriptionType.Shared).enableRetry(true)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("first").build()).subscribe();
            p.send("again");
            for (int i = 0; i < 3; i++) {
                Message<String> m = receive(r);
                equal(m.getValue(), "again", "value");
                equal(m.getProperty("RECONSUMETIMES"), i == 0 ? null : "" + i, "RECONSUMETIMES");
                r.reconsumeLater(m, 500, TimeUnit.MILLISECONDS);
            }
            equal(receive(w.client.newConsumer(Schema.STRING).topic(topic + "-r-DLQ").subscriptionName("first").subscribe()).getValue(), "again", "dead letter of retries");
        });
        add("seek: id, time, both ends, a function per topic", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            Producer<String> p = w.producer(topic);
            List<MessageId> ids = send(p, "m", 0, 10);
            Thread.sleep(300);
            long middle = System.currentTimeMillis();
            Thread.sleep(300);
            send(p, "n", 0, 10);
            receive(c, 20, true);
            c.seek(ids.get(4));
            equal(receive(c, 1, true), List.of("m5"), "behind the fifth");
            c.seek(MessageId.earliest);
            equal(receive(c, 1, true), List.of("m0"), "first");
            c.seek(middle);
            equal(receive(c, 10, true), texts("n", 0, 10), "by time");
            c.seek(name -> ids.get(7));
            equal(receive(c, 1, true), List.of("m8"), "by function");
            c.seek(MessageId.latest);
            nothing(c, 300);
            Consumer<String> inclusive = w.consumer(topic).subscriptionName("i").startMessageIdInclusive().subscribe();
            inclusive.seek(ids.get(4));
            equal(receive(inclusive, 1, true), List.of("m4"), "inclusive");
            List<MessageId> batch = send(w.batches(topic, 10), "b", 0, 10);
            inclusive.seek(batch.get(3));
            equal(receive(inclusive, 1, true), List.of("b3"), "inclusive in a batch");
            c.seek(batch.get(3));
            equal(receive(c, 1, true), List.of("b4"), "in a batch");
            equal(((MessageIdAdv) c.getLastMessageIds().get(0)).getBatchIndex(), 9, "batch index of the last id");
        });
        add("seek of partitions by time and by function; last ids", w -> {
            String topic = w.topic();
            w.admin("PUT", path(topic) + "/partitions", "3");
            Consumer<String> c = w.consumer(topic).subscribe();
            send(w.producer(topic), "m", 0, 60);
            equal(receive(c, 60, true).size(), 60, "first");
            equal(c.getLastMessageIds().size(), 3, "last ids");
            c.seek(System.currentTimeMillis() - 60_000);
            equal(receive(c, 60, true).size(), 60, "again");
            c.seek(name -> name.endsWith("-partition-1") ? MessageId.earliest : MessageId.latest);
            Set<Integer> from = new HashSet<>();
            drain(c, 700, true).forEach(m -> from.add(((MessageIdAdv) m.getMessageId()).getPartitionIndex()));
            equal(from, Set.of(1), "partitions that come again");
        });
        add("queues of 0 and 1; pause and resume; startPaused; batchReceive; receiveAsync", w -> {
            String topic = w.topic();
            Consumer<String> zero = w.consumer(topic).subscriptionName("zero").receiverQueueSize(0).subscribe();
            Consumer<String> one = w.consumer(topic).subscriptionName("one").receiverQueueSize(1).subscribe();
            Consumer<String> many = w.consumer(topic).subscriptionName("many").autoScaledReceiverQueueSizeEnabled(true)
                    .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(7).timeout(1, TimeUnit.SECONDS).build()).subscribe();
            AtomicInteger heard = new AtomicInteger();
            Consumer<String> paused = w.consumer(topic).subscriptionName("paused").startPaused(true).receiverQueueSize(5).messageListener((c, m) -> heard.incrementAndGet()).subscribe();
            send(w.producer(topic), "m", 0, 30);
            for (int i = 0; i < 30; i++) {
                Message<String> m = zero.receive();
                equal(m.getValue(), "m" + i, "zero");
                zero.acknowledge(m);
            }
            equal(receive(one, 30, true), texts("m", 0, 30), "one");
            List<String> got = new ArrayList<>();
            while (got.size() < 30) {
                Messages<String> batch = many.batchReceive();
                expect(batch.size() <= 7 && batch.size() > 0, "batch of " + batch.size());
                batch.forEach(m -> got.add(m.getValue()));
                many.acknowledge(batch);
            }
            equal(got, texts("m", 0, 30), "batches");
            equal(heard.get(), 0, "heard while paused");
            paused.resume();
            eventually("all heard", 10, () -> heard.get() == 30);
            var later = one.receiveAsync();
            send(w.producer(topic), "n", 0, 1);
            equal(later.get(10, TimeUnit.SECONDS).getValue(), "n0", "receiveAsync");
        });
        add("unsubscribe: beside another, alone, forced; non-durable", w -> {
            String topic = w.topic();
            ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(SubscriptionType.Shared);
            Consumer<String> x = b.clone().subscribe(), y = b.clone().subscribe();
            refused(x::unsubscribe, PulsarClientException.class);
            y.close();
            x.unsubscribe();
            equal(w.admin("GET", path(topic) + "/subscriptions", null).trim(), "[]", "subscriptions");
            x = b.clone().subscribe();
            b.clone().subscribe();
            x.unsubscribe(true);
            Consumer<String> n = w.consumer(topic).subscriptionName("n").subscriptionMode(SubscriptionMode.NonDurable).subscribe();
            n.close();
            Thread.sleep(200);
            expect(!w.admin("GET", path(topic) + "/subscriptions", null).contains("\"n\""), "the non-durable one is still there");
        });
        add("several topics, a pattern with new and deleted topics, by watcher and by polling", w -> {
            String ns = w.namespace();
            for (int i = 0; i < 3; i++) {
                w.producer("persistent://" + ns + "/t" + i);
            }
            Consumer<String> several = w.client.newConsumer(Schema.STRING).topics(List.of("persistent://" + ns + "/t0", "persistent://" + ns + "/t1")).subscriptionName("several").subscribe();
            Consumer<String> pattern = w.client.newConsumer(Schema.STRING).topicsPattern(Pattern.compile("persistent://" + ns + "/t.*")).subscriptionName("pattern")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).patternAutoDiscoveryPeriod(50, TimeUnit.SECONDS).subscribe();
            for (int i = 0; i < 3; i++) {
                send(w.producer("persistent://" + ns + "/t" + i), "m", 0, 5);
            }
            equal(receive(several, 10, true).size(), 10, "several");
            equal(receive(pattern, 15, true).size(), 15, "pattern");
            send(w.producer("persistent://" + ns + "/t-new"), "new", 0, 5);
            send(w.producer("persistent://" + ns + "/other"), "other", 0, 5);
            equal(receive(pattern, 5, true), texts("new", 0, 5), "new topic (told by the broker: polling is slower)");
            nothing(pattern, 500);
            w.admin("PUT", "persistent/" + ns + "/tp/partitions", "2");
            send(w.producer("persistent://" + ns + "/tp"), "p", 0, 10);
            equal(receive(pattern, 10, true).size(), 10, "new partitioned topic");
        });
        add("partitions that are added are found", w -> {
            String topic = w.topic();
            w.admin("PUT", path(topic) + "/partitions", "2");
            Consumer<String> c = w.consumer(topic).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe();
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).enableBatching(false).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create();
            w.admin("POST", path(topic) + "/partitions", "5");
            Set<Integer> used = new HashSet<>();
            eventually("five are received from", 30, () -> {
                try {
                    p.send("x");
                    used.add(((MessageIdAdv) receive(c).getMessageId()).getPartitionIndex());
                } catch (Exception e) {
                    return false;
                }
                return used.size() == 5;
            });
        });
        add("non-persistent topics of all types", w -> {
            String topic = "non-" + w.topic();
            List<Consumer<String>> all = new ArrayList<>();
            for (SubscriptionType kind : SubscriptionType.values()) {
                all.add(w.consumer(topic).subscriptionName(kind.name()).subscriptionType(kind).subscribe());
            }
            send(w.producer(topic), "m", 0, 20);
            for (Consumer<String> c : all) {
                equal(receive(c, 20, true), texts("m", 0, 20), "received");
            }
        });
    }
}
