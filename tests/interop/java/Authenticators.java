import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Base64;
import java.util.Properties;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.authentication.AuthenticationDataCommand;
import org.apache.pulsar.broker.authentication.AuthenticationDataSource;
import org.apache.pulsar.broker.authentication.AuthenticationProvider;
import org.apache.pulsar.broker.authentication.AuthenticationProviderBasic;
import org.apache.pulsar.broker.authentication.AuthenticationProviderTls;
import org.apache.pulsar.broker.authentication.AuthenticationProviderToken;

/** What Apache's providers make of credentials: a file of cases in, one line each out: "+role", or "-" for a refusal. */
public class Authenticators {
    record Shown(Certificate certificate) implements AuthenticationDataSource {
        @Override
        public boolean hasDataFromTls() {
            return true;
        }

        @Override
        public Certificate[] getTlsCertificates() {
            return new Certificate[] {certificate};
        }
    }

    static String role(JsonNode one) throws Exception {
        ServiceConfiguration configuration = new ServiceConfiguration();
        Properties properties = new Properties();
        one.get("settings").fields().forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        configuration.setProperties(properties);
        String data = one.get("data").asText();
        String kind = one.get("provider").asText();
        try (AuthenticationProvider provider = kind.equals("token") ? new AuthenticationProviderToken()
                : kind.equals("basic") ? new AuthenticationProviderBasic() : new AuthenticationProviderTls()) {
            provider.initialize(AuthenticationProvider.Context.builder().config(configuration).build());
            if (!kind.equals("tls")) {
                return provider.authenticate(new AuthenticationDataCommand(data));
            }
            Certificate shown = CertificateFactory.getInstance("X.509")
                    .generateCertificate(new ByteArrayInputStream(Base64.getDecoder().decode(data)));
            return provider.authenticate(new Shown(shown));
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("file.encoding", "UTF-8");
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (JsonNode one : new ObjectMapper().readTree(new File(arguments[0]))) {
            String said;
            try {
                String role = role(one);
                said = role == null ? "-" : "+" + role;
            } catch (Exception refused) {
                said = "-";
            }
            out.println(said);
        }
        System.exit(0);
    }
}
