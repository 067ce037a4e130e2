package peers;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.transaction.Transaction;

/** What checks of transactions say often. */
final class Txn {
    private Txn() {}

    static Transaction begin(World w) throws Exception {
        return begin(w, 120);
    }

    static Transaction begin(World w, long timeoutS) throws Exception {
        return w.client.newTransaction().withTransactionTimeout(timeoutS, TimeUnit.SECONDS).build().get(30, TimeUnit.SECONDS);
    }

    static void end(Transaction txn, boolean commit) throws Exception {
        (commit ? txn.commit() : txn.abort()).get(30, TimeUnit.SECONDS);
        World.equal(txn.getState(), commit ? Transaction.State.COMMITTED : Transaction.State.ABORTED, "state");
    }

    static List<MessageId> send(Transaction txn, Producer<String> producer, String prefix, int from, int to) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = from; i < to; i++) {
            sent.add(producer.newMessage(txn).key("k" + i % 20).value(prefix + i).sendAsync());
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> one : sent) {
            ids.add(one.get(30, TimeUnit.SECONDS));
        }
        return ids;
    }

    static void ack(Transaction txn, Consumer<?> consumer, MessageId id) throws Exception {
        consumer.acknowledgeAsync(id, txn).get(30, TimeUnit.SECONDS);
    }

    static <T> void ack(Transaction txn, Consumer<T> consumer, Collection<Message<T>> messages) throws Exception {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (Message<T> message : messages) {
            all.add(consumer.acknowledgeAsync(message.getMessageId(), txn));
        }
        for (CompletableFuture<Void> one : all) {
            one.get(30, TimeUnit.SECONDS);
        }
    }

    static List<Message<String>> take(Consumer<String> consumer, int count) throws Exception {
        List<Message<String>> got = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            got.add(World.receive(consumer));
        }
        return got;
    }

    static List<String> values(Collection<Message<String>> messages) {
        return messages.stream().map(Message::getValue).toList();
    }
}
