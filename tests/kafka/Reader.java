import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints all records of a topic as lines: partition, key, headers, and the value in base64, with tabs between. */
public class Reader {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(arguments[1])
                .forEach(one -> partitions.add(new TopicPartition(one.topic(), one.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    List<String> headers = new ArrayList<>();
                    record.headers().forEach(header -> headers.add(
                        header.key() + "=" + new String(header.value(), StandardCharsets.UTF_8)));
                    System.out.println(record.partition()
                        + "\t" + new String(record.key(), StandardCharsets.UTF_8)
                        + "\t" + String.join(" ", headers)
                        + "\t" + Base64.getEncoder().encodeToString(record.value()));
                }
            }
        }
    }
}
