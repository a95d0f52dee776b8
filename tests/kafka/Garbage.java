import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records that a collector must not count: all snapshots of a topic four more times, each once with a flipped
 * bit from the agent 'noise', and records without headers.
 */
public class Garbage {
    static final byte[] NOISE = "noise".getBytes(StandardCharsets.UTF_8);

    static String text(Header header) {
        return header == null ? "" : new String(header.value(), StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic)
                .forEach(one -> partitions.add(new TopicPartition(one.topic(), one.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
        }
        int copied = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (var record : records) {
                boolean isNoise = text(record.headers().lastHeader("agent")).equals("noise");
                if (isNoise || !text(record.headers().lastHeader("type")).equals("snapshot")) {
                    continue;
                }
                for (int copy = 0; copy < 4; copy++) {
                    var headers = new RecordHeaders(record.headers());
                    producer.send(new ProducerRecord<>(topic, null, record.key(), record.value(), headers));
                }
                byte[] bytes = record.value().clone();
                bytes[bytes.length / 2] ^= 1;
                var headers = new RecordHeaders(record.headers());
                headers.remove("agent").add("agent", NOISE);
                producer.send(new ProducerRecord<>(topic, null, record.key(), bytes, headers));
                copied++;
            }
            producer.send(new ProducerRecord<>(topic, NOISE, "no snapshot".getBytes(StandardCharsets.UTF_8)));
            producer.send(new ProducerRecord<>(topic, null, new byte[0]));
        }
        System.out.println(copied + " snapshots sent four times more, and once with a wrong bit");
    }
}
