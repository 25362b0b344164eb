// login URL with protonj2. See ../README.md.

import java.io.ByteArrayInputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.exceptions.ClientException;

public class LoginClient {
    private static final Map<String, String> GIVEN = System.getenv();
    private static final char[] NONE = new char[0];

    public static void main(String[] arguments) throws Exception {
        URI url = new URI(arguments[1]);
        ConnectionOptions options = new ConnectionOptions().reconnectEnabled(false);
        options.user(GIVEN.get("LOGIN_USER"));
        String token = GIVEN.getOrDefault("LOGIN_TOKEN", "");
        options.password(token.isEmpty() ? GIVEN.get("LOGIN_PASSWORD") : token);
        options.saslOptions().addAllowedMechanism(GIVEN.get("LOGIN_MECHANISM"));
        if (url.getScheme().equals("amqps")) {
            options.sslOptions().sslEnabled(true).verifyHost(false).sslContextOverride(context());
        }
        try (Client client = Client.create(); Connection connection = client.connect(url.getHost(), url.getPort(), options)) {
            connection.openFuture().get(20, TimeUnit.SECONDS);
            System.out.println("in");
        } catch (ClientException | java.util.concurrent.ExecutionException error) {
            System.out.println("refused: " + error.getMessage());
        }
        System.exit(0);
    }

    private static SSLContext context() throws Exception {
        KeyStore trusted = KeyStore.getInstance("PKCS12"), own = KeyStore.getInstance("PKCS12");
        trusted.load(null, NONE);
        own.load(null, NONE);
        trusted.setCertificateEntry("authority", certificate(GIVEN.get("LOGIN_CA")));
        if (!GIVEN.getOrDefault("LOGIN_CERT", "").isEmpty()) {
            String key = Files.readString(Path.of(GIVEN.get("LOGIN_KEY"))).replaceAll("-----[^-]*-----|\\s", "");
            PrivateKey secret = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(key)));
            own.setKeyEntry("own", secret, NONE, new Certificate[] {certificate(GIVEN.get("LOGIN_CERT"))});
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, NONE);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Certificate certificate(String path) throws Exception {
        return CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(Files.readAllBytes(Path.of(path))));
    }
}
