import com.fasterxml.jackson.databind.ObjectWriter;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.events.PulsarEvent;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Events of topic policies, as the classes of Apache Pulsar's broker read and write them.
 *
 * <p>With two arguments (service URL, topic of events): prints every event as a line of JSON: key, and all that the class
 * holds. With four (the same of a second cluster): publishes them there, too, as Pulsar's broker publishes them.
 */
public final class PolicyEvents {
    private static final Schema<PulsarEvent> SCHEMA =
            Schema.AVRO(SchemaDefinition.<PulsarEvent>builder().withPojo(PulsarEvent.class).build());

    private PolicyEvents() {}

    public static void main(String[] arguments) throws Exception {
        boolean isCopied = arguments.length == 4;
        try (PulsarClient from = PulsarClient.builder().serviceUrl(arguments[0]).build();
                PulsarClient to = isCopied ? PulsarClient.builder().serviceUrl(arguments[2]).build() : null;
                Reader<PulsarEvent> reader = from.newReader(SCHEMA)
                        .topic(arguments[1]).startMessageId(MessageId.earliest).create();
                Producer<PulsarEvent> producer = isCopied
                        ? to.newProducer(SCHEMA).topic(arguments[3]).enableBatching(false).create()
                        : null) {
            ObjectWriter writer = ObjectMapperFactory.getMapper().writer();
            while (reader.hasMessageAvailable()) {
                Message<PulsarEvent> message = reader.readNext(10, TimeUnit.SECONDS);
                PulsarEvent event = message.size() == 0 ? null : message.getValue();
                String key = writer.writeValueAsString(message.getKey());
                System.out.println("{\"key\":" + key + ",\"event\":" + writer.writeValueAsString(event) + "}");
                if (isCopied) {
                    producer.newMessage().key(message.getKey()).value(event).send();
                }
            }
        }
        System.out.flush();
        System.exit(0);
    }
}
