import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.File;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.BookieResources;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.bookie.UncleanShutdownDetection;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.meta.NullMetadataBookieDriver;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.DiskChecker;

/** Apache's bookie by itself, without a metadata store, in {@code DIRECTORY}: prints its port, ends with its input. */
public final class ApacheBookie {
    private ApacheBookie() {}

    public static void main(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setBookiePort(0);
        conf.setAllowLoopback(true);
        conf.setListeningInterface("lo");
        conf.setJournalDirName(arguments[0] + "/journal");
        conf.setLedgerDirNames(new String[] {arguments[0] + "/ledgers"});
        conf.setLedgerStorageClass(InterleavedLedgerStorage.class.getName());
        BookieImpl.checkDirectoryStructure(BookieImpl.getCurrentDirectory(new File(arguments[0] + "/journal")));
        BookieImpl.checkDirectoryStructure(BookieImpl.getCurrentDirectory(new File(arguments[0] + "/ledgers")));
        DiskChecker checker = BookieResources.createDiskChecker(conf);
        LedgerDirsManager directories =
                BookieResources.createLedgerDirsManager(conf, checker, NullStatsLogger.INSTANCE);
        NullMetadataBookieDriver metadata = new NullMetadataBookieDriver();
        LedgerStorage storage = BookieResources.createLedgerStorage(
                conf, metadata.getLedgerManagerFactory().newLedgerManager(), directories, directories,
                NullStatsLogger.INSTANCE, UnpooledByteBufAllocator.DEFAULT);
        Bookie bookie = new BookieImpl(conf, metadata.createRegistrationManager(), storage, checker, directories,
                directories, NullStatsLogger.INSTANCE, UnpooledByteBufAllocator.DEFAULT, BookieServiceInfo.NO_INFO);
        BookieServer server = BookieServer.newBookieServer(conf, bookie, NullStatsLogger.INSTANCE,
                UnpooledByteBufAllocator.DEFAULT, new UncleanShutdownDetection() {
                    @Override
                    public void registerStartUp() {}

                    @Override
                    public void registerCleanShutdown() {}

                    @Override
                    public boolean lastShutdownWasUnclean() {
                        return false;
                    }
                });
        server.start();
        System.out.println("> " + conf.getBookiePort());
        while (System.in.read() >= 0) {
            continue;
        }
        server.shutdown();
        System.exit(0);
    }
}
