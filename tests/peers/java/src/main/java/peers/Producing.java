package peers;

import static peers.Main.add;
import static peers.World.*;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Producers, schemas, service URLs. */
final class Producing {
    /** A record for JSON and Avro. */
    public static class Person {
        public String name;
        public int age;
    }

    /** The same with a field more. */
    public static class Citizen {
        public String name;
        public int age;
        public String town;
    }

    static Person person(String name, int age) {
        Person p = new Person();
        p.name = name;
        p.age = age;
        return p;
    }

    static byte[] noise(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }

    static <T> Message<T> trip(World w, Schema<T> schema, T value) throws Exception {
        String topic = w.topic();
        Consumer<T> c = w.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
        try (Producer<T> p = w.client.newProducer(schema).topic(topic).create()) {
            p.send(value);
        }
        return receive(c);
    }

    static void declare() {
        for (boolean batched : new boolean[] {false, true}) {
            add("every field of a message, batched " + batched, w -> {
                String topic = w.topic();
                Consumer<byte[]> c = w.client.newConsumer().topic(topic).subscriptionName("s").subscribe();
                Producer<byte[]> p = w.client.newProducer().topic(topic).producerName("named").enableBatching(batched).create();
                MessageId id = p.newMessage().keyBytes(new byte[] {1, 2, 3}).orderingKey(new byte[] {9}).eventTime(1700000000123L)
                        .sequenceId(41).property("a", "1").property("ü", "ö").disableReplication().value(new byte[] {7}).send();
                Message<byte[]> m = receive(c);
                expect(m.hasBase64EncodedKey() && Arrays.equals(m.getKeyBytes(), new byte[] {1, 2, 3}), "key " + m.getKey());
                expect(m.hasOrderingKey() && Arrays.equals(m.getOrderingKey(), new byte[] {9}), "ordering key");
                equal(m.getEventTime(), 1700000000123L, "event time");
                equal(m.getSequenceId(), 41L, "sequence id");
                equal(m.getProperties(), Map.of("a", "1", "ü", "ö"), "properties");
                equal(m.getProducerName(), "named", "producer");
                equal(m.getTopicName(), topic, "topic");
                equal(m.getRedeliveryCount(), 0, "redelivery count");
                equal(m.getMessageId().compareTo(id), 0, "message id");
                equal(MessageId.fromByteArray(m.getMessageId().toByteArray()), m.getMessageId(), "id there and back");
                equal(p.getLastSequenceId(), 41L, "last sequence id");
                equal(m.getIndex().orElse(-1L), 0L, "index");
                expect(m.getBrokerPublishTime().isPresent(), "no broker publish time");
            });
        }
        for (CompressionType kind : CompressionType.values()) {
            add("compression " + kind, w -> {
                String topic = w.topic();
                Consumer<String> c = w.consumer(topic).subscribe();
                for (boolean batched : new boolean[] {false, true}) {
                    Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).compressionType(kind).enableBatching(batched).create();
                    String big = "compress me ".repeat(5000);
                    send(p, big, 0, 20);
                    equal(receive(c, 20, true).equals(texts(big, 0, 20)), true, "what was received is what was sent");
                    send(p, "s", 0, 3);
                    equal(receive(c, 3, true), texts("s", 0, 3), "small ones");
                }
            });
        }
        add("batches: by count; key based; listeners of Key_Shared", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            List<MessageId> ids = send(w.batches(topic, 10), "m", 0, 20);
            expect(ids.get(9) instanceof MessageIdAdv last && last.getBatchIndex() == 9, "tenth is " + ids.get(9));
            equal(receive(c, 20, true), texts("m", 0, 20), "received");
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create();
            send(p, "k", 0, 200);
            equal(sorted(receive(c, 200, true)), sorted(texts("k", 0, 200)), "key based");
        });
        for (int chunk : new int[] {-1, 100_000}) {
            add("chunks of " + chunk + " bytes (-1: maxMessageSize)", w -> {
                String topic = w.topic();
                Consumer<byte[]> c = w.client.newConsumer().topic(topic).subscriptionName("s").isAckReceiptEnabled(true).subscribe();
                Producer<byte[]> p = w.client.newProducer().topic(topic).enableBatching(false).enableChunking(true).chunkMaxMessageSize(chunk).create();
                int size = chunk < 0 ? 12 << 20 : 1 << 20;
                MessageId id = p.newMessage().key("k").value(noise(size)).send();
                p.send(new byte[] {1});
                Message<byte[]> m = receive(c);
                expect(Arrays.equals(m.getValue(), noise(size)), "payload is another");
                expect(id.compareTo(m.getMessageId()) == 0, id + " and " + m.getMessageId());
                c.acknowledge(m);
                c.acknowledge(receive(c));
                eventually("no backlog", 10, () -> w.statsHold(topic, "\"msgBacklog\":0"));
                c.seek(m.getMessageId());
                equal(receive(c).getValue().length, 1, "bytes of the message after the one sought");
                Reader<byte[]> r = w.client.newReader().topic(topic).startMessageId(m.getMessageId()).startMessageIdInclusive().create();
                equal(r.readNext(20, TimeUnit.SECONDS).getValue().length, size, "inclusive reader's bytes");
            });
        }
        add("a message above maxMessageSize is an error, the producer lives on", w -> {
            Producer<byte[]> p = w.client.newProducer().topic(w.topic()).enableBatching(false).create();
            refused(() -> p.send(noise((5 << 20) + 1)), PulsarClientException.InvalidMessageException.class);
            p.send(noise((5 << 20) - 2000));
        });
        add("delayed: deliverAfter, deliverAt", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).create();
            long start = System.currentTimeMillis();
            p.newMessage().value("three").deliverAfter(3, TimeUnit.SECONDS).send();
            p.newMessage().value("two").deliverAt(start + 2000).send();
            p.newMessage().value("now").send();
            equal(receive(c, 2, true), List.of("now", "two"), "first two");
            expect(System.currentTimeMillis() >= start + 1900, "two came too early");
            equal(receive(c, 1, true), List.of("three"), "last");
        });
        add("deduplication: repeated sequence ids, a producer made again", w -> {
            String ns = w.namespace();
            w.admin("POST", "namespaces/" + ns + "/deduplication", "true");
            String topic = "persistent://" + ns + "/t";
            Consumer<String> c = w.consumer(topic).subscribe();
            for (int round = 0; round < 2; round++) {
                Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).producerName("d").enableBatching(round == 1).sendTimeout(0, TimeUnit.SECONDS).create();
                equal(p.getLastSequenceId(), round == 0 ? -1L : 9L, "last sequence id, round " + round);
                for (int i = 0; i < 10; i++) {
                    p.newMessage().sequenceId(i).value("m" + i).sendAsync();
                }
                p.flush();
                p.close();
            }
            equal(receive(c, 10, true), texts("m", 0, 10), "received");
            nothing(c, 500);
        });
        add("routing: round robin, single, key, router", w -> {
            String topic = w.topic();
            w.admin("PUT", path(topic) + "/partitions", "4");
            equal(w.client.getPartitionsForTopic(topic).get().size(), 4, "partitions");
            Set<Integer> robin = new HashSet<>(), single = new HashSet<>(), own = new HashSet<>(), key = new HashSet<>();
            Producer<String> a = w.client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create();
            Producer<String> b = w.client.newProducer(Schema.STRING).topic(topic).messageRoutingMode(MessageRoutingMode.SinglePartition).create();
            Producer<String> d = w.client.newProducer(Schema.STRING).topic(topic).messageRoutingMode(MessageRoutingMode.CustomPartition)
                    .messageRouter(new MessageRouter() {
                        @Override
                        public int choosePartition(Message<?> m, TopicMetadata t) {
                            return t.numPartitions() - 1;
                        }
                    }).create();
            Producer<String> e = w.client.newProducer(Schema.STRING).topic(topic).hashingScheme(HashingScheme.Murmur3_32Hash).enableLazyStartPartitionedProducers(true).create();
            for (int i = 0; i < 12; i++) {
                robin.add(((MessageIdAdv) a.send("x")).getPartitionIndex());
                single.add(((MessageIdAdv) b.send("x")).getPartitionIndex());
                own.add(((MessageIdAdv) d.send("x")).getPartitionIndex());
                key.add(((MessageIdAdv) e.newMessage().key("one").value("x").send()).getPartitionIndex());
            }
            equal(robin.size(), 4, "round robin");
            equal(single.size(), 1, "single");
            equal(own, Set.of(3), "router");
            equal(key.size(), 1, "key");
        });
        add("access modes: Exclusive, WaitForExclusive, ExclusiveWithFencing", w -> {
            String topic = w.topic();
            ProducerBuilder<String> b = w.client.newProducer(Schema.STRING).topic(topic).enableBatching(false);
            Producer<String> first = b.clone().accessMode(ProducerAccessMode.Exclusive).create();
            refused(() -> b.clone().accessMode(ProducerAccessMode.Exclusive).create(), PulsarClientException.ProducerFencedException.class);
            refused(() -> b.clone().create(), PulsarClientException.ProducerBusyException.class);
            CompletableFuture<Producer<String>> waiting = b.clone().accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
            Thread.sleep(700);
            expect(!waiting.isDone(), "WaitForExclusive does not wait");
            first.close();
            Producer<String> second = waiting.get(10, TimeUnit.SECONDS);
            second.send("a");
            Producer<String> third = b.clone().accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
            refused(() -> second.send("b"), PulsarClientException.ProducerFencedException.class, PulsarClientException.AlreadyClosedException.class);
            third.send("c");
        });
        add("a name taken, a topic terminated, a namespace missing: the client's exceptions", w -> {
            String topic = w.topic();
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).producerName("n").create();
            refused(() -> w.client.newProducer(Schema.STRING).topic(topic).producerName("n").create(), PulsarClientException.ProducerBusyException.class);
            Consumer<String> c = w.consumer(topic).subscribe();
            p.send("last");
            w.admin("POST", path(topic) + "/terminate", null);
            refused(() -> p.send("after"), PulsarClientException.TopicTerminatedException.class);
            refused(() -> w.producer(topic), PulsarClientException.TopicTerminatedException.class);
            equal(receive(c, 1, true), List.of("last"), "received");
            eventually("the end of the topic is told", 5, c::hasReachedEndOfTopic);
            refused(() -> w.producer("persistent://public/nowhere/t"), PulsarClientException.class);
            String ns = w.namespace();
            w.admin("POST", "namespaces/" + ns + "/autoTopicCreation", "{\"allowAutoTopicCreation\":false}");
            refused(() -> w.producer("persistent://" + ns + "/t"), PulsarClientException.TopicDoesNotExistException.class, PulsarClientException.NotFoundException.class);
            refused(() -> w.consumer("persistent://" + ns + "/t").subscribe(), PulsarClientException.TopicDoesNotExistException.class, PulsarClientException.NotFoundException.class);
        });
        add("deletion of a topic in use", w -> {
            String topic = w.topic();
            Consumer<String> c = w.consumer(topic).subscribe();
            Producer<String> p = w.producer(topic);
            send(p, "a", 0, 1);
            equal(w.rest("DELETE", path(topic), null).statusCode(), 412, "status");
            w.admin("DELETE", path(topic) + "?force=true", null);
            p.send("again");
            eventually("the subscription is back", 20, () -> w.statsHold(topic, "\"s\":{"));
            p.send("end");
            eventually("the last message comes", 20, () -> {
                try {
                    return "end".equals(receive(c).getValue());
                } catch (Exception e) {
                    return false;
                }
            });
        });
        add("interceptors, properties in the stats", w -> {
            String topic = w.topic();
            List<String> calls = new ArrayList<>();
            Consumer<String> c = w.consumer(topic).property("ck", "cv").intercept(new ConsumerInterceptor<String>() {
                @Override public void close() {}
                @Override public Message<String> beforeConsume(Consumer<String> x, Message<String> m) { calls.add("consume"); return m; }
                @Override public void onAcknowledge(Consumer<String> x, MessageId i, Throwable e) { calls.add("ack"); }
                @Override public void onAcknowledgeCumulative(Consumer<String> x, MessageId i, Throwable e) { calls.add("cumulative"); }
                @Override public void onNegativeAcksSend(Consumer<String> x, Set<MessageId> i) { calls.add("nack"); }
                @Override public void onAckTimeoutSend(Consumer<String> x, Set<MessageId> i) { calls.add("timeout"); }
            }).subscribe();
            Producer<String> p = w.client.newProducer(Schema.STRING).topic(topic).property("pk", "pv").create();
            p.send("x");
            c.acknowledgeCumulative(receive(c));
            equal(calls, List.of("consume", "cumulative"), "calls");
            expect(w.statsHold(topic, "\"pk\":\"pv\"") && w.statsHold(topic, "\"ck\":\"cv\""), "properties in the stats");
        });
        add("limits of the client: queue, memory, send timeout off", w -> {
            Producer<byte[]> p = w.client.newProducer().topic(w.topic()).maxPendingMessages(5).blockIfQueueFull(false)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                sent.add(p.sendAsync(new byte[10]));
            }
            expect(sent.stream().anyMatch(CompletableFuture::isCompletedExceptionally), "no send was refused");
            PulsarClient small = w.other(World.builder().serviceUrl(w.url).memoryLimit(100, SizeUnit.KILO_BYTES).build());
            Producer<byte[]> q = small.newProducer().topic(w.topic()).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
            List<CompletableFuture<MessageId>> more = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                more.add(q.sendAsync(noise(10_000)));
            }
            expect(more.stream().anyMatch(CompletableFuture::isCompletedExceptionally), "no send was refused for memory");
            q.flush();
            q.send(new byte[1]);
        });
        add("service URLs: http, several connections, keep-alive, a dead host first", w -> {
            String topic = w.topic();
            for (ClientBuilder b : List.of(World.builder().serviceUrl(w.web), World.builder().serviceUrl(w.url).connectionsPerBroker(4),
                    World.builder().serviceUrl(w.url).keepAliveInterval(1, TimeUnit.SECONDS).description("d"),
                    World.builder().serviceUrl(w.url.replace("://", "://127.0.0.1:1,")))) {
                PulsarClient client = w.other(b.build());
                Consumer<String> c = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
                Producer<String> p = client.newProducer(Schema.STRING).topic(topic).create();
                send(p, "m", 0, 10);
                equal(receive(c, 10, true), texts("m", 0, 10), "received");
                Thread.sleep(1500);
                send(p, "n", 0, 10);
                equal(receive(c, 10, true), texts("n", 0, 10), "received");
                client.close();
            }
        });
        add("schemas: plain values", w -> {
            equal(trip(w, Schema.INT8, (byte) -7).getValue(), (byte) -7, "int8");
            equal(trip(w, Schema.INT16, (short) -700).getValue(), (short) -700, "int16");
            equal(trip(w, Schema.INT32, 1 << 30).getValue(), 1 << 30, "int32");
            equal(trip(w, Schema.INT64, 1L << 60).getValue(), 1L << 60, "int64");
            equal(trip(w, Schema.FLOAT, 1.5f).getValue(), 1.5f, "float");
            equal(trip(w, Schema.DOUBLE, 2.25).getValue(), 2.25, "double");
            equal(trip(w, Schema.BOOL, true).getValue(), true, "bool");
            equal(trip(w, Schema.STRING, "täxt").getValue(), "täxt", "string");
            java.time.Instant now = java.time.Instant.ofEpochMilli(1700000000123L);
            equal(trip(w, Schema.INSTANT, now).getValue(), now, "instant");
            equal(trip(w, Schema.LOCAL_DATE, java.time.LocalDate.of(2024, 2, 29)).getValue(), java.time.LocalDate.of(2024, 2, 29), "date");
            equal(new String(trip(w, Schema.BYTES, "b".getBytes(StandardCharsets.UTF_8)).getValue(), StandardCharsets.UTF_8), "b", "bytes");
        });
        add("schemas: JSON, Avro, AUTO_CONSUME, AUTO_PRODUCE_BYTES", w -> {
            for (Schema<Person> schema : List.of(Schema.JSON(Person.class), Schema.AVRO(Person.class))) {
                String topic = w.topic();
                Producer<Person> p = w.client.newProducer(schema).topic(topic).create();
                Consumer<Person> c = w.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
                Consumer<GenericRecord> auto = w.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("auto").subscribe();
                p.send(person("Ann", 41));
                equal(receive(c).getValue().age, 41, "age");
                Message<GenericRecord> m = receive(auto);
                equal(m.getValue().getField("name"), "Ann", "field of AUTO_CONSUME");
                equal(m.getSchemaVersion().length, 8, "bytes of the version");
                Producer<byte[]> raw = w.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create();
                raw.send(schema.encode(person("Bob", 7)));
                equal(receive(c).getValue().name, "Bob", "name of AUTO_PRODUCE");
                refused(() -> raw.send(new byte[] {1}), Exception.class);
            }
        });
        add("schemas: KeyValue inline and separated, read by AUTO_CONSUME too", w -> {
            for (KeyValueEncodingType kind : KeyValueEncodingType.values()) {
                Schema<KeyValue<String, Person>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Person.class), kind);
                String topic = w.topic();
                Consumer<GenericRecord> auto = w.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("auto").subscribe();
                Consumer<KeyValue<String, Person>> c = w.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
                w.client.newProducer(schema).topic(topic).create().send(new KeyValue<>("key", person("Ann", 3)));
                KeyValue<String, Person> got = receive(c).getValue();
                equal(got.getKey() + got.getValue().age, "key3", "key and value");
                Object generic = receive(auto).getValue().getNativeObject();
                expect(generic instanceof KeyValue<?, ?> kv && kv.getKey().equals("key"), "AUTO_CONSUME gives " + generic);
            }
        });
        add("schemas: versions grow, older readers follow, what does not fit is refused", w -> {
            String topic = w.topic();
            Consumer<Person> c = w.client.newConsumer(Schema.AVRO(Person.class)).topic(topic).subscriptionName("s").subscribe();
            w.client.newProducer(Schema.AVRO(Person.class)).topic(topic).create().send(person("Ann", 1));
            Citizen bob = new Citizen();
            bob.name = "Bob";
            bob.age = 2;
            bob.town = "Ulm";
            w.client.newProducer(Schema.AVRO(Citizen.class)).topic(topic).create().send(bob);
            equal(receive(c).getValue().name, "Ann", "first");
            equal(receive(c).getValue().age, 2, "second");
            refused(() -> w.client.newProducer(Schema.INT32).topic(topic).create(), PulsarClientException.IncompatibleSchemaException.class);
            refused(() -> w.client.newConsumer(Schema.INT32).topic(topic).subscriptionName("x").subscribe(), PulsarClientException.IncompatibleSchemaException.class);
            Producer<byte[]> bytes = w.client.newProducer().topic(topic).create();
            bytes.newMessage(Schema.AVRO(Citizen.class)).value(bob).send();
            equal(receive(c).getValue().name, "Bob", "with a schema of its own");
        });
    }
}
