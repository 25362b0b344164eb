// send | receive | info with protonj2, the client of Apache Qpid for Java. See ../README.md.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.types.DescribedType;
import org.apache.qpid.protonj2.types.Symbol;

public class InteropClient {
    private static final int WINDOW = 500;

    public static void main(String[] arguments) throws Exception {
        URI url = new URI(arguments[1]);
        try (Client client = Client.create(); Connection connection = client.connect(url.getHost(), url.getPort())) {
            switch (arguments[0]) {
                case "send" -> send(connection, arguments[2]);
                case "receive" -> receive(connection, arguments[2], arguments[3], Integer.parseInt(arguments[4]));
                case "info" -> info(connection, arguments[2]);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    private static void send(Connection connection, String log) throws Exception {
        Sender sender = connection.openSender(log);
        ArrayDeque<Tracker> pending = new ArrayDeque<>();
        int accepted = 0;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Message<byte[]> event = Message.create(line.getBytes(StandardCharsets.UTF_8));
            event.annotation("event-streams-group-key", line.substring(0, 10));
            pending.add(sender.send(event));
            if (pending.size() > WINDOW) {
                accepted += accepted(pending.remove());
            }
        }
        while (!pending.isEmpty()) {
            accepted += accepted(pending.remove());
        }
        System.out.println(accepted);
    }

    private static int accepted(Tracker tracker) throws Exception {
        return tracker.awaitSettlement(10, TimeUnit.SECONDS).remoteState().getType() == DeliveryState.Type.ACCEPTED ? 1 : 0;
    }

    /** The filter that starts a receiver after an offset or a time. */
    private record Begin(Map<Symbol, Object> condition) implements DescribedType {
        static Begin at(String where) {
            String[] parts = where.split(":", 2);
            return switch (parts[0]) {
                case "time" -> new Begin(Map.of(Symbol.valueOf("event-streams-timestamp"), new Date(Long.parseLong(parts[1]))));
                case "offset" -> new Begin(Map.of(Symbol.valueOf("event-streams-offset"), Symbol.valueOf(parts[1])));
                default -> new Begin(Map.of(Symbol.valueOf("event-streams-offset"), Symbol.valueOf("@earliest")));
            };
        }

        @Override
        public Object getDescriptor() {
            return Symbol.valueOf("amqp:event-streams-delivery-annotations-filter");
        }

        @Override
        public Object getDescribed() {
            return condition;
        }
    }

    private static void receive(Connection connection, String log, String where, int count) throws Exception {
        ReceiverOptions options = new ReceiverOptions().creditWindow(WINDOW);
        options.sourceOptions().filters(new HashMap<>(Map.of("start", Begin.at(where))));
        Receiver receiver = connection.openReceiver(log, options);
        StringBuilder out = new StringBuilder();
        for (int left = count; left > 0; left--) {
            Delivery delivery = receiver.receive(10, TimeUnit.SECONDS);
            Map<String, Object> about = delivery.annotations();
            byte[] body = delivery.<byte[]>message().body();
            Object moment = about.get("event-streams-timestamp");
            out.append(about.get("event-streams-source-partition")).append('\t').append(about.get("event-streams-offset")).append('\t')
                .append(moment instanceof Date date ? date.getTime() : moment).append('\t')
                .append(new String(body, StandardCharsets.UTF_8)).append('\n');
        }
        System.out.print(out);
    }

    private static void info(Connection connection, String log) throws Exception {
        Receiver receiver = connection.openReceiver(log + "/$info", new ReceiverOptions().creditWindow(0));
        receiver.addCredit(1);
        Map<?, ?> answer = receiver.receive(10, TimeUnit.SECONDS).<Map<?, ?>>message().body();
        for (Object one : (List<?>) answer.get("partitions")) {
            Map<?, ?> partition = (Map<?, ?>) one;
            System.out.println(partition.get("partition") + "\t" + partition.get("earliest-offset") + "\t" + partition.get("latest-offset"));
        }
    }
}
