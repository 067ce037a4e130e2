import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * Some of Apache's bookies in a cluster, which the first of all makes: {@code URI DIRECTORY FIRST STOP SESSION_MS}; ends
 * with its input. The system property {@code settings} may name a file of further settings.
 */
public final class ApacheCluster {
    private ApacheCluster() {}

    public static void main(String[] arguments) throws Exception {
        List<EmbeddedServer> servers = new ArrayList<>();
        for (int i = Integer.parseInt(arguments[2]); i < Integer.parseInt(arguments[3]); i++) {
            String directory = arguments[1] + "/apache-" + i;
            ServerConfiguration conf = new ServerConfiguration();
            if (System.getProperty("settings") != null) {
                conf.loadConf(Path.of(System.getProperty("settings")).toUri().toURL());
            }
            conf.setMetadataServiceUri(arguments[0]);
            conf.setZkTimeout(Integer.parseInt(arguments[4]));
            conf.setBookiePort(0);
            conf.setBookieId("apache-" + i);
            conf.setAllowLoopback(true);
            conf.setListeningInterface("lo");
            conf.setAdvertisedAddress("127.0.0.1");
            conf.setJournalDirName(directory + "/journal");
            conf.setLedgerDirNames(new String[] {directory + "/ledgers"});
            conf.setLedgerStorageClass(InterleavedLedgerStorage.class.getName());
            conf.setDiskUsageThreshold(0.999f);
            conf.setDiskUsageWarnThreshold(0.999f);
            new File(directory).mkdirs();
            if (i == 0) {
                BookKeeperAdmin.initNewCluster(conf);
            }
            EmbeddedServer server = EmbeddedServer.builder(new BookieConfiguration(conf)).build();
            server.getLifecycleComponentStack().start();
            servers.add(server);
        }
        System.out.println("> ready");
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }
}
