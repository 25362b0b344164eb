// reconnect URL LOG with Qpid JMS and its failover. See ../README.md.

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

public class ReconnectClient {
    public static void main(String[] arguments) throws Exception {
        Connection connection = new JmsConnectionFactory(
                "failover:(" + arguments[1] + ")?failover.reconnectDelay=100&failover.maxReconnectDelay=500").createConnection();
        Session receiving = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        Destination log = receiving.createTopic(arguments[2]);
        receiving.createConsumer(log).setMessageListener(message -> {
            try {
                System.out.println("got " + ((TextMessage) message).getText());
            } catch (JMSException error) {
                System.out.println("failed " + error);
            }
        });
        Session sending = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = sending.createProducer(log);
        connection.start();
        AtomicInteger sent = new AtomicInteger();
        Thread answering = new Thread(() -> {
            Scanner lines = new Scanner(System.in);
            while (lines.hasNextLine()) {
                lines.nextLine();
                System.out.println("next " + sent.get());
            }
            Runtime.getRuntime().halt(0);
        });
        answering.setDaemon(true);
        answering.start();
        while (true) {
            try {
                producer.send(sending.createTextMessage(String.valueOf(sent.getAndIncrement())));
            } catch (JMSException error) {
                System.out.println("failed " + error);
            }
            Thread.sleep(50);
        }
    }
}
