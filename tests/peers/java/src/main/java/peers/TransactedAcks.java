package peers;

import static peers.Main.transacting;
import static peers.World.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.PulsarClientException.TransactionConflictException;
import org.apache.pulsar.client.api.transaction.Transaction;

/** What is acknowledged in transactions: what comes again, what never does, who is refused. */
final class TransactedAcks {
    static List<String> join(List<String> one, List<String> two) {
        List<String> all = new ArrayList<>(one);
        all.addAll(two);
        return all;
    }

    static void individual() {
        for (SubscriptionType kind : SubscriptionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                transacting("acknowledge one by one, " + kind + ", batched " + batched, false, w -> {
                    String topic = w.topic();
                    ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(kind).enableBatchIndexAcknowledgment(true);
                    Consumer<String> c = b.subscribe();
                    send(batched ? w.batches(topic, 10) : w.producer(topic), "m", 0, 20);
                    List<Message<String>> all = Txn.take(c, 20);
                    Transaction txn = Txn.begin(w);
                    List<Message<String>> given = all.subList(0, 13);
                    Txn.ack(txn, c, given);
                    Txn.end(txn, false);
                    if (!batched && (kind == SubscriptionType.Shared || kind == SubscriptionType.Key_Shared)) {
                        // They come by themselves: asked for again while they are on their way, they would come twice.
                        equal(sorted(Txn.values(Txn.take(c, 13))), sorted(Txn.values(given)), "of the abort");
                    }
                    c.redeliverUnacknowledgedMessages();
                    all = Txn.take(c, 20);
                    equal(sorted(Txn.values(all)), sorted(texts("m", 0, 20)), "after the abort");
                    txn = Txn.begin(w);
                    List<Message<String>> some = all.stream().filter(m -> Integer.parseInt(m.getValue().substring(1)) % 3 != 0).toList();
                    Txn.ack(txn, c, some);
                    Txn.end(txn, true);
                    c.close();
                    List<String> rest = all.stream().filter(m -> !some.contains(m)).map(Message::getValue).toList();
                    c = b.subscribe();
                    equal(sorted(receive(c, rest.size(), true)), sorted(rest), "after the commit");
                    nothing(c, 400);
                    eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
                });
            }
        }
        transacting("on Shared an abort alone brings them again, counted as redelivered", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            send(w.producer(topic), "m", 0, 5);
            List<Message<String>> all = Txn.take(c, 5);
            Transaction txn = Txn.begin(w);
            Txn.ack(txn, c, all);
            nothing(c, 300);
            Txn.end(txn, false);
            all = Txn.take(c, 5);
            equal(sorted(Txn.values(all)), texts("m", 0, 5), "after the abort");
            equal(all.get(0).getRedeliveryCount(), 1, "redelivery count");
            nothing(c, 300);
        });
        transacting("lists and batches of messages; an ack time-out while it is open", false, w -> {
            String one = w.topic(), two = w.topic();
            ConsumerBuilder<String> b = w.client.newConsumer(Schema.STRING).topics(List.of(one, two)).subscriptionName("s").subscriptionType(SubscriptionType.Shared)
                    .ackTimeout(1, TimeUnit.SECONDS).batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(20).timeout(2, TimeUnit.SECONDS).build());
            Consumer<String> c = b.subscribe();
            send(w.batches(one, 5), "m", 0, 10);
            send(w.producer(two), "n", 0, 10);
            Messages<String> batch = c.batchReceive();
            equal(batch.size(), 20, "size of the batch");
            Transaction txn = Txn.begin(w);
            c.acknowledgeAsync(batch, txn).get(20, TimeUnit.SECONDS);
            nothing(c, 3000);
            Txn.end(txn, false);
            List<MessageId> ids = new ArrayList<>();
            for (Message<String> m : Txn.take(c, 20)) {
                ids.add(m.getMessageId());
            }
            txn = Txn.begin(w);
            c.acknowledgeAsync(ids, txn).get(20, TimeUnit.SECONDS);
            Txn.end(txn, true);
            nothing(c, 2000);
            c.close();
            nothing(b.subscribe(), 300);
        });
        for (SubscriptionType kind : new SubscriptionType[] {SubscriptionType.Exclusive, SubscriptionType.Failover}) {
            transacting("an abort among others that commit, " + kind + ": nothing is lost, nothing conflicts", false, w -> {
                String topic = w.topic();
                Consumer<String> c = w.consumer(topic).subscriptionType(kind).subscribe();
                send(w.producer(topic), "m", 0, 100);
                Thread.sleep(500);
                List<String> done = new ArrayList<>();
                for (int round = 0; done.size() < 100; round++) {
                    expect(round < 40, "done after 40 rounds: " + done.size());
                    List<Message<String>> some = new ArrayList<>();
                    for (Message<String> m; some.size() < 10 && (m = c.receive(700, TimeUnit.MILLISECONDS)) != null;) {
                        some.add(m);
                    }
                    Transaction txn = Txn.begin(w);
                    Txn.ack(txn, c, some);
                    Txn.end(txn, round != 1);
                    if (round == 1) {
                        c.redeliverUnacknowledgedMessages();
                    } else {
                        done.addAll(Txn.values(some));
                    }
                }
                equal(sorted(done), sorted(texts("m", 0, 100)), "done");
                nothing(c, 300);
            });
        }
        transacting("consume, process, produce", false, w -> {
            String in = w.topic(), out = w.topic();
            w.admin("PUT", path(in) + "/partitions", "3");
            ConsumerBuilder<String> b = w.consumer(in).subscriptionType(SubscriptionType.Shared);
            Consumer<String> c = b.subscribe(), d = w.consumer(out).subscribe();
            Producer<String> p = w.batches(out, 10);
            send(w.batches(in, 4), "m", 0, 30);
            for (boolean commit : new boolean[] {false, true}) {
                List<Message<String>> all = Txn.take(c, 30);
                Transaction txn = Txn.begin(w);
                List<java.util.concurrent.CompletableFuture<?>> sent = new ArrayList<>();
                for (Message<String> m : all) {
                    sent.add(p.newMessage(txn).value(m.getValue().toUpperCase()).sendAsync());
                    sent.add(c.acknowledgeAsync(m.getMessageId(), txn));
                }
                p.flush();
                for (var one : sent) {
                    one.get(20, TimeUnit.SECONDS);
                }
                nothing(d, 300);
                Txn.end(txn, commit);
            }
            equal(sorted(receive(d, 30, true)), sorted(texts("M", 0, 30)), "made of them");
            c.close();
            nothing(b.subscribe(), 400);
            nothing(d, 100);
        });
        transacting("what an open one holds does not come: nack, redeliver, another consumer", false, w -> {
            String topic = w.topic();
            ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(SubscriptionType.Shared).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS);
            Consumer<String> c = b.subscribe();
            send(w.producer(topic), "m", 0, 4);
            List<Message<String>> all = Txn.take(c, 4);
            Transaction txn = Txn.begin(w);
            Txn.ack(txn, c, all.subList(0, 2));
            all.forEach(c::negativeAcknowledge);
            equal(sorted(Txn.values(Txn.take(c, 2))), texts("m", 2, 4), "after the nack");
            nothing(c, 400);
            c.redeliverUnacknowledgedMessages();
            equal(sorted(Txn.values(Txn.take(c, 2))), texts("m", 2, 4), "after redeliver");
            nothing(c, 300);
            Consumer<String> d = b.subscribe();
            c.close();
            equal(sorted(receive(d, 2, true)), texts("m", 2, 4), "of another");
            nothing(d, 300);
            Txn.end(txn, false);
            equal(sorted(receive(d, 2, true)), texts("m", 0, 2), "after the abort");
        });
        transacting("dead letters: aborts count, and what goes there in a transaction", false, w -> {
            String topic = w.topic(), dead = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(dead).build()).subscribe();
            Consumer<String> d = w.consumer(dead).subscribe();
            send(w.producer(topic), "m", 0, 1);
            for (int i = 0; i < 3; i++) {
                Message<String> m = receive(c);
                equal(m.getRedeliveryCount(), i, "redelivery count");
                Transaction txn = Txn.begin(w);
                Txn.ack(txn, c, m.getMessageId());
                Txn.end(txn, false);
            }
            nothing(c, 500);
            equal(receive(d, 1, true), List.of("m0"), "dead");
            send(w.producer(topic), "n", 0, 1);
            Producer<String> own = w.producer(dead);
            Message<String> m = receive(c);
            Transaction txn = Txn.begin(w);
            own.newMessage(txn).value("own " + m.getValue()).send();
            Txn.ack(txn, c, m.getMessageId());
            nothing(d, 300);
            Txn.end(txn, true);
            equal(receive(d, 1, true), List.of("own n0"), "dead by the application");
            eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
        });
        transacting("retry topic: what comes from it is acknowledged in transactions", false, w -> {
            String topic = "persistent://" + w.namespace() + "/t";
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).enableRetry(true)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(5).build()).subscribe();
            send(w.producer(topic), "m", 0, 2);
            for (Message<String> m : Txn.take(c, 2)) {
                c.reconsumeLater(m, 100, TimeUnit.MILLISECONDS);
            }
            for (boolean commit : new boolean[] {false, true}) {
                List<Message<String>> again = Txn.take(c, 2);
                equal(sorted(Txn.values(again)), texts("m", 0, 2), "from the retry topic");
                expect(again.get(0).getTopicName().contains("RETRY"), "came from " + again.get(0).getTopicName());
                Transaction txn = Txn.begin(w);
                Txn.ack(txn, c, again);
                Txn.end(txn, commit);
            }
            nothing(c, 400);
        });
        transacting("Key_Shared: keys keep their order over aborts", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Key_Shared).subscribe();
            Consumer<String> d = w.consumer(topic).subscriptionType(SubscriptionType.Key_Shared).subscribe();
            send(w.producer(topic), "m", 0, 60);
            java.util.Map<String, Integer> last = new java.util.HashMap<>();
            int got = 0;
            for (int round = 0; got < 60; round++) {
                expect(round < 20, "after 20 rounds there are " + got);
                for (Consumer<String> one : List.of(c, d)) {
                    List<Message<String>> some = drain(one, 300, false);
                    Transaction txn = Txn.begin(w);
                    Txn.ack(txn, one, some);
                    Txn.end(txn, round % 2 == 1);
                    if (round % 2 == 1) {
                        got += some.size();
                        for (Message<String> m : some) {
                            int n = Integer.parseInt(m.getValue().substring(1));
                            expect(last.getOrDefault(m.getKey(), -1) < n, m.getKey() + ": " + n + " after " + last.get(m.getKey()));
                            last.put(m.getKey(), n);
                        }
                    }
                }
            }
            equal(got, 60, "messages");
        });
    }

    static void cumulative() {
        for (SubscriptionType kind : new SubscriptionType[] {SubscriptionType.Exclusive, SubscriptionType.Failover}) {
            for (boolean batched : new boolean[] {false, true}) {
                transacting("acknowledge cumulatively, " + kind + ", batched " + batched, false, w -> {
                    String topic = w.topic();
                    ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(kind).enableBatchIndexAcknowledgment(true);
                    Consumer<String> c = b.subscribe();
                    send(batched ? w.batches(topic, 10) : w.producer(topic), "m", 0, 40);
                    for (boolean commit : new boolean[] {false, true}) {
                        List<Message<String>> all = Txn.take(c, 40);
                        equal(Txn.values(all), texts("m", 0, 40), "received");
                        Transaction txn = Txn.begin(w);
                        c.acknowledgeCumulativeAsync(all.get(6).getMessageId(), txn).get(20, TimeUnit.SECONDS);
                        c.acknowledgeCumulativeAsync(all.get(24).getMessageId(), txn).get(20, TimeUnit.SECONDS);
                        Txn.end(txn, commit);
                        c.redeliverUnacknowledgedMessages();
                    }
                    equal(receive(c, 15, false), texts("m", 25, 40), "after the commit");
                    c.close();
                    c = b.subscribe();
                    equal(receive(c, 15, true), texts("m", 25, 40), "of the next consumer");
                    eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
                });
            }
        }
        transacting("a cumulative one and others: conflicts", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            send(w.producer(topic), "m", 0, 20);
            List<Message<String>> all = Txn.take(c, 20);
            Transaction one = Txn.begin(w), two = Txn.begin(w);
            c.acknowledgeCumulativeAsync(all.get(9).getMessageId(), one).get(20, TimeUnit.SECONDS);
            refused(() -> c.acknowledgeCumulativeAsync(all.get(4).getMessageId(), two).get(20, TimeUnit.SECONDS), TransactionConflictException.class);
            refused(() -> c.acknowledgeCumulativeAsync(all.get(14).getMessageId(), two).get(20, TimeUnit.SECONDS), TransactionConflictException.class);
            Txn.end(two, false);
            Txn.end(one, true);
            Transaction three = Txn.begin(w);
            refused(() -> c.acknowledgeCumulativeAsync(all.get(9).getMessageId(), three).get(20, TimeUnit.SECONDS), TransactionConflictException.class);
            Txn.end(three, false);
            Transaction four = Txn.begin(w);
            c.acknowledgeCumulativeAsync(all.get(19).getMessageId(), four).get(20, TimeUnit.SECONDS);
            Txn.end(four, true);
            eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
        });
        transacting("cumulatively on Shared is refused", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            send(w.producer(topic), "m", 0, 2);
            List<Message<String>> all = Txn.take(c, 2);
            Transaction txn = Txn.begin(w);
            refused(() -> c.acknowledgeCumulativeAsync(all.get(1).getMessageId(), txn).get(20, TimeUnit.SECONDS), PulsarClientException.class);
            Txn.end(txn, false);
        });
    }

    static void conflicts() {
        transacting("two transactions, one message: one is refused, and can not be committed", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            send(w.producer(topic), "m", 0, 10);
            List<Message<String>> all = Txn.take(c, 10);
            Transaction one = Txn.begin(w), two = Txn.begin(w);
            Txn.ack(one, c, all.subList(0, 5));
            refused(() -> Txn.ack(two, c, all.get(4).getMessageId()), TransactionConflictException.class);
            Txn.ack(two, c, all.subList(5, 10));
            // The client commits no transaction of which a part failed.
            refused(() -> two.commit().get(20, TimeUnit.SECONDS), PulsarClientException.TransactionHasOperationFailedException.class);
            Txn.end(one, true);
            equal(sorted(Txn.values(Txn.take(c, 5))), texts("m", 5, 10), "of the one that was refused");
            nothing(c, 300);
        });
        transacting("of one batch: the same message conflicts, others do not", false, w -> {
            String topic = w.topic();
            ConsumerBuilder<String> b = w.consumer(topic).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true);
            Consumer<String> c = b.subscribe();
            send(w.batches(topic, 10), "m", 0, 10);
            List<Message<String>> all = Txn.take(c, 10);
            Transaction one = Txn.begin(w), two = Txn.begin(w);
            Txn.ack(one, c, all.subList(0, 4));
            Txn.ack(two, c, all.subList(4, 7));
            refused(() -> Txn.ack(two, c, all.get(2).getMessageId()), TransactionConflictException.class);
            Txn.end(one, true);
            Txn.end(two, false);
            c.close();
            Consumer<String> d = b.subscribe();
            equal(sorted(receive(d, 6, true)), texts("m", 4, 10), "left of the batch");
            nothing(d, 300);
        });
        transacting("what is acknowledged already conflicts, plain or in a transaction", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).isAckReceiptEnabled(true).subscribe();
            send(w.producer(topic), "m", 0, 6);
            List<Message<String>> all = Txn.take(c, 6);
            c.acknowledgeAsync(all.get(0).getMessageId()).get(20, TimeUnit.SECONDS);
            c.acknowledgeAsync(all.get(3).getMessageId()).get(20, TimeUnit.SECONDS);
            Transaction one = Txn.begin(w);
            Txn.ack(one, c, all.get(1).getMessageId());
            Txn.end(one, true);
            for (int i : new int[] {0, 1, 3}) {
                Transaction two = Txn.begin(w);
                refused(() -> Txn.ack(two, c, all.get(i).getMessageId()), TransactionConflictException.class);
                Txn.end(two, false);
            }
            c.acknowledgeAsync(all.get(2).getMessageId()).get(20, TimeUnit.SECONDS);
            // A plain one of what a transaction holds counts whatever becomes of that.
            Transaction three = Txn.begin(w);
            Txn.ack(three, c, all.get(4).getMessageId());
            c.acknowledgeAsync(all.get(4).getMessageId()).get(20, TimeUnit.SECONDS);
            c.acknowledgeAsync(all.get(5).getMessageId()).get(20, TimeUnit.SECONDS);
            Txn.end(three, true);
            eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
            nothing(c, 300);
        });
        transacting("subscriptions of several topics; each has its own", false, w -> {
            String one = w.topic(), two = w.topic();
            Consumer<String> c = w.client.newConsumer(Schema.STRING).topics(List.of(one, two)).subscriptionName("a").subscriptionType(SubscriptionType.Shared).subscribe();
            Consumer<String> d = w.client.newConsumer(Schema.STRING).topics(List.of(one, two)).subscriptionName("b").subscriptionType(SubscriptionType.Shared).subscribe();
            send(w.producer(one), "m", 0, 5);
            send(w.producer(two), "n", 0, 5);
            List<Message<String>> all = Txn.take(c, 10), same = Txn.take(d, 10);
            Transaction txn = Txn.begin(w), other = Txn.begin(w);
            Txn.ack(txn, c, all);
            Txn.ack(other, d, same);
            Txn.end(txn, true);
            Txn.end(other, false);
            equal(sorted(receive(d, 10, true)), join(texts("m", 0, 5), texts("n", 0, 5)), "of the one that aborted");
            nothing(c, 300);
        });
        transacting("a subscription that is deleted, or sought, while it is open", false, w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            send(w.producer(topic), "m", 0, 4);
            Transaction txn = Txn.begin(w, 20);
            Txn.ack(txn, c, Txn.take(c, 4));
            c.unsubscribe();
            Txn.end(txn, true);
            Consumer<String> d = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            send(w.producer(topic), "n", 0, 4);
            List<Message<String>> all = Txn.take(d, 4);
            Transaction again = Txn.begin(w, 20);
            Txn.ack(again, d, all.subList(0, 2));
            d.seek(MessageId.latest);
            Txn.end(again, true);
            send(w.producer(topic), "o", 0, 2);
            equal(receive(d, 2, true), texts("o", 0, 2), "behind the seek");
            nothing(d, 300);
        });
    }

    static void declare() {
        individual();
        cumulative();
        conflicts();
    }
}
