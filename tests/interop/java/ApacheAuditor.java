import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.replication.AuditorElector;

/**
 * Apache's auditor, a candidate in a cluster, without a replication worker: {@code URI NAME}; ends with its input.
 *
 * <p>A line in, a line out: {@code auditor} (who is elected), {@code lock ID}, {@code owner ID}, {@code unlock ID} (as
 * Apache's workers do).
 */
public final class ApacheAuditor {
    private ApacheAuditor() {}

    public static void main(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(arguments[0]);
        conf.setZkTimeout(4000);
        ClientConfiguration clientConf = new ClientConfiguration(conf);
        BookKeeper client = new BookKeeper(clientConf);
        BookKeeperAdmin admin = new BookKeeperAdmin(client, clientConf);
        LedgerUnderreplicationManager marks =
                client.getLedgerManagerFactory().newLedgerUnderreplicationManager();
        AuditorElector elector = new AuditorElector(arguments[1], conf, client, false);
        elector.start();
        System.out.println("> ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println("> " + run(admin, marks, words));
        }
        System.exit(0);
    }

    private static String run(BookKeeperAdmin admin, LedgerUnderreplicationManager marks, String[] words)
            throws Exception {
        switch (words[0]) {
            case "auditor":
                return String.valueOf(admin.getCurrentAuditor());
            case "owner":
                return String.valueOf(marks.getReplicationWorkerIdRereplicatingLedger(Long.parseLong(words[1])));
            case "lock":
                marks.acquireUnderreplicatedLedger(Long.parseLong(words[1]));
                return "OK";
            case "unlock":
                marks.releaseUnderreplicatedLedger(Long.parseLong(words[1]));
                return "OK";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
